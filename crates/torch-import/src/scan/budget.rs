//! What the scan of one file may cost and how long its report may become, whatever the file holds.
//!
//! A pickle of a megabyte can name a hundred thousand globals, call each of them a hundred thousand times, and nest
//! others. The work and the report stay in proportion to the file, and what is left out is counted.

use pickle_vm::Limits;

/// Work for each byte of a file, and for any file. Records may share bytes, and joblib's files are read twice.
const TIMES: u64 = 8;
const WORK: u64 = 16 << 20;
/// Instructions of one pickle for each byte of the file that it is in, and for any file; and of all pickles together. A
/// kilobyte can be decompressed to a million instructions, each of which makes an object.
const OPCODES_TIMES: u64 = 2;
const OPCODES: u64 = 8 << 20;
const ALL_OPCODES_TIMES: u64 = 8;
const ALL_OPCODES: u64 = 16 << 20;
/// The most bytes of calls, irregularities and reasons in one report.
const TEXT: usize = 1 << 20;
/// The most bytes of one of them, and of one name.
const TEXT_EACH: usize = 1000;
const NAME: usize = 200;

/// What is left.
#[derive(Debug)]
pub(super) struct Budget {
    /// Bytes that may still be read, names that may be compared, parts of calls that may be looked at.
    work: u64,
    /// Bytes that may still be reported.
    text: usize,
    /// Instructions of one pickle.
    opcodes: u64,
    /// Instructions that may still be executed.
    all_opcodes: u64,
}

impl Budget {
    /// The budget for a file of `len` bytes.
    pub(super) fn new(len: u64) -> Self {
        Self {
            work: len.saturating_mul(TIMES).saturating_add(WORK),
            text: TEXT,
            opcodes: len.saturating_mul(OPCODES_TIMES).saturating_add(OPCODES),
            all_opcodes: len.saturating_mul(ALL_OPCODES_TIMES).saturating_add(ALL_OPCODES),
        }
    }

    /// Hands the budget on, and leaves nothing.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self { work: 0, text: 0, opcodes: 0, all_opcodes: 0 })
    }

    /// Adds the work for bytes that were decompressed.
    pub(super) fn add(&mut self, len: u64) {
        self.work = self.work.saturating_add(len.saturating_mul(TIMES));
    }

    /// The limits of the next pickle.
    pub(super) fn limits(&self) -> Limits {
        let limits = Limits::default();
        Limits { opcodes: limits.opcodes.min(self.opcodes).min(self.all_opcodes), ..limits }
    }

    /// Takes the instructions that were executed.
    pub(super) fn executed(&mut self, opcodes: u64) {
        self.all_opcodes = self.all_opcodes.saturating_sub(opcodes);
    }

    /// Whether there was enough left for this much work.
    pub(super) fn spend(&mut self, work: u64) -> bool {
        let left = self.work.checked_sub(work);
        self.work = left.unwrap_or(0);
        left.is_some()
    }

    /// The text, cut to a length that can be shown; `None` if the report is full.
    pub(super) fn text(&mut self, text: impl FnOnce() -> String) -> Option<String> {
        if self.text == 0 {
            return None;
        }
        let text = cut(text(), TEXT_EACH);
        self.text = self.text.saturating_sub(text.len());
        Some(text)
    }
}

/// A name that is short enough to be shown.
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
        // What was decompressed does not count.
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
