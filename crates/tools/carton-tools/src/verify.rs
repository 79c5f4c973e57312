//! Checks every hash, every checksum and every rule of a carton, and optionally every bit of its tensors.

use std::sync::Arc;

use byte_source::{Action, FileError, Observer, ProgressReporter, Source, hex};
use carton_format::{Carton, MODEL_PT, Port};
use open::Model;
use open::files::{CheckpointSources, ShardPolicy};
use output::file_name;
use serde::Serialize;
use tensor::Dtype;
use torch_import::Container;
use torchscript::Module;

use crate::compare::{ModelComparison, compare_model, compare_output};
use crate::contents::{CartonTensorRow, contents_of};
use crate::error::at;
use crate::open::{checkpoint_format, copy_file, file_of, not_a_carton, other_source};
use crate::{CartonNote, CodeStatus, Error, Problem, Result, SCHEMA_VERSION, VerifyOptions};

/// Result of verifying a carton, or of comparing another output with its checkpoint.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Version of the report's format.
    pub schema_version: u32,
    /// Path of the carton or output, as the caller gave it.
    pub file: String,
    /// True if there are no findings.
    pub ok: bool,
    /// SHA-256 of MANIFEST, which identifies the model; `None` if there is no MANIFEST.
    pub manifest_sha256: Option<String>,
    /// Number of files with the right hash, including MANIFEST, LINKS and links; of another output, all files.
    pub files: usize,
    /// Number of bytes of these files, including the targets of links.
    pub bytes: u64,
    /// Number of tensors compared; `None` without a comparison.
    pub tensors_compared: Option<usize>,
    /// Result of comparing the model's code, which runs when the model is loaded or called; `None` without a comparison.
    pub code: Option<CodeStatus>,
    /// Problems, sorted by path.
    pub findings: Vec<CartonFinding>,
    pub notes: Vec<CartonNote>,
}

/// Problem of a carton.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CartonFinding {
    /// Path of the affected file in the carton; empty for the zip file itself.
    pub entry: String,
    /// Description of the problem.
    pub what: String,
}

/// Returns the modules that conversions of a model write, also those that keep its TorchScript code if asked for.
pub type ModulesOf<'f> =
    dyn for<'m> Fn(&'m Model, ShardPolicy, bool) -> Box<dyn Iterator<Item = Module> + 'm> + 'f;

/// Verifies a carton, or compares another output with the checkpoint that it was made from. For a damaged carton, the report
/// has findings, and the call succeeds. The code of the carton's model is compared with that of `modules`.
///
/// # Errors
/// Returns an error if the file cannot be read, is not a carton, cannot be compared although it is not damaged, or
/// `observer` stops the work.
pub fn verify(
    options: &VerifyOptions,
    modules: &ModulesOf<'_>,
    observer: &dyn Observer,
) -> Result<VerifyReport> {
    let file = options.file.path();
    if options.against.is_empty() && options.has_changes() {
        return Err(Problem::NoCheckpoint.into());
    }
    let mut report = VerifyReport {
        schema_version: SCHEMA_VERSION,
        file: file.display().to_string(),
        ok: false,
        manifest_sha256: None,
        files: 0,
        bytes: 0,
        tensors_compared: None,
        code: None,
        findings: Vec::new(),
        notes: Vec::new(),
    };
    let is_local = options.file.is_local();
    let opened = if is_local { None } else { file_of(&options.file)? };
    if !options.against.is_empty() && is_other_output(options, opened.as_ref()) {
        report.compare_output(options, observer)?;
        return Ok(report);
    }
    // The reader opens any folder.
    let no_carton = match &opened {
        None if !is_local => Some(Problem::NotACarton { path: file.to_owned() }.into()),
        None if file.is_dir() => not_a_carton(file),
        _ => None,
    };
    if let Some(error) = no_carton {
        return Err(error);
    }
    let carton = match &opened {
        // All of it is read, also what is between its files.
        Some(source) => Carton::from_source(copy_file(source, observer)?),
        None => Carton::open(file),
    };
    let carton = match carton {
        Ok(carton) => carton,
        Err(error) => {
            report.findings = findings_of_open(options, opened.as_ref(), error)?;
            return Ok(report);
        }
    };
    report.manifest_sha256 = carton.manifest_hash().map(|hash| hex(&hash));
    let name = file_name(file);
    let total = Some(carton.entries().fold(0_u64, |sum, entry| sum.saturating_add(entry.len)));
    let progress = || ProgressReporter::new(observer, &name, Action::Verify, total);
    let mut verified = None;
    let comparison = (!options.against.is_empty()).then(|| {
        compare_model(&carton, (options, modules), observer, &mut |tap| {
            verified = Some(carton.verify_with_tap(progress(), Some(tap))?);
            Ok(())
        })
    });
    let verified = match verified {
        Some(verified) => verified,
        // The comparison failed before it read the model.
        None => carton.verify(progress())?,
    };
    report.files = verified.files;
    report.bytes = verified.bytes;
    report.findings =
        verified.findings.into_iter().map(|it| CartonFinding { entry: it.entry, what: it.what }).collect();
    report.notes = verified.notes.into_iter().map(CartonNote::Verify).collect();
    report.notes.extend(has_slow_weights(&carton).then_some(CartonNote::SlowBFloat16));
    if let Some(comparison) = comparison {
        report.add_comparison(comparison)?;
    }
    report.ok = report.findings.is_empty();
    Ok(report)
}

