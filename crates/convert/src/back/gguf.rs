//! The GGUF back end: writes the file that llama.cpp loads, with the tokenizer in it.

use std::path::{Path, PathBuf};

use byte_source::Source;
use gguf_format::{GgufArchive, GgufOutput, GgufValue};
use gguf_model::{Documents, FileType, GgufModel, ModelFiles, PreTokenizer, gguf_model};
use open::{WantedDtype, size_text};
use output::{OutputFiles, PlannedFile};
use serde::{Deserialize, Serialize};
use tensor::{Tensor, announce_reads};

use super::{INCOMPLETE_KEY, NonTensorParts, Output, OutputJob, OutputPlan, has_torchscript, output_format};
use crate::error::at;
use crate::note_collector::NoteCollector;
use crate::report::file_names_line;
use crate::tokenizer_documents::read_file;
use crate::{InvalidOption, Note, OutputFormat, OutputReport, Problem, Result};

pub(crate) static GGUF: OutputFormat =
    output_format!(GgufOptions, "gguf", ["gguf"], "A file for llama.cpp and its relatives");

/// Options for writing GGUF files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
#[non_exhaustive]
pub struct GgufOptions {
    /// Name of the pre-tokenizer in llama.cpp, such as llama-bpe, for a tokenizer that it does not know
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(gguf_model::pre_tokenizers())))]
    pub pre_tokenizer: Option<String>,
    /// Write GGUF files of at most this size of tensors, such as 2GB
    ///
    /// They are called x-00001-of-00003.gguf, and llama.cpp is given the first one
    #[serde(deserialize_with = "size_text::deserialize")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "SIZE", value_parser = open::parse_size))]
    pub split_max_size: Option<u64>,
}

impl GgufOptions {
    /// Names the pre-tokenizer, which is else found by a hash.
    #[must_use]
    pub fn pre_tokenizer(self, name: impl Into<String>) -> Self {
        Self { pre_tokenizer: Some(name.into()), ..self }
    }

    /// Sets the maximum number of tensor bytes per file.
    #[must_use]
    pub fn split_max_size(self, nbytes: u64) -> Self {
        Self { split_max_size: Some(nbytes), ..self }
    }
}

/// Report fields that only a GGUF file has.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct GgufReport {
    /// Name of the architecture in llama.cpp.
    pub architecture: String,
    /// Type of most tensors.
    pub file_type: &'static str,
    /// Names of all files.
    pub files: Vec<String>,
}

impl OutputReport for GgufReport {
    fn summary(&self) -> Vec<(&'static str, String)> {
        let model = format!("{} of llama.cpp, mostly {}", self.architecture, self.file_type);
        [("model", model)].into_iter().chain(file_names_line(&self.files, false)).collect()
    }
}

impl Output for GgufOptions {
    fn format(&self) -> &'static OutputFormat {
        &GGUF
    }

    fn plan<'p>(
        &'p self,
        job: &OutputJob<'p>,
        _: NonTensorParts,
        notes: &mut NoteCollector<'_>,
    ) -> Result<OutputPlan<'p>> {
        job.reject_unsupported("a GGUF file of a model", |dtype| !dtype.is_quantized())?;
        if job.values > 0 {
            notes.push(Note::ValuesLeftOut { values: job.values });
        }
        let mut model = self.model(job).map_err(|error| match (error.detail(), error.location().path) {
            (Some(gguf_model::Problem::NoConfig), _) if has_torchscript(&job.model.containers) => {
                job.at_input(Problem::ScriptForLlamaCpp)
            }
            (_, Some(_)) => error,
            (_, None) => job.at_input(error),
        })?;
        let architecture = model.entries.first().and_then(|(_, value)| Some(value.text()?.into_owned()));
        let (architecture, file_type) = (architecture.unwrap_or_default(), model.file_type.kind);
        let incomplete = job.incomplete().map(|differences| GgufValue::Text(differences.into()));
        model.entries.extend(incomplete.map(|differences| (INCOMPLETE_KEY.to_owned(), differences)));
        announce_reads(model.tensors.iter().map(|tensor| (tensor.data.storage(), tensor.data.span())));
        let files = self.files(job, model)?;
        let report = GgufReport { architecture, file_type, files: files.names() };
        Ok(OutputPlan::new(files, || report))
    }

    fn is_tensor_file(&self) -> bool {
        false
    }

    fn is_for_llama_cpp(&self) -> bool {
        true
    }
}

