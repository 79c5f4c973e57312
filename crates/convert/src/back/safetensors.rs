//! The safetensors back end: writes a single file, or a folder with shards, an index and the documents of a model.
//!
//! Facts: the Python packages `safetensors` 0.8 and `transformers` 5.23, for file names and the expected metadata.

use std::path::{Path, PathBuf};

use byte_source::format_count;
use open::{TargetLayout, VALUES_PATH, path_json, size_text};
use safetensors_format::{
    FORMAT_KEY, FORMAT_PYTORCH, SafetensorsArchive, ShardIndex, is_dtype_supported, last_part,
    split_into_shards,
};
use serde::{Deserialize, Serialize};
use tensor::announce_reads;

use super::ties::{TieHandling, TiePlan};
use super::{
    HeaderTexts, INCOMPLETE_KEY, NonTensorParts, Output, OutputJob, OutputPlan, SHOWN, can_open_checkpoint,
    folder, output_format,
};
use crate::note_collector::NoteCollector;
use crate::report::file_names_line;
use crate::{InvalidOption, Note, OutputFormat, OutputReport, Result};
use output::{OutputDocuments, OutputFiles, PlannedFile};

pub(crate) static SAFETENSORS: OutputFormat = output_format!(
    SafetensorsOptions,
    "safetensors",
    ["safetensors"],
    "A safetensors file, or a folder in Hugging Face's layout"
);

/// Options for writing safetensors files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
#[non_exhaustive]
pub struct SafetensorsOptions {
    /// Give a model these names, or translate a LLaMA of Meta's or into Meta's
    ///
    /// The document is config.json or params.json. The output is a folder, or only the tensors if -o names a file
    #[serde(rename = "names")]
    #[cfg_attr(feature = "cli", arg(long = "names", value_name = "LAYOUT"))]
    pub target_layout: Option<TargetLayout>,
    /// How safetensors hold tensors that share memory
    #[cfg_attr(feature = "cli", arg(long, value_name = "HOW", default_value = "drop"))]
    pub ties: TieHandling,
    /// Write safetensors of at most this size, such as 5GB, into a folder
    #[serde(deserialize_with = "size_text::deserialize")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "SIZE", value_parser = open::parse_size))]
    pub max_shard_size: Option<u64>,
    /// Write the values that are not tensors as JSON next to safetensors
    ///
    /// The file is checkpoint.json in a folder, and model.checkpoint.json next to model.safetensors
    #[cfg_attr(feature = "cli", arg(long))]
    pub keep_values: bool,
    /// A file to keep in misc/, or next to safetensors in a folder; repeatable
    #[serde(with = "path_json::list")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath))]
    pub misc: Vec<PathBuf>,
}

impl SafetensorsOptions {
    /// Translates a language model into the names and documents of another layout.
    #[must_use]
    pub fn target_layout(self, names: TargetLayout) -> Self {
        Self { target_layout: Some(names), ..self }
    }

    /// Sets the treatment of tensors with the same memory.
    #[must_use]
    pub fn ties(self, ties: TieHandling) -> Self {
        Self { ties, ..self }
    }

    /// Keeps the values that are not tensors, as JSON next to the tensors.
    #[must_use]
    pub fn keep_values(self) -> Self {
        Self { keep_values: true, ..self }
    }

    /// Adds a file to copy into a folder.
    #[must_use]
    pub fn misc(mut self, path: impl Into<PathBuf>) -> Self {
        self.misc.push(path.into());
        self
    }

    /// Sets the maximum number of tensor bytes per file.
    #[must_use]
    pub fn max_shard_size(self, nbytes: u64) -> Self {
        Self { max_shard_size: Some(nbytes), ..self }
    }
}

/// Report fields that only safetensors files have.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SafetensorsReport {
    /// Names of all files, including the documents in a folder.
    pub files: Vec<String>,
    /// Tensors that are not written because another tensor has the same memory.
    pub ties: Vec<Tie>,
    #[serde(skip)]
    in_folder: bool,
}

impl OutputReport for SafetensorsReport {
    fn summary(&self) -> Vec<(&'static str, String)> {
        let ties = (!self.ties.is_empty()).then(|| {
            let count = format_count(self.ties.len() as u64);
            let names = if self.ties.len() == 1 { "name" } else { "names" };
            ("ties", format!("{count} {names} of the same memory in the metadata"))
        });
        ties.into_iter().chain(file_names_line(&self.files, self.in_folder)).collect()
    }
}

