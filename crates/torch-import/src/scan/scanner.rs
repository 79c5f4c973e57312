//! Scans a file: offers its content to every reader, and then the contents that each reader finds in it.
//!
//! A reader here stands for one that Python has. A file that is an archive for one reader and a pickle for another is
//! scanned as both.
//!
//! Facts: `torch/serialization.py` of PyTorch 2.15, `numpy/lib/format.py` of NumPy 2.4.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use byte_source::{Cancelled, Observer, Source};

use super::budget::{Budget, shortened};
use super::packed::Packed;
use super::pickle::{self, Nested};
use super::{Finding, Place, Scan, ScannedPickle, Step, Use, packed, recognise};
use crate::container::inflate::Inflated;
use crate::container::{in_memory, legacy, sniff, tar};
use crate::{Container, Error, Format, Note, Result, Risk};

/// Maximum nesting depth of pickles and archives that is scanned.
const MAX_DEPTH: usize = 8;
/// Maximum number of pickles in one record.
const PICKLES_MAX: usize = 1 << 16;
/// Maximum number of listed globals of each risk, pickles, findings and missed parts of a file.
const LISTED_MAX: usize = 1 << 10;
/// Bytes to which the parts of one file may be decompressed together: a multiple of its length, plus a constant.
const UNPACKED_TIMES: u64 = 32;
const UNPACKED: u64 = 64 << 20;

/// Magic bytes of a `.npy` file.
pub(super) const NUMPY: &[u8] = b"\x93NUMPY";

/// A byte range to scan, and its location.
pub(super) struct Item<'a> {
    pub(super) record: Place,
    pub(super) bytes: Cow<'a, [u8]>,
    pub(super) depth: usize,
    /// True if the bytes should be a pickle.
    pub(super) expected: bool,
}

pub(super) struct Scanner<'a> {
    pub(super) scan: Scan,
    pub(super) checksums: bool,
    pub(super) budget: Budget,
    /// Bytes that may still be decompressed.
    pub(super) room: u64,
    pub(super) work: VecDeque<Item<'a>>,
    observer: &'a dyn Observer,
    pub(super) stopped: bool,
    /// Number of listed globals of each risk.
    listed: [usize; 3],
}

/// The way in which a file is read.
enum Kind {
    Container(Format),
    Archive,
    Numpy,
    Packed(&'static Packed),
    /// No recognised format, but Python may read the file as a pickle.
    Doubtful,
}

impl Kind {
    fn new(bytes: &[u8]) -> Result<Self> {
        if let Some(format) = sniff::format(bytes) {
            return Ok(Self::Container(format));
        }
        if recognise::is_archive(bytes) {
            return Ok(Self::Archive);
        }
        if bytes.starts_with(NUMPY) {
            return Ok(Self::Numpy);
        }
        if let Some(packed) = packed::recognise(bytes) {
            return Ok(Self::Packed(packed));
        }
        if pickle::run(bytes, &mut Budget::new(bytes.len() as u64)).matters {
            return Ok(Self::Doubtful);
        }
        sniff::reject_others(bytes)?;
        Err(sniff::unknown(bytes))
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Container(format) => format.name(),
            Self::Archive => Format::Zip.name(),
            Self::Numpy => "npy",
            Self::Packed(packed) => packed.name,
            Self::Doubtful => Format::Pickle.name(),
        }
    }
}

impl<'a> Scanner<'a> {
    /// Creates a scanner for a file whose format is recognised.
    pub(super) fn of_source(
        file: &'a dyn Source,
        checksums: bool,
        observer: &'a dyn Observer,
    ) -> Result<Self> {
        let bytes = in_memory(file);
        let kind = Kind::new(bytes)?;
        let mut scanner = Self { checksums, ..Self::new(kind.name(), file.len(), observer) };
        scanner.root(bytes, &kind);
        Ok(scanner)
    }

    /// Creates a scanner for parts of a file of `len` bytes.
    pub(super) fn new(format: &'static str, len: u64, observer: &'a dyn Observer) -> Self {
        Self {
            scan: Scan { format, ..Scan::default() },
            checksums: false,
            budget: Budget::new(len),
            room: len.saturating_mul(UNPACKED_TIMES).saturating_add(UNPACKED),
            work: VecDeque::new(),
            observer,
            stopped: false,
            listed: [0; 3],
        }
    }

