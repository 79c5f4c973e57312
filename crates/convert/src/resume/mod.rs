//! One output of a batch: decides whether that of an earlier batch is complete, or makes it and records its files.

pub(crate) mod made_from;

use std::fs::Metadata;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use byte_source::{
    Action, Blob, Crc32, Location, MappedFile, Observer, ProgressReporter, ReadError, Region, Sink, Source,
    Stat, Store, Window,
};
use output::{Destination, FileRecord, OutputRecord, file_name, parent_folder};

use crate::{ConvertReport, Error, PlannedConversion, Result};

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

/// File that a conversion wrote.
#[derive(Clone, Debug)]
pub(crate) struct WrittenFile {
    pub(crate) path: PathBuf,
    /// CRC-32 of its bytes, if it was computed.
    pub(crate) crc32: Option<u32>,
}

/// Output of one conversion of a batch.
#[derive(Debug)]
pub struct BatchOutput {
    conversion: PlannedConversion,
    /// File or folder that only this conversion writes.
    path: PathBuf,
    /// Name of the output in the records; `None` if it is not UTF-8, so that the output has no record.
    name: Option<String>,
    /// Digest of all that the output is made from; `None` if it cannot be computed.
    made_from: Option<String>,
}

/// Output of an earlier batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExistingOutput {
    /// The output is missing, incomplete, or made from something else.
    Incomplete,
    Complete,
    /// The output is complete, but the times of its files are not the recorded ones. The record has the current ones.
    Touched(OutputRecord),
}

impl BatchOutput {
    /// Finds what the output of `conversion` is made from.
    pub fn new(conversion: PlannedConversion) -> Self {
        let conversion = PlannedConversion { checksums: true, ..conversion };
        let path = conversion.own_output();
        let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        // An input that cannot be read is reported when it is converted.
        let made_from = made_from::made_from_digest(&conversion).ok();
        Self { conversion, path, name, made_from }
    }

    /// Returns the file or folder that only this conversion writes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the digest of the options and the inputs, in hexadecimal; `None` if an input cannot be read.
    pub fn made_from(&self) -> Option<&str> {
        self.made_from.as_deref()
    }

    /// Returns the files from which the checkpoint is read.
    pub fn inputs(&self) -> impl Iterator<Item = Location> {
        self.conversion.sources.locations()
    }

    pub(crate) fn folder(&self) -> &Path {
        parent_folder(&self.path)
    }

