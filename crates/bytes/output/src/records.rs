//! Records of the outputs in a folder: what each one was made from, and the state of its files when they were complete.
//!
//! The records are lines of JSON in the file `.torch2carton.outputs` of the folder. A later line for the same output replaces
//! an earlier one, and a line that cannot be read is ignored, so a run that was killed while it added a line loses only that
//! line. Outputs themselves contain no record, because the same input must always give the same bytes.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use byte_source::FileStat;
use serde::{Deserialize, Serialize};

use crate::{IfExists, OutputFile};

/// Name of the file with the records, or in a store, of the folder with a file for each. It does not start with the prefix of
/// temporary files, which later runs remove.
pub const RECORDS_NAME: &str = ".torch2carton.outputs";
/// Largest length in bytes of the file with the records. A longer one is ignored, and replaced by the next record.
const RECORDS_MAX: u64 = 64 << 20;
/// Number of replaced lines that stay in the file in any case.
const REPLACED_LINES_MAX: usize = 64;

/// Record of an output: a file, or a folder of files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputRecord {
    /// Name of the output in its folder.
    pub output: String,
    /// Digest of the inputs and the options that the output was made from, in hexadecimal; `None` if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_from: Option<String>,
    /// All files of the output.
    pub files: Vec<FileRecord>,
}

/// State of a file when its output was complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Path of the file, relative to the folder with the records.
    pub path: String,
    /// Length of the file in bytes.
    pub len: u64,
    /// Time of the last change of its bytes, in nanoseconds since 1970; `None` if the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<u64>,
    /// Time of the last change of its bytes or its metadata, in nanoseconds since 1970. No program can set it. `None` if
    /// the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<u64>,
    /// CRC-32 of its bytes; `None` if it was not computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crc32: Option<u32>,
    /// Entity tag of the file in a store; `None` on a disk, and if the service does not send one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
}

/// File of an output that was written.
#[derive(Clone, Debug)]
pub struct WrittenFile {
    pub path: PathBuf,
    /// CRC-32 of its bytes, if it was computed.
    pub crc32: Option<u32>,
    /// SHA-256 of its bytes, if it was computed.
    pub sha256: Option<[u8; 32]>,
}

/// Records of the outputs in one folder, by the name of the output.
#[derive(Clone, Debug, Default)]
pub struct OutputRecords {
    records: HashMap<String, OutputRecord>,
    /// Number of lines in the file, including those that later lines replace.
    lines: usize,
}

impl FileRecord {
    /// Creates the record of a file from its current metadata.
    pub fn new(path: impl Into<String>, metadata: &Metadata, crc32: Option<u32>) -> Self {
        let (modified, changed) = (modified_nanos(metadata), changed_nanos(metadata));
        Self { path: path.into(), len: metadata.len(), modified, changed, crc32, etag: None }
    }

    /// Creates the record of a file in a store, which has no times.
    pub fn from_stat(path: impl Into<String>, file: &FileStat, crc32: Option<u32>) -> Self {
        let etag = file.etag.clone();
        Self { path: path.into(), len: file.len.unwrap_or(0), modified: None, changed: None, crc32, etag }
    }

    /// Returns true if a file in a store is the recorded one. Records of earlier versions have no entity tag.
    pub fn is_version(&self, found: &FileStat) -> bool {
        found.is_own && found.len == Some(self.len) && (self.etag.is_none() || self.etag == found.etag)
    }

    /// Returns true if the length and the time of the last change of the bytes are those of this record.
    pub fn has_same_bytes(&self, metadata: &Metadata) -> bool {
        self.len == metadata.len() && self.modified.is_some() && self.modified == modified_nanos(metadata)
    }

    /// Returns true if neither the bytes nor the metadata of the file changed. A program that writes the file and then sets
    /// its time back does not go unnoticed.
    pub fn is_untouched(&self, metadata: &Metadata) -> bool {
        self.has_same_bytes(metadata) && self.changed == changed_nanos(metadata)
    }
}

