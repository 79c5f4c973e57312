//! A verb on an input of a manifest whose files are found.

use std::path::{Path, PathBuf};

use batch::{Failure, JobOutput, ManifestEntry, Outcome, PlannedTask, TensorKey};
use byte_source::{Cancelled, ErrorKind, FileStat, Location, Observer, Stat};
use carton_format::Carton;
use convert::{BatchOutput, ConvertOptions, InputContent, PlannedConversion, inputs_digest};
use inspect::{DigestReport, FileScan, InputOptions, ScanOptions, ScanOutcome, Verdict};
use open::files::{CheckpointSources, ShardPolicy};
use open::{Selection, TensorContent};
use output::Destination;

use super::blobs::BlobFolder;
use super::{Verb, VerbTask, failure};

/// Verb on an input.
pub(super) struct PlannedVerb<'t> {
    task: &'t VerbTask,
    input: Location,
    output: Option<PlannedOutput<'t>>,
    /// Digest of the task, its options and the input; `None` if the input cannot be read.
    made_from: Option<String>,
    /// Length of the input's files in bytes.
    nbytes: u64,
}

impl<'t> PlannedVerb<'t> {
    pub(super) fn new(
        task: &'t VerbTask,
        input: Location,
        entry: &ManifestEntry,
        folder: Option<&Path>,
    ) -> Result<Self, byte_source::Error> {
        let output = match &task.verb {
            Verb::Convert(options) => {
                let conversion = plan_conversion(options, &input, entry, folder)?;
                Some(PlannedOutput::new(BatchOutput::new(conversion, folder), task.blobs.as_ref())?)
            }
            _ => None,
        };
        let files: Vec<Location> = match (&output, &task.verb) {
            (Some(output), _) => output.conversion.inputs().collect(),
            (None, Verb::Inspect(_)) => input_files(&input, ShardPolicy::ThisFileOnly)?,
            (None, Verb::Digest(options)) => input_files(&input, options.shards())?,
            (None, _) => vec![input.clone()],
        };
        let made_from = match (&output, &task.verb) {
            (Some(output), _) => output.made_from.clone(),
            (None, Verb::Scan(_)) => inputs_digest(&task.text(), &files, InputContent::Bytes).ok(),
            (None, _) => inputs_digest(&task.text(), &files, InputContent::Tensors).ok(),
        };
        let nbytes = files.iter().map(nbytes_at).fold(0, u64::saturating_add);
        Ok(Self { task, input, output, made_from, nbytes })
    }

    fn do_verb(&self, observer: &dyn Observer) -> Result<Outcome, byte_source::Error> {
        let whole = Selection::default();
        Ok(match (&self.task.verb, &self.output) {
            (Verb::Convert(options), Some(planned)) => {
                let (report, record) = planned.conversion.convert(observer)?;
                let files = match planned.blobs.filter(|_| report.written) {
                    Some(blobs) => blobs.shrink(planned.path(), observer)?,
                    None => record.map(|record| record.files).unwrap_or_default(),
                };
                let output = report.written.then(|| planned.path().to_owned());
                let outcome = Outcome { output, files, tensors: Some(report.tensors), ..Outcome::default() };
                self.with_digest(outcome, (options.shards(), &options.selection), observer)?
            }
            (Verb::Scan(options), _) => {
                let outcome = scan(options, &self.input, observer)?;
                self.with_digest(outcome, (ShardPolicy::ThisFileOnly, &whole), observer)?
            }
            (Verb::Inspect(options), _) => {
                let mut options = (**options).clone();
                options.input = self.input.clone();
                let tensors = Some(inspect::inspect(&options, observer)?.tensors.len());
                let outcome = Outcome { tensors, ..Outcome::default() };
                self.with_digest(outcome, (ShardPolicy::ThisFileOnly, &whole), observer)?
            }
            (Verb::Digest(options), _) => {
                let mut options = (**options).clone();
                options.input = self.input.clone();
                let report = inspect::digest(&options, observer)?;
                add_digest(Outcome { tensors: Some(report.tensors), ..Outcome::default() }, report)
            }
            (Verb::Convert(_), None) => unreachable!("a conversion has an output"),
        })
    }

    /// Adds the digest of the tensors, if the batch asks for it and they have one.
    fn with_digest(
        &self,
        outcome: Outcome,
        (shards, selection): (ShardPolicy, &Selection),
        observer: &dyn Observer,
    ) -> Result<Outcome, byte_source::Error> {
        if !self.task.has_digest {
            return Ok(outcome);
        }
        let mut options = InputOptions::new(self.input.clone()).select(selection.clone());
        options.single = shards == ShardPolicy::ThisFileOnly;
        match inspect::digest(&options, observer) {
            Err(error) if error.kind() == ErrorKind::Cancelled => Err(error),
            Err(_) => Ok(outcome),
            Ok(report) => Ok(add_digest(outcome, report)),
        }
    }
}

