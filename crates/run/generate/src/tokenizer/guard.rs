//! Runs code of the crate `tokenizers` so that its panics become errors.
//!
//! The crate has dozens of `unwrap`s that a file can trigger, for example with a vocabulary with holes. Such a panic is the
//! fault of the file, and must not end a server.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Error, Result};

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if this thread runs code whose panics become errors. A program's panic hook can be silent then.
pub fn is_catching_panics() -> bool {
    GUARDED.get()
}

/// Runs `work` and returns its result, or an error if it fails or panics.
pub(super) fn catch_panics<T>(file: &str, work: impl FnOnce() -> tokenizers::Result<T>) -> Result<T> {
    let before = GUARDED.replace(true);
    // `work` borrows only a tokenizer, whose only mutable state is a cache that it can rebuild.
    let result = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(before);
    let reason = match result {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => error.to_string(),
        Err(panic) => panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default(),
    };
    Err(Error::Tokenizer { file: file.to_owned(), reason: first_line(&reason) })
}

/// Converts a failure while reading a file into an error about the file.
pub(super) fn as_file_error(name: &str, error: Error) -> Error {
    match error {
        Error::Tokenizer { reason, .. } => Error::Invalid { file: name.to_owned(), reason },
        other => other,
    }
}

/// Returns the first line of an error text, truncated, because the text may repeat the whole file.
fn first_line(reason: &str) -> String {
    const MAX: usize = 200;
    let line = reason.lines().next().unwrap_or_default();
    match line.char_indices().nth(MAX) {
        Some((end, _)) => format!("{} …", line.get(..end).unwrap_or_default()),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error() {
        let error = catch_panics::<()>("t.json", || {
            assert!(is_catching_panics());
            panic!("no token {}", 7)
        });
        assert!(!is_catching_panics());
        let expected = Error::Tokenizer { file: "t.json".to_owned(), reason: "no token 7".to_owned() };
        assert_eq!(error, Err(expected));
        let long = catch_panics::<()>("t", || Err("ä".repeat(300).into()));
        assert_eq!(long.expect_err("it failed").to_string().chars().filter(|c| *c == 'ä').count(), 200);
    }
}
