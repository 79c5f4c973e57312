//! Merging of adapters into the selected tensors.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use adapter::Adapter;
use byte_source::Location;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tensor::{Tensor, Tensors};

use super::added_tokens::added_tokens_note;
use super::translated_base::TranslatedBase;
use crate::files::{CheckpointSources, FilesNote, checkpoints};
use crate::model::FoundInput;
use crate::options::path_json;
use crate::{Context, Error, Model, Note, Problem, Result, Step, StepReport};

/// File names of an adapter's tensors, the preferred one first.
pub(crate) const ADAPTER_FILES: [&str; 2] = ["adapter_model.safetensors", "adapter_model.bin"];

/// Name of the head of a language model.
const HEAD: &str = "lm_head.weight";

/// File name of an adapter's settings.
pub const ADAPTER_CONFIG: &str = "adapter_config.json";

/// Path of an adapter or a checkpoint, and a factor for what it changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "PathOrWeighted")]
pub struct WeightedPath {
    /// Of an adapter, the folder with `adapter_config.json` and the tensors, or the file of the tensors in such a folder.
    #[serde(with = "path_json::one")]
    pub path: PathBuf,
    /// Factor for all changes; 1 for an adapter as it was trained.
    pub weight: f64,
}

/// Forms of a [`WeightedPath`] in JSON. A path alone has the weight 1.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected PATH, PATH=WEIGHT, or an object with `path` and `weight`")]
enum PathOrWeighted {
    Text(String),
    Path(#[serde(with = "path_json::one")] PathBuf),
    Weighted {
        #[serde(with = "path_json::one")]
        path: PathBuf,
        weight: f64,
    },
}

impl TryFrom<PathOrWeighted> for WeightedPath {
    type Error = &'static str;

    fn try_from(given: PathOrWeighted) -> Result<Self, &'static str> {
        match given {
            PathOrWeighted::Text(text) => text.parse(),
            PathOrWeighted::Path(path) => Ok(Self { path, weight: 1.0 }),
            PathOrWeighted::Weighted { path, weight } => Ok(Self { path, weight }),
        }
    }
}

impl FromStr for WeightedPath {
    type Err = &'static str;

    /// Parses `PATH` or `PATH=WEIGHT`. A path that exists is taken as it is.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        let whole = || Self { path: PathBuf::from(text), weight: 1.0 };
        // The query of an address has equals signs of its own.
        if Path::new(text).exists() || (text.contains("://") && text.contains('?')) {
            return Ok(whole());
        }
        let Some((path, number)) = text.rsplit_once('=') else { return Ok(whole()) };
        match number.parse::<f64>() {
            Ok(weight) if weight.is_finite() && !path.is_empty() => {
                Ok(Self { path: PathBuf::from(path), weight })
            }
            Ok(_) => Err("expected PATH or PATH=WEIGHT with a finite number"),
            Err(_) if Path::new(path).exists() => Err("expected a number after the last `=`, such as 0.5"),
            Err(_) => Ok(whole()),
        }
    }
}

/// Merges adapters into the tensors of a model, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Merge(pub Vec<WeightedPath>);

impl Step for Merge {
    fn apply(&self, model: &mut Model, context: &Context<'_>) -> Result<StepReport> {
        let mut adapters = Vec::with_capacity(self.0.len());
        for input in &self.0 {
            let name = output::shown_path(&input.path).display().to_string();
            let failed = |error: Error| error.in_file(name.as_ref());
            let options = context.open_options(&input.path)?;
            let location = options.inputs.first().cloned().unwrap_or_default();
            let sources = CheckpointSources::file(&tensor_file(&location)?);
            model.notes.extend(unused_files(&location, &name)?);
            model.notes.extend(added_tokens_note(&name, &sources.documents, &model.sources.documents)?);
            let config = sources.documents.adapter()?.map(str::to_owned);
            let found =
                FoundInput { sources: Arc::new(sources), carton: None, part: None, quantization: None };
            let mut opened = found.read(&options, context.observer)?;
            let tensors = opened.take_tensors();
            let Some(config) = config else {
                let form = adapter::factor_form(tensors.names());
                let problem = form.map_or(Problem::NoAdapter, |form| Problem::AdapterForm { form });
                return Err(failed(problem.into()));
            };
            adapters.push(Adapter::new(name.clone(), &config, tensors, input.weight).map_err(failed)?);
            model.containers.append(&mut opened.containers);
        }
        let mut base = model.take_tensors();
        let head_before = head(&base).map(Tensor::view_id);
        if head_before.is_none() {
            add_head(&mut base, &adapters);
        }
        let translated = TranslatedBase::new(&base, &adapters, context.overrides, &model.sources)?;
        let (tensors, mut reports) =
            adapter::merge(translated.as_ref().map_or(&base, TranslatedBase::tensors), &adapters)?;
        *model.tensors_mut() = match translated {
            Some(translated) => {
                reports.rename(|name| translated.old_name(&base, name));
                translated.restore(base, tensors)?
            }
            None => tensors,
        };
        let head_after = head(model.tensors()).map(Tensor::view_id);
        model.has_own_head |= head_after.is_some() && head_after != head_before;
        Ok(StepReport::Merged(reports))
    }
}