    /// Scans all queued items and the contents found in them.
    pub(super) fn run(mut self, file: &Arc<dyn Source>) -> Result<Scan> {
        self.drain();
        if self.stopped {
            return Err(Cancelled.into());
        }
        let format = sniff::format(in_memory(&**file));
        if matches!(format, Some(Format::Legacy | Format::Tar | Format::Safetensors)) {
            self.container(file);
        }
        Ok(self.scan)
    }

    pub(super) fn drain(&mut self) {
        while let Some(item) = self.work.pop_front() {
            if self.should_stop() {
                break;
            }
            self.item(item);
        }
    }

    pub(super) fn should_stop(&mut self) -> bool {
        self.stopped = self.stopped || self.observer.is_cancelled();
        self.stopped
    }

    /// Queues the file itself, which may have two formats at once.
    fn root(&mut self, bytes: &'a [u8], kind: &Kind) {
        let is_zip = recognise::starts_as_archive(bytes);
        if recognise::ends_as_archive(bytes) && !is_zip {
            self.report("polyglot", || {
                "the file ends as a zip archive and starts as something else".to_owned()
            });
        }
        let item = |part: &'static str, bytes: &'a [u8], expected| Item {
            record: Place(vec![Step::Part(part)]),
            bytes: bytes.into(),
            depth: 0,
            expected,
        };
        match kind {
            _ if is_zip => return self.archives(&Place::default(), bytes, 0),
            // The scan of the pickle includes an archive after it.
            Kind::Container(Format::Pickle | Format::Legacy) | Kind::Doubtful => {
                return self.work.push_back(item("pickle", bytes, true));
            }
            Kind::Container(Format::Tar) => self.tar(&Place::default(), bytes, 0),
            Kind::Numpy => {
                if let Some((data, has_objects)) = numpy_data(bytes) {
                    self.work.push_back(item("objects", data, has_objects));
                }
            }
            Kind::Packed(packed) => self.packed(&Place::default(), packed, bytes, 0, false),
            Kind::Container(_) | Kind::Archive => {}
        }
        if recognise::is_archive(bytes) {
            self.archive(&Place::default(), bytes, 0);
        }
        // A file of another format may be a pickle as well.
        self.work.push_back(item("pickle", bytes, false));
    }

    fn item(&mut self, item: Item<'a>) {
        let Item { record, bytes, depth, expected } = item;
        if depth > MAX_DEPTH {
            return self.miss(|| format!("{record}: it is nested deeper than {MAX_DEPTH} levels"));
        }
        match bytes {
            Cow::Borrowed(bytes) => self.content(&record, bytes, depth, expected),
            Cow::Owned(bytes) => self.owned(&record, &bytes, depth, expected),
        }
    }

    /// Scans bytes that are dropped afterwards, including everything nested in them. Recurses at most [`MAX_DEPTH`]
    /// times, because nested contents have a greater depth.
    fn owned(&mut self, record: &Place, bytes: &[u8], depth: usize, expected: bool) {
        let mut inner = Scanner {
            scan: std::mem::take(&mut self.scan),
            checksums: self.checksums,
            budget: self.budget.take(),
            room: self.room,
            work: VecDeque::new(),
            observer: self.observer,
            stopped: self.stopped,
            listed: self.listed,
        };
        inner.content(record, bytes, depth, expected);
        inner.drain();
        self.scan = inner.scan;
        self.budget = inner.budget;
        (self.room, self.stopped, self.listed) = (inner.room, inner.stopped, inner.listed);
    }

    /// Scans the bytes of an item as every format that they may have.
    fn content(&mut self, record: &Place, bytes: &'a [u8], depth: usize, expected: bool) {
        // `root` has already scanned the file itself as an archive.
        let inside = depth > 0;
        if recognise::is_archive(bytes) && (inside || expected) {
            self.archives(record, bytes, depth);
        }
        if recognise::starts_as_archive(bytes) {
            return;
        }
        if inside && let Some(packed) = packed::recognise(bytes) {
            return self.packed(record, packed, bytes, depth, expected);
        }
        if inside && tar::recognises(bytes) {
            self.tar(record, bytes, depth);
        }
        if inside && let Some((data, has_objects)) = numpy_data(bytes) {
            let nested = self.stream(record, data, has_objects);
            return self.nested(record, nested, depth);
        }
        let nested = self.stream(record, bytes, expected);
        self.nested(record, nested, depth);
    }

