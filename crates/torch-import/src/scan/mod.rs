//! What a file would execute if Python's own unpickler loaded it: every pickle in the file, and what it names and
//! calls.
//!
//! Unlike the checkpoint readers, a scan does not stop at an error: it looks for damage and ambiguity. What it cannot
//! read to the end is reported.
//!
//! Facts: `torch/serialization.py` of PyTorch 2.15, `caffe2/serialize/inline_container.cc`, `Lib/pickle.py`.

mod archive;
mod pickle;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::path::Path;

use mapped::MappedFile;

use crate::container::{legacy, sniff};
use crate::{Container, Error, Format, Global, Note, Result, Risk};

/// The deepest level of pickles within pickles, and archives within archives, that is scanned.
const MAX_DEPTH: usize = 8;
/// The most pickles in one record.
const PICKLES_MAX: usize = 1 << 16;
/// The most findings that are kept for a file.
const FINDINGS_MAX: usize = 1 << 12;
/// Records may share bytes. These limit the bytes that are read: a multiple of the file's length, plus a constant.
const TIMES: u64 = 8;
const BYTES: u64 = 16 << 20;
/// The most bytes to which the records of one file may inflate together.
const INFLATED_MAX: u64 = 1 << 30;

/// The findings in a file.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// What the file is, such as `zip`.
    pub format: &'static str,
    /// How many pickles were read.
    pub count: usize,
    /// The pickles that name globals or could not be read to their end.
    pub pickles: Vec<ScannedPickle>,
    /// What is irregular about the file.
    pub findings: Vec<Finding>,
    /// What was not scanned, and why; each a clause.
    pub missed: Vec<String>,
    /// Harmless remarks; each a sentence.
    pub notes: Vec<String>,
}

/// One pickle of a file.
#[derive(Clone, Debug)]
pub struct ScannedPickle {
    /// Where it is.
    pub place: Place,
    /// Where it starts, in bytes from the start of its place.
    pub offset: u64,
    /// The globals that it names.
    pub uses: Vec<Use>,
    /// Why it could not be read to its end.
    pub error: Option<pickle_vm::Error>,
}

/// Where a pickle is: the path to it from the file. Its `Display` form is for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place(pub Vec<Step>);

/// A step of a [`Place`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A part of the file that this crate has named, such as `pickle`.
    Part(&'static str),
    /// A record of an archive, by its name there.
    Record(String),
    /// A byte string in a pickle, by its offset from the start of the enclosing place.
    Bytes(u64),
}

impl Place {
    fn with(&self, step: Step) -> Self {
        Self(self.0.iter().cloned().chain([step]).collect())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            f.write_str(if index > 0 { ", " } else { "" })?;
            match step {
                Step::Part(name) => f.write_str(name)?,
                Step::Record(name) => write!(f, "`{}`", name.escape_debug())?,
                Step::Bytes(offset) => write!(f, "bytes at 0x{offset:x}")?,
            }
        }
        Ok(())
    }
}

/// A global, and how it is used.
#[derive(Clone, Debug)]
pub struct Use {
    /// The global, with the offset in the pickle that names it first.
    pub global: Global,
    /// Its risk.
    pub risk: Risk,
    /// The first few instructions that call it or pass it on; empty for known globals.
    pub calls: Vec<Call>,
    /// How many more there are.
    pub more: usize,
    /// Whether it comes after the error that ends the pickle, which Python would not reach.
    pub after_error: bool,
}

/// An instruction that calls a global, or passes it to something else.
#[derive(Clone, Debug)]
pub struct Call {
    /// The name of the opcode, such as `REDUCE`.
    pub opcode: &'static str,
    /// Its offset in the pickle.
    pub offset: u64,
    /// The call in Python's notation, truncated.
    pub text: String,
    /// Whether the global, or what it returned, is itself called here, with arguments.
    pub has_arguments: bool,
}

/// An irregularity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind, one word for programs.
    pub kind: &'static str,
    /// A description, as a clause.
    pub text: String,
}

