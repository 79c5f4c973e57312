//! Scans a file: offers its content to every reader, and then the contents that each reader finds in it.
//!
//! A reader here stands for one that Python has. A file that is an archive for one reader and a pickle for another is
//! scanned as both.
//!
//! Facts: `torch/serialization.py` of PyTorch 2.15.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use byte_source::{Cancelled, Observer, Source};
use safetensors_format::{Header, is_safetensors};

use super::budget::{ScanBudget, truncate_name};
use super::documents::document_kind::{DocumentKind, METADATA_MAX};
use super::documents::pickled::EXTRA_STATE;
use super::documents::python_records::PythonRecords;
use super::nested::NestedBytes;
use super::record_names::is_hdf5_record;
use super::scan_format::ScanFormat;
use super::scan_format::{NPY_MAGIC, names_extra_state};
use super::{PicklePlace, PlaceStep, Scan};
use super::{compressed, msgpack_reader, onnx_reader, pickle, scan_format, zip_detection};
use crate::container::formats::{self, legacy, tar, zip};
use crate::container::{sniff, tar_members, to_u64_range};
use crate::script_modules::ScriptModules;
use crate::{CheckpointNote, Container, Problem, Result};

/// Maximum nesting depth of pickles and archives that is scanned.
pub(super) const NESTING_DEPTH_MAX: usize = 8;
const PICKLES_MAX: usize = 1 << 16;
/// Bytes to which the parts of one file may be decompressed together: a multiple of its length, plus a constant.
const UNPACKED_PER_BYTE: u64 = 32;
const UNPACKED_BASE: u64 = 64 << 20;
/// Why an HDF5 file is reported as not scanned.
const HDF5: &str = "HDF5, in which Keras has layers that run code and PyTables pickles, is not scanned";

/// A byte range to scan, and its location.
pub(super) struct ScanItem<'a> {
    pub(super) record: PicklePlace,
    pub(super) bytes: Cow<'a, [u8]>,
    pub(super) depth: usize,
    /// True if the bytes should be a pickle.
    pub(super) is_pickle_expected: bool,
}

pub(super) struct Scanner<'a, 'o> {
    pub(super) scan: Scan,
    pub(super) checksums: bool,
    pub(super) budget: ScanBudget<'o>,
    /// Bytes that may still be decompressed.
    pub(super) unpack_budget: u64,
    pub(super) work: VecDeque<ScanItem<'a>>,
    pub(super) listed_by_risk: [usize; 4],
    /// Modules of the code of each TorchScript archive, by the place of the archive.
    pub(super) script_modules: HashMap<PicklePlace, ScriptModules>,
    /// Places of the archives whose pickles may name Python modules that they bring.
    pub(super) packages: HashSet<PicklePlace>,
    /// Python code in each archive, by the place of the archive.
    pub(super) python_records: HashMap<PicklePlace, PythonRecords>,
    /// True if a tensor of the file may hold a pickle.
    has_extra_state: bool,
    /// True if something in the file has a format that is scanned.
    pub(super) has_content: bool,
}

impl<'a, 'o> Scanner<'a, 'o> {
    /// Creates a scanner for a file whose format is recognised.
    pub(super) fn for_file(bytes: &'a [u8], checksums: bool, observer: &'o dyn Observer) -> Result<Self> {
        let kind = ScanFormat::new(bytes, observer)?;
        let format = formats::recognise(bytes).map_or_else(|| kind.name(), |format| format.name());
        let mut scanner = Self { checksums, ..Self::new(format, bytes.len() as u64, observer) };
        scanner.queue_file(bytes, &kind);
        Ok(scanner)
    }

    /// Creates a scanner for parts of a file of `len` bytes.
    pub(super) fn new(format: &'static str, len: u64, observer: &'o dyn Observer) -> Self {
        Self {
            scan: Scan { format, ..Scan::default() },
            checksums: false,
            budget: ScanBudget::with_observer(len, observer),
            unpack_budget: len.saturating_mul(UNPACKED_PER_BYTE).saturating_add(UNPACKED_BASE),
            work: VecDeque::new(),
            listed_by_risk: [0; 4],
            script_modules: HashMap::new(),
            packages: HashSet::new(),
            python_records: HashMap::new(),
            has_extra_state: false,
            has_content: false,
        }
    }

