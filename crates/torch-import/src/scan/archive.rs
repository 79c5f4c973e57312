//! Scans zip archives, including those that `torch.save` did not write, and sequences of archives.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::DeflateDecoder;
use pickle_vm::{Opcode, Reader};
use zip_format::{CompressionMethod, Entry, Survey};

use super::documents::DocumentKind;
use super::record_names::{
    Numbers, archive_root, find_other_case, is_apple_double, is_compiled, is_named, is_native_library,
    is_package, is_pickle,
};
use super::scan_format::{NPY_MAGIC, names_extra_state};
use super::scanner::{ScanItem, Scanner};
use super::{PicklePlace, PlaceStep, compressed, pickle, script, zip_detection};
use crate::Problem;
use crate::container::formats::{legacy, tar, zip_archive};
use crate::container::{inflate, tar_members};
use crate::scan::budget::ScanBudget;
use crate::script_modules::ScriptModules;
use crate::script_modules::{is_code, is_python};

/// Bytes of a record that are read to recognise its format.
const PEEK: u64 = 512;
/// Instructions that are read of numbers which are not a pickle.
const READ_MAX: usize = 1 << 10;
/// Maximum number of bytes scanned in a damaged record.
const DAMAGED_MAX: u64 = 64 << 20;

/// Maximum number of bytes of one record that are inflated into memory.
const INFLATED_MAX: u64 = 1 << 30;

/// Properties that the entries of an archive have in common.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent property")]
pub(super) struct ArchiveTraits {
    pub(super) is_checkpoint: bool,
    /// True if it is the archive of an exported program.
    is_exported: bool,
    has_checksums: bool,
    /// True if the archive ends before its central directory.
    is_cut: bool,
    depth: usize,
}

impl ArchiveTraits {
    /// Returns the traits of the archive if it is in `depth` others.
    pub(super) fn at_depth(self, depth: usize) -> Self {
        Self { depth, ..self }
    }
}