/// Returns true for a decoder with bfloat16 weights. What cannot be read has a finding already.
fn has_slow_weights(carton: &Carton) -> bool {
    let is_bfloat16 = |tensor: &CartonTensorRow| tensor.dtype == Dtype::BFloat16.name();
    contents_of(carton).is_ok_and(|contents| {
        let has = |ports: &[Port], name: &str| ports.iter().any(|port| port.name == name);
        let is_decoder = has(&contents.config.inputs, "tokens") && has(&contents.config.outputs, "logits");
        is_decoder && contents.tensors.iter().any(is_bfloat16)
    })
}

/// Returns true if the input is a checkpoint, which may be the output of a conversion. `opened` is the file, if it is open.
fn is_other_output(options: &VerifyOptions, opened: Option<&Arc<dyn Source>>) -> bool {
    let file = &options.file;
    match opened {
        Some(opened) => Container::from_source(Arc::clone(opened)).is_ok(),
        None if file.is_local() => !Carton::is_at(file) && checkpoint_format(file.path()).is_some(),
        None => CheckpointSources::find(std::slice::from_ref(file), options.shards()).is_ok(),
    }
}

impl VerifyReport {
    fn compare_output(&mut self, options: &VerifyOptions, observer: &dyn Observer) -> Result<()> {
        let comparison = compare_output(options, observer)?;
        let finding = |what| CartonFinding { entry: String::new(), what };
        self.findings.extend(comparison.differences.into_iter().map(finding));
        self.notes.extend(comparison.notes);
        self.tensors_compared = Some(comparison.compared);
        (self.files, self.bytes) = comparison.files;
        self.ok = self.findings.is_empty();
        Ok(())
    }

    fn add_comparison(&mut self, comparison: Result<ModelComparison>) -> Result<()> {
        let finding = |what| CartonFinding { entry: MODEL_PT.to_owned(), what };
        match comparison {
            Ok(comparison) => {
                self.findings.extend(comparison.differences.into_iter().map(finding));
                self.findings.extend(comparison.code.finding().map(str::to_owned).map(finding));
                self.code = Some(comparison.code);
                self.notes.extend(comparison.notes);
                self.tensors_compared = Some(comparison.compared);
                Ok(())
            }
            Err(error) if error.is_cancelled() => Err(error),
            // A damaged model cannot be compared.
            Err(error) if !self.findings.is_empty() => {
                self.findings.push(finding(format!("not compared: {error}")));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// Converts the reader's error of opening a carton to findings, unless the file is unreadable or no carton.
fn findings_of_open(
    options: &VerifyOptions,
    opened: Option<&Arc<dyn Source>>,
    error: Error,
) -> Result<Vec<CartonFinding>> {
    let path = options.file.path();
    // If nothing was read, nothing is known about the carton.
    if error.detail::<FileError>().is_some() {
        return Err(at(path)(error));
    }
    if let Some(reason) = opened.map_or_else(|| not_a_carton(path), other_source) {
        return Err(reason);
    }
    let Some(carton_format::Problem::Document(problems)) = error.detail() else {
        let entry = error.location().record.unwrap_or_default();
        return Ok(vec![CartonFinding { entry, what: error.to_string() }]);
    };
    let finding = |problem: &carton_format::DocumentProblem| CartonFinding {
        entry: problem.document.clone(),
        what: problem.to_string(),
    };
    Ok(problems.0.iter().map(finding).collect())
}