impl PlannedTask for PlannedVerb<'_> {
    fn made_from(&self) -> Option<&str> {
        self.made_from.as_deref()
    }

    fn nbytes(&self) -> u64 {
        self.nbytes
    }

    fn output(&self) -> Option<&dyn JobOutput> {
        self.output.as_ref().map(|output| output as &dyn JobOutput)
    }

    fn run(&self, observer: &dyn Observer) -> Result<Outcome, Failure> {
        self.do_verb(observer).map_err(failure)
    }
}

/// Output of a conversion, whose large files may be elsewhere.
struct PlannedOutput<'t> {
    conversion: BatchOutput,
    blobs: Option<&'t BlobFolder>,
    made_from: Option<String>,
}

impl<'t> PlannedOutput<'t> {
    fn new(conversion: BatchOutput, blobs: Option<&'t BlobFolder>) -> Result<Self, byte_source::Error> {
        let mut made_from = conversion.made_from().map(str::to_owned);
        if let Some(blobs) = blobs {
            output::refuse_remote_output(conversion.path())?;
            made_from = made_from.and_then(|conversion| blobs.made_from(&conversion));
        }
        Ok(Self { conversion, blobs, made_from })
    }
}

impl JobOutput for PlannedOutput<'_> {
    fn path(&self) -> &Path {
        self.conversion.path()
    }

    fn destination(&self) -> &Destination {
        self.conversion.destination()
    }

    fn made_from(&self) -> Option<&str> {
        self.made_from.as_deref()
    }

    fn local_inputs(&self) -> Vec<&Path> {
        self.conversion.local_inputs()
    }

    fn is_complete(&self) -> bool {
        self.blobs.map_or_else(|| self.conversion.is_complete(), |blobs| blobs.has_files_of(self.path()))
    }

    fn verify(&self, observer: &dyn Observer) -> Result<bool, Cancelled> {
        let blobs = self.blobs.map(|blobs| blobs.verify(self.path(), observer));
        blobs.unwrap_or_else(|| self.conversion.verify(observer))
    }
}

/// Plans the conversion of an input. The folder of its output is created.
fn plan_conversion(
    options: &ConvertOptions,
    input: &Location,
    entry: &ManifestEntry,
    folder: Option<&Path>,
) -> Result<PlannedConversion, byte_source::Error> {
    let mut options = options.clone();
    options.inputs = vec![input.clone()];
    options.output = entry.output.as_ref().map(PathBuf::from);
    Ok(match folder {
        Some(folder) if entry.output.is_none() => PlannedConversion::plan_in(folder, options)?,
        _ => PlannedConversion::plan(&options)?,
    })
}

fn scan(
    options: &ScanOptions,
    input: &Location,
    observer: &dyn Observer,
) -> Result<Outcome, byte_source::Error> {
    let mut options = options.clone();
    options.inputs = vec![input.clone()];
    let mut reason = None;
    let mut found = |file: &FileScan| {
        if let (ScanOutcome::NotScanned { reason: text }, None) = (&file.outcome, &reason) {
            let kind = if file.verdict == Verdict::Incomplete { ErrorKind::Io } else { ErrorKind::Input };
            reason = Some(Failure { kind, text: format!("{}: {text}", file.file.display()) });
        }
        Ok(())
    };
    let summary = inspect::scan(&options, observer, &mut found)?;
    let is_scanned =
        summary.clean > 0 || summary.unknown > 0 || summary.unsafe_files > 0 || summary.incomplete > 0;
    // A file in a folder that cannot be scanned does not hide the verdict on the others.
    let failure = reason.filter(|_| !is_scanned);
    Ok(Outcome { verdict: Some(summary.verdict().name().to_owned()), failure, ..Outcome::default() })
}

fn add_digest(outcome: Outcome, report: DigestReport) -> Outcome {
    let key = |content: &TensorContent| TensorKey::new(&content.sha256, content.nbytes);
    let contents = report.contents.iter().filter_map(key).collect();
    Outcome { digest: Some(report.digest), contents, ..outcome }
}

/// Returns the files of a checkpoint or a carton.
fn input_files(input: &Location, shards: ShardPolicy) -> Result<Vec<Location>, byte_source::Error> {
    if input.is_local() && Carton::is_at(input) {
        return Ok(vec![input.clone()]);
    }
    Ok(CheckpointSources::find(std::slice::from_ref(input), shards)?.locations().collect())
}

/// Returns the length of a file, or of all files at the top level of a folder, or elsewhere than on this machine, below it.
fn nbytes_at(input: &Location) -> u64 {
    if input.is_local() {
        return batch::nbytes(input.path());
    }
    let len = |file: &Location| match file.stat() {
        Ok(Some(Stat::File(FileStat { len: Some(len), .. }))) => len,
        _ => file.open().map_or(0, |source| source.len()),
    };
    if !input.is_folder() {
        return len(input);
    }
    let files = input.files_below().unwrap_or_default();
    files.iter().map(|file| len(&input.join(file))).fold(0, u64::saturating_add)
}
