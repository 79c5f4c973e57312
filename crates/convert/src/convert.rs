//! Conversion of a checkpoint into a carton, a safetensors file, or another checkpoint.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use byte_source::{Location, Observer};
use decoder::LayoutDocument;
use open::files::{CheckpointSources, Companion, Pipeline, ShardPolicy};
use open::trainers::is_flat_parameter;
use open::{FoundInput, Model, TargetLayout, read_documents, refuse_adapter, values_document};
use tensor::{Dtype, Tensors};
use torch_import::{Checkpoint, CompoundKind, Omissions, Risk};

use crate::back::{HeaderTexts, NonTensorParts};
use crate::input::script::{self, ScriptDecision};
use crate::input::{from_carton, misc};
use crate::note_collector::NoteCollector;
use crate::options::output_format;
use crate::statement::write::convert_with_statement;
use crate::tokenizer_documents::tokenizer_documents;
use crate::write::{OutputParts, write_output};
use crate::{ConvertOptions, ConvertReport, Error, Note, PlannedConversion, Problem, Result, torch_save};

/// Configuration of a model of `transformers`.
const CONFIG_FILE: &str = "config.json";

/// Converts a checkpoint according to `options`.
///
/// # Errors
/// When the inputs cannot be read, are not one checkpoint, or are damaged; when an option does not fit them; when the output
/// cannot be written; or when `observer` stops the work. In each case no output is left.
pub fn convert(options: &ConvertOptions, observer: &dyn Observer) -> Result<ConvertReport> {
    PlannedConversion::plan(options)?.run(observer)
}

/// An input of a conversion, open.
struct ConversionInput {
    model: Model,
    code: ScriptDecision,
    /// Files to keep with the tensors.
    misc: Vec<Companion>,
    /// Contents of the files that are neither tensors nor values.
    omitted: Omissions,
}

impl PlannedConversion {
    /// Reads the checkpoint, and writes the output unless the options ask for a dry run.
    ///
    /// # Errors
    /// When the inputs cannot be read or are damaged; when an option does not fit them; when the output cannot be written;
    /// or when `observer` stops the work. In each case no output is left.
    pub fn run(&self, observer: &dyn Observer) -> Result<ConvertReport> {
        match &self.options.statement {
            Some(file) if !self.options.dry_run => convert_with_statement(self, file, observer),
            _ => self.convert(&|| Ok(()), observer),
        }
    }

    /// Converts the checkpoint like [`run`](Self::run), but for the statement. The output is moved into place once `is_ready`
    /// returns.
    pub(crate) fn convert(
        &self,
        is_ready: &dyn Fn() -> Result<()>,
        observer: &dyn Observer,
    ) -> Result<ConvertReport> {
        let start = Instant::now();
        let options = &self.options;
        let mut notes = NoteCollector::new(observer);
        let mut input = self.open(&mut notes, observer)?;
        let model = &mut input.model;
        let steps = if input.code.is_kept() { Vec::new() } else { options.steps() };
        let reports = model
            .apply(&steps, &options.context(observer))
            .map_err(|error| self.explain_quantized(error, &model.checkpoint.to_tensors()))
            .map_err(|error| input.code.explain_no_tensors(options.target.output(), error))?;
        if options.shards() == ShardPolicy::RequireAll {
            refuse_rank_part(model.tensors()).map_err(|error| error.in_file(model.root()))?;
        }
        notes.extend(std::mem::take(&mut model.notes));
        self.note_documents(model, &input.misc, &mut notes)?;
        let (mut model, parts) = self.parts(input)?;
        write_output(self, (&mut model, reports), parts, notes, start, (is_ready, observer))
            .map_err(|error| self.explain_quantized(error, model.tensors()))
    }

