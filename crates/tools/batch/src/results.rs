//! Results of a batch: a line of JSON for each input, in a file from which a later batch goes on.
//!
//! A line is added with one write when its input ends. A line that was cut when the program was killed is removed. A line that
//! replaces an older one of the same input is added like any other; the older one is removed when the batch is complete.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read as _, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use output::{FileRecord, IfExists, OutputFile};
use serde::{Deserialize, Serialize};

use crate::index::TextIndex;
use crate::input_key::input_key;
use crate::{Error, Outcome, Problem, Result};

/// Version of the fields of [`ResultLine`].
const SCHEMA_VERSION: u32 = 1;
/// Maximum length of a line in bytes. The line of an output of 100,000 files has about 20 MB.
const LINE_MAX: u64 = 64 << 20;

/// Result of one input of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ResultLine {
    /// Version of the fields.
    pub schema_version: u32,
    /// Path of the input, as the manifest has it.
    pub input: String,
    pub status: ResultStatus,
    /// Text of the error, if the input failed.
    pub error: Option<String>,
    /// Name of the error's kind.
    pub code: Option<String>,
    /// Digest of the input's tensors, in hexadecimal.
    pub digest: Option<String>,
    /// Path of the output, if there is one.
    pub output: Option<String>,
    /// Duration of the task in seconds.
    pub seconds: f64,
    /// Length of the input's files in bytes.
    pub bytes: u64,
    /// Verdict of a scan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// Number of tensors of another task than a scan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensors: Option<usize>,
    /// Length in bytes of the tensors that an earlier result has, too, as far as they were compared; `None` without a digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeated_bytes: Option<u64>,
    /// Digest of the task, its options and the input, which tells whether the result is still valid; `None` if the input cannot
    /// be read.
    pub made_from: Option<String>,
    /// Files of the output, by which a later batch recognises that it is complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileRecord>,
}

impl ResultLine {
    /// Creates the line of an input whose files have `bytes` bytes.
    pub(crate) fn new(input: String, outcome: Outcome, bytes: u64) -> Self {
        let status = if outcome.failure.is_some() { ResultStatus::Failed } else { ResultStatus::Ok };
        let failure = outcome.failure.map(|failure| (failure.text, failure.kind.name().to_owned()));
        let (error, code) = failure.unzip();
        Self {
            schema_version: SCHEMA_VERSION,
            input,
            status,
            error,
            code,
            digest: outcome.digest,
            output: outcome.output.map(|path| path.display().to_string()),
            seconds: 0.0,
            bytes,
            verdict: outcome.verdict,
            tensors: outcome.tensors,
            repeated_bytes: None,
            made_from: None,
            files: outcome.files,
        }
    }
}

/// Whether a task was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResultStatus {
    Ok,
    Failed,
}

/// The only member of a line that says which input it is about.
#[derive(Deserialize)]
struct LineInput {
    input: String,
}

/// File of results that a batch appends to.
#[derive(Debug)]
pub(crate) struct ResultsFile {
    path: PathBuf,
    file: File,
    /// Number of bytes that an earlier batch wrote.
    earlier_len: u64,
    /// Inputs whose earlier line is replaced.
    replaced: TextIndex,
    has_replaced: bool,
}

/// Lines of an earlier batch, by their inputs.
#[derive(Debug)]
pub(crate) struct EarlierResults {
    path: PathBuf,
    reader: BufReader<File>,
    /// Offset of the last line of each input.
    offsets: TextIndex,
}

