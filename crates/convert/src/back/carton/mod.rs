//! The carton back end: converts the tensors into a module, and writes the module into a carton in one pass.

mod fields;
mod file;
mod layout;
mod options;
mod self_test;
mod tokenizer;

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use byte_source::{Action, Observer, ProgressReporter, hex};
use carton_format::{Carton, SHORT_DESCRIPTION_MAX};
use decoder::NoModelReason;
use serde::{Serialize, Serializer};
use torchscript::{Module, ModuleCode, OnInvalidInput};

pub use self::options::{CartonFields, CartonOptions, RequiredTorch};
pub use self::self_test::StoredSelfTest;

use self::file::CartonFile;
use self::layout::NonModuleFiles;
use self::self_test::PlannedSelfTest;
use super::ports::PortReport;
use super::{ModuleOptions, NonTensorParts, Output, OutputJob, OutputPlan, output_format};
use crate::input::script;
use crate::note_collector::NoteCollector;
use crate::options::model_options;
use crate::report::module_line;
use crate::{ConvertReport, InvalidOption, Note, OutputFormat, OutputReport, Problem, Result};
use output::{OutputFiles, PlannedFile};

pub(crate) static CARTON: OutputFormat = output_format!(CartonOptions, "carton", ["carton"], "A carton");

/// Report fields that only a carton has.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CartonReport {
    /// SHA-256 of MANIFEST in hexadecimal, which identifies the model; `None` after a dry run.
    pub manifest_sha256: Option<String>,
    /// Kind of module: `weights`, `script`, or the name of an architecture.
    pub module: String,
    /// Reason for which the module only returns tensors.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    pub why_weights: Option<NoModelReason>,
    /// Arguments and result of `forward`, for a TorchScript module that keeps its code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// Inputs of the module, as far as carton.toml lists them.
    pub inputs: Vec<PortReport>,
    /// Outputs of the module.
    pub outputs: Vec<PortReport>,
    /// Self test, if the options ask for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_test: Option<StoredSelfTest>,
    /// Names of the files in `misc/`.
    pub misc: Vec<String>,
    /// True if one of the files in `misc/` is a tokenizer.
    pub has_tokenizer: bool,
}

impl CartonReport {
    /// Returns true if the module is a model that runs, not one that only returns its tensors.
    pub fn is_model(&self) -> bool {
        self.module != ModuleCode::WEIGHTS
    }

    /// Returns true if the module is a decoder, which takes tokens.
    pub fn is_decoder(&self) -> bool {
        self.is_model() && self.module != ModuleCode::SCRIPT
    }

    /// Returns true if the module takes tokens, and nothing in the carton makes them.
    pub fn lacks_tokenizer(&self) -> bool {
        self.is_decoder() && !self.has_tokenizer
    }
}

impl ConvertReport {
    /// Returns the fields of a carton, if the output is one.
    pub fn carton(&self) -> Option<&CartonReport> {
        self.of_format()
    }
}

impl OutputReport for CartonReport {
    fn module(&self) -> Option<String> {
        let why = self.why_weights.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
        let module = self.module.clone() + &why;
        Some(module_line(&module, self.signature.as_deref(), &self.inputs, &self.outputs))
    }

    fn summary(&self) -> Vec<(&'static str, String)> {
        let tokenizer = self.lacks_tokenizer().then_some("no tokenizer found");
        let misc = [(!self.misc.is_empty()).then(|| self.misc.join(", ")), tokenizer.map(str::to_owned)];
        let misc = misc.into_iter().flatten().collect::<Vec<_>>().join("; ");
        let lines = [
            ("self test", self.self_test.as_ref().map(StoredSelfTest::summary)),
            ("misc", Some(misc).filter(|misc| !misc.is_empty())),
            ("manifest", self.manifest_sha256.clone()),
        ];
        lines.into_iter().filter_map(|(label, value)| Some((label, value?))).collect()
    }
}

#[expect(clippy::ref_option, reason = "serde passes the field")]
fn as_text<S: Serializer>(why: &Option<NoModelReason>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&why.as_ref().map_or_else(String::new, ToString::to_string))
}