impl OutputRecords {
    /// Reads the records of a folder. There are none if the file with the records is missing or cannot be read.
    pub fn read(folder: &Path) -> Self {
        let mut bytes = Vec::new();
        let Ok(file) = open_regular(&folder.join(RECORDS_NAME), Access::Read) else { return Self::default() };
        let read = file.take(RECORDS_MAX.saturating_add(1)).read_to_end(&mut bytes);
        if read.is_err() || bytes.len() as u64 > RECORDS_MAX {
            return Self::default();
        }
        let mut records = Self::default();
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            records.lines = records.lines.saturating_add(1);
            if let Ok(record) = serde_json::from_slice::<OutputRecord>(line) {
                records.records.insert(record.output.clone(), record);
            }
        }
        records
    }

    /// Returns the record of an output.
    pub fn get(&self, output: &str) -> Option<&OutputRecord> {
        self.records.get(output)
    }

    /// Adds the record of an output to the file of a folder.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn append(folder: &Path, record: &OutputRecord) -> io::Result<()> {
        let path = folder.join(RECORDS_NAME);
        let mut file = open_regular(&path, Access::Append)?;
        let len = file.metadata()?.len();
        if len > RECORDS_MAX {
            file.set_len(0)?;
        }
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        if !ends_with_line(&mut file)? {
            line.insert(0, b'\n');
        }
        // One call, so that the lines of two programs do not mix.
        file.write_all(&line)
    }

    /// Writes the file of a folder again if most of its lines are replaced by later ones. Records of outputs that no longer
    /// exist are dropped.
    pub fn compact(&self, folder: &Path) {
        let most = self.records.len().saturating_mul(2).saturating_add(REPLACED_LINES_MAX);
        if self.lines > most {
            // Best effort: the records are right without it.
            let _ = self.rewrite(folder);
        }
    }

    fn rewrite(&self, folder: &Path) -> crate::Result<()> {
        let path = folder.join(RECORDS_NAME);
        let is_there = |record: &&OutputRecord| folder.join(&record.output).symlink_metadata().is_ok();
        let mut kept: Vec<&OutputRecord> = self.records.values().filter(is_there).collect();
        kept.sort_by(|a, b| a.output.cmp(&b.output));
        let mut text = Vec::new();
        let failed = |reason: io::Error| byte_source::FileError::Write { path: path.clone(), reason };
        for record in kept {
            text.extend(serde_json::to_vec(record).map_err(|error| failed(error.into()))?);
            text.push(b'\n');
        }
        let mut output = OutputFile::create(&path, text.len() as u64)?;
        output.write_all(&text).map_err(failed)?;
        output.commit(IfExists::Replace)
    }
}

/// Returns true if `file` is empty or its last byte ends a line.
fn ends_with_line(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

fn modified_nanos(metadata: &Metadata) -> Option<u64> {
    let since = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok()
}

#[cfg(unix)]
fn changed_nanos(metadata: &Metadata) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let (seconds, nanos) =
        (u64::try_from(metadata.ctime()).ok()?, u64::try_from(metadata.ctime_nsec()).ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

#[cfg(not(unix))]
fn changed_nanos(_: &Metadata) -> Option<u64> {
    None
}

/// Purpose for which a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// Reading, and writing at the end. A file that is missing is created.
    Append,
}

/// Opens a regular file, without following a symbolic link or waiting for the other end of a pipe.
pub(crate) fn open_regular(path: &Path, access: Access) -> io::Result<File> {
    let file = open_nofollow(path, access)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

#[cfg(unix)]
fn open_nofollow(path: &Path, access: Access) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = match access {
        Access::Read => OFlags::RDONLY,
        Access::Append => OFlags::RDWR | OFlags::APPEND | OFlags::CREATE,
    };
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(0o666))?))
}