    /// Scans all queued items and the contents found in them.
    pub(super) fn run(mut self, file: &Arc<dyn Source>, bytes: &[u8]) -> Result<Scan> {
        self.scan_queue();
        if self.should_stop() {
            return Err(Cancelled.into());
        }
        if !zip::recognises(bytes) && formats::recognise(bytes).is_some() {
            self.scan_with_checkpoint_reader(file);
        }
        if self.should_stop() {
            return Err(Cancelled.into());
        }
        if self.has_extra_state {
            self.scan_extra_states(file);
        }
        if let Some(what) = scan_format::name_without_content(self.scan.format)
            && !self.has_content
            && self.scan.findings.is_empty()
            && self.scan.pickles.is_empty()
            && self.scan.is_fully_read()
        {
            let hint = "unpack it";
            return Err(Problem::Format { what, hint, first_line: String::new() }.into());
        }
        Ok(self.scan)
    }

    pub(super) fn scan_queue(&mut self) {
        while let Some(item) = self.work.pop_front() {
            if self.should_stop() {
                break;
            }
            self.scan_item(item);
        }
    }

    pub(super) fn should_stop(&mut self) -> bool {
        self.budget.is_stopped()
    }

    /// Queues the file itself, which may have two formats at once.
    fn queue_file(&mut self, bytes: &'a [u8], kind: &ScanFormat) {
        let is_zip = zip_detection::starts_as_archive(bytes);
        if zip_detection::ends_as_archive(bytes) && !is_zip {
            self.add_finding("polyglot", || {
                "the file ends as a zip archive and starts as something else".to_owned()
            });
        }
        if tar_members::is_header(bytes) && !matches!(kind, ScanFormat::Tar) {
            self.add_finding("polyglot", || {
                "the file is a tar archive and something else; `torch.load` tries tar first".to_owned()
            });
            self.scan_tar(&PicklePlace::default(), bytes, 0);
        }
        if scan_format::is_flatbuffer(bytes) {
            if !matches!(kind, ScanFormat::Flatbuffer) {
                self.add_finding("polyglot", || "the file is a mobile model and something else".to_owned());
            }
            self.add_missed(|| "the code of a mobile model in flatbuffers is not scanned".to_owned());
        }
        if sniff::is_hdf5(bytes) {
            // The first member of a tar archive begins where HDF5 may begin.
            if !matches!(kind, ScanFormat::Hdf5 | ScanFormat::Tar | ScanFormat::Archive) {
                self.add_finding("polyglot", || "the file is HDF5 and something else".to_owned());
            }
            self.add_missed(|| HDF5.to_owned());
        }
        let item = |part: &'static str, bytes: &'a [u8], expected| ScanItem {
            record: PicklePlace(vec![PlaceStep::Part(part)]),
            bytes: bytes.into(),
            depth: 0,
            is_pickle_expected: expected,
        };
        match kind {
            _ if is_zip => return self.scan_archives(&PicklePlace::default(), bytes, 0),
            // The scan of the pickle includes an archive after it.
            ScanFormat::Pickles => return self.work.push_back(item("pickle", bytes, true)),
            ScanFormat::Tar => self.scan_tar(&PicklePlace::default(), bytes, 0),
            ScanFormat::Numpy => {
                let record = PicklePlace(vec![PlaceStep::Part("objects")]);
                let nested = self.scan_arrays(&record, bytes);
                self.queue_nested(&record, nested, 0);
            }
            ScanFormat::Packed(packed) => {
                self.scan_compressed(&PicklePlace::default(), packed, bytes, 0, false);
            }
            ScanFormat::Header("gguf") => {
                let record = PicklePlace(vec![PlaceStep::Part("document")]);
                let metadata = bytes.get(..METADATA_MAX).unwrap_or(bytes);
                self.scan_document(&record, DocumentKind::Gguf, metadata, 0, &|_| false);
            }
            ScanFormat::Header("safetensors") => {
                let record = PicklePlace(vec![PlaceStep::Part("header")]);
                self.scan_metadata(&record, bytes, bytes.len() as u64, 0);
                self.has_extra_state = names_extra_state(bytes);
            }
            ScanFormat::Msgpack => {
                self.scan_msgpack(&PicklePlace(vec![PlaceStep::Part("model")]), bytes, 0);
            }
            ScanFormat::Onnx => self.scan_onnx(&PicklePlace(vec![PlaceStep::Part("model")]), bytes),
            ScanFormat::Columns => self.scan_columns(bytes),
            ScanFormat::Header(_) | ScanFormat::Archive | ScanFormat::Flatbuffer | ScanFormat::Hdf5 => {}
        }
        if zip_detection::is_archive(bytes) {
            self.scan_archive(&PicklePlace::default(), bytes, 0);
        }
        // A file of another format may be a pickle as well.
        self.work.push_back(item("pickle", bytes, false));
    }

