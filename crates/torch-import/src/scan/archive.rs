//! Archives: zip as `torch.save` writes it or anything else does, and the tar of PyTorch 0.1.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::DeflateDecoder;
use zip_index::{Entry, Method, Survey};

use super::{Item, Place, Scanner, Step, numpy_objects};
use crate::container::{inflate, sniff, tar};

/// The records that PyTorch itself unpickles, by the ends of their names.
const PICKLES: [&str; 7] = [
    "data.pkl",
    "constants.pkl",
    "attributes.pkl",
    "traced_inputs.pkl",
    ".debug_pkl",
    "bytecode.pkl",
    "mobile_debug_handles.pkl",
];
/// How many bytes of a record are read to recognise it.
const PEEK: u64 = 512;
/// The most bytes of a damaged record that are scanned.
const DAMAGED_MAX: u64 = 64 << 20;

/// Whether bytes end like a zip archive, where readers start to look for its directory.
pub(super) fn is_archive(bytes: &[u8]) -> bool {
    Survey::ends_as_zip(bytes)
}

impl<'a> Scanner<'a> {
    pub(super) fn archive(&mut self, record: &Place, bytes: &'a [u8], depth: usize) {
        let survey = Survey::read(bytes);
        let place = if record.0.is_empty() { String::new() } else { format!("{record}: ") };
        for oddity in survey.oddities {
            if oddity.kind == "cut" {
                self.scan.missed.push(format!("{place}{}", oddity.text));
                continue;
            }
            self.report(oddity.kind, format!("{place}{}", oddity.text));
        }
        if survey.cut {
            self.scan.missed.push(format!("{place}the entries after the limit were not scanned"));
        }
        let roots: Vec<&Entry> =
            survey.entries.iter().filter(|entry| is_named(&entry.name, "data.pkl")).collect();
        if let [first, second, ..] = roots.as_slice()
            && first.name != second.name
        {
            let (first, second) = (first.name.escape_debug(), second.name.escape_debug());
            self.report(
                "roots",
                format!("{place}`{first}` and `{second}` are both the root of a checkpoint"),
            );
        }
        let is_checkpoint = !roots.is_empty();
        let sums = survey.entries.iter().any(|entry| entry.crc != 0);
        if !sums && !survey.entries.is_empty() {
            self.scan.notes.push(format!("{place}the archive has no checksums"));
        }
        for entry in &survey.entries {
            if self.stopped {
                return;
            }
            let record = record.with(Step::Record(entry.name.clone()));
            self.entry(record, entry, bytes, (is_checkpoint, sums, depth));
        }
    }

    fn entry(&mut self, record: Place, entry: &Entry, bytes: &'a [u8], within: (bool, bool, usize)) {
        let (is_checkpoint, sums, depth) = within;
        let stored = bytes.get(entry.data.clone()).unwrap_or_default();
        if stored.is_empty() {
            return;
        }
        let read = PICKLES.iter().any(|end| is_named(&entry.name, end));
        let extension = entry.name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
        let pickle = read || matches!(extension.as_deref(), Some("pkl" | "pickle"));
        if !matches!(entry.method, Method::Stored | Method::Deflated) {
            return self.scan.missed.push(format!("{record}: its compression method is not supported"));
        }
        if sums && (pickle || self.checksums) {
            self.compare(&record, entry, stored);
        }
        if !pickle && !sniff::holds_something(&peek(stored, entry.method)) {
            return;
        }
        let content = match entry.method {
            Method::Stored => Cow::Borrowed(stored),
            _ => match self.inflated(&record, entry, stored) {
                Some(bytes) => Cow::Owned(bytes),
                None => return,
            },
        };
        if content.starts_with(b"\x93NUMPY") {
            let bytes = match &content {
                Cow::Borrowed(bytes) => numpy_objects(bytes).map(Cow::Borrowed),
                Cow::Owned(bytes) => numpy_objects(bytes).map(|objects| Cow::Owned(objects.to_vec())),
            };
            let Some(bytes) = bytes else { return };
            return self.work.push_back(Item {
                record,
                bytes,
                depth: depth.saturating_add(1),
                expected: true,
            });
        }
        let expected = read || !is_checkpoint;
        self.work.push_back(Item { record, bytes: content, depth: depth.saturating_add(1), expected });
    }