    /// Scans the decompressed content of compressed bytes.
    fn packed(&mut self, record: &Place, packed: &Packed, bytes: &[u8], depth: usize, expected: bool) {
        let unpacked = packed.unpack(bytes, self.room);
        let place = if record.0.is_empty() { String::new() } else { format!("{record}: ") };
        if let Some(cut) = unpacked.cut {
            self.miss(|| format!("{place}{cut}"));
        }
        let inner: &[u8] = match &unpacked.content {
            Inflated::Memory(bytes) => bytes,
            Inflated::File(file) => file.bytes(),
        };
        // Bytes of a format without a decoder here may begin like a pickle.
        if !packed.is_unpacked() {
            let nested = self.stream(record, bytes, false);
            for Nested { at, bytes, is_loaded } in nested {
                self.owned(&record.with(Step::Bytes(at)), &bytes, depth.saturating_add(1), is_loaded);
            }
        }
        self.room = self.room.saturating_sub(inner.len() as u64);
        self.budget.add(inner.len() as u64);
        let record = record.with(Step::Part(packed.name));
        let depth = depth.saturating_add(1);
        if depth > MAX_DEPTH {
            return self.miss(|| format!("{record}: it is nested deeper than {MAX_DEPTH} levels"));
        }
        let expected = expected || matches!(sniff::format(inner), Some(Format::Pickle | Format::Legacy));
        self.owned(&record, inner, depth, expected);
    }

    fn nested(&mut self, record: &Place, nested: Vec<Nested<'a>>, depth: usize) {
        let depth = depth.saturating_add(1);
        for Nested { at, bytes, is_loaded } in nested {
            let record = record.with(Step::Bytes(at));
            let expected = is_loaded || legacy::recognises(&bytes);
            self.work.push_back(Item { record, bytes, depth, expected });
        }
    }