    /// Opens the input, and adds the notes on it.
    fn open(&self, notes: &mut NoteCollector<'_>, observer: &dyn Observer) -> Result<ConversionInput> {
        let options = &self.options;
        if let Some((model, module)) = from_carton::open(self)? {
            let code = module.map_or(ScriptDecision::None, ScriptDecision::Module);
            return Ok(ConversionInput { model, code, misc: Vec::new(), omitted: Omissions::default() });
        }
        refuse_adapter(&self.sources, options.inputs.first())?;
        let (misc, left_out) = misc::find_misc_files(self)?;
        if !self.is_folder {
            self.check_target(misc.iter().map(|(_, path)| path.as_path()))?;
        }
        let found = FoundInput {
            sources: Arc::clone(&self.sources),
            carton: self.carton.clone(),
            part: self.part.clone(),
            quantization: self.quantization.clone(),
        };
        let mut model = found.read(&options.open_options(), observer)?;
        let has_code =
            model.carton.is_none() || !model.containers.iter().all(from_carton::is_code_of_tensors);
        let containers = if has_code { model.containers.as_slice() } else { &[] };
        let code = script::decide_on_code(options, containers)?;
        let checkpoint = &model.checkpoint;
        let omitted = if code.is_kept() {
            script::omissions_with_code(&checkpoint.left_out)
        } else {
            checkpoint.left_out.clone()
        };
        let read_notes = std::mem::take(&mut model.notes).into_iter();
        notes.extend(read_notes.filter(|note| !(code.is_kept() && script::is_constants_note(note))));
        notes.extend(left_out);
        notes.extend(open::Note::omission_notes(&omitted));
        if options.target.is_assumed() && output_format::has_unknown_extension(&self.output) {
            notes.push(Note::CartonByDefault { output: output::file_name(&self.output) });
        }
        notes.extend(code.note());
        let has_program = model.containers.iter().any(|container| !container.exported_models().is_empty());
        notes.extend(has_program.then_some(Note::ProgramDropped));
        let risks = [Risk::Dangerous, Risk::Unreviewed, Risk::Unknown];
        notes.extend(risks.into_iter().filter_map(|risk| recorded_globals_note(&model.checkpoint, risk)));
        Ok(ConversionInput { model, code, misc, omitted })
    }

    /// Adds the notes on documents that the output should have, or has no place for.
    fn note_documents(&self, model: &Model, misc: &[Companion], notes: &mut NoteCollector<'_>) -> Result<()> {
        let options = &self.options;
        let document = model.document.as_ref().map(LayoutDocument::file);
        let is_for_meta = document == Some(decoder::LayoutOwner::Meta.file());
        if is_for_meta && self.is_folder && !misc.iter().any(|(name, _)| name == "tokenizer.model") {
            notes.push(Note::NoMetaTokenizer);
        }
        let is_tensor_file = options.target.output().is_tensor_file();
        // A file that was asked for has no documents anyway. A batch finds folders by itself, whose outputs may be files.
        let has_room = self.is_folder || (options.output.is_none() && !self.checksums);
        if is_tensor_file && has_room && self.sources.folder().is_some() {
            let names = missing_documents(&self.sources, misc, document.is_some(), is_for_meta)?;
            notes.extend((!names.is_empty()).then_some(Note::DocumentsMissing { names }));
        }
        if is_tensor_file && !self.is_folder {
            let names = self.documents_left_out(document)?;
            let to = options.target.format().name();
            notes.extend((!names.is_empty()).then_some(Note::DocumentsLeftOut { names, to }));
        }
        Ok(())
    }