impl Scan {
    /// Scans the file at `path`. With `checksums`, the checksums of all records of an archive are compared, which
    /// reads the whole file; else only those of pickles.
    ///
    /// # Errors
    /// When the file cannot be read, is of a kind that holds no pickles and is not known to be harmless, or `stop`, which
    /// is asked before each window of 1 MiB, says so.
    pub fn file(path: &Path, checksums: bool, stop: &dyn Fn() -> bool) -> Result<Self> {
        let file = MappedFile::open(path)?;
        let bytes = file.bytes();
        let format = match sniff::format(bytes) {
            Some(format) => format.name(),
            None if bytes.starts_with(b"PK") || archive::is_archive(bytes) => "zip",
            None if is_numpy(bytes) => "npy",
            None => {
                sniff::reject_others(bytes)?;
                return Err(sniff::unknown(bytes));
            }
        };
        let scan = Self { format, ..Self::default() };
        let budget = file.len().saturating_mul(TIMES).saturating_add(BYTES);
        let (room, work) = (INFLATED_MAX, VecDeque::new());
        let mut scanner = Scanner { scan, checksums, budget, room, work, stop, stopped: false };
        scanner.root(bytes);
        while let Some(item) = scanner.work.pop_front() {
            if scanner.should_stop() {
                break;
            }
            scanner.item(item);
        }
        if scanner.stopped {
            return Err(Error::Stopped);
        }
        let mut scan = scanner.scan;
        if matches!(sniff::format(bytes), Some(Format::Legacy | Format::Tar | Format::Safetensors)) {
            scan.read_container(&file, path);
        }
        Ok(scan)
    }

    /// Adds what the checkpoint reader finds in the rest of the file.
    fn read_container(&mut self, file: &MappedFile, path: &Path) {
        match Container::open(path) {
            Ok(container) => {
                for (record, range) in container.more_pickles() {
                    let bytes = file.bytes().get(range.clone()).unwrap_or_default();
                    let found = pickle::run(bytes);
                    self.count = self.count.saturating_add(1);
                    let place = Place(vec![Step::Part(record)]);
                    self.keep(&place, range.start as u64, found.uses, found.error);
                }
                let notes = container.notes().iter();
                let trailing = notes.filter(|note| matches!(note, Note::AfterStorages { .. }));
                let found = trailing.map(|note| Finding { kind: "trailing", text: note.to_string() });
                self.findings.extend(found);
            }
            // Its members were scanned one by one.
            Err(Error::Format { .. }) => {}
            Err(error) => {
                let text = error.to_string();
                if !self.missed.contains(&text) {
                    self.missed.push(text);
                }
            }
        }
    }

    fn keep(&mut self, place: &Place, offset: u64, uses: Vec<Use>, error: Option<pickle_vm::Error>) {
        if !uses.is_empty() || error.is_some() {
            self.pickles.push(ScannedPickle { place: place.clone(), offset, uses, error });
        }
    }

    /// All globals of all pickles.
    pub fn uses(&self) -> impl Iterator<Item = (&ScannedPickle, &Use)> {
        self.pickles.iter().flat_map(|pickle| pickle.uses.iter().map(move |found| (pickle, found)))
    }

    /// Whether every pickle was read to its end.
    pub fn is_whole(&self) -> bool {
        self.missed.is_empty() && self.pickles.iter().all(|pickle| pickle.error.is_none())
    }
}

/// Bytes to scan, and where they are.
struct Item<'a> {
    record: Place,
    bytes: Cow<'a, [u8]>,
    depth: usize,
    /// Whether a pickle is expected there.
    expected: bool,
}

struct Scanner<'a> {
    scan: Scan,
    checksums: bool,
    /// Bytes that may still be read.
    budget: u64,
    /// Bytes that may still be inflated.
    room: u64,
    work: VecDeque<Item<'a>>,
    stop: &'a dyn Fn() -> bool,
    stopped: bool,
}

impl<'a> Scanner<'a> {
    fn should_stop(&mut self) -> bool {
        self.stopped = self.stopped || (self.stop)();
        self.stopped
    }

    /// Scans the file itself, which may be two formats at once.
    fn root(&mut self, bytes: &'a [u8]) {
        let format = sniff::format(bytes);
        let ends_as_zip = archive::is_archive(bytes) && !bytes.starts_with(b"PK");
        if ends_as_zip {
            self.report("polyglot", "the file ends as a zip archive and starts as something else".to_owned());
        }
        let pickle = |part: &'static str, bytes: &'a [u8]| Item {
            record: Place(vec![Step::Part(part)]),
            bytes: bytes.into(),
            depth: 0,
            expected: true,
        };
        match format {
            // An archive after a pickle is scanned with the pickle.
            Some(Format::Pickle | Format::Legacy) => return self.work.push_back(pickle("pickle", bytes)),
            Some(Format::Tar) => self.tar(bytes),
            _ => self.work.extend(numpy_objects(bytes).map(|objects| pickle("objects", objects))),
        }
        if ends_as_zip || bytes.starts_with(b"PK") {
            self.archive(&Place::default(), bytes, 0);
        }
    }