    /// Scans the sequence of pickles in `bytes`, and returns the byte strings in them that may be loaded.
    fn stream<'b>(&mut self, record: &Place, bytes: &'b [u8], expected: bool) -> Vec<Nested<'b>> {
        let mut nested = Vec::new();
        let (mut at, mut index, mut legacy) = (0_usize, 0_usize, false);
        if bytes.is_empty() && expected {
            let error = pickle_vm::load(bytes).err();
            self.keep(record, 0, Vec::new(), error);
        }
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            if index >= PICKLES_MAX {
                self.miss(|| format!("{record}: more than {PICKLES_MAX} pickles"));
                break;
            }
            let found = pickle::run(rest, &mut self.budget);
            let expected_here = expected && (index == 0 || legacy);
            // Bytes after a pickle, or in an unexpected place, count as a pickle if Python may execute something in
            // them.
            let is_one = found.matters || (found.error.is_none() && (expected || index > 0));
            if !(is_one || expected_here) {
                if index > 0 {
                    let left = rest.len();
                    self.report("trailing", || {
                        format!("{left} bytes that are not a pickle follow the pickles of {record}")
                    });
                } else if found.error.is_none() {
                    // A pickle that calls nothing may contain byte strings that do.
                    nested.extend(found.nested);
                }
                break;
            }
            let offset = at as u64;
            for text in found.oddities {
                self.report("pickle", || format!("{record}: {text}"));
            }
            for text in found.missed {
                self.miss(|| format!("{record}: {text}"));
            }
            let within = |nested: Nested<'b>| Nested { at: offset.saturating_add(nested.at), ..nested };
            nested.extend(found.nested.into_iter().map(within));
            let failed = found.error.is_some();
            self.scan.count = self.scan.count.saturating_add(1);
            self.keep(record, offset, found.uses, found.error);
            if index == 0 && !expected && matches!(record.0.last(), Some(Step::Record(_))) {
                self.report("pickle", || format!("{record} is a pickle where none is expected"));
            }
            if failed {
                break;
            }
            at = at.saturating_add(usize::try_from(found.read).unwrap_or(usize::MAX));
            legacy |= index == 0 && found.is_magic;
            // The storages follow the pickles of a legacy checkpoint.
            if legacy && index > legacy::ROOT {
                break;
            }
            index = index.saturating_add(1);
        }
        nested
    }

    /// Adds the findings of the checkpoint reader in the rest of the file.
    fn container(&mut self, file: &Arc<dyn Source>) {
        match Container::from_source(Arc::clone(file)) {
            Ok(container) => {
                for (record, range) in container.more_pickles() {
                    let bytes = in_memory(&**file).get(range.clone()).unwrap_or_default();
                    let place = Place(vec![Step::Part(record)]);
                    let found = pickle::run(bytes, &mut self.budget);
                    self.scan.count = self.scan.count.saturating_add(1);
                    self.keep(&place, range.start as u64, found.uses, found.error);
                    for text in found.missed {
                        self.miss(|| format!("{place}: {text}"));
                    }
                    for Nested { at, bytes, is_loaded } in found.nested {
                        self.owned(&place.with(Step::Bytes(at)), &bytes, 1, is_loaded);
                    }
                }
                for note in container.notes() {
                    if matches!(note, Note::AfterStorages { .. }) {
                        self.report("trailing", || note.to_string());
                    }
                }
            }
            // The members of the archive were scanned one by one.
            Err(Error::Format { .. }) => {}
            Err(error) => {
                let text = error.to_string();
                if !self.scan.missed.contains(&text) {
                    self.miss(|| text);
                }
            }
        }
    }

    // Methods that add to the report.

    pub(super) fn report(&mut self, kind: &'static str, text: impl FnOnce() -> String) {
        let has_room = self.scan.findings.len() < LISTED_MAX;
        match has_room.then(|| self.budget.text(text)).flatten() {
            Some(text) => self.scan.findings.push(Finding { kind, text }),
            None if self.scan.findings.is_empty() => {
                let text = "the report has no room for what is irregular".to_owned();
                self.scan.findings.push(Finding { kind, text });
            }
            None => self.scan.omitted.findings = self.scan.omitted.findings.saturating_add(1),
        }
    }

    pub(super) fn miss(&mut self, text: impl FnOnce() -> String) {
        let has_room = self.scan.missed.len() < LISTED_MAX;
        match has_room.then(|| self.budget.text(text)).flatten() {
            Some(text) => self.scan.missed.push(text),
            None => self.scan.omitted.missed = self.scan.omitted.missed.saturating_add(1),
        }
    }

    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        let has_room = self.scan.notes.len() < LISTED_MAX;
        self.scan.notes.extend(has_room.then(|| self.budget.text(text)).flatten());
    }

    /// Adds a pickle to the report, with as many of its globals as the limit allows.
    pub(super) fn keep(
        &mut self,
        place: &Place,
        offset: u64,
        uses: Vec<Use>,
        error: Option<pickle_vm::Error>,
    ) {
        let all = uses.len();
        let mut kept: Vec<Use> = Vec::new();
        for used in uses {
            let [known, unknown, dangerous] = &mut self.listed;
            let listed = match used.risk {
                Risk::Known => known,
                Risk::Unknown => unknown,
                Risk::Dangerous => dangerous,
            };
            if *listed < LISTED_MAX {
                *listed = listed.saturating_add(1);
                kept.push(used);
            }
        }
        let omitted = &mut self.scan.omitted;
        omitted.globals = omitted.globals.saturating_add(all.saturating_sub(kept.len()));
        if kept.is_empty() && error.is_none() {
            return;
        }
        if kept.is_empty() && self.scan.pickles.len() >= LISTED_MAX {
            omitted.pickles = omitted.pickles.saturating_add(1);
            return;
        }
        self.scan.pickles.push(ScannedPickle { place: place.clone(), offset, uses: kept, error });
    }
}

impl Place {
    pub(super) fn with(&self, step: Step) -> Self {
        let step = match step {
            Step::Record(name) => Step::Record(shortened(name)),
            step => step,
        };
        Self(self.0.iter().cloned().chain([step]).collect())
    }
}

/// Returns the data after the header of a `.npy` file, and true if the data may be a pickle of objects.
pub(super) fn numpy_data(bytes: &[u8]) -> Option<(&[u8], bool)> {
    let (version, rest) = bytes.strip_prefix(NUMPY)?.split_first()?;
    let rest = rest.get(1..)?;
    let (len, rest) = if *version == 1 {
        let (len, rest) = rest.split_first_chunk()?;
        (usize::from(u16::from_le_bytes(*len)), rest)
    } else {
        let (len, rest) = rest.split_first_chunk()?;
        (usize::try_from(u32::from_le_bytes(*len)).ok()?, rest)
    };
    let (header, data) = rest.split_at_checked(len)?;
    // `|O` is the dtype of objects, also as one of several fields. NumPy has other names for the dtype, too; data with
    // one of those are scanned like bytes of an unknown format.
    let has_objects = header.windows(2).any(|pair| pair == b"O'" || pair == b"O\"");
    Some((data, has_objects))
}
