//! Bounds the work of scanning one file and the length of its report, for any content of the file.
//!
//! A pickle of a megabyte can name a hundred thousand globals, call each of them a hundred thousand times, and nest
//! other pickles. The work and the report stay in proportion to the file, and omitted entries are counted. An observer that stops
//! the scan ends the budget.

use byte_source::Observer;
use pickle_vm::PickleLimits;

/// Work per byte of a file, plus a constant. Records may share bytes, and joblib's files are read twice.
const WORK_PER_BYTE: u64 = 8;
const WORK_BASE: u64 = 16 << 20;
/// Instructions per byte of the file, plus a constant: for one pickle, and for all pickles of the file together. A
/// kilobyte can be decompressed to a million instructions, each of which creates an object.
const OPCODES_PER_BYTE: u64 = 2;
const OPCODES_BASE: u64 = 8 << 20;
const ALL_OPCODES_PER_BYTE: u64 = 8;
const ALL_OPCODES_BASE: u64 = 16 << 20;
/// Maximum number of bytes of calls, irregularities and reasons in one report.
const REPORT_LEN_MAX: usize = 1 << 20;
/// Maximum length in bytes of one such text, and of one name.
const REPORT_TEXT_LEN_MAX: usize = 1000;
const REPORT_NAME_LEN_MAX: usize = 200;
/// Units of work between two looks at the observer.
const WORK_PER_CHECK: u64 = 1 << 20;

/// The unused part of a file's scan budget.
pub(super) struct ScanBudget<'o> {
    /// Units of work left: bytes to read, names to compare, parts of calls to visit.
    work: u64,
    /// Bytes of report text left.
    text: usize,
    /// Instruction limit for one pickle.
    opcodes: u64,
    /// Instructions left for all pickles.
    all_opcodes: u64,
    /// Length of the file, which limits the memory for one pickle.
    file: u64,
    observer: &'o dyn Observer,
    /// Work since the last look at the observer.
    unchecked: u64,
    is_stopped: bool,
}

impl ScanBudget<'static> {
    /// Creates the budget for a file of `len` bytes.
    pub(super) fn new(len: u64) -> Self {
        Self::with_observer(len, &())
    }
}

impl<'o> ScanBudget<'o> {
    /// Creates the budget for a file of `len` bytes, which `observer` can end.
    pub(super) fn with_observer(len: u64, observer: &'o dyn Observer) -> Self {
        Self {
            work: len.saturating_mul(WORK_PER_BYTE).saturating_add(WORK_BASE),
            text: REPORT_LEN_MAX,
            opcodes: len.saturating_mul(OPCODES_PER_BYTE).saturating_add(OPCODES_BASE),
            all_opcodes: len.saturating_mul(ALL_OPCODES_PER_BYTE).saturating_add(ALL_OPCODES_BASE),
            file: len,
            observer,
            unchecked: 0,
            is_stopped: false,
        }
    }

    /// Returns true once the observer has stopped the scan.
    pub(super) fn is_stopped(&mut self) -> bool {
        self.is_stopped = self.is_stopped || self.observer.is_cancelled();
        self.is_stopped
    }

    pub(super) fn observer(&self) -> &'o dyn Observer {
        self.observer
    }

    /// Moves the budget out and leaves an empty one.
    pub(super) fn take_all(&mut self) -> Self {
        let empty = Self { work: 0, text: 0, opcodes: 0, all_opcodes: 0, ..*self };
        std::mem::replace(self, empty)
    }

    /// Adds the work for `len` decompressed bytes.
    pub(super) fn add(&mut self, len: u64) {
        self.work = self.work.saturating_add(len.saturating_mul(WORK_PER_BYTE));
    }

    /// Returns the machine limits for the next pickle.
    pub(super) fn limits(&self) -> PickleLimits {
        let limits = PickleLimits::for_stored(self.file);
        PickleLimits { opcodes: limits.opcodes.min(self.opcodes).min(self.all_opcodes), ..limits }
    }

    /// Deducts the instructions that were executed.
    pub(super) fn spend_opcodes(&mut self, opcodes: u64) {
        self.all_opcodes = self.all_opcodes.saturating_sub(opcodes);
    }

    /// Deducts `work`; returns false if less was left, or the observer has stopped the scan.
    pub(super) fn spend(&mut self, work: u64) -> bool {
        self.unchecked = self.unchecked.saturating_add(work);
        if self.unchecked >= WORK_PER_CHECK {
            self.unchecked = 0;
            self.is_stopped();
        }
        let left = self.work.checked_sub(work).filter(|_| !self.is_stopped);
        self.work = left.unwrap_or(0);
        left.is_some()
    }

    /// Truncates a text for the report; `None` if the report is full.
    pub(super) fn spend_text(&mut self, text: impl FnOnce() -> String) -> Option<String> {
        if self.text == 0 {
            return None;
        }
        let text = truncate_text(text(), REPORT_TEXT_LEN_MAX);
        self.text = self.text.saturating_sub(text.len());
        Some(text)
    }
}

pub(super) fn truncate_name(name: String) -> String {
    truncate_text(name, REPORT_NAME_LEN_MAX)
}

fn truncate_text(mut text: String, most: usize) -> String {
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
        let mut budget = ScanBudget::new(1);
        assert!(budget.spend(WORK_BASE) && budget.spend(WORK_PER_BYTE) && !budget.spend(1));
        let mut kept = 0;
        while let Some(text) = budget.spend_text(|| "é".repeat(5000)) {
            assert_eq!(text, format!("{}… (10000 bytes)", "é".repeat(500)));
            kept += text.len();
        }
        assert!((REPORT_LEN_MAX..REPORT_LEN_MAX + 2000).contains(&kept));
        assert_eq!(truncate_name("short".to_owned()), "short");
        assert_eq!(truncate_name("a".repeat(REPORT_NAME_LEN_MAX)), "a".repeat(REPORT_NAME_LEN_MAX));
        budget.add(2);
        assert!(budget.spend(2 * WORK_PER_BYTE) && !budget.spend(1), "what was decompressed may be read");
    }

    #[test]
    fn the_instructions_depend_on_the_size_of_the_file() {
        let mut budget = ScanBudget::new(100);
        // Decompressed bytes do not add instructions.
        budget.add(1 << 30);
        assert_eq!(budget.limits().opcodes, PickleLimits::for_stored(100).opcodes);
        budget.spend_opcodes(13 << 20);
        assert_eq!(budget.limits().opcodes, 800 + (3 << 20));
        let read = |budget: &mut ScanBudget| super::super::pickle::scan_pickle(b"\x80\x02]]].", budget).error;
        assert_eq!(read(&mut budget), None);
        assert_eq!(budget.limits().opcodes, 800 + (3 << 20) - 5);
        budget.spend_opcodes(796 + (3 << 20));
        let error = read(&mut budget).expect("4 of 5 are left, less one");
        assert!(error.to_string().contains("opcodes"), "{error}");
    }
}
