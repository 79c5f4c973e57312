//! Keeps ranges of remote files in a folder: an interrupted conversion goes on from them.
//!
//! For each address there is a file `HASH.head` with the version that was read last, or `HASH.document` with a listing. For each version there is a file
//! `HASH.data`, which has the ranges at their offsets, and a file `HASH.ranges` with a line `START END CRC32` for each.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use byte_source::{Crc32, Sha256, hex};
use bytes::Bytes;

use crate::answer::Version;

/// Largest length in bytes of a list of ranges that is read.
const LIST_MAX: u64 = 64 << 20;

/// Range that is in the cache.
#[derive(Debug)]
struct Entry {
    range: Range<u64>,
    crc: u32,
    /// True once the bytes were compared with the checksum.
    is_checked: bool,
}

#[derive(Debug)]
struct Files {
    data: File,
    list: File,
    entries: Vec<Entry>,
}

/// Ranges of one version of a file.
#[derive(Debug)]
pub(crate) struct RangeCache {
    files: Mutex<Files>,
}

impl RangeCache {
    /// Opens the cache of a version, and records that the address has it; `None` if nothing tells versions apart.
    ///
    /// # Errors
    /// When the folder or a file in it cannot be written.
    pub(crate) fn open(folder: &Path, address: &str, version: &Version) -> io::Result<Option<Self>> {
        let Some(etag) = version.commit.as_ref().or(version.etag.as_ref()) else { return Ok(None) };
        fs::create_dir_all(folder)?;
        let line = format!("{}\n{etag}\n", version.len);
        fs::write(file(folder, address, "head"), &line)?;
        Ok(Some(Self::for_version(folder, &format!("{address}\n{line}"))?))
    }

    pub(crate) fn open_last(folder: &Path, address: &str) -> Option<(Self, Version)> {
        let line = fs::read_to_string(file(folder, address, "head")).ok()?;
        let (len, etag) = line.trim_end().split_once('\n')?;
        let version =
            Version { len: len.parse().ok()?, etag: Some(etag.to_owned()), modified: None, commit: None };
        Some((Self::for_version(folder, &format!("{address}\n{line}")).ok()?, version))
    }

    fn for_version(folder: &Path, key: &str) -> io::Result<Self> {
        let open =
            |path: PathBuf| OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let data = open(file(folder, key, "data"))?;
        let mut list = open(file(folder, key, "ranges"))?;
        let mut text = String::new();
        // A list that is damaged is as good as none.
        if Read::by_ref(&mut list).take(LIST_MAX).read_to_string(&mut text).is_err() {
            text.clear();
        }
        list.seek(SeekFrom::End(0))?;
        // The last line may have been cut.
        let whole = text.rfind('\n').and_then(|end| text.get(..end)).unwrap_or_default();
        let entries = whole.lines().filter_map(parse_entry).collect();
        if !text.is_empty() && !text.ends_with('\n') {
            list.write_all(b"\n")?;
        }
        Ok(Self { files: Mutex::new(Files { data, list, entries }) })
    }

    pub(crate) fn get(&self, range: &Range<u64>) -> Option<Bytes> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.check_entries(range);
        let mut at = range.start;
        while at < range.end {
            let covers = |entry: &&Entry| entry.is_checked && entry.range.start <= at && at < entry.range.end;
            at = files.entries.iter().filter(covers).map(|entry| entry.range.end).max()?;
        }
        files.read(range)
    }

    /// Adds bytes. A full disk leaves the cache as it is.
    pub(crate) fn put(&self, start: u64, bytes: &[u8]) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(end) = start.checked_add(bytes.len() as u64).filter(|end| start < *end) else { return };
        let crc = checksum(bytes);
        let line = format!("{start} {end} {crc}\n");
        let data = &mut files.data;
        let written = data.seek(SeekFrom::Start(start)).and_then(|_| data.write_all(bytes));
        if written.and_then(|()| files.list.write_all(line.as_bytes())).is_ok() {
            files.entries.push(Entry { range: start..end, crc, is_checked: true });
        }
    }
}

