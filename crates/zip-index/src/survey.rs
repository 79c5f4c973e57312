//! Inspects a zip file without stopping at the first fault.
//!
//! [`Index`](crate::Index) rejects files that two readers may see differently. A scanner wants to see all of it: every
//! entry that any reader may find, and everything that is odd about them.
//!
//! Facts: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 to 4.5.

use std::collections::HashSet;
use std::ops::Range;

use mapped::PRODUCER;

use crate::index::{Entry, compared, leads_out};
use crate::record::{End, Header, Method};
use crate::{Error, Result};

/// The most entries and oddities that are collected.
const ENTRIES_MAX: usize = 1 << 20;
const ODDITIES_MAX: usize = 1 << 10;
const LOCAL: &[u8] = b"PK\x03\x04";
const CENTRAL: &[u8] = b"PK\x01\x02";
const DESCRIPTOR: &[u8] = b"PK\x07\x08";
const END: &[u8] = b"PK\x05\x06";
/// The most bytes of a link's target that are looked at: the longest path in Linux.
const TARGET: usize = 4096;
/// Bytes of a data descriptor: with or without signature, with 32-bit or 64-bit sizes.
const DESCRIPTORS: [usize; 4] = [12, 16, 20, 24];

/// The contents of a zip file that may be damaged or ambiguous.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// The entries of the directory, and those that have only a local header.
    pub entries: Vec<Entry>,
    /// What is odd.
    pub oddities: Vec<Oddity>,
    /// Whether there were more of either than are collected.
    pub cut: bool,
    /// Whether the file ends before its directory, as a download that was interrupted does. The entries are those of
    /// which something is there.
    pub is_cut: bool,
}

/// Something odd about a zip file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oddity {
    /// The kind of oddity, in one word for programs.
    pub kind: &'static str,
    /// What is odd, as a clause without full stop.
    pub text: String,
}

impl Survey {
    /// Surveys `bytes`, a whole zip file.
    pub fn read(bytes: &[u8]) -> Self {
        let mut survey = Self::default();
        if bytes.starts_with(LOCAL) && find(bytes, END).is_none() {
            survey.interrupted(bytes);
            return survey;
        }
        match survey.directory(bytes) {
            Some(start) => survey.hidden(bytes, start),
            // Without a directory there are only local headers.
            None => survey.unlisted(bytes, 0..bytes.len(), false),
        }
        survey.overlaps_and_duplicates();
        survey.links(bytes);
        survey
    }