/// Two names of the same memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Tie {
    /// Name that only the metadata contains.
    pub dropped: String,
    /// Name under which the elements are written.
    pub kept: String,
}

impl Output for SafetensorsOptions {
    fn format(&self) -> &'static OutputFormat {
        &SAFETENSORS
    }

    fn plan<'p>(
        &'p self,
        job: &OutputJob<'p>,
        kept: NonTensorParts,
        notes: &mut NoteCollector<'_>,
    ) -> Result<OutputPlan<'p>> {
        job.reject_unsupported("safetensors", is_dtype_supported)?;
        // Meta's code expects every tensor name in the file.
        let handling =
            if self.target_layout == Some(TargetLayout::Meta) { TieHandling::Duplicate } else { self.ties };
        let tied = TiePlan::find(job.tensors, handling, FORMAT_KEY);
        let name = |position: usize| job.tensors.get_index(position).map_or("", |(name, _)| name);
        if !tied.partial.is_empty() {
            let names = tied.partial.iter().take(SHOWN).map(|it| name(*it).to_owned()).collect();
            notes.push(Note::ViewsSeparated { count: tied.partial.len(), names });
        }
        if !job.tensors.compounds().is_empty() {
            let names =
                job.tensors.compounds().iter().take(SHOWN).map(|compound| compound.name.clone()).collect();
            notes.push(Note::PartsSeparated { count: job.tensors.compounds().len(), names });
        }
        let HeaderTexts { texts, is_changed, is_recast } = kept.metadata;
        let values = job.values.saturating_sub(texts.len());
        if values > 0 && kept.values.is_none() {
            notes.push(Note::ValuesLeftOut { values });
        }
        let has_hash = texts.iter().any(|(key, _)| is_about_bytes(key));
        let is_changed =
            is_changed || self.max_shard_size.is_some() || has_hash && !is_in_order_of_file(job)?;
        let is_wrong = |key: &str| is_changed && is_about_bytes(key) || is_recast && is_about_dtypes(key);
        let (wrong, mut texts): (Vec<_>, Vec<_>) = texts.into_iter().partition(|(key, _)| is_wrong(key));
        if !wrong.is_empty() {
            notes.push(Note::MetadataLeftOut { keys: wrong.into_iter().map(|(key, _)| key).collect() });
        }
        texts.extend(job.incomplete().map(|differences| (INCOMPLETE_KEY.to_owned(), differences)));
        let mut files = plan_files(job, &tied, self.max_shard_size, &texts)?;
        let path = values_path(job);
        if kept.values.is_none() && job.destination.store_of(&path)?.is_none() && output::is_own_output(&path)
        {
            // They are those of an earlier output.
            files.stale_files.push(path);
        } else if let Some(values) = kept.values {
            if !job.is_folder {
                job.destination.check_target(&path, &job.inputs(), job.if_exists)?;
            }
            files.documents.add(path, values);
        }
        let report = SafetensorsReport {
            files: files.names(),
            in_folder: job.is_folder,
            ties: tied
                .dropped
                .iter()
                .map(|(dropped, kept)| Tie {
                    dropped: name(*dropped).to_owned(),
                    kept: name(*kept).to_owned(),
                })
                .collect(),
        };
        if job.is_folder {
            folder::plan_output_folder(&mut files, job)?;
        }
        Ok(OutputPlan::new(files, || report))
    }

    fn is_folder(&self, path: Option<&Path>, has_documents: bool) -> bool {
        let needs_folder = self.max_shard_size.is_some() || self.target_layout.is_some();
        path.map_or(needs_folder || has_documents, folder::is_folder_path)
    }

    fn requested_layout(&self) -> Option<TargetLayout> {
        self.target_layout
    }

    fn keeps_values(&self) -> bool {
        self.keep_values
    }

    fn misc(&self) -> &[PathBuf] {
        &self.misc
    }

    fn is_complete(&self, output: &Path) -> bool {
        can_open_checkpoint(output)
    }
}

/// Returns the path of the JSON with the values that are not tensors.
fn values_path(job: &OutputJob<'_>) -> PathBuf {
    let name = Path::new(VALUES_PATH).file_name().unwrap_or_default();
    if job.is_folder { job.target.join(name) } else { job.target.with_extension(name) }
}