    /// Returns the model and what an output has besides its tensors. Frees the objects of the pickle, which can take more memory
    /// than all that follows.
    fn parts(&self, input: ConversionInput) -> Result<(Model, OutputParts)> {
        let ConversionInput { mut model, code, misc, omitted } = input;
        let checkpoint = std::mem::take(&mut model.checkpoint);
        let tensors = model.tensors();
        let keeps_code = code.is_kept();
        let keeps_values = self.options.target.output().keeps_values() && !keeps_code;
        let rows = model.carton.as_ref().map(|carton| carton.values.as_slice());
        let values = keeps_values.then(|| values_document(&checkpoint, rows, tensors)).flatten();
        // The documents of the output have the keys of a GGUF file, which are not left out then.
        let of_checkpoint = || {
            if keeps_values || model.key_documents.is_empty() {
                checkpoint.notable_values().count()
            } else {
                0
            }
        };
        let value_count = rows.map_or_else(of_checkpoint, <[_]>::len);
        let is_recast = self.options.dequantize || self.options.has_casts();
        let metadata = HeaderTexts::of(&model, &checkpoint, is_recast);
        drop(checkpoint);
        byte_source::report_memory_freed();
        let document = match &model.document {
            Some(document) => Some((document.file(), document.text(tensors))),
            None => self.changed_config(&model, &misc)?,
        };
        let output = self.options.target.output();
        let is_described =
            output.is_for_llama_cpp() || output.requested_layout() == Some(TargetLayout::HuggingFace);
        let tokenizer = if is_described { tokenizer_documents(&model, &misc)? } else { Vec::new() };
        let is_known = keeps_code || model.decoder.is_some();
        let quantized = if is_known { None } else { self.quantized_method(tensors) };
        let kept = NonTensorParts { script: code.into_module(), values, metadata };
        let values = value_count;
        Ok((model, OutputParts { kept, values, document, tokenizer, misc, quantized, omitted }))
    }

    /// Returns the names of the documents that a folder would have, and a single file has not: those next to the checkpoint,
    /// and the one that a translation into another layout generates.
    fn documents_left_out(&self, generated: Option<&'static str>) -> Result<Vec<String>> {
        if self.carton.is_none() && generated.is_none() && self.sources.folder().is_none() {
            return Ok(Vec::new());
        }
        let (companions, _) = misc::find_companions(&self.sources, self.carton.as_deref())?;
        let layout = self.options.target.output().requested_layout();
        let replaced = layout.map(TargetLayout::replaced_documents).unwrap_or_default();
        let kept =
            companions.into_iter().map(|(name, _)| name).filter(|name| !replaced.contains(&name.as_str()));
        let mut names: Vec<String> = kept.chain(generated.map(str::to_owned)).collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Returns `config.json` if the options make it wrong: that of a part, without the description of a quantization that is undone, with
    /// the dtype that most numbers are written in, and with a head of its own if a merge changed that alone.
    fn changed_config(&self, model: &Model, misc: &[Companion]) -> Result<Option<(&'static str, String)>> {
        let is_undone = self.quantization.is_some();
        let given = self.options.target.output().misc();
        let is_companion =
            |(name, path): &Companion| name == CONFIG_FILE && self.carton.is_none() && !given.contains(path);
        let is_written = misc.iter().any(is_companion);
        let is_cast = is_written && self.options.has_casts();
        let has_own_head = is_written && model.has_own_head;
        let is_other = is_undone || self.part.is_some();
        if !(is_other || is_cast || has_own_head) {
            return Ok(None);
        }
        let Some(text) = self.sources.documents.config()? else { return Ok(None) };
        let mut changed = is_other.then(|| text.to_owned());
        if let Some(dtype) = main_dtype(model.tensors()).filter(|_| is_undone || is_cast) {
            changed = quantization::config_with_dtype(text, dtype).or(changed);
        }
        if has_own_head {
            changed = open::config_with_own_head(changed.as_deref().unwrap_or(text)).or(changed);
        }
        Ok(changed.map(|text| (CONFIG_FILE, text)))
    }

    /// Adds the method that quantized the weights to an error that it explains, if the options do not undo it.
    fn explain_quantized(&self, error: Error, tensors: &Tensors) -> Error {
        explain_quantized(error, self.quantized_method(tensors))
    }

    /// Returns the method that quantized the weights, if the options do not undo it.
    fn quantized_method(&self, tensors: &Tensors) -> Option<String> {
        let documents = read_documents(&self.sources).ok().filter(|_| self.quantization.is_none());
        quantization::method(&documents?, tensors)
    }

    /// Rejects an output that must not be written, such as one of the inputs or of the files in `misc`.
    fn check_target<'m>(&'m self, misc: impl Iterator<Item = &'m Path>) -> Result<()> {
        let others = self.other_inputs.iter().map(Location::path);
        // An input at an address is not one of the files.
        let given = self.options.inputs.iter().map(Location::path);
        let inputs: Vec<&Path> = self.sources.inputs().chain(others).chain(misc).chain(given).collect();
        self.options.destination.check_target(&self.output, &inputs, self.options.if_exists)
    }
}