    /// The archives in `bytes`, if they are whole and follow one another from the first byte to the last.
    /// `torch.distributed.checkpoint` writes one for each tensor into a `.distcp` file.
    pub fn sequence(bytes: &[u8]) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        let mut end = bytes.len();
        while end > 0 {
            let start = bytes.get(..end).and_then(End::start).and_then(|start| usize::try_from(start).ok());
            let Some(start) = start.filter(|start| *start < end && parts.len() < ENTRIES_MAX) else {
                return Vec::new();
            };
            parts.push(start..end);
            end = start;
        }
        parts.reverse();
        parts
    }

    /// Whether a directory is where the last end record in the last 64 KiB says, whatever follows that record. Python's
    /// `zipfile` and miniz, which PyTorch uses, accept that.
    pub fn has_directory(bytes: &[u8]) -> bool {
        let from = bytes.len().saturating_sub(usize::from(u16::MAX).saturating_add(22));
        let tail = bytes.get(from..).unwrap_or_default();
        // Most bytes have no such record; then nothing else is looked at.
        find(tail, END).is_some()
            && End::last(bytes).is_some_and(|end| Header::central(bytes, end.directory_offset).is_ok())
    }

    /// Whether `bytes` end like a zip file.
    pub fn ends_as_zip(bytes: &[u8]) -> bool {
        End::read(bytes).is_ok()
    }

    fn odd(&mut self, kind: &'static str, text: String) {
        if self.oddities.len() >= ODDITIES_MAX {
            self.cut = true;
        } else {
            self.oddities.push(Oddity { kind, text });
        }
    }

    /// Follows the local headers of a file that ends before its directory. What they say about later ones is unknown, so
    /// nothing is compared.
    fn interrupted(&mut self, bytes: &[u8]) {
        self.is_cut = true;
        let mut offset = 0_usize;
        let mut missing = None;
        while let Ok(local) = local_header(bytes, offset as u64) {
            if self.entries.len() >= ENTRIES_MAX {
                self.cut = true;
                break;
            }
            let span = usize::try_from(local.span).unwrap_or(usize::MAX);
            let start = offset.saturating_add(span).min(bytes.len());
            let rest = bytes.get(start..).unwrap_or_default();
            let len = usize::try_from(local.compressed_len).unwrap_or(usize::MAX);
            let has_len = !(local.has_descriptor() && len == 0);
            // Without sizes, the data extend to the next record.
            let len = if has_len { len } else { next_record(rest).unwrap_or(usize::MAX) };
            missing = Some(len.saturating_sub(rest.len())).filter(|_| has_len);
            let end = start.saturating_add(len).min(bytes.len());
            let name = local.display_name();
            self.entries.extend(Entry::lenient(&local, name, offset as u64, start as u64, end));
            let next = bytes.get(end..).and_then(|rest| find(rest, LOCAL));
            let Some(next) = next else { break };
            offset = end.saturating_add(next);
        }
        let last = self.entries.last().map_or_else(String::new, |entry| {
            let (name, here) = (entry.name.escape_debug(), entry.data.len());
            let of = match missing {
                Some(0) => String::new(),
                Some(missing) => format!(", of which {missing} bytes are missing"),
                None => ", whose length is not known".to_owned(),
            };
            format!(", and the last of its {} entries is `{name}` with {here} bytes{of}", self.entries.len())
        });
        let text = format!(
            "it ends after {} bytes, before the directory of the archive{last}: the file is cut short; download or copy \
             it again",
            bytes.len()
        );
        self.odd("cut", text);
    }

    /// Reads the entries of the directory and returns where the directory starts.
    fn directory(&mut self, bytes: &[u8]) -> Option<usize> {
        let end = match End::read(bytes) {
            Ok(end) => end,
            Err(error) => {
                self.odd(kind(&error), error.to_string());
                let end = End::last(bytes)?;
                let trailing = (bytes.len() as u64).saturating_sub(end.offset).saturating_sub(End::LEN);
                self.odd("trailing", format!("{trailing} bytes follow the record that ends the archive"));
                end
            }
        };
        let comment = usize::try_from(end.record.saturating_add(End::LEN)).ok();
        let comment = comment.and_then(|start| bytes.get(start..)).unwrap_or_default();
        // Archives that this program wrote have its name as their comment.
        if !comment.is_empty() && comment != PRODUCER.as_bytes() && self.oddities.is_empty() {
            self.odd("comment", format!("a comment of {} bytes ends the archive", comment.len()));
        }
        // Bytes before an archive shift all of its offsets; some readers compensate for that.
        let start = end.offset.saturating_sub(end.directory_len);
        let moved = start.saturating_sub(end.directory_offset);
        let start =
            if Header::central(bytes, end.directory_offset).is_ok() { end.directory_offset } else { start };
        let moved = if start == end.directory_offset { 0 } else { moved };
        if moved > 0 {
            self.odd(
                "prepended",
                format!("the archive starts {moved} bytes later in the file than its directory says"),
            );
        }
        let mut offset = start;
        let mut count = 0_u64;
        while offset < end.offset
            && let Ok(mut central) = Header::central(bytes, offset)
        {
            if self.entries.len() >= ENTRIES_MAX {
                self.cut = true;
                break;
            }
            central.local_offset = central.local_offset.saturating_add(moved);
            self.listed(bytes, &central, start);
            offset = offset.saturating_add(central.span);
            count = count.saturating_add(1);
        }
        if count != end.entries {
            self.odd(
                "directory",
                format!("the directory lists {count} entries, its end record counts {}", end.entries),
            );
        }
        if offset != end.offset {
            let (gap, at) = (end.offset.abs_diff(offset), offset);
            self.odd("gap", format!("{gap} bytes at offset 0x{at:x} follow the directory's last entry"));
        }
        usize::try_from(start).ok()
    }

    /// An entry of the directory: as the strict reader sees it, or with the fault that it finds.
    fn listed(&mut self, bytes: &[u8], central: &Header<'_>, limit: u64) {
        let offset = central.local_offset;
        let past = || Error::PastEnd { name: central.display_name(), end: offset, limit };
        let local = if offset < limit { local_header(bytes, offset) } else { Err(past()) };
        let error = match local.and_then(|local| compared(central, &local, limit)) {
            Ok(entry) => return self.entries.push(entry),
            Err(error) => error,
        };
        self.odd(kind(&error), error.to_string());
        let Ok(local) = local_header(bytes, central.local_offset) else { return };
        let start = central.local_offset.saturating_add(local.span);
        // Some readers use the sizes of the directory, others those of the local header.
        for (header, name) in [(central, central.display_name()), (&local, local.display_name())] {
            let Some(found) = Entry::lenient(header, name, central.local_offset, start, bytes.len()) else {
                continue;
            };
            let same = |entry: &Entry| entry.name == found.name && entry.data == found.data;
            if !(self.entries.last().is_some_and(same) || found.data.is_empty()) {
                self.entries.push(found);
            }
        }
    }

    /// Looks between the entries for local headers that the directory does not list, and for other bytes.
    fn hidden(&mut self, bytes: &[u8], end: usize) {
        let mut known: Vec<Range<usize>> = self.entries.iter().map(Entry::span).collect();
        known.sort_by_key(|range| (range.start, range.end));
        let mut at = 0;
        for next in known.into_iter().chain(std::iter::once(end..end)) {
            if next.start > at {
                self.gap(bytes, at..next.start);
            }
            at = at.max(next.end);
        }
    }

    fn gap(&mut self, bytes: &[u8], range: Range<usize>) {
        let Some(gap) = bytes.get(range.clone()) else { return };
        let descriptor = range.start > 0
            && DESCRIPTORS.contains(&gap.len())
            && (gap.starts_with(b"PK\x07\x08") || matches!(gap.len(), 12 | 20));
        if descriptor {
            return;
        }
        let (len, at) = (gap.len(), range.start);
        let place = if at == 0 { "before the first entry" } else { "that belong to no entry" };
        let kind = if at == 0 { "prepended" } else { "gap" };
        self.odd(kind, format!("{len} bytes {place} at offset 0x{at:x}"));
        self.unlisted(bytes, range, true);
    }

    /// Looks for local headers in a part of the file.
    fn unlisted(&mut self, bytes: &[u8], range: Range<usize>, report: bool) {
        let (gap, at) = (bytes.get(range.clone()).unwrap_or_default(), range.start);
        let mut start = 0_usize;
        while let Some(found) = find(gap.get(start..).unwrap_or_default(), b"PK\x03\x04") {
            let offset = at.saturating_add(start).saturating_add(found);
            start = start.saturating_add(found).saturating_add(4);
            if self.entries.len() >= ENTRIES_MAX {
                self.cut = true;
                return;
            }
            let Ok(local) = local_header(bytes, offset as u64) else { continue };
            let data = (offset as u64).saturating_add(local.span);
            let name = local.display_name();
            if report {
                let shown = name.escape_debug();
                self.odd(
                    "unlisted",
                    format!("entry `{shown}` at offset 0x{offset:x} is not listed in the directory"),
                );
            }
            self.entries.extend(Entry::lenient(&local, name, offset as u64, data, range.end));
        }
    }

    fn overlaps_and_duplicates(&mut self) {
        // Two views of one entry overlap, but they are not two entries.
        let mut offsets = HashSet::new();
        let entries = self.entries.iter().filter(|entry| offsets.insert(entry.header_offset));
        let entries: Vec<Entry> = entries.cloned().collect();
        let (overlaps, duplicates) = (overlaps(&entries), duplicates(&entries));
        let mut reported = HashSet::new();
        for error in overlaps.into_iter().chain(duplicates) {
            let text = error.to_string();
            if reported.insert(text.clone()) {
                self.odd(kind(&error), text);
            }
        }
        let unsafe_names: Vec<String> = self.entries.iter().map(|entry| entry.name.clone()).collect();
        for name in unsafe_names.into_iter().filter(|name| leads_out(name)) {
            let text = Error::Path { name }.to_string();
            if !self.oddities.iter().any(|oddity| oddity.text == text) {
                self.odd("path", text);
            }
        }
    }
}