impl Output for CartonOptions {
    fn format(&self) -> &'static OutputFormat {
        &CARTON
    }

    fn plan<'p>(
        &'p self,
        job: &OutputJob<'p>,
        kept: NonTensorParts,
        notes: &mut NoteCollector<'_>,
    ) -> Result<OutputPlan<'p>> {
        if let Err(error) = torchscript::check_loads_in_2_0(job.tensors)
            && self.torch == RequiredTorch::Carton
        {
            return Err(job.at_input(error));
        }
        let NonTensorParts { script, values, .. } = kept;
        let converted =
            if let Some(script) = script { *script } else { job.to_module(&self.model, self.errors)? };
        byte_source::report_memory_freed();
        if let ModuleCode::Weights { why } = &converted.code
            && self.require_model
        {
            return Err(job.at_input(Problem::NotAModel { why: why.clone() }));
        }
        if let ModuleCode::Weights { why: Some(why) } = &converted.code
            && job.conversion.options.quantizes()
        {
            return Err(job.at_input(Problem::NothingToQuantize { why: why.clone() }));
        }
        notes.extend(converted.notes.iter().cloned().map(Note::Module));
        if let ModuleCode::Weights { why: Some(NoModelReason::UnsupportedModelType { model_type, needs }) } =
            &converted.code
        {
            notes.push(Note::NoForward { model_type: model_type.clone(), needs: *needs });
        }
        if values.is_some() {
            notes.push(Note::ValuesKept { values: job.values });
        }
        let self_test = self.self_test.then(|| PlannedSelfTest::new(job, &converted, notes)).transpose()?;
        let tested = self_test.as_ref().map(PlannedSelfTest::report);
        let layout = NonModuleFiles::new(self, job, &converted, values, self_test, notes)?;
        let misc = layout.misc_names();
        let has_tokenizer = job.has_tokenizer();
        let is_decoder = matches!(converted.code, ModuleCode::Decoder(_));
        let unread = if has_tokenizer && is_decoder { tokenizer::unread(job) } else { None };
        notes.extend(unread.map(|reason| Note::TokenizerUnread { reason }));
        let Module { archive, inputs, outputs, code, .. } = converted;
        let written = Rc::default();
        let file = CartonFile::new(layout, archive, Rc::clone(&written));
        let (path, name) = (job.target.to_owned(), output::file_name(job.target));
        let planned = PlannedFile { path, name, len: file.len()?, content: Box::new(file) };
        let tensors = job.tensors;
        let report = move || {
            // Releases the memory of carton.toml, which may list a million outputs, before the report lists them again.
            byte_source::report_memory_freed();
            let written: Option<&carton_writer::WrittenCarton> = OnceCell::get(&written);
            CartonReport {
                manifest_sha256: written.map(|written| hex(&written.manifest_hash)),
                module: code.name().to_owned(),
                why_weights: match &code {
                    ModuleCode::Weights { why } => why.clone(),
                    _ => None,
                },
                signature: match code {
                    ModuleCode::Script { signature } => Some(signature),
                    _ => None,
                },
                inputs: inputs.into_iter().map(PortReport::from).collect(),
                outputs: outputs.ports(tensors).map(PortReport::from).collect(),
                self_test: tested,
                misc,
                has_tokenizer,
            }
        };
        let files = OutputFiles { weights: vec![planned], ..OutputFiles::default() };
        Ok(OutputPlan::new(files, report))
    }

    fn check_targets(&self) -> Result<()> {
        let found = self.fields.short_description.as_ref().map_or(0, |text| text.chars().count());
        if found > SHORT_DESCRIPTION_MAX {
            let text = carton_format::Problem::ShortDescription { found }.to_string();
            return Err(InvalidOption::ShortDescription(text).into());
        }
        script::check_options(&self.script)?;
        if self.script.keep_unchanged && self.errors != OnInvalidInput::default() {
            return Err(open::InvalidOption::Exclusive { first: "no_wrap", second: "errors" }.into());
        }
        model_options::check_name(self.fields.name.as_deref())
    }

    fn is_folder(&self, _: Option<&Path>, _: bool) -> bool {
        false
    }

    fn is_tensor_file(&self) -> bool {
        false
    }

    fn module_options(&self) -> Option<ModuleOptions<'_>> {
        Some(ModuleOptions { model: &self.model, script: &self.script, errors: Some(self.errors) })
    }

    fn keeps_values(&self) -> bool {
        !self.no_values
    }

    fn model_name(&self) -> Option<&str> {
        self.fields.name.as_deref()
    }

    fn misc(&self) -> &[PathBuf] {
        &self.misc
    }

    fn read_files(&self) -> &[PathBuf] {
        self.config.as_slice()
    }

    fn has_digest(&self) -> bool {
        true
    }

    fn is_complete(&self, output: &Path) -> bool {
        Carton::open(output).is_ok_and(|carton| carton.absent().is_empty())
    }

    fn verify(&self, output: &Path, observer: &dyn Observer) -> Result<bool> {
        let Ok(carton) = Carton::open(output) else { return Ok(false) };
        let name = output::file_name(output);
        let total = carton.entries().fold(0_u64, |sum, entry| sum.saturating_add(entry.len));
        let work = ProgressReporter::new(observer, &name, Action::Verify, Some(total));
        let verified = carton.verify(work)?;
        Ok(verified.findings.is_empty())
    }
}