/// Opens a file of results. With `is_resumed`, the lines of an earlier batch stay; otherwise there must not be any.
///
/// # Errors
/// When the file cannot be opened, has other contents, or another batch writes to it.
pub(crate) fn open_results(path: &Path, is_resumed: bool) -> Result<(ResultsFile, EarlierResults)> {
    let failed = |error: io::Error| Error::from(error).in_file(path);
    if !is_resumed && path.metadata().is_ok_and(|metadata| metadata.len() > 0) {
        return Err(Problem::ResultsExist { path: path.to_owned() }.into());
    }
    std::fs::create_dir_all(output::parent_folder(path)).map_err(failed)?;
    let file = OpenOptions::new().create(true).append(true).read(true).open(path).map_err(failed)?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => return Err(Problem::ResultsInUse { path: path.to_owned() }.into()),
        // Some network filesystems have no locks.
        Ok(()) | Err(TryLockError::Error(_)) => {}
    }
    let mut reader = BufReader::new(File::open(path).map_err(failed)?);
    let mut offsets = TextIndex::default();
    let (mut offset, mut number) = (0_u64, 0_u64);
    while let Some(line) = read_line(&mut reader).map_err(failed)? {
        number = number.saturating_add(1);
        if !line.ends_with(b"\n") {
            break;
        }
        let found: LineInput = serde_json::from_slice(&line).map_err(|reason| Problem::NotAResult {
            path: path.to_owned(),
            line: number,
            reason: reason.to_string(),
        })?;
        offsets.insert(&input_key(&found.input), offset).map_err(Problem::Index)?;
        offset = offset.saturating_add(line.len() as u64);
    }
    file.set_len(offset).map_err(failed)?;
    let results = ResultsFile {
        path: path.to_owned(),
        file,
        earlier_len: offset,
        replaced: TextIndex::default(),
        has_replaced: false,
    };
    Ok((results, EarlierResults { path: path.to_owned(), reader, offsets }))
}

/// Reads a line with its end; `None` at the end of the file.
fn read_line(reader: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    reader.take(LINE_MAX).read_until(b'\n', &mut line)?;
    if line.len() as u64 >= LINE_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is longer than 64 MiB"));
    }
    Ok(Some(line).filter(|line| !line.is_empty()))
}

impl EarlierResults {
    /// Returns the line of an input; `None` if there is none, or it is one of another version.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn find(&mut self, input: &str) -> Result<Option<ResultLine>> {
        let offset = self.offsets.get(&input_key(input)).map_err(Problem::Index)?;
        let Some(offset) = offset else { return Ok(None) };
        let read = self.reader.seek(SeekFrom::Start(offset)).and_then(|_| read_line(&mut self.reader));
        let line = read.map_err(|error| Error::from(error).in_file(&self.path))?;
        Ok(line.and_then(|line| serde_json::from_slice(&line).ok()))
    }
}

impl ResultsFile {
    /// Appends the line of an input with a single write, so that an interruption leaves whole lines.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn append(&mut self, input: &str, line: &[u8], replaces: bool) -> Result<()> {
        if replaces {
            self.has_replaced = true;
            self.replaced.insert(&input_key(input), 0).map_err(Problem::Index)?;
        }
        self.file.write_all(line).map_err(|error| Error::from(error).in_file(&self.path))
    }

    /// Removes the lines of the earlier batch that are replaced, or whose input `is_listed` refuses. The file is replaced at
    /// once.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub(crate) fn finish(
        mut self,
        mut earlier: EarlierResults,
        mut is_listed: impl FnMut(&str) -> Result<bool>,
    ) -> Result<()> {
        let failed = |error: io::Error| Error::from(error).in_file(&self.path);
        let mut keeps = |input: &str, offset: u64| -> Result<bool> {
            let key = input_key(input);
            Ok(offset >= self.earlier_len
                || self.replaced.get(&key).map_err(Problem::Index)?.is_none()
                    && earlier.offsets.get(&key).map_err(Problem::Index)? == Some(offset)
                    && is_listed(input)?)
        };
        let mut reader = BufReader::new(File::open(&self.path).map_err(failed)?);
        let mut is_same = !self.has_replaced;
        if is_same {
            let mut offset = 0_u64;
            while let Some(line) = read_line(&mut reader).map_err(failed)? {
                if offset >= self.earlier_len {
                    break;
                }
                if !keeps(&line_input(&line), offset)? {
                    is_same = false;
                    break;
                }
                offset = offset.saturating_add(line.len() as u64);
            }
            reader.seek(SeekFrom::Start(0)).map_err(failed)?;
        }
        if is_same {
            return Ok(());
        }
        let len = self.file.metadata().map_err(failed)?.len();
        let mut replacement = OutputFile::create(&self.path, len)?;
        let mut offset = 0_u64;
        while let Some(line) = read_line(&mut reader).map_err(failed)? {
            if keeps(&line_input(&line), offset)? {
                replacement.write_all(&line).map_err(failed)?;
            }
            offset = offset.saturating_add(line.len() as u64);
        }
        replacement.commit(IfExists::Replace)
    }
}

/// Returns the input of a line, which was checked when the file was opened, or written since.
fn line_input(line: &[u8]) -> String {
    serde_json::from_slice(line).map_or_else(|_| String::new(), |line: LineInput| line.input)
}