    /// Scans the pickles at the start of a file of pickles, and what is nested in them.
    pub(super) fn scan_file_start(&mut self, bytes: &[u8]) {
        self.scan_temporary(&PicklePlace(vec![PlaceStep::Part("pickle")]), bytes, 0, true);
    }

    fn scan_item(&mut self, item: ScanItem<'a>) {
        let ScanItem { record, bytes, depth, is_pickle_expected: expected } = item;
        if depth > NESTING_DEPTH_MAX {
            return self
                .add_missed(|| format!("{record}: it is nested deeper than {NESTING_DEPTH_MAX} levels"));
        }
        match bytes {
            Cow::Borrowed(bytes) => self.scan_bytes(&record, bytes, depth, expected),
            Cow::Owned(bytes) => self.scan_temporary(&record, &bytes, depth, expected),
        }
    }

    /// Scans bytes that are dropped afterwards, including everything nested in them. Recurses at most [`NESTING_DEPTH_MAX`]
    /// times, because nested contents have a greater depth.
    pub(super) fn scan_temporary(
        &mut self,
        record: &PicklePlace,
        bytes: &[u8],
        depth: usize,
        expected: bool,
    ) {
        let mut inner = Scanner {
            scan: std::mem::take(&mut self.scan),
            checksums: self.checksums,
            budget: self.budget.take_all(),
            unpack_budget: self.unpack_budget,
            work: VecDeque::new(),
            listed_by_risk: self.listed_by_risk,
            script_modules: std::mem::take(&mut self.script_modules),
            packages: std::mem::take(&mut self.packages),
            python_records: HashMap::new(),
            has_extra_state: self.has_extra_state,
            has_content: self.has_content,
        };
        inner.scan_bytes(record, bytes, depth, expected);
        inner.scan_queue();
        self.scan = inner.scan;
        self.budget = inner.budget;
        self.script_modules = inner.script_modules;
        self.packages = inner.packages;
        (self.has_extra_state, self.has_content) = (inner.has_extra_state, inner.has_content);
        (self.unpack_budget, self.listed_by_risk) = (inner.unpack_budget, inner.listed_by_risk);
    }