/// Keeps a document, such as a listing, by its address. A full disk leaves the cache as it is.
pub(crate) fn put_document(folder: &Path, address: &str, document: &[u8]) {
    let (path, part) = (file(folder, address, "document"), file(folder, address, "part"));
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&part, document));
    if written.and_then(|()| fs::rename(&part, path)).is_err() {
        let _ = fs::remove_file(part);
    }
}

/// Returns the document that was kept last for an address.
pub(crate) fn get_document(folder: &Path, address: &str) -> Option<Vec<u8>> {
    fs::read(file(folder, address, "document")).ok()
}

impl Files {
    /// Compares the bytes of the entries that overlap a range with their checksums, once, and forgets those that differ.
    fn check_entries(&mut self, range: &Range<u64>) {
        let overlaps = |entry: &Entry| entry.range.start < range.end && range.start < entry.range.end;
        let mut entries = std::mem::take(&mut self.entries);
        entries.retain_mut(|entry| {
            if !entry.is_checked && overlaps(entry) {
                entry.is_checked = self.read(&entry.range).is_some_and(|bytes| checksum(&bytes) == entry.crc);
                return entry.is_checked;
            }
            true
        });
        self.entries = entries;
    }

    fn read(&mut self, range: &Range<u64>) -> Option<Bytes> {
        let len = range.end.checked_sub(range.start)?;
        // The length in the list may be wrong.
        if range.end > self.data.metadata().ok()?.len() {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        self.data.seek(SeekFrom::Start(range.start)).ok()?;
        self.data.read_exact(&mut bytes).ok()?;
        Some(bytes.into())
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = Crc32::default();
    crc.add_bytes(bytes);
    crc.sum()
}

fn parse_entry(line: &str) -> Option<Entry> {
    let mut parts = line.split(' ');
    let mut next = || parts.next()?.parse::<u64>().ok();
    let (start, end, crc) = (next()?, next()?, next()?);
    (start < end).then_some(Entry { range: start..end, crc: u32::try_from(crc).ok()?, is_checked: false })
}

fn file(folder: &Path, key: &str, extension: &str) -> PathBuf {
    folder.join(format!("{}.{extension}", hex(&Sha256::of(key.as_bytes()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_again_unless_they_are_damaged() {
        let folder = tempfile::tempdir().expect("a folder");
        let version = Version { len: 100, etag: Some("a".to_owned()), ..Version::default() };
        let open = |version: &Version| {
            RangeCache::open(folder.path(), "https://a/b", version).expect("a folder").expect("an ETag")
        };
        let cache = open(&version);
        cache.put(10, b"0123456789");
        cache.put(20, b"abcdefghij");
        assert_eq!(cache.get(&(15..25)).as_deref(), Some(&b"56789abcde"[..]));
        assert_eq!(cache.get(&(25..31)), None);
        drop(cache);
        assert_eq!(open(&version).get(&(10..30)).as_deref(), Some(&b"0123456789abcdefghij"[..]));
        let (last, known) = RangeCache::open_last(folder.path(), "https://a/b").expect("it was opened");
        assert!(last.get(&(10..30)).is_some() && known == version);
        assert_eq!(open(&Version { etag: Some("b".to_owned()), ..version.clone() }).get(&(10..30)), None);
        assert!(RangeCache::open(folder.path(), "x", &Version::default()).expect("a folder").is_none());
        for entry in folder.path().read_dir().expect("a folder") {
            let path = entry.expect("an entry").path();
            let mut bytes = fs::read(&path).expect("a file");
            if path.extension().is_some_and(|extension| extension == "data") && bytes.len() > 12 {
                bytes[12] ^= 1;
                fs::write(path, bytes).expect("a file");
            } else if path.extension().is_some_and(|extension| extension == "ranges") && !bytes.is_empty() {
                fs::write(path, [&bytes[..], b"7 99"].concat()).expect("a file");
            }
        }
        let cache = open(&version);
        assert_eq!(cache.get(&(10..20)), None, "a damaged range");
        assert_eq!(cache.get(&(20..30)).as_deref(), Some(&b"abcdefghij"[..]));
        cache.put(10, b"0123456789");
        assert!(open(&version).get(&(10..30)).is_some(), "a damaged range was replaced");
    }
}