/// Refuses what one rank of a training wrote of a tensor that is split over several.
fn refuse_rank_part(tensors: &Tensors) -> Result<()> {
    let flat = tensors.names().find(|name| is_flat_parameter(name));
    let flat = flat.map(|name| (name, "one rank's part of FSDP's flat parameters, without their shapes"));
    let shard = || {
        tensors.compounds().iter().find_map(|compound| match &compound.kind {
            CompoundKind::Subclass { shard, .. } => Some((compound.name.as_str(), shard.as_deref()?)),
            _ => None,
        })
    };
    match flat.or_else(shard) {
        Some((name, what)) => Err(Problem::RankPart { name: name.to_owned(), what: what.to_owned() }.into()),
        None => Ok(()),
    }
}

/// Returns the floating-point dtype of most numbers.
fn main_dtype(tensors: &Tensors) -> Option<Dtype> {
    let mut counts: Vec<(Dtype, u64)> = Vec::new();
    for (_, tensor) in tensors.iter().filter(|(_, tensor)| tensor.dtype().is_floating_point()) {
        match counts.iter_mut().find(|(dtype, _)| *dtype == tensor.dtype()) {
            Some((_, count)) => *count = count.saturating_add(tensor.numel()),
            None => counts.push((tensor.dtype(), tensor.numel())),
        }
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(dtype, _)| dtype)
}

fn recorded_globals_note(checkpoint: &Checkpoint, risk: Risk) -> Option<Note> {
    let names = checkpoint.globals().iter().filter(|global| global.risk() == risk);
    let names: Vec<String> = names.map(ToString::to_string).collect();
    (!names.is_empty()).then_some(Note::GlobalsRecorded { risk, names })
}

/// Returns what is missing next to a model that is converted with its folder. `has_document` is true if the conversion writes
/// a configuration; `is_for_meta` if that is Meta's, whose tokenizer has a note of its own.
fn missing_documents(
    sources: &CheckpointSources,
    documents: &[Companion],
    has_document: bool,
    is_for_meta: bool,
) -> Result<Vec<&'static str>> {
    let is_config = |name: &str| name == "config.json" || name == "params.json";
    if !has_document && !documents.iter().any(|(name, _)| is_config(name)) {
        return Ok(vec!["config.json"]);
    }
    // In a pipeline, the tokenizer has a folder of its own.
    if sources.folder().is_some_and(|folder| Pipeline::at(&folder.parent()).is_some()) {
        return Ok(Vec::new());
    }
    // Models of images and sounds have no tokenizer, and no vocabulary.
    let texts = [sources.documents.config()?, sources.documents.params()?];
    let has_vocabulary = texts.into_iter().flatten().any(|text| text.contains("\"vocab_size\""));
    let needs_tokenizer = has_vocabulary && !is_for_meta && !open::files::has_tokenizer(documents);
    Ok(if needs_tokenizer { vec!["tokenizer"] } else { Vec::new() })
}

/// Adds the method to an error of a merge, or of an output, that has no place for quantized weights.
fn explain_quantized(error: Error, method: Option<String>) -> Error {
    let is_of = |owner: &&str| error.code().starts_with(*owner);
    let is_explained = match error.detail() {
        Some(Problem::Model { reason, .. }) => reason.code() != "decoder::Quantized",
        Some(
            Problem::Port { .. }
            | Problem::TritonPort { .. }
            | Problem::UnsupportedTensors { .. }
            | Problem::NothingToServe { .. }
            | Problem::NotAModel { .. },
        ) => true,
        Some(_) => false,
        None => {
            ["adapter::", "decoder::", "torchscript::"].iter().any(is_of)
                && error.code() != "decoder::Quantized"
                || error.detail::<torch_save::Problem>().is_some()
                || matches!(error.detail(), Some(open::Problem::CannotCast { .. }))
                || matches!(error.detail(), Some(gguf_model::Problem::NoName { .. }))
        }
    };
    match method {
        Some(method) if is_explained => Problem::QuantizedInput { method, reason: error }.into(),
        _ => error,
    }
}