    /// Scans the bytes of an item as every format that they may have.
    fn scan_bytes(&mut self, record: &PicklePlace, bytes: &'a [u8], depth: usize, expected: bool) {
        // `root` has already scanned the file itself as an archive.
        let inside = depth > 0;
        let signature = || ScanFormat::of_signature(bytes);
        self.has_content |=
            inside && matches!(signature(), Some(ScanFormat::Pickles | ScanFormat::Header(_)));
        if zip_detection::is_archive(bytes) && (inside || expected) {
            self.scan_archives(record, bytes, depth);
        }
        if zip_detection::starts_as_archive(bytes) {
            return;
        }
        if inside && let Some(packed) = compressed::detect_compression(bytes) {
            return self.scan_compressed(record, packed, bytes, depth, expected);
        }
        if inside && (tar::recognises(bytes) || tar_members::is_header(bytes)) {
            self.scan_tar(record, bytes, depth);
        }
        if inside && bytes.starts_with(NPY_MAGIC) {
            self.has_content = true;
            let nested = self.scan_arrays(record, bytes);
            return self.queue_nested(record, nested, depth);
        }
        if inside && (sniff::is_hdf5(bytes) || is_hdf5_record(record)) {
            self.add_missed(|| format!("{record}: {HDF5}"));
        }
        if inside && msgpack_reader::is_msgpack(bytes) {
            self.scan_msgpack(record, bytes, depth);
        }
        if inside && onnx_reader::is_onnx(bytes) {
            self.scan_onnx(record, bytes);
        }
        if inside && scan_format::has_columns(bytes) {
            self.scan_columns(bytes);
        }
        if inside && is_safetensors(bytes) {
            self.scan_metadata(record, bytes, bytes.len() as u64, depth);
        }
        let (is_named, outer) =
            (inside && names_extra_state(bytes), std::mem::take(&mut self.has_extra_state));
        // The first pickle of a legacy checkpoint is a number.
        let nested = self.scan_pickles(record, bytes, expected || legacy::recognises(bytes));
        if is_named || depth > 1 && self.has_extra_state {
            self.has_extra_state = false;
            self.add_missed(|| {
                format!("{record}: its tensors `…{EXTRA_STATE}` may be pickles; unpack it and scan that")
            });
        }
        self.has_extra_state |= outer;
        self.queue_nested(record, nested, depth);
    }

    /// Scans the header of safetensors: the document that it is, and each text of its metadata, in which programs keep configurations.
    pub(super) fn scan_metadata(&mut self, record: &PicklePlace, start: &[u8], len: u64, depth: usize) {
        match Header::parse_leniently(start, len) {
            Ok(header) => {
                let end = Header::end(start).ok().and_then(|end| usize::try_from(end).ok());
                let json = end.and_then(|end| start.get(8..end)).unwrap_or_default();
                self.scan_document(record, DocumentKind::Json, json, depth, &|_| false);
                for (key, text) in header.metadata {
                    let record = record.join_step(PlaceStep::Record(key));
                    self.scan_document(&record, DocumentKind::Text, text.as_bytes(), depth, &|_| false);
                }
            }
            Err(_) if depth == 0 => {} // The reader of checkpoints says so.
            Err(error) => self.add_missed(|| format!("{record}: {error}")),
        }
    }

    pub(super) fn queue_nested(&mut self, record: &PicklePlace, nested: Vec<NestedBytes<'a>>, depth: usize) {
        let depth = depth.saturating_add(1);
        for NestedBytes { at, bytes, is_loaded } in nested {
            let record = record.join_step(PlaceStep::Bytes(at));
            let expected = is_loaded || legacy::recognises(&bytes);
            self.work.push_back(ScanItem { record, bytes, depth, is_pickle_expected: expected });
        }
    }

