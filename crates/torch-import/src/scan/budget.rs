//! Bounds the work of scanning one file and the length of its report, for any content of the file.
//!
//! A pickle of a megabyte can name a hundred thousand globals, call each of them a hundred thousand times, and nest
//! other pickles. The work and the report stay in proportion to the file, and omitted entries are counted.

use pickle_vm::Limits;

/// Work per byte of a file, plus a constant. Records may share bytes, and joblib's files are read twice.
const TIMES: u64 = 8;
const WORK: u64 = 16 << 20;
/// Instructions per byte of the file, plus a constant: for one pickle, and for all pickles of the file together. A
/// kilobyte can be decompressed to a million instructions, each of which creates an object.
const OPCODES_TIMES: u64 = 2;
const OPCODES: u64 = 8 << 20;
const ALL_OPCODES_TIMES: u64 = 8;
const ALL_OPCODES: u64 = 16 << 20;
/// Maximum number of bytes of calls, irregularities and reasons in one report.
const TEXT: usize = 1 << 20;
/// Maximum length in bytes of one such text, and of one name.
const TEXT_EACH: usize = 1000;
const NAME: usize = 200;

/// The unused part of a file's scan budget.
#[derive(Debug)]
pub(super) struct Budget {
    /// Units of work left: bytes to read, names to compare, parts of calls to visit.
    work: u64,
    /// Bytes of report text left.
    text: usize,
    /// Instruction limit for one pickle.
    opcodes: u64,
    /// Instructions left for all pickles.
    all_opcodes: u64,
}

impl Budget {
    /// Creates the budget for a file of `len` bytes.
    pub(super) fn new(len: u64) -> Self {
        Self {
            work: len.saturating_mul(TIMES).saturating_add(WORK),
            text: TEXT,
            opcodes: len.saturating_mul(OPCODES_TIMES).saturating_add(OPCODES),
            all_opcodes: len.saturating_mul(ALL_OPCODES_TIMES).saturating_add(ALL_OPCODES),
        }
    }

    /// Moves the budget out and leaves an empty one.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self { work: 0, text: 0, opcodes: 0, all_opcodes: 0 })
    }

    /// Adds the work for `len` decompressed bytes.
    pub(super) fn add(&mut self, len: u64) {
        self.work = self.work.saturating_add(len.saturating_mul(TIMES));
    }

    /// Returns the machine limits for the next pickle.
    pub(super) fn limits(&self) -> Limits {
        let limits = Limits::default();
        Limits { opcodes: limits.opcodes.min(self.opcodes).min(self.all_opcodes), ..limits }
    }

    /// Deducts the instructions that were executed.
    pub(super) fn executed(&mut self, opcodes: u64) {
        self.all_opcodes = self.all_opcodes.saturating_sub(opcodes);
    }

    /// Deducts `work`; returns false if less was left.
    pub(super) fn spend(&mut self, work: u64) -> bool {
        let left = self.work.checked_sub(work);
        self.work = left.unwrap_or(0);
        left.is_some()
    }

    /// Truncates a text for the report; `None` if the report is full.
    pub(super) fn text(&mut self, text: impl FnOnce() -> String) -> Option<String> {
        if self.text == 0 {
            return None;
        }
        let text = cut(text(), TEXT_EACH);
        self.text = self.text.saturating_sub(text.len());
        Some(text)
    }
}

/// Truncates a name for the report.
pub(super) fn shortened(name: String) -> String {
    cut(name, NAME)
}

fn cut(mut text: String, most: usize) -> String {
    let len = text.len();
    if len > most {
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        return format!("{text}… ({len} bytes)");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_and_text_end() {
        let mut budget = Budget::new(1);
        assert!(budget.spend(WORK) && budget.spend(TIMES) && !budget.spend(1));
        let mut kept = 0;
        while let Some(text) = budget.text(|| "é".repeat(5000)) {
            assert_eq!(text, format!("{}… (10000 bytes)", "é".repeat(500)));
            kept += text.len();
        }
        assert!((TEXT..TEXT + 2000).contains(&kept));
        assert_eq!(shortened("short".to_owned()), "short");
        assert_eq!(shortened("a".repeat(NAME)), "a".repeat(NAME));
        budget.add(2);
        assert!(budget.spend(2 * TIMES) && !budget.spend(1), "what was decompressed may be read");
    }

    #[test]
    fn the_instructions_depend_on_the_size_of_the_file() {
        let mut budget = Budget::new(100);
        // Decompressed bytes do not add instructions.
        budget.add(1 << 30);
        assert_eq!(budget.limits().opcodes, 200 + (8 << 20));
        budget.executed(10 << 20);
        assert_eq!(budget.limits().opcodes, 800 + (6 << 20));
        let read = |budget: &mut Budget| super::super::pickle::run(b"\x80\x02]]].", budget).error;
        assert_eq!(read(&mut budget), None);
        assert_eq!(budget.limits().opcodes, 800 + (6 << 20) - 5);
        budget.executed(796 + (6 << 20));
        let error = read(&mut budget).expect("4 of 5 are left, less one");
        assert!(error.to_string().contains("opcodes"), "{error}");
    }
}