impl<'a> Scanner<'a, '_> {
    /// Scans an archive, or a sequence of archives as in the `.distcp` files of `torch.distributed.checkpoint`.
    pub(super) fn scan_archives(&mut self, record: &PicklePlace, bytes: &'a [u8], depth: usize) {
        let parts = Survey::archive_ranges(bytes);
        if parts.len() < 2 {
            self.scan_archive(record, bytes, depth);
            return;
        }
        let place = if record.0.is_empty() { String::new() } else { format!("{record}: ") };
        self.add_note(|| format!("{place}{} archives follow one another", parts.len()));
        if Survey::has_hidden_directory(bytes, &parts) {
            self.add_finding("archives", || {
                format!("{place}PyTorch, which counts the offsets of the last archive from the start of the first, finds another directory")
            });
        }
        let mut are_items = true;
        for part in parts {
            if self.should_stop() {
                return;
            }
            let record = record.join_step(PlaceStep::Archive(part.start as u64));
            are_items &= self.scan_archive(&record, bytes.get(part).unwrap_or_default(), depth);
        }
        if !are_items {
            self.add_finding("archives", || {
                format!("{place}archives follow one another, and not as `torch.distributed.checkpoint` writes them")
            });
        }
    }

    /// Scans an archive. Returns true if it is what `torch.save` writes into a stream.
    pub(super) fn scan_archive(&mut self, record: &PicklePlace, bytes: &'a [u8], depth: usize) -> bool {
        let Ok(survey) = Survey::read_with_observer(bytes, self.budget.observer()) else { return false };
        let place = if record.0.is_empty() { String::new() } else { format!("{record}: ") };
        for oddity in survey.oddities {
            if oddity.kind == "cut" {
                self.add_missed(|| format!("{place}{}", oddity.text));
                continue;
            }
            self.add_finding(oddity.kind, || format!("{place}{}", oddity.text));
        }
        if survey.is_incomplete {
            self.add_missed(|| format!("{place}the entries after the limit were not scanned"));
        }
        let names = survey.entries.iter().map(|entry| entry.name.len() as u64);
        if !self.budget.spend(names.fold(1, u64::saturating_add)) {
            self.add_missed(|| format!("{place}the limit on the work for one file was reached"));
            return false;
        }
        self.add_script_modules(record, &survey.entries);
        let archive = ArchiveTraits {
            is_cut: survey.ends_before_directory,
            depth,
            ..self.report_entries(&place, &survey.entries)
        };
        for entry in &survey.entries {
            if self.should_stop() {
                break;
            }
            let record = record.join_step(PlaceStep::Record(entry.name.clone()));
            self.scan_entry(record, entry, Cow::Borrowed(entry.stored(bytes)), archive);
        }
        archive_root(&survey.entries) == Some("archive/")
    }

    /// Remembers which modules an archive brings.
    pub(super) fn add_script_modules(&mut self, record: &PicklePlace, entries: &[Entry]) {
        if is_package(entries) {
            self.packages.insert(record.clone());
        } else if entries.iter().any(|entry| is_code(&entry.name)) {
            let modules = ScriptModules::in_records(entries.iter().map(|entry| entry.name.as_str()));
            self.script_modules.insert(record.clone(), modules);
        }
        self.add_python_records(record, entries.iter().map(|entry| entry.name.as_str()));
    }

    /// Reports irregularities of the entries of an archive as a whole.
    pub(super) fn report_entries(&mut self, place: &str, entries: &[Entry]) -> ArchiveTraits {
        let roots: Vec<&Entry> = entries.iter().filter(|entry| is_named(&entry.name, "data.pkl")).collect();
        if let [first, second, ..] = roots.as_slice()
            && first.name != second.name
        {
            let (first, second) = (first.name.escape_debug(), second.name.escape_debug());
            self.add_finding("roots", || {
                format!("{place}`{first}` and `{second}` are both the root of a checkpoint")
            });
        }
        let twins = archive_root(entries).and_then(|root| zip_archive::find_case_duplicate(entries, root));
        if let Some((first, second)) = twins.filter(|_| roots.len() == 1) {
            let error =
                Problem::CaseInsensitiveDuplicate { first: first.to_owned(), second: second.to_owned() };
            self.add_finding("duplicate", || format!("{place}{error}"));
        }
        let is_checkpoint = !roots.is_empty();
        let sums = entries.iter().any(|entry| entry.crc != 0);
        if !sums && !entries.is_empty() {
            self.add_note(|| format!("{place}the archive has no checksums"));
        }
        if is_package(entries) {
            let sources = entries.iter().filter(|entry| is_python(&entry.name)).count();
            if sources > 0 {
                self.add_missed(|| {
                    format!("{place}Python code ({sources} records), which runs when a package is loaded, is not scanned")
                });
            }
        }
        let root = entries.first().and_then(|entry| entry.name.split_once('/')).map_or("", |(root, _)| root);
        if entries.iter().any(|entry| {
            let inner = entry.name.get(root.len()..).and_then(|name| name.strip_prefix('/'));
            inner.is_some_and(|name| name.eq_ignore_ascii_case("model.json"))
        }) {
            self.add_missed(|| {
                format!("{place}the code of a TorchScript archive of PyTorch 1.0 to 1.2, whose records `model.json` names, is not scanned")
            });
        }
        if let Some((found, written)) = find_other_case(entries) {
            let found = found.escape_debug();
            self.add_finding("name", || {
                format!("{place}PyTorch ignores capitals and reads `{found}`, and writes `{written}`")
            });
        }
        let libraries = entries.iter().filter(|entry| is_native_library(&entry.name)).count();
        if libraries > 0 {
            self.add_missed(|| {
                format!("{place}native code ({libraries} records), which runs when the compiled model is loaded, is not scanned")
            });
        }
        let compiled = entries.iter().filter(|entry| is_compiled(&entry.name)).count();
        if compiled > 0 {
            self.add_missed(|| {
                format!("{place}a compiled model ({compiled} records), whose code and flags for a compiler are not scanned")
            });
        }
        let is_exported = entries.iter().any(|entry| is_named(&entry.name, "archive_format"));
        ArchiveTraits { is_checkpoint, is_exported, has_checksums: sums, is_cut: false, depth: 0 }
    }

    /// Scans one entry, whose bytes in the archive are `stored`.
    pub(super) fn scan_entry(
        &mut self,
        record: PicklePlace,
        entry: &Entry,
        stored: Cow<'a, [u8]>,
        archive: ArchiveTraits,
    ) {
        let ArchiveTraits { is_checkpoint, is_exported, has_checksums: sums, is_cut, depth } = archive;
        if stored.is_empty() {
            return;
        }
        let pickle =
            is_pickle(&entry.name) && !is_apple_double(&entry.name, || content_start(&stored, entry.method));
        if !matches!(entry.method, CompressionMethod::Stored | CompressionMethod::Deflated) {
            return self.add_missed(|| format!("{record}: its compression method is not supported"));
        }
        if sums && !is_cut && (pickle || self.checksums) {
            self.compare_checksum(&record, entry, &stored);
        }
        let is_code = is_code(&entry.name);
        let numbers = Numbers::of(&entry.name, is_checkpoint, is_exported);
        let holds_numbers = numbers != Numbers::None;
        if holds_numbers
            && !pickle
            && !self.may_have_scannable_format(&record, (&stored, entry.method), numbers)
        {
            return;
        }
        let Some(content) = self.content(&record, entry, stored, is_cut) else { return };
        let document = DocumentKind::with_content(&entry.name, || Cow::Borrowed(&*content))
            .filter(|_| !holds_numbers && !is_code);
        self.has_content |= pickle || is_code || document.is_some();
        if let Some(kind) = document {
            self.scan_archived_document(&record, kind, &entry.name, &content, depth);
        }
        if is_code {
            let uses = script::uses_in_code(&content, &mut self.budget);
            if !self.budget.spend(content.len() as u64) {
                self.add_missed(|| format!("{record}: the limit on the work for one file was reached"));
            }
            return self.add_pickle(&record, 0, uses, None);
        }
        if is_named(&entry.name, "bytecode.pkl") {
            let uses = script::uses_in_bytecode(&content, &mut self.budget);
            self.add_pickle(&record, 0, uses, None);
        }
        let expected =
            pickle || (!is_checkpoint && pickle::scan_pickle(&content, &mut ScanBudget::new(0)).may_execute);
        let depth = depth.saturating_add(1);
        if expected || holds_numbers || document.is_some() {
            self.work.push_back(ScanItem { record, bytes: content, depth, is_pickle_expected: expected });
        } else {
            self.scan_recognised(&record, &content, depth, false);
        }
    }

    /// Returns true if the first bytes of numbers, inflated if necessary, may be a format that is scanned.
    ///
    /// In numbers, short signatures and opcodes occur by chance: `5d 00 00` begins an lzma file, and the integer 93. So they count only
    /// if they decompress, or are a pickle that names something.
    fn may_have_scannable_format(
        &mut self,
        record: &PicklePlace,
        (stored, method): (&[u8], CompressionMethod),
        numbers: Numbers,
    ) -> bool {
        let start = content_start(stored, method);
        if zip_detection::is_archive(&start)
            || start.starts_with(NPY_MAGIC)
            || legacy::recognises(&start)
            || compressed::detect_compression(&start).is_some_and(|format| format.is_certain(&start, PEEK))
            || tar::recognises(&start)
            || numbers == Numbers::Exported && (tar_members::is_header(&start) || names_extra_state(&start))
        {
            return true;
        }
        if !self.budget.spend(start.len().min(usize::try_from(PEEK).unwrap_or(usize::MAX)) as u64) {
            self.add_missed(|| format!("{record}: the limit on the work for one file was reached"));
            return false;
        }
        let is_marked = start.first() == Some(&Opcode::Proto.code());
        if numbers == Numbers::Storage
            && !is_marked
            && Reader::new(&start).take(READ_MAX).any(|it| it.is_err())
        {
            return false;
        }
        let found = pickle::scan_pickle(&start, &mut ScanBudget::new(0));
        let is_whole = numbers == Numbers::Exported || is_marked || found.error.is_none();
        found.may_execute && !found.uses.is_empty() && is_whole
    }

    /// Returns the content of a record; `None` if it is too long.
    fn content(
        &mut self,
        record: &PicklePlace,
        entry: &Entry,
        stored: Cow<'a, [u8]>,
        is_cut: bool,
    ) -> Option<Cow<'a, [u8]>> {
        match entry.method {
            CompressionMethod::Stored => Some(stored),
            _ => self.inflate_entry(record, entry, &stored, is_cut).map(Cow::Owned),
        }
    }

    /// Inflates a record into memory; `None` if the records of the file together exceed the limit.
    fn inflate_entry(
        &mut self,
        record: &PicklePlace,
        entry: &Entry,
        stored: &[u8],
        is_cut: bool,
    ) -> Option<Vec<u8>> {
        let most = self.unpack_budget.min(INFLATED_MAX);
        if is_cut {
            let bytes = inflate_prefix(stored, most.min(DAMAGED_MAX));
            self.unpack_budget = self.unpack_budget.saturating_sub(bytes.len() as u64);
            return Some(bytes);
        }
        let bytes = (entry.len <= most).then(|| {
            inflate::inflate_to_memory(stored, entry).unwrap_or_else(|error| {
                self.add_finding("damaged", || error.to_string());
                // The intact part of a damaged record is scanned as well.
                inflate_prefix(stored, DAMAGED_MAX)
            })
        });
        let left = bytes.as_ref().and_then(|bytes| self.unpack_budget.checked_sub(bytes.len() as u64));
        let Some(left) = left else {
            let why = "the archive inflates to more than the limit; unpack it and scan its files";
            self.add_missed(|| format!("{record}: {why}"));
            return None;
        };
        self.unpack_budget = left;
        self.budget.add(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64));
        bytes
    }

    fn compare_checksum(&mut self, record: &PicklePlace, entry: &Entry, stored: &[u8]) {
        let Some(found) = self.crc(stored, entry.method) else { return };
        if found != entry.crc {
            let expected = entry.crc;
            self.add_finding("checksum", || {
                format!("the CRC-32 of {record} is {found:08x}, the archive records {expected:08x}")
            });
        }
    }

    /// Computes the CRC-32 of a record's content, or of the intact part of a damaged record; `None` if the scan is
    /// cancelled.
    fn crc(&mut self, stored: &[u8], method: CompressionMethod) -> Option<u32> {
        let mut sum = crc32fast::Hasher::new();
        if method == CompressionMethod::Stored {
            for window in stored.chunks(byte_source::WINDOW) {
                if self.should_stop() {
                    return None;
                }
                sum.update(window);
            }
            return Some(sum.finalize());
        }
        let mut decoder = DeflateDecoder::new(stored);
        let mut window = vec![0; byte_source::WINDOW];
        while let Ok(count @ 1..) = decoder.read(&mut window) {
            if self.should_stop() {
                return None;
            }
            sum.update(window.get(..count).unwrap_or_default());
        }
        Some(sum.finalize())
    }
}

/// Returns the first bytes of a record's content.
fn content_start(stored: &[u8], method: CompressionMethod) -> Cow<'_, [u8]> {
    if method != CompressionMethod::Deflated {
        return Cow::Borrowed(stored);
    }
    Cow::Owned(inflate_prefix(stored, PEEK))
}

/// Inflates at most `most` bytes of a record; empty if it cannot be inflated.
fn inflate_prefix(stored: &[u8], most: u64) -> Vec<u8> {
    let mut start = Vec::new();
    let _ = DeflateDecoder::new(stored).take(most).read_to_end(&mut start);
    start
}