#[cfg(not(unix))]
fn open_nofollow(path: &Path, access: Access) -> io::Result<File> {
    match access {
        Access::Read => File::open(path),
        Access::Append => File::options().read(true).append(true).create(true).open(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(output: &str, made_from: &str) -> OutputRecord {
        let file = FileRecord {
            path: output.to_owned(),
            len: 3,
            modified: Some(1),
            changed: Some(2),
            crc32: Some(3),
            etag: None,
        };
        OutputRecord { output: output.to_owned(), made_from: Some(made_from.to_owned()), files: vec![file] }
    }

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary folder")
    }

    #[test]
    fn the_last_record_of_an_output_counts() {
        let folder = folder();
        assert!(OutputRecords::read(folder.path()).get("a").is_none());
        for made_from in ["one", "two"] {
            OutputRecords::append(folder.path(), &record("a", made_from)).expect("it can be written");
            OutputRecords::append(folder.path(), &record("line\nend ä", made_from))
                .expect("it can be written");
        }
        let records = OutputRecords::read(folder.path());
        assert_eq!(records.get("a"), Some(&record("a", "two")));
        assert_eq!(records.get("line\nend ä"), Some(&record("line\nend ä", "two")));
        assert_eq!(records.lines, 4);
    }

    #[test]
    fn a_line_that_was_cut_loses_only_itself() {
        let folder = folder();
        let path = folder.path().join(RECORDS_NAME);
        OutputRecords::append(folder.path(), &record("a", "one")).expect("it can be written");
        OutputRecords::append(folder.path(), &record("b", "one")).expect("it can be written");
        let whole = std::fs::read(&path).expect("it was written");
        let first = whole.iter().position(|byte| *byte == b'\n').expect("two lines") + 1;
        for len in first..whole.len() {
            std::fs::write(&path, &whole[..len]).expect("it can be written");
            OutputRecords::append(folder.path(), &record("c", "one")).expect("it can be written");
            let records = OutputRecords::read(folder.path());
            assert_eq!(records.get("a"), Some(&record("a", "one")), "{len}");
            assert_eq!(records.get("b").is_some(), len == whole.len() - 1, "{len}");
            assert_eq!(records.get("c"), Some(&record("c", "one")), "{len}");
        }
        std::fs::write(&path, b"\xff\n{}\n[]\n{\"output\":\"a\",\"files\":[]}\n").expect("it can be written");
        let records = OutputRecords::read(folder.path());
        assert_eq!((records.lines, records.records.len()), (4, 1));
        assert!(records.get("a").is_some_and(|record| record.made_from.is_none()));
    }

    #[test]
    fn replaced_lines_are_dropped() {
        let folder = folder();
        std::fs::write(folder.path().join("a"), "").expect("a temporary folder");
        for count in 0..200 {
            OutputRecords::append(folder.path(), &record("a", &count.to_string()))
                .expect("it can be written");
            OutputRecords::append(folder.path(), &record("gone", "one")).expect("it can be written");
        }
        let records = OutputRecords::read(folder.path());
        assert_eq!(records.lines, 400);
        records.compact(folder.path());
        let records = OutputRecords::read(folder.path());
        assert_eq!((records.lines, records.get("a")), (1, Some(&record("a", "199"))));
        records.compact(folder.path());
        assert_eq!(OutputRecords::read(folder.path()).lines, 1);
    }

    #[test]
    fn a_file_that_is_too_long_is_replaced() {
        let folder = folder();
        let file = File::create(folder.path().join(RECORDS_NAME)).expect("a temporary folder");
        file.set_len(RECORDS_MAX + 1).expect("a sparse file");
        assert_eq!(OutputRecords::read(folder.path()).lines, 0);
        OutputRecords::append(folder.path(), &record("a", "one")).expect("it can be written");
        let records = OutputRecords::read(folder.path());
        assert_eq!((records.lines, records.get("a").is_some()), (1, true));
    }

    #[test]
    fn a_file_in_a_store_is_known_by_its_mark_its_length_and_its_etag() {
        let file = FileStat { len: Some(3), is_own: true, etag: Some("1".to_owned()), version: None };
        let record = FileRecord::from_stat("x", &file, None);
        assert!(record.is_version(&file));
        assert!(!record.is_version(&FileStat { is_own: false, ..file.clone() }));
        assert!(!record.is_version(&FileStat { len: Some(4), ..file.clone() }));
        assert!(!record.is_version(&FileStat { etag: Some("2".to_owned()), ..file.clone() }));
        assert!(!record.is_version(&FileStat { etag: None, ..file.clone() }));
        let earlier = FileRecord { etag: None, ..record };
        assert!(earlier.is_version(&file));
    }

    #[cfg(unix)]
    #[test]
    fn records_in_a_link_or_a_pipe_are_not_read() {
        let folder = folder();
        let path = folder.path().join(RECORDS_NAME);
        OutputRecords::append(folder.path(), &record("a", "one")).expect("it can be written");
        std::fs::rename(&path, folder.path().join("other")).expect("it was written");
        std::os::unix::fs::symlink("other", &path).expect("a temporary folder");
        assert!(OutputRecords::read(folder.path()).get("a").is_none());
        assert!(OutputRecords::append(folder.path(), &record("b", "one")).is_err());
        std::fs::remove_file(&path).expect("it is ours");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).expect("a pipe");
        assert!(OutputRecords::read(folder.path()).get("a").is_none());
        assert!(OutputRecords::append(folder.path(), &record("b", "one")).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_change_is_noticed_even_if_the_time_is_set_back() {
        let folder = folder();
        let path = folder.path().join("x");
        std::fs::write(&path, b"abc").expect("a temporary folder");
        let metadata = || path.metadata().expect("it is there");
        let before = metadata();
        let record = FileRecord::new("x", &before, None);
        assert!(record.has_same_bytes(&before) && record.is_untouched(&before));
        // Clocks of filesystems are slower than tests.
        while metadata().modified().ok() == before.modified().ok() {
            std::fs::write(&path, b"abd").expect("it is ours");
        }
        assert!(!record.has_same_bytes(&metadata()) && !record.is_untouched(&metadata()));
        let file = File::options().write(true).open(&path).expect("it is ours");
        file.set_modified(before.modified().expect("it has a time")).expect("it is ours");
        assert!(record.has_same_bytes(&metadata()) && !record.is_untouched(&metadata()));
    }
}