    /// A record inflated into memory; `None` if the records of the file exceed the limit together.
    fn inflated(&mut self, record: &Place, entry: &Entry, stored: &[u8]) -> Option<Vec<u8>> {
        let bytes = (entry.len <= self.room).then(|| {
            inflate::to_memory(stored, entry).unwrap_or_else(|error| {
                self.report("damaged", error.to_string());
                // The part that can be inflated is scanned anyway.
                start(stored, DAMAGED_MAX)
            })
        });
        let left = bytes.as_ref().and_then(|bytes| self.room.checked_sub(bytes.len() as u64));
        let Some(left) = left else {
            let why = "the archive inflates to more than the limit; unpack it and scan its files";
            self.scan.missed.push(format!("{record}: {why}"));
            return None;
        };
        self.room = left;
        bytes
    }

    fn compare(&mut self, record: &Place, entry: &Entry, stored: &[u8]) {
        let Some(found) = self.crc(stored, entry.method) else { return };
        if found != entry.crc {
            let expected = entry.crc;
            self.report(
                "checksum",
                format!("the CRC-32 of {record} is {found:08x}, the archive records {expected:08x}"),
            );
        }
    }

    /// The CRC-32 of a record's content, or of the part of a damaged record that can be inflated; `None` when the scan is
    /// stopped.
    fn crc(&mut self, stored: &[u8], method: Method) -> Option<u32> {
        let mut sum = crc32fast::Hasher::new();
        if method == Method::Stored {
            for window in stored.chunks(mapped::WINDOW) {
                if self.should_stop() {
                    return None;
                }
                sum.update(window);
            }
            return Some(sum.finalize());
        }
        let mut decoder = DeflateDecoder::new(stored);
        let mut window = vec![0; mapped::WINDOW];
        while let Ok(count @ 1..) = decoder.read(&mut window) {
            if self.should_stop() {
                return None;
            }
            sum.update(window.get(..count).unwrap_or_default());
        }
        Some(sum.finalize())
    }

    /// Scans the members of a tar archive. The pickles in the other members of a 0.1 checkpoint are found with its
    /// container.
    pub(super) fn tar(&mut self, bytes: &'a [u8]) {
        match tar::Members::read(bytes) {
            Ok(members) => {
                for (name, range) in members.0 {
                    let bytes = bytes.get(range).unwrap_or_default();
                    let bare = name.strip_prefix("./").unwrap_or(&name);
                    let expected = matches!(bare, "pickle" | "sys_info");
                    if expected || (!matches!(bare, "storages" | "tensors") && sniff::holds_something(bytes))
                    {
                        let record = Place(vec![Step::Record(name)]);
                        self.work.push_back(Item { record, bytes: bytes.into(), depth: 1, expected });
                    }
                }
            }
            Err(error) => self.scan.missed.push(error.to_string()),
        }
    }
}

/// Whether an entry has this name in any folder.
fn is_named(entry: &str, name: &str) -> bool {
    entry
        .strip_suffix(name)
        .is_some_and(|root| root.is_empty() || root.ends_with('/') || name.starts_with('.'))
}

/// The first bytes of a record.
fn peek(stored: &[u8], method: Method) -> Cow<'_, [u8]> {
    if method != Method::Deflated {
        return Cow::Borrowed(stored);
    }
    Cow::Owned(start(stored, PEEK))
}

/// The first bytes that a record inflates to; empty if it cannot be inflated.
fn start(stored: &[u8], most: u64) -> Vec<u8> {
    let mut start = Vec::new();
    let _ = DeflateDecoder::new(stored).take(most).read_to_end(&mut start);
    start
}
