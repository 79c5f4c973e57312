//! Outputs of earlier batches: decides whether one is complete, and records a new one.

use std::fs::Metadata;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use byte_source::{
    Action, Blob, Cancelled, Crc32, Location, Observer, ProgressReporter, Region, Sink, Stat, Window,
};
use output::{Destination, FileRecord, OutputRecord, WrittenFile, file_name, parent_folder};

/// Inputs of a batch that are skipped because their outputs exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resume {
    /// Every input is converted.
    #[default]
    ConvertAll,
    /// An input is skipped if its output was made from the same input with the same options, and is complete. Only an output
    /// whose times changed is read as a whole; it is not complete if it is older than the input.
    SkipComplete,
    /// Like [`SkipComplete`](Self::SkipComplete), but every output is read as a whole, and the hashes in a carton are
    /// compared.
    SkipVerified,
}

/// `true` is [`Resume::SkipComplete`].
impl From<bool> for Resume {
    fn from(skips: bool) -> Self {
        if skips { Self::SkipComplete } else { Self::ConvertAll }
    }
}

impl Resume {
    /// Returns what is skipped if outputs are, and all of each is read with `verifies`.
    pub fn new(skips: bool, verifies: bool) -> Self {
        if skips && verifies { Self::SkipVerified } else { skips.into() }
    }
}

/// Output of a job, as it is compared with the record of an earlier batch.
pub trait JobOutput {
    /// Returns the file or folder that only this job writes.
    fn path(&self) -> &Path;

    /// Returns where it goes.
    fn destination(&self) -> &Destination;

    /// Returns the digest of all that it is made from, in hexadecimal; `None` if it is not known.
    fn made_from(&self) -> Option<&str>;

    /// Returns the local files that it is made from.
    fn local_inputs(&self) -> Vec<&Path>;

    /// Returns true if what is at the path can be opened and lacks nothing. Hashes are not compared.
    fn is_complete(&self) -> bool;

    /// Returns true if the hashes in what is at the path are right.
    ///
    /// # Errors
    /// When `observer` stops the work.
    fn verify(&self, observer: &dyn Observer) -> Result<bool, Cancelled>;
}

/// Output of an earlier batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExistingOutput {
    /// The output is missing, incomplete, or made from something else.
    Incomplete,
    Complete,
    /// The output is complete, but the times of its files are not the recorded ones. These files have the current ones.
    Touched(Vec<FileRecord>),
}

/// File of an output that is as long as its record says.
struct ExistingFile<'r> {
    record: &'r FileRecord,
    location: Location,
    /// `None` in a store, which has the recorded version of the file.
    metadata: Option<Metadata>,
}

impl ExistingFile<'_> {
    fn is_untouched(&self) -> bool {
        self.metadata.as_ref().is_none_or(|now| self.record.is_untouched(now))
    }

    fn with_current_times(&self) -> FileRecord {
        let record = |now| FileRecord::new(&self.record.path, now, self.record.crc32);
        self.metadata.as_ref().map_or_else(|| self.record.clone(), record)
    }
}

/// Compares an output with the record of an earlier batch: it is complete if it was made from the same inputs with the same
/// options, and its files are as they were written. There are no times to compare in a store: an object that another program
/// wrote lacks the mark of this one, and one that this program wrote since has another entity tag.
///
/// # Errors
/// When `observer` stops the work. An output that cannot be read is not complete.
pub fn check_existing(
    output: &dyn JobOutput,
    record: &OutputRecord,
    resume: Resume,
    observer: &dyn Observer,
) -> Result<ExistingOutput, Cancelled> {
    let is_same = output.made_from().is_some() && record.made_from.as_deref() == output.made_from();
    let files = if is_same { existing_files(output, record) } else { None };
    let Some(files) = files.filter(|_| output.is_complete()) else { return Ok(ExistingOutput::Incomplete) };
    let is_untouched = files.iter().all(ExistingFile::is_untouched);
    if is_untouched && resume != Resume::SkipVerified {
        return Ok(ExistingOutput::Complete);
    }
    let is_older = |file: &ExistingFile<'_>| {
        let now = file.metadata.as_ref();
        now.is_some_and(|now| !file.record.has_same_bytes(now) && is_older_than_inputs(output, now))
    };
    if files.iter().any(is_older) || !has_checksums(output, &files, observer)? || !output.verify(observer)? {
        return Ok(ExistingOutput::Incomplete);
    }
    if is_untouched {
        return Ok(ExistingOutput::Complete);
    }
    Ok(ExistingOutput::Touched(files.iter().map(ExistingFile::with_current_times).collect()))
}