    /// Scans the sequence of pickles in `bytes`, and returns the byte strings in them that may be loaded.
    pub(super) fn scan_pickles<'b>(
        &mut self,
        record: &PicklePlace,
        bytes: &'b [u8],
        mut expected: bool,
    ) -> Vec<NestedBytes<'b>> {
        let mut nested = Vec::new();
        let (mut at, mut index, mut legacy) = (0_usize, 0_usize, false);
        if bytes.is_empty() && expected {
            let error = pickle_vm::load(bytes).err();
            self.add_pickle(record, 0, Vec::new(), error);
        }
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            if index >= PICKLES_MAX {
                self.add_missed(|| format!("{record}: more than {PICKLES_MAX} pickles"));
                break;
            }
            if self.should_stop() {
                break;
            }
            let found = pickle::scan_pickle(rest, &mut self.budget);
            let expected_here = expected && (index == 0 || legacy);
            // Bytes after a pickle, or in an unexpected place, count as a pickle if Python may execute something in
            // them.
            let is_text = || found.ends_in_unusable_name(rest) && sniff::is_text(rest);
            let is_one = found.may_execute && !(index == 0 && !expected && is_text())
                || (found.error.is_none() && (expected || index > 0));
            if !(is_one || expected_here) {
                if index > 0 {
                    let left = rest.len();
                    self.add_finding("trailing", || {
                        format!("{left} bytes that are not a pickle follow the pickles of {record}")
                    });
                } else if found.error.is_none() {
                    let read = usize::try_from(found.bytes_read).ok();
                    if read.and_then(|read| rest.get(read..)).is_some_and(pickle::may_execute_later) {
                        expected = true;
                        continue;
                    }
                    // A pickle that calls nothing may contain byte strings that do.
                    nested.extend(found.nested);
                }
                break;
            }
            let offset = at as u64;
            for text in found.irregularity_texts {
                self.add_finding("pickle", || format!("{record}: {text}"));
            }
            for text in found.missed {
                self.add_missed(|| format!("{record}: {text}"));
            }
            self.scan.named_ranges.extend(found.ranges);
            self.has_extra_state |= found.has_extra_state;
            let within =
                |nested: NestedBytes<'b>| NestedBytes { at: offset.saturating_add(nested.at), ..nested };
            nested.extend(found.nested.into_iter().map(within));
            let failed = found.error.is_some();
            self.scan.count = self.scan.count.saturating_add(1);
            self.has_content = true;
            self.add_pickle(record, offset, found.uses, found.error);
            if index == 0 && !expected && matches!(record.0.last(), Some(PlaceStep::Record(_))) {
                self.add_finding("pickle", || format!("{record} is a pickle where none is expected"));
            }
            if failed {
                break;
            }
            at = at.saturating_add(usize::try_from(found.bytes_read).unwrap_or(usize::MAX));
            legacy |= index == 0 && found.is_magic;
            // The storages follow the pickles of a legacy checkpoint.
            if legacy && index > legacy::ROOT_INDEX {
                break;
            }
            index = index.saturating_add(1);
        }
        nested
    }

    /// Adds the findings of the checkpoint reader in the rest of the file.
    pub(super) fn scan_with_checkpoint_reader(&mut self, file: &Arc<dyn Source>) {
        match Container::from_source_with_observer(Arc::clone(file), self.budget.observer()) {
            Ok(container) => {
                for (record, range) in container.more_pickles() {
                    let Ok(bytes) = file.share(to_u64_range(range)) else { continue };
                    let place = PicklePlace(vec![PlaceStep::Part(record)]);
                    let found = pickle::scan_pickle(&bytes, &mut self.budget);
                    self.scan.count = self.scan.count.saturating_add(1);
                    self.add_pickle(&place, range.start as u64, found.uses, found.error);
                    for text in found.missed {
                        self.add_missed(|| format!("{place}: {text}"));
                    }
                    for NestedBytes { at, bytes, is_loaded } in found.nested {
                        self.scan_temporary(&place.join_step(PlaceStep::Bytes(at)), &bytes, 1, is_loaded);
                    }
                }
                for note in container.notes() {
                    if matches!(note, CheckpointNote::TrailingAfterStorages { .. }) {
                        self.add_finding("trailing", || note.to_string());
                    }
                }
            }
            // The members of the archive were scanned one by one, and the caller looks at the budget.
            Err(error)
                if error.is_cancelled()
                    || matches!(error.detail(), Some(Problem::Format { .. } | Problem::Archive { .. })) => {}
            Err(error) => {
                let text = error.to_string();
                if !self.scan.missed.contains(&text) {
                    self.add_missed(|| text);
                }
            }
        }
    }
}

impl PicklePlace {
    pub(super) fn join_step(&self, step: PlaceStep) -> Self {
        let step = match step {
            PlaceStep::Record(name) => PlaceStep::Record(truncate_name(name)),
            step => step,
        };
        Self(self.0.iter().cloned().chain([step]).collect())
    }
}