impl Survey {
    /// Reports the links that lead to nothing in the archive: a program that unpacks them may follow them to a file of
    /// the system.
    fn links(&mut self, bytes: &[u8]) {
        let names: HashSet<&str> = self.entries.iter().map(|entry| entry.name.as_str()).collect();
        let mut lost = Vec::new();
        // The target of a compressed link is not known here.
        for entry in self.entries.iter().filter(|entry| entry.link && entry.method == Method::Stored) {
            let target = bytes.get(entry.data.clone()).unwrap_or_default();
            let target = target.get(..target.len().min(TARGET)).unwrap_or_default();
            let target = String::from_utf8_lossy(target);
            let there = resolved(&entry.name, &target);
            if !there.is_some_and(|there| names.contains(there.as_str())) {
                lost.push((entry.name.clone(), target.into_owned()));
            }
        }
        for (name, target) in lost {
            let (name, target) = (name.escape_debug(), target.escape_debug());
            self.odd("link", format!("entry `{name}` is a link to `{target}`, which is not in the archive"));
        }
    }
}

/// The name of the entry that the link `name` leads to; `None` for one that leads out of the archive.
fn resolved(name: &str, target: &str) -> Option<String> {
    if target.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = name.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

impl Entry {
    /// The range from its header to the end of its data.
    fn span(&self) -> Range<usize> {
        usize::try_from(self.header_offset).unwrap_or(usize::MAX)..self.data.end
    }

    /// The entry that a header describes, whose data start at `start` and are cut at `limit`.
    fn lenient(header: &Header<'_>, name: String, offset: u64, start: u64, limit: usize) -> Option<Self> {
        let start = usize::try_from(start).ok().filter(|start| *start <= limit)?;
        let method = Method::from(header.method);
        let len = usize::try_from(header.compressed_len).unwrap_or(usize::MAX);
        // Without sizes the data may extend to the next record.
        let len = if header.has_descriptor() && len == 0 { usize::MAX } else { len };
        Some(Self {
            name,
            method,
            data: start..start.saturating_add(len).min(limit),
            len: header.len,
            crc: u32::try_from(header.crc).unwrap_or_default(),
            header_offset: offset,
            link: header.is_link(),
        })
    }
}

/// The entries that share bytes with the one before them.
fn overlaps(entries: &[Entry]) -> Vec<Error> {
    let mut by_offset: Vec<&Entry> = entries.iter().collect();
    by_offset.sort_by_key(|entry| entry.header_offset);
    let overlap = |pair: &[&Entry]| match pair {
        [first, second] if first.data.end as u64 > second.header_offset => Some(Error::Overlap {
            first: first.name.clone(),
            second: second.name.clone(),
            offset: second.header_offset,
        }),
        _ => None,
    };
    by_offset.windows(2).filter_map(overlap).collect()
}

/// The entries that have the same name as another one.
fn duplicates(entries: &[Entry]) -> Vec<Error> {
    let mut by_name: Vec<&Entry> = entries.iter().collect();
    by_name.sort_by(|a, b| a.name.cmp(&b.name).then(a.header_offset.cmp(&b.header_offset)));
    let duplicate = |pair: &[&Entry]| match pair {
        [first, second] if first.name == second.name => Some(Error::Duplicate {
            name: first.name.clone(),
            first: first.header_offset,
            second: second.header_offset,
        }),
        _ => None,
    };
    by_name.windows(2).filter_map(duplicate).collect()
}

fn local_header(bytes: &[u8], offset: u64) -> Result<Header<'_>> {
    let from = usize::try_from(offset).ok().and_then(|from| bytes.get(from..));
    let local = from.and_then(Header::local);
    local.ok_or(Error::NoRecord { record: "local header", offset })
}