/// Returns the head of a language model, if it is not that of the embeddings.
fn head(tensors: &Tensors) -> Option<&Tensor> {
    let is_head = |name: &str| name == HEAD || name.ends_with(".lm_head.weight");
    tensors.iter().find(|(name, _)| is_head(name)).map(|(_, tensor)| tensor)
}

/// Gives a model whose head is that of the embeddings one of its own, if an adapter changes the head alone.
fn add_head(base: &mut Tensors, adapters: &[Adapter]) {
    let is_changed = adapters.iter().flat_map(Adapter::names).any(|name| name.contains("lm_head.lora_"));
    let embeddings = |(name, _): &(&str, &Tensor)| name.ends_with("embed_tokens.weight");
    let mut found = base.iter().map(|(name, tensor)| (name.as_ref(), tensor)).filter(embeddings);
    if let (true, Some((_, only)), None) = (is_changed, found.next(), found.next())
        && let Some(head) = with_own_storage(only)
    {
        base.push(HEAD.to_owned(), head);
    }
}

/// Returns the tensor as no view of another, so that it changes alone; `None` if its elements are not in one piece.
fn with_own_storage(tensor: &Tensor) -> Option<Tensor> {
    let storage = tensor.storage().slice(tensor.span()).filter(|_| tensor.is_contiguous())?;
    Tensor::new(
        tensor.dtype(),
        tensor.shape().to_vec(),
        tensor.stride().to_vec(),
        0,
        storage.without_checksum(),
    )
    .ok()
}

/// Returns the text of a `config.json` that says that the head is not that of the embeddings; `None` if it says so already.
pub fn config_with_own_head(text: &str) -> Option<String> {
    const TIED: &str = "tie_word_embeddings";
    let mut config: serde_json::Map<String, Value> = serde_json::from_str(text).ok()?;
    let is_own = config.insert(TIED.to_owned(), false.into()) == Some(false.into());
    let inner = config.get_mut("text_config").and_then(|text| text.get_mut(TIED));
    let is_inner_own = inner.is_none_or(|tied| std::mem::replace(tied, false.into()) == false);
    let text = || serde_json::to_string_pretty(&config).map(|text| text + "\n").ok();
    if is_own && is_inner_own { None } else { text() }
}

/// Returns a note on the files next to an adapter that may hold weights of the model, such as a projector that was trained with it.
fn unused_files(folder: &Location, name: &str) -> Result<Option<Note>> {
    if !folder.is_folder() {
        return Ok(None);
    }
    let listing = folder.list().map_err(|error| Error::from(error).in_file(folder.path()))?.listing;
    let unused = checkpoints(&listing).filter(|file| !ADAPTER_FILES.contains(file));
    let files: Vec<String> = unused.map(|file| format!("{name}/{file}")).collect();
    Ok((!files.is_empty()).then_some(Note::Sources(FilesNote::CheckpointFilesUnused { files })))
}

/// Returns the file with the tensors of an adapter.
///
/// # Errors
/// When a folder has no such file.
pub fn tensor_file(input: &Location) -> Result<Location> {
    if !input.is_folder() {
        return Ok(input.clone());
    }
    let mut files = ADAPTER_FILES.iter().map(|name| input.join(name));
    files.find(Location::is_file).ok_or_else(|| Error::from(Problem::NoAdapter).in_file(input.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_after_the_last_equals_sign_is_a_weight() {
        let parsed = |text: &str| {
            let WeightedPath { path, weight } = text.parse().expect("valid");
            (path.display().to_string(), weight)
        };
        assert_eq!(parsed("lora"), ("lora".to_owned(), 1.0));
        assert_eq!(parsed("lora=0.5"), ("lora".to_owned(), 0.5));
        assert_eq!(parsed("lora=-2e-1"), ("lora".to_owned(), -0.2));
        assert_eq!(parsed("r=8/lora"), ("r=8/lora".to_owned(), 1.0));
        assert_eq!(parsed("r=8=2"), ("r=8".to_owned(), 2.0));
        assert_eq!(parsed("hf://a/b=0.5"), ("hf://a/b".to_owned(), 0.5));
        assert_eq!(parsed("https://a/b?c=2"), ("https://a/b?c=2".to_owned(), 1.0));
        assert!("lora=inf".parse::<WeightedPath>().is_err() && "=1".parse::<WeightedPath>().is_err());
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("alpha=16");
        std::fs::create_dir(&path).expect("a temporary folder");
        let path = path.display().to_string();
        assert_eq!(parsed(&path), (path.clone(), 1.0));
    }
}
