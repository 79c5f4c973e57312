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
    /// All work and instructions so far.
    #[cfg(test)]
    pub(super) spent: u64,
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
            #[cfg(test)]
            spent: 0,
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
        self.count(opcodes);
    }

    /// Deducts `work`; returns false if less was left, or the observer has stopped the scan.
    pub(super) fn spend(&mut self, work: u64) -> bool {
        self.count(work);
        self.unchecked = self.unchecked.saturating_add(work);
        if self.unchecked >= WORK_PER_CHECK {
            self.unchecked = 0;
            self.is_stopped();
        }
        let left = self.work.checked_sub(work).filter(|_| !self.is_stopped);
        self.work = left.unwrap_or(0);
        left.is_some()
    }

    #[cfg(test)]
    fn count(&mut self, work: u64) {
        self.spent = self.spent.saturating_add(work);
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "only tests count")]
    const fn count(&self, _: u64) {}

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
    use std::io::Write;

    use super::super::scanner::Scanner;
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

    /// Returns the work of scanning a file.
    fn work(bytes: &[u8]) -> u64 {
        let mut scanner = Scanner::for_file(bytes, false, &()).expect("it is of a known kind");
        scanner.scan_queue();
        scanner.budget.spent
    }

    /// A tar archive with `count` members.
    fn tar(count: usize) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for number in 0..count {
            let mut header = tar::Header::new_ustar();
            header.set_size(2);
            tar.append_data(&mut header, format!("m{number}"), &b"N."[..]).expect("memory takes it");
        }
        tar.into_inner().expect("memory takes it")
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(bytes).expect("memory takes it");
        gzip.finish().expect("memory takes it")
    }

    fn zip(records: impl IntoIterator<Item = (String, Vec<u8>)>) -> Vec<u8> {
        let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default();
        for (name, data) in records {
            zip.start_file(name, options).expect("memory takes it");
            zip.write_all(&data).expect("memory takes it");
        }
        zip.finish().expect("memory takes it").into_inner()
    }

    /// What a file consists of, and a function that makes a file with that many parts.
    type Made<'f> = (&'static str, &'f dyn Fn(usize) -> Vec<u8>);

    /// An array of objects for joblib.
    const ARRAY: &[u8] = b"\x80\x02cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81}(X\x05\0\0\0shapeK\x01\x85X\x05\0\0\0orderX\x01\0\0\0C\
        X\x05\0\0\0dtypecnumpy\ndtype\nX\x02\0\0\0O8K\0K\x01\x87R(K\x03X\x01\0\0\0|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tbub";

    #[test]
    fn twice_the_input_is_at_most_three_times_the_work() {
        let script = |text: Vec<u8>| {
            let records =
                [("p/data.pkl", b"\x80\x02}.".to_vec()), ("p/constants.pkl", b"\x80\x02).".to_vec())];
            let code = [("p/code/__torch__.py", text)];
            zip(records.into_iter().chain(code).map(|(name, data)| (name.to_owned(), data)))
        };
        let names = |count: usize| (0..count).flat_map(|n| format!("cm\nn{n}\n)R0").into_bytes());
        let npy = b"\x93NUMPY\x01\0\x39\0{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n";
        let document = |name: &str, text: String| {
            let records = [("p/data.pkl", b"\x80\x02}.".to_vec()), (name, text.into_bytes())];
            zip(records.map(|(name, data)| (name.to_owned(), data)))
        };
        let lines = |count: usize, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
        // Lengths of messages as protocol buffers have them, in two bytes.
        let onnx = |nodes: Vec<u8>| {
            let len = u16::try_from(nodes.len()).expect("a short graph");
            let len = [len.to_le_bytes()[0] | 0x80, u8::try_from(len >> 7).expect("less than 2^14")];
            [&[0x08, 0x0a, 0x3a][..], &len, &nodes].concat()
        };
        let footer = |text: Vec<u8>| {
            let len = u32::try_from(text.len()).expect("a short footer").to_le_bytes();
            [&b"PAR1"[..], &text, &len, b"PAR1"].concat()
        };
        let array =
            |count: usize| [&b"\xdd\0\0"[..], &u16::try_from(count).expect("few").to_be_bytes()].concat();
        let formats: [Made<'_>; 20] = [
            ("nodes of ONNX", &|n| onnx(b"\x0a\x06\x22\x01x\x3a\x01y".repeat(n))),
            ("schemas of Parquet", &|n| footer(b"QVJST1c6ZXh0ZW5zaW9uOm5hbWU= ".repeat(n))),
            ("texts of msgpack", &|n| [array(n), b"\xa3abc".repeat(n)].concat()),
            ("sections", &|n| document("p/x.cfg", lines(n, &|n| format!("[a.{n}]\nk = \"m.f\"\n")))),
            ("fields", &|n| document("p/x.pbtxt", lines(n, &|n| format!("a {{ b{n}: \"m.f\" }}\n")))),
            ("keys of YAML", &|n| document("p/x.yaml", lines(n, &|n| format!("k{n}: {{_target_: m.f}}\n")))),
            ("keys of JSON", &|n| {
                document("p/x.json", format!("{{{}\"k\": 1}}", lines(n, &|n| format!("\"k{n}\": \"m.f\", "))))
            }),
            ("operators on one line", &|n| {
                script((0..n).flat_map(|n| format!("ops.a{n}.b() ").into_bytes()).collect())
            }),
            ("lookups in lookups", &|n| script(b"getattr(self,".repeat(n))),
            ("records of code", &|n| {
                zip((0..n).map(|n| (format!("p/code/__torch__/m{n}.py"), b"x = ops.a.b()".to_vec())))
            }),
            ("records", &|n| zip((0..n).map(|n| (format!("p/{n}.pkl"), b"cm\nn\n)R.".to_vec())))),
            ("archives", &|n| b"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".repeat(n)),
            ("members", &tar),
            ("compressed members", &|n| gzip(&tar(n))),
            ("names", &|n| [b"\x80\x02".to_vec(), names(n).collect(), b"N.".to_vec()].concat()),
            ("an array of names", &|n| [npy.to_vec(), names(n).collect(), b"N.".to_vec()].concat()),
            ("pickles", &|n| b"cm\nn\n0N.".repeat(n)),
            ("byte strings", &|n| {
                [b"\x80\x03".to_vec(), b"C\x0a\x80\x02cm\nn\n)R.0".repeat(n), b"N.".to_vec()].concat()
            }),
            ("numbers of other forms", &|n| {
                [b"cm\nn\n0".to_vec(), b"I0x1\n0".repeat(n), b"N.".to_vec()].concat()
            }),
            ("states of an array", &|n| [ARRAY.to_vec(), b"}b".repeat(n), b"\xff".to_vec()].concat()),
        ];
        for (what, made) in formats {
            let (once, twice) = (work(&made(400)), work(&made(800)));
            assert!(once >= 400 && twice <= once.saturating_mul(3), "{what}: {once}, then {twice}");
        }
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