/// The kind of oddity that an error is.
fn kind(error: &Error) -> &'static str {
    match error {
        Error::NoEnd { .. } => "cut",
        Error::Disks | Error::Disagreement { .. } => "directory",
        Error::NoRecord { .. } | Error::NoLocal { .. } | Error::PastEnd { .. } | Error::Unread { .. } => {
            "missing"
        }
        Error::Renamed { .. } | Error::Local { .. } | Error::TwoZip64 { .. } | Error::TwoNames { .. } => {
            "disagreement"
        }
        Error::Overlap { .. } => "overlap",
        Error::Duplicate { .. } => "duplicate",
        Error::Path { .. } => "path",
        Error::Encrypted { .. } => "encrypted",
        Error::Patch { .. } => "patch",
    }
}

/// Where the data of an entry without sizes end: before the next record, and the descriptor before that.
fn next_record(bytes: &[u8]) -> Option<usize> {
    let next = [LOCAL, CENTRAL].into_iter().filter_map(|signature| find(bytes, signature)).min()?;
    let is_descriptor = |start: &usize| bytes.get(*start..).is_some_and(|rest| rest.starts_with(DESCRIPTOR));
    let descriptor = [16, 24].into_iter().filter_map(|len| next.checked_sub(len)).find(is_descriptor);
    Some(descriptor.unwrap_or(next))
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An archive whose entries are stored; where each starts, and where the directory does.
    fn archive(entries: &[(&str, &[u8])]) -> (Vec<u8>, Vec<usize>) {
        let (mut file, mut directory, mut starts) = (Vec::new(), Vec::new(), Vec::new());
        for (name, data) in entries {
            let fields = fields(name, data, 0);
            starts.push(file.len());
            let offset = u32::try_from(file.len()).expect("it is short").to_le_bytes();
            file.extend([LOCAL, &fields, name.as_bytes(), data].concat());
            directory.extend([CENTRAL, &[0; 2], &fields, &[0; 10], &offset, name.as_bytes()].concat());
        }
        starts.push(file.len());
        let count = u16::try_from(entries.len()).expect("they are few").to_le_bytes();
        let numbers = [directory.len(), file.len()].map(|number| u32::try_from(number).expect("it is short"));
        let numbers = numbers.map(u32::to_le_bytes).concat();
        file.extend([&directory, END, &[0; 4], &count, &count, &numbers, &[0; 2]].concat());
        (file, starts)
    }

    /// The fields from the version to the length of the extra field.
    fn fields(name: &str, data: &[u8], flags: u16) -> Vec<u8> {
        let len = if flags & 8 == 0 { u32::try_from(data.len()).expect("it is short") } else { 0 };
        let name_len = u16::try_from(name.len()).expect("it is short").to_le_bytes();
        let (flags, len) = (flags.to_le_bytes(), len.to_le_bytes());
        [&[20, 0][..], &flags, &[0; 2], &[0; 4], &[0; 4], &len, &len, &name_len, &[0; 2]].concat()
    }

    /// The entries of an interrupted archive with the lengths of their data, and what is odd.
    fn interrupted(bytes: &[u8]) -> (Vec<(String, usize)>, String) {
        let survey = Survey::read(bytes);
        assert!(survey.is_cut && !survey.cut);
        let [oddity] = survey.oddities.as_slice() else { panic!("{:?}", survey.oddities) };
        assert_eq!(oddity.kind, "cut");
        let entries = survey.entries.into_iter().map(|entry| (entry.name, entry.data.len()));
        (entries.collect(), oddity.text.clone())
    }

    #[test]
    fn a_whole_archive_is_not_cut() {
        let (whole, _) = archive(&[("a", b"12345"), ("b", b"678")]);
        let survey = Survey::read(&whole);
        assert!(!survey.is_cut && survey.oddities.is_empty(), "{:?}", survey.oddities);
        assert_eq!(survey.entries.len(), 2);
    }

    #[test]
    fn an_archive_that_is_cut_anywhere_has_the_entries_that_are_there() {
        let (whole, starts) = archive(&[("a", b"12345"), ("b", b"678")]);
        let (b, directory) = (starts[1], starts[2]);
        for end in 31..whole.len() - 22 {
            let (entries, text) = interrupted(&whole[..end]);
            let of_a = end.min(b) - 31;
            let mut expected = vec![("a".to_owned(), of_a)];
            if end >= b + 31 {
                expected.push(("b".to_owned(), end.min(directory) - b - 31));
            }
            assert_eq!(entries, expected, "{end}");
            assert!(text.starts_with(&format!("it ends after {end} bytes, before the directory")), "{text}");
            let missing = if end < b { b - end } else { directory.saturating_sub(end) };
            let is_b = end >= b + 31;
            let missing = if !is_b && end >= b { 0 } else { missing };
            assert_eq!(
                text.contains(&format!("of which {missing} bytes are missing")),
                missing > 0,
                "{text}"
            );
        }
        let nothing = interrupted(&whole[..10]);
        assert_eq!(nothing.0, []);
    }

    #[test]
    fn data_without_a_length_extend_to_the_next_record() {
        let streamed = |name: &str, data: &[u8], descriptor: &[u8]| {
            [LOCAL, &fields(name, data, 8), name.as_bytes(), data, descriptor].concat()
        };
        let descriptor = [DESCRIPTOR, &[0; 12]].concat();
        let wide = [DESCRIPTOR, &[0; 20]].concat();
        let file = [
            streamed("a", b"123", &descriptor),
            streamed("b", b"4567", &wide),
            streamed("c", b"8", b""),
            streamed("d", b"90", b""),
        ]
        .concat();
        let (entries, text) = interrupted(&file);
        let expected = [("a", 3), ("b", 4), ("c", 1), ("d", 2)].map(|(name, len)| (name.to_owned(), len));
        assert_eq!(entries, expected);
        assert!(text.contains("`d` with 2 bytes, whose length is not known"), "{text}");
        // The directory has begun.
        let (entries, _) = interrupted(&[&file[..], CENTRAL, &[0; 20]].concat());
        assert_eq!(entries, expected);
    }

    #[test]
    fn archives_that_follow_one_another_are_a_sequence() {
        let (first, _) = archive(&[("a", b"12345")]);
        let (second, _) = archive(&[("b", b"678"), ("c", b"")]);
        let (empty, _) = archive(&[]);
        let (a, b) = (first.len(), second.len());
        assert_eq!(Survey::sequence(&first), vec![Range { start: 0, end: a }]);
        assert_eq!(Survey::sequence(&[&first[..], &second].concat()), [0..a, a..a + b]);
        let three = [&first[..], &empty, &second].concat();
        assert_eq!(Survey::sequence(&three), [0..a, a..a + 22, a + 22..a + 22 + b]);
        for other in [
            Vec::new(),
            b"PK".to_vec(),
            first[1..].to_vec(),
            [b"x", &first[..]].concat(),
            [&first[..], b"x"].concat(),
            [&first[..], b"x", &second].concat(),
            [&first[..a - 1], &second].concat(),
            // Bytes before an archive whose last archive is whole.
            [&second[..b - 3], &first[..]].concat(),
        ] {
            assert_eq!(Survey::sequence(&other), [], "{}", other.escape_ascii());
        }
    }
}