/// Returns true if an entry of the metadata has a hash of the file's weights: those of Stability AI's model specification and of
/// kohya's scripts, and names that say so.
fn is_about_bytes(key: &str) -> bool {
    const HASHES: &[&str] =
        &["sshs_model_hash", "sshs_legacy_hash", "model_hash", "hash", "sha256", "md5", "checksum"];
    let last = last_part(key);
    HASHES.contains(&last) || last.starts_with("hash_")
}

/// Returns true if an entry of the metadata says which dtypes the tensors have, or how they are quantized.
fn is_about_dtypes(key: &str) -> bool {
    matches!(last_part(key), "dtype" | "torch_dtype" | "precision") || key.contains("quantiz")
}

/// Returns true if the output has the tensors in the order of the input.
fn is_in_order_of_file(job: &OutputJob<'_>) -> Result<bool> {
    let archive = SafetensorsArchive::new(job.tensors.as_slice(), &[]).map_err(byte_source::Error::from)?;
    Ok(archive.tensors().map(|(name, _)| name).eq(job.tensors.iter().map(|(name, _)| name)))
}

/// Lays out the files: shards first, then the documents and the index.
fn plan_files<'j>(
    job: &OutputJob<'j>,
    tied: &TiePlan,
    max_shard_size: Option<u64>,
    texts: &[(String, String)],
) -> Result<OutputFiles<'j>> {
    let kept = || tied.kept.iter().filter_map(|position| job.tensors.as_slice().get(*position));
    let sizes: Vec<u64> = kept().map(|(_, tensor)| tensor.nbytes()).collect();
    let shards = split_into_shards(&sizes, max_shard_size.unwrap_or(u64::MAX));
    let count = shards.len();
    if let (Some(size), false) = (max_shard_size.filter(|_| count > 1), job.is_folder) {
        let path = job.target.to_owned();
        return Err(InvalidOption::ShardsInFile { path, count, size }.into());
    }
    let library = job.conversion.library()?;
    let path = |number| {
        if job.is_folder { job.target.join(library.file_name(number, count)) } else { job.target.to_owned() }
    };
    let mut models: Vec<(PathBuf, SafetensorsArchive<'j>)> = Vec::with_capacity(count);
    for (number, shard) in shards.iter().enumerate() {
        let positions = shard.iter().filter_map(|it| tied.kept.get(*it));
        let tensors = positions.filter_map(|position| job.tensors.as_slice().get(*position));
        let mut metadata = vec![(FORMAT_KEY.to_owned(), FORMAT_PYTORCH.to_owned())];
        let in_shard =
            |kept: &usize| tied.kept.binary_search(kept).is_ok_and(|kept| shard.binary_search(&kept).is_ok());
        let names = tied.dropped.iter().filter(|(_, kept)| in_shard(kept));
        metadata.extend(names.filter_map(|(dropped, kept)| {
            Some((job.tensors.get_index(*dropped)?.0.to_owned(), job.tensors.get_index(*kept)?.0.to_owned()))
        }));
        // A reader of several files takes the texts of the first.
        let texts = texts.iter().filter(|_| number == 0);
        let texts: Vec<_> = texts.filter(|(key, _)| metadata.iter().all(|(known, _)| known != key)).collect();
        metadata.extend(texts.into_iter().cloned());
        models.push((
            path(number),
            SafetensorsArchive::new(tensors, &metadata).map_err(byte_source::Error::from)?,
        ));
    }
    let written = models.iter().flat_map(|(_, archive)| archive.tensors());
    announce_reads(written.map(|(_, tensor)| (tensor.storage(), tensor.span())));
    let mut documents = if job.is_folder { folder::plan_documents(job) } else { OutputDocuments::default() };
    if count > 1 {
        documents.add(job.target.join(library.index_name()), build_index(&models).to_json());
    }
    let weights = models.into_iter().map(|(path, archive)| PlannedFile::new(path, archive)).collect();
    Ok(OutputFiles { weights, documents, ..OutputFiles::default() })
}

/// Builds the index of the files. Like that of `transformers`, it lists only the names that are written.
fn build_index(models: &[(PathBuf, SafetensorsArchive<'_>)]) -> ShardIndex {
    let mut index = ShardIndex::default();
    for (path, archive) in models {
        let file = output::file_name(path);
        for (name, tensor) in archive.tensors() {
            index.metadata.total_parameters = index.metadata.total_parameters.saturating_add(tensor.numel());
            index.metadata.total_size = index.metadata.total_size.saturating_add(tensor.nbytes());
            index.weight_map.insert(name.clone(), file.clone());
        }
    }
    index
}