    fn item(&mut self, item: Item<'a>) {
        let Item { record, bytes, depth, expected } = item;
        if depth > MAX_DEPTH {
            return self.scan.missed.push(format!("{record}: it is nested deeper than {MAX_DEPTH} levels"));
        }
        match bytes {
            Cow::Borrowed(bytes) => {
                if archive::is_archive(bytes) {
                    self.archive(&record, bytes, depth);
                }
                if bytes.starts_with(b"PK") || is_numpy(bytes) {
                    return;
                }
                let nested = self.stream(&record, bytes, expected);
                self.nested(&record, nested, depth);
            }
            Cow::Owned(bytes) if archive::is_archive(&bytes) => {
                self.scan
                    .missed
                    .push(format!("{record}: a compressed archive in an archive; unpack it and scan that"));
            }
            Cow::Owned(bytes) => {
                let nested = self.stream(&record, &bytes, expected);
                let nested = nested.into_iter().map(|(at, bytes)| (at, Cow::Owned(bytes.into_owned())));
                self.nested(&record, nested.collect(), depth);
            }
        }
    }

    fn nested(&mut self, record: &Place, nested: Vec<(u64, Cow<'a, [u8]>)>, depth: usize) {
        let depth = depth.saturating_add(1);
        for (at, bytes) in nested {
            let record = record.with(Step::Bytes(at));
            let expected = legacy::recognises(&bytes);
            self.work.push_back(Item { record, bytes, depth, expected });
        }
    }

    fn report(&mut self, kind: &'static str, text: String) {
        if self.scan.findings.len() < FINDINGS_MAX {
            self.scan.findings.push(Finding { kind, text });
        }
    }

    /// Reads the sequence of pickles in `bytes`, and returns the byte strings in them that look like pickles.
    fn stream<'b>(&mut self, record: &Place, bytes: &'b [u8], expected: bool) -> Vec<(u64, Cow<'b, [u8]>)> {
        let mut nested = Vec::new();
        let (mut at, mut index, mut legacy) = (0_usize, 0_usize, false);
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            if index >= PICKLES_MAX {
                self.scan.missed.push(format!("{record}: more than {PICKLES_MAX} pickles"));
                break;
            }
            let found = pickle::run(rest);
            // After an error the rest is read once more.
            let cost = if found.error.is_some() { rest.len() as u64 } else { found.read };
            let Some(budget) = self.budget.checked_sub(cost) else {
                self.scan.missed.push(format!(
                    "{record}: records share bytes, and the limit on reading them again was reached"
                ));
                break;
            };
            self.budget = budget;
            // Bytes after a pickle, or where none is expected, are a pickle if they name something.
            let is_one = found.uses.iter().any(|found| !found.after_error)
                || (found.error.is_none() && (expected || index > 0));
            let expected_here = expected && (index == 0 || legacy);
            if !(is_one || expected_here) {
                if index > 0 {
                    let left = rest.len();
                    self.report(
                        "trailing",
                        format!("{left} bytes that are not a pickle follow the pickles of {record}"),
                    );
                }
                break;
            }
            let offset = at as u64;
            for text in found.oddities {
                self.report("pickle", format!("{record}: {text}"));
            }
            nested.extend(
                found.nested.into_iter().map(|(within, bytes)| (offset.saturating_add(within), bytes)),
            );
            let failed = found.error.is_some();
            self.scan.count = self.scan.count.saturating_add(1);
            self.scan.keep(record, offset, found.uses, found.error);
            if index == 0 && !expected && matches!(record.0.last(), Some(Step::Record(_))) {
                self.report("pickle", format!("{record} is a pickle where none is expected"));
            }
            if failed {
                break;
            }
            at = at.saturating_add(usize::try_from(found.read).unwrap_or(usize::MAX));
            legacy |= index == 0 && found.is_magic;
            // The storages follow.
            if legacy && index > legacy::ROOT {
                break;
            }
            index = index.saturating_add(1);
        }
        nested
    }
}

fn is_numpy(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x93NUMPY")
}

/// The pickle after the header of a `.npy` file of Python objects; `None` for arrays of numbers.
fn numpy_objects(bytes: &[u8]) -> Option<&[u8]> {
    let (version, rest) = bytes.strip_prefix(b"\x93NUMPY")?.split_first()?;
    let rest = rest.get(1..)?;
    let (len, rest) = if *version == 1 {
        let (len, rest) = rest.split_first_chunk()?;
        (usize::from(u16::from_le_bytes(*len)), rest)
    } else {
        let (len, rest) = rest.split_first_chunk()?;
        (usize::try_from(u32::from_le_bytes(*len)).ok()?, rest)
    };
    let (header, data) = rest.split_at_checked(len)?;
    // The dtype of objects is `|O`, also where it is one of several fields.
    header.windows(2).any(|pair| pair == b"O'" || pair == b"O\"").then_some(data)
}
