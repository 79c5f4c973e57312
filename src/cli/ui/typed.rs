//! What was typed: the subcommand, for commands in advice, and mistakes in it.

use std::cell::RefCell;

pub(crate) const PROGRAM: &str = "torch2carton";

/// A mistake in what was typed: exit status 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

thread_local! {
    /// The program and the subcommand as they were typed.
    static TYPED: RefCell<String> = RefCell::new(PROGRAM.to_owned());
}

/// The program and the subcommand as they were typed, for commands in advice.
pub(crate) fn typed() -> String {
    TYPED.with_borrow(Clone::clone)
}

/// Remembers which subcommand was typed; `None` for the default one.
pub(crate) fn remember(subcommand: Option<&str>) {
    let text = subcommand.map_or_else(|| PROGRAM.to_owned(), |name| format!("{PROGRAM} {name}"));
    TYPED.set(text);
}