/// Returns the files of an output; `None` if one is missing, or is not as it was written.
fn existing_files<'r>(output: &dyn JobOutput, record: &'r OutputRecord) -> Option<Vec<ExistingFile<'r>>> {
    let store = output.destination().store_of(output.path()).ok()?;
    let name = output.path().file_name()?.to_str()?;
    let find = |record: &'r FileRecord| {
        let relative = Path::new(&record.path);
        let is_inside = relative.starts_with(name)
            && relative.components().all(|part| matches!(part, Component::Normal(_)));
        let path = parent_folder(output.path()).join(relative);
        if !is_inside {
            return None;
        }
        if let Some(store) = store {
            let found = store.stat(&path).ok().flatten().and_then(Stat::file)?;
            let location = Location::new(Arc::clone(store), path);
            return record.is_version(&found).then_some(ExistingFile { record, location, metadata: None });
        }
        let metadata = path.symlink_metadata().ok()?;
        let is_as_written = metadata.is_file() && metadata.len() == record.len;
        is_as_written.then(|| ExistingFile { record, location: path.into(), metadata: Some(metadata) })
    };
    let files: Option<Vec<_>> = record.files.iter().map(find).collect();
    files.filter(|files| record.output == name && !files.is_empty())
}

/// Reads the files, and returns true if all have the recorded checksums. A file without one is recognised by its times.
fn has_checksums(
    output: &dyn JobOutput,
    files: &[ExistingFile<'_>],
    observer: &dyn Observer,
) -> Result<bool, Cancelled> {
    let total = files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.record.len));
    let name = file_name(output.path());
    let work = ProgressReporter::new(observer, &name, Action::Verify, Some(total));
    let mut before = 0_u64;
    for file in files {
        let is_right = match file.record.crc32 {
            None => file.is_untouched(),
            sum => checksum(&file.location, work.resumed_at(before))? == sum,
        };
        if !is_right {
            return Ok(false);
        }
        before = before.saturating_add(file.record.len);
    }
    Ok(true)
}

/// Returns true if a file was changed before one of the inputs was. A time that another program set cannot be that of this
/// job.
fn is_older_than_inputs(output: &dyn JobOutput, metadata: &Metadata) -> bool {
    let modified = |metadata: &Metadata| metadata.modified().ok();
    let inputs = output.local_inputs().into_iter();
    modified(metadata) < inputs.filter_map(|path| modified(&path.metadata().ok()?)).max()
}

/// Returns the record of an output that consists of `written`; `None` if a name is not UTF-8, so that it has no record.
pub fn record_output(output: &dyn JobOutput, written: &[WrittenFile]) -> Option<OutputRecord> {
    let name = output.path().file_name()?.to_str()?;
    let record = |file: &WrittenFile| {
        let inside = file.path.strip_prefix(output.path()).ok()?;
        let path = if inside == Path::new("") { PathBuf::from(name) } else { Path::new(name).join(inside) };
        let path = path.to_str()?;
        if let Some(store) = output.destination().store_of(&file.path).ok()? {
            return Some(FileRecord::from_stat(path, &store.stat(&file.path).ok()??.file()?, file.crc32));
        }
        Some(FileRecord::new(path, &file.path.symlink_metadata().ok()?, file.crc32))
    };
    let files = written.iter().map(record).collect::<Option<Vec<_>>>()?;
    let made_from = Some(output.made_from()?.to_owned());
    Some(OutputRecord { output: name.to_owned(), made_from, files })
}

/// Computes the CRC-32 of all bytes of a file; `None` if they cannot be read.
fn checksum(file: &Location, work: ProgressReporter<'_>) -> Result<Option<u32>, Cancelled> {
    let Ok(source) = file.open() else { return Ok(None) };
    let mut sink = ChecksumSink { sum: Crc32::default(), done: 0, work };
    match Region::whole(&source).write_to(&mut sink) {
        Ok(()) => Ok(Some(sink.sum.sum())),
        Err(error) if error.is_cancelled() => Err(Cancelled),
        Err(_) => Ok(None),
    }
}

/// Sink that computes a CRC-32 and reports the bytes that it received.
struct ChecksumSink<'w> {
    sum: Crc32,
    done: u64,
    work: ProgressReporter<'w>,
}

impl Sink for ChecksumSink<'_> {
    fn write(&mut self, window: Window) -> Result<(), byte_source::Error> {
        self.sum.add(&window);
        self.done = self.done.saturating_add(window.len() as u64);
        Ok(self.work.advance(self.done)?)
    }
}