    pub(crate) fn destination(&self) -> &Destination {
        &self.conversion.options.destination
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Converts the checkpoint, and returns a record of the output if it was written and can be recorded.
    ///
    /// # Errors
    /// Those of [`PlannedConversion::run`].
    pub fn convert(&self, observer: &dyn Observer) -> Result<(ConvertReport, Option<OutputRecord>)> {
        let report = self.conversion.run(observer)?;
        let record = if report.written { self.record(&report.written_files) } else { None };
        Ok((report, record))
    }

    /// Compares an output with the record of a batch: it is complete if it was made from the same inputs with the same
    /// options, and its files are as they were written.
    ///
    /// # Errors
    /// When `observer` stops the work. An output that cannot be read is not complete.
    pub fn check_existing(
        &self,
        record: &OutputRecord,
        resume: Resume,
        observer: &dyn Observer,
    ) -> Result<ExistingOutput> {
        let is_same = self.made_from.is_some() && record.made_from == self.made_from;
        let is_here = self.name.as_ref() == Some(&record.output);
        if let Some(store) = self.destination().store_of(&self.path)? {
            let store = store.as_ref();
            return if is_same && is_here {
                self.check_stored(store, record, resume, observer)
            } else {
                Ok(ExistingOutput::Incomplete)
            };
        }
        let files = if is_same && is_here { self.existing_files(record) } else { None };
        let Some(files) = files else { return Ok(ExistingOutput::Incomplete) };
        let format = self.conversion.options.target.format();
        if !format.is_complete(&self.path) {
            return Ok(ExistingOutput::Incomplete);
        }
        let is_untouched = files.iter().all(|(file, _, metadata)| file.is_untouched(metadata));
        if is_untouched && resume != Resume::SkipVerified {
            return Ok(ExistingOutput::Complete);
        }
        if files.iter().any(|(file, _, now)| !file.has_same_bytes(now) && self.is_older_than_inputs(now)) {
            return Ok(ExistingOutput::Incomplete);
        }
        let total = files.iter().fold(0_u64, |sum, (file, ..)| sum.saturating_add(file.len));
        let name = file_name(&self.path);
        let work = ProgressReporter::new(observer, &name, Action::Verify, Some(total));
        let mut before = 0_u64;
        for (file, path, _) in &files {
            let source = MappedFile::open(path).ok().map(|file| Arc::new(file) as Arc<dyn Source>);
            if file.crc32.is_none() || checksum(source, work.resumed_at(before))? != file.crc32 {
                return Ok(ExistingOutput::Incomplete);
            }
            before = before.saturating_add(file.len);
        }
        if !format.verify(&self.path, observer)? {
            return Ok(ExistingOutput::Incomplete);
        }
        if is_untouched {
            return Ok(ExistingOutput::Complete);
        }
        let files = files.iter().map(|(file, _, now)| FileRecord::new(&file.path, now, file.crc32)).collect();
        Ok(ExistingOutput::Touched(OutputRecord { files, ..record.clone() }))
    }

    /// Compares an output in a store with its record. There are no times to compare: an object that another program wrote lacks
    /// the mark of this one, and one that this program wrote since has another entity tag.
    fn check_stored(
        &self,
        store: &dyn Store,
        record: &OutputRecord,
        resume: Resume,
        observer: &dyn Observer,
    ) -> Result<ExistingOutput> {
        let path_of = |file: &FileRecord| self.folder().join(&file.path);
        let is_there = |file: &FileRecord| {
            let found = store.stat(&path_of(file)).ok().flatten().and_then(Stat::file);
            is_inside(record, file) && found.is_some_and(|found| file.is_version(&found))
        };
        if record.files.is_empty() || !record.files.iter().all(is_there) {
            return Ok(ExistingOutput::Incomplete);
        }
        if resume == Resume::SkipVerified {
            let total = record.files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.len));
            let name = file_name(&self.path);
            let work = ProgressReporter::new(observer, &name, Action::Verify, Some(total));
            let mut before = 0_u64;
            for file in &record.files {
                let source = store.open(&[path_of(file)]).ok().and_then(|opened| opened.into_iter().next());
                if file.crc32.is_none() || checksum(source, work.resumed_at(before))? != file.crc32 {
                    return Ok(ExistingOutput::Incomplete);
                }
                before = before.saturating_add(file.len);
            }
        }
        Ok(ExistingOutput::Complete)
    }

    /// Returns the files of the output with their paths and their current metadata; `None` if one is missing, or has another
    /// length than in the record.
    fn existing_files<'r>(
        &self,
        record: &'r OutputRecord,
    ) -> Option<Vec<(&'r FileRecord, PathBuf, Metadata)>> {
        let found = |file: &'r FileRecord| {
            let path = self.folder().join(&file.path);
            let metadata = path.symlink_metadata().ok()?;
            let is_as_written = is_inside(record, file) && metadata.is_file() && metadata.len() == file.len;
            is_as_written.then_some((file, path, metadata))
        };
        let files: Option<Vec<_>> = record.files.iter().map(found).collect();
        files.filter(|files| !files.is_empty())
    }

    /// Returns true if a file was changed before one of the inputs was. A time that another program set cannot be that of
    /// this conversion.
    fn is_older_than_inputs(&self, metadata: &Metadata) -> bool {
        let modified = |metadata: &Metadata| metadata.modified().ok();
        let newest =
            self.conversion.sources.inputs().filter_map(|path| modified(&path.metadata().ok()?)).max();
        modified(metadata) < newest
    }

    /// Returns a record of the output, which consists of `written`.
    fn record(&self, written: &[WrittenFile]) -> Option<OutputRecord> {
        let name = self.name.as_ref()?;
        let record = |file: &WrittenFile| {
            let inside = file.path.strip_prefix(&self.path).ok()?;
            let path =
                if inside == Path::new("") { PathBuf::from(name) } else { Path::new(name).join(inside) };
            let path = path.to_str()?;
            if let Some(store) = self.destination().store_of(&file.path).ok()? {
                return Some(FileRecord::from_stat(path, &store.stat(&file.path).ok()??.file()?, file.crc32));
            }
            Some(FileRecord::new(path, &file.path.symlink_metadata().ok()?, file.crc32))
        };
        let files = written.iter().map(record).collect::<Option<Vec<_>>>()?;
        let made_from = Some(self.made_from.clone()?);
        Some(OutputRecord { output: name.clone(), made_from, files })
    }
}

/// Returns true if the path of a file in a record is that of its output, or below it.
fn is_inside(record: &OutputRecord, file: &FileRecord) -> bool {
    let relative = Path::new(&file.path);
    relative.starts_with(&record.output)
        && relative.components().all(|part| matches!(part, Component::Normal(_)))
}

/// Computes the CRC-32 of all bytes of a source; `None` if they cannot be read.
///
/// # Errors
/// When `work` is to be stopped.
fn checksum(source: Option<Arc<dyn Source>>, work: ProgressReporter<'_>) -> Result<Option<u32>> {
    let Some(source) = source else { return Ok(None) };
    let mut sink = ChecksumSink { sum: Crc32::default(), done: 0, work };
    match Region::whole(&source).write_to(&mut sink) {
        Ok(()) => Ok(Some(sink.sum.sum())),
        Err(ReadError::Cancelled(_)) => Err(Error::cancelled()),
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
    fn write(&mut self, window: Window) -> Result<(), ReadError> {
        self.sum.add(&window);
        self.done = self.done.saturating_add(window.len() as u64);
        Ok(self.work.advance(self.done)?)
    }
}