impl GgufOptions {
    /// Lays out the file, or those of a split: the first has all keys.
    fn files<'p>(&self, job: &OutputJob<'p>, model: GgufModel) -> Result<OutputFiles<'p>> {
        let GgufModel { mut entries, tensors, .. } = model;
        let total = i32::try_from(tensors.len()).unwrap_or(i32::MAX);
        let parts = split(tensors, self.split_max_size.unwrap_or(u64::MAX));
        let count = parts.len();
        let mut files = OutputFiles::default();
        for (number, tensors) in parts.into_iter().enumerate() {
            let path = if count > 1 { part_path(job.target, number, count) } else { job.target.to_owned() };
            if count > 1 {
                job.destination.check_target(&path, &job.inputs(), job.if_exists)?;
                let short = |number| GgufValue::UInt16(u16::try_from(number).unwrap_or(u16::MAX));
                entries.push(("split.no".to_owned(), short(number)));
                entries.push(("split.count".to_owned(), short(count)));
                entries.push(("split.tensors.count".to_owned(), GgufValue::Int32(total)));
            }
            let file = GgufArchive::new(&entries, tensors).map_err(byte_source::Error::from)?;
            files.weights.push(PlannedFile::new(path, file));
            entries.clear();
        }
        Ok(files)
    }

    fn model(&self, job: &OutputJob<'_>) -> Result<GgufModel> {
        let file_type = match job.conversion.options.casts.dtype {
            None | Some(WantedDtype::Gguf("auto")) => None,
            Some(WantedDtype::Gguf(name)) => FileType::from_name(name),
            Some(WantedDtype::Dtype(dtype)) => {
                Some(FileType::from_name(dtype.name()).ok_or(InvalidOption::NoGgufType { dtype })?)
            }
        };
        let read = |name: &str| read_document(job, name);
        let encode = |bytes: &[u8], text: &str| encode(bytes, text);
        // The tokenizer of a GGUF file splits texts as before; one next to the file may be another.
        let of_keys = job.model.pre_tokenizer.as_ref().filter(|_| !open::files::has_tokenizer(job.misc));
        let pre_tokenizer = match self.pre_tokenizer.as_ref().or(of_keys) {
            Some(name) => PreTokenizer::Named(name),
            None => PreTokenizer::Encode(&encode),
        };
        let documents = Documents::new(&read).templates(chat_templates(job)?);
        gguf_model(
            &in_order_of_names(job),
            &ModelFiles {
                documents: &documents,
                folder: &job.conversion.folder_name,
                file_type,
                pre_tokenizer,
            },
        )
    }
}

/// Divides tensors into files of at most `limit` bytes, each with at least one tensor.
fn split(tensors: Vec<GgufOutput>, limit: u64) -> Vec<Vec<GgufOutput>> {
    let (mut parts, mut part, mut len) = (Vec::new(), Vec::new(), 0_u64);
    for tensor in tensors {
        let nbytes = tensor.data.nbytes();
        if len.saturating_add(nbytes) > limit && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
            len = 0;
        }
        len = len.saturating_add(nbytes);
        part.push(tensor);
    }
    parts.push(part);
    parts
}

/// Returns the path of a file of a split.
fn part_path(target: &Path, number: usize, count: usize) -> PathBuf {
    let stem = target.file_stem().unwrap_or_default().to_string_lossy();
    let number = number.saturating_add(1);
    target.with_file_name(format!("{stem}-{number:05}-of-{count:05}.gguf"))
}

/// Returns the tensors in the order in which llama.cpp's converter reads them: those of safetensors by file and name, and after them
/// those that are computed from the packed weights of GPTQ, which have other names.
fn in_order_of_names(job: &OutputJob<'_>) -> Vec<(String, Tensor)> {
    let mut tensors = job.tensors.as_slice().to_vec();
    if job.model.format() == "safetensors" {
        let documents = job.conversion.quantization.as_ref();
        let method = documents.and_then(|documents| quantization::method(documents, job.tensors));
        let is_packed = method.as_deref() == Some("gptq");
        let file = |tensor: &Tensor| {
            let region = tensor.storage().first_stored().region();
            region.map(|region| region.path().to_owned())
        };
        let key = |(name, tensor): &(String, Tensor)| {
            (is_packed && tensor.storage().is_computed(), file(tensor), name.clone())
        };
        tensors.sort_by_cached_key(key);
    }
    tensors
}

/// Folder of templates of chats that `transformers` saves next to `chat_template.jinja`.
const TEMPLATES: &str = "additional_chat_templates";

/// Reads the templates of chats that have names.
fn chat_templates(job: &OutputJob<'_>) -> Result<Vec<(String, String)>> {
    let sources = &job.model.sources;
    let folder = sources.location().parent().join(TEMPLATES);
    if job.model.carton.is_some() || !folder.is_folder() {
        return Ok(Vec::new());
    }
    let mut files = folder.list().map_err(at(folder.path()))?.listing.files;
    files.sort_unstable();
    let mut templates = Vec::new();
    for file in files {
        if let Some(name) = file.strip_suffix(".jinja")
            && let Some(text) = sources.documents.read(&format!("{TEMPLATES}/{file}"))?
        {
            templates.push((name.to_owned(), text));
        }
    }
    Ok(templates)
}

/// Reads a document of the model: what the conversion made, a companion, or the card.
fn read_document(job: &OutputJob<'_>, name: &str) -> Result<Option<Vec<u8>>> {
    let documents = &job.model.sources.documents;
    if let Some((_, contents)) = job.made_documents().find(|(made, _)| *made == name) {
        return Ok(Some(contents));
    }
    if name == "config.json" {
        return Ok(documents.config()?.map(|text| text.as_bytes().to_vec()));
    }
    if let Some((_, path)) = job.misc.iter().find(|(known, _)| known == name) {
        // Llama 3's file of this name is no SentencePiece model.
        let is_made =
            name == "tokenizer.model" && job.made_documents().any(|(made, _)| made == "tokenizer.json");
        return if is_made { Ok(None) } else { read_file(path).map(Some) };
    }
    if name == "README.md" {
        return Ok(documents.read(name)?.map(String::into_bytes));
    }
    Ok(None)
}

/// Encodes a text with a tokenizer.json.
#[cfg(feature = "tokenizer")]
fn encode(tokenizer: &[u8], text: &str) -> Result<Vec<u32>> {
    let failed = |error: generate::Error| Problem::PreTokenizer { reason: error.to_string() };
    let tokenizer = generate::Tokenizer::from_file("tokenizer.json", tokenizer).map_err(failed)?;
    Ok(tokenizer.encode(text).map_err(failed)?)
}

#[cfg(not(feature = "tokenizer"))]
fn encode(_: &[u8], _: &str) -> Result<Vec<u32>> {
    Err(Problem::PreTokenizer { reason: "this program was built without tokenizers".to_owned() }.into())
}
