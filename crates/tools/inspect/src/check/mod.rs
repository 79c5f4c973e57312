//! Checks that a folder, a carton or a file has every tensor that its configuration asks for. Only headers are read.

mod files;
mod index;

use std::collections::hash_map::Entry;

use byte_source::{Error, Location, Observer, Result};
use families::{MisshapedTensor, MissingTensor, Model, ModelComparison, TensorGroup};
use foldhash::{HashMap, HashMapExt, HashSet};
use open::HuggingFaceModel;
use serde::{Deserialize, Serialize};

use crate::Problem;
use files::{CheckedFile, CheckedFiles, FileTensor};
use index::Index;

const SCHEMA_VERSION: u32 = 1;

/// A folder, a carton or a file that is checked.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
#[non_exhaustive]
pub struct CheckOptions {
    /// Folder with a `config.json`, carton, or file with a `config.json` next to it.
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub input: Location,
}

impl CheckOptions {
    /// Creates options for an input.
    pub fn new(input: impl Into<Location>) -> Self {
        Self { input: input.into() }
    }
}

/// What a folder lacks, and has too much. Each tensor is in one list, once, under its name in the folder.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CheckReport {
    /// Version of the report's fields.
    pub schema_version: u32,
    /// Path of the input, as given.
    pub file: String,
    /// True if the input has every tensor of its model, once, and nothing else.
    pub whole: bool,
    /// `model_type` of the configuration.
    pub model_type: String,
    /// Class that the configuration names; empty if it names none.
    pub class: String,
    /// `released`, `modules` if the names are those in memory, or `gguf`.
    pub layout: &'static str,
    /// Number of files with tensors.
    pub files: usize,
    /// Number of tensors.
    pub tensors: usize,
    /// Number of tensors that the model has, without those that a folder may lack.
    pub expected: usize,
    /// Tensors that are in no file, with the shapes that they should have.
    pub missing: Vec<MissingTensor>,
    /// Missing tensors in groups.
    pub groups: Vec<TensorGroup>,
    /// Parts that the configuration declares and that are absent: `mtp`, `vision`, `audio`.
    pub absent: Vec<&'static str>,
    /// Names that the model does not have.
    pub unexpected: Vec<String>,
    pub misshaped: Vec<MisshapedTensor>,
    /// Tensors that are in two files, or in two layouts.
    pub twice: Vec<RepeatedTensor>,
    /// Tensors in files that the index does not name.
    pub unindexed: Vec<UnindexedFile>,
    /// Names of the index that are not in the file that it gives.
    pub stale: Vec<String>,
    /// Start of all names, without which they are those of the model.
    pub prefix: Option<&'static str>,
}

/// A tensor that is there several times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RepeatedTensor {
    pub name: String,
    /// Files that have the tensor.
    pub files: Vec<String>,
}

/// A file with tensors that no index names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UnindexedFile {
    pub file: String,
    /// Names of the tensors.
    pub tensors: Vec<String>,
}

/// Compares the tensors of an input with those that its configuration asks for.
///
/// # Errors
/// When there is no configuration, or one of a model that is not known; when a file cannot be read or is damaged; or when
/// `observer` stops the work.
pub fn check(options: &CheckOptions, observer: &dyn Observer) -> Result<CheckReport> {
    let path = options.input.path();
    let CheckedFiles { config, files, tensors, index, gguf } = CheckedFiles::find(&options.input, observer)?;
    let (config, place) = config;
    let config = config.ok_or_else(|| Error::from(Problem::NoConfiguration).in_file(path))?;
    let model = Model::from_config(&config)
        .map_err(|reason| Error::from(Problem::Configuration { reason }).in_file(&place))?;

    let shapes: Vec<_> = tensors.iter().map(|it| (it.name.as_str(), it.shape.as_slice())).collect();
    let of_files = || {
        let distinct = DistinctTensors::new(&tensors);
        let stale = stale_names(&index, &files, &distinct);
        (distinct, stale)
    };
    let ((distinct, mut stale), comparison) = rayon::join(of_files, || model.compare(&shapes));
    let comparison = if distinct.others.is_empty() { comparison } else { model.compare(&distinct.shapes) };
    let ModelComparison {
        layout,
        expected,
        mut missing,
        groups,
        absent,
        mut unexpected,
        mut misshaped,
        other_layout,
        ..
    } = comparison;
    if let Some(made) = &gguf {
        name_as_in_file(made, &mut missing, &mut misshaped, &mut unexpected);
    }
    let files_of = |name: &str| -> Vec<String> {
        distinct.files_of(name).filter_map(|number| Some(files.get(number)?.name.clone())).collect()
    };
    let mut repeated: Vec<&str> = distinct.others.keys().copied().collect();
    repeated.extend(other_layout.iter().map(String::as_str).filter(|name| files_of(name).len() < 2));
    repeated.sort_unstable();
    let twice: Vec<RepeatedTensor> = repeated
        .into_iter()
        .map(|name| RepeatedTensor { name: name.to_owned(), files: files_of(name) })
        .collect();
    let prefix = if missing.is_empty() { None } else { open::other_prefix(&model, &distinct.shapes) };
    let unindexed = unindexed_files(&files, &tensors);
    let named = unexpected.iter().chain(missing.iter().map(|tensor| &tensor.name));
    let named: HashSet<&str> = named.map(String::as_str).collect();
    stale.retain(|name| {
        !named.contains(name.as_str()) && twice.binary_search_by(|tensor| tensor.name.cmp(name)).is_err()
    });
    stale.sort_unstable();
    stale.dedup();
    let whole = missing.is_empty()
        && unexpected.is_empty()
        && misshaped.is_empty()
        && twice.is_empty()
        && unindexed.is_empty()
        && stale.is_empty();
    Ok(CheckReport {
        schema_version: SCHEMA_VERSION,
        file: path.display().to_string(),
        whole,
        model_type: model.model_type,
        class: model.class,
        layout: if gguf.is_some() { "gguf" } else { layout },
        files: files.len(),
        tensors: tensors.len(),
        expected,
        missing,
        groups,
        absent,
        unexpected,
        misshaped,
        twice,
        unindexed,
        stale,
        prefix,
    })
}

/// Gives tensors the names that they have in a GGUF file, where those of the experts of a layer are one.
fn name_as_in_file(
    made: &HuggingFaceModel,
    missing: &mut Vec<MissingTensor>,
    misshaped: &mut Vec<MisshapedTensor>,
    unexpected: &mut Vec<String>,
) {
    let rename = |name: &mut String| {
        if let Some(known) = made.name_in_file(name) {
            *name = known;
        }
    };
    for tensor in missing.iter_mut() {
        rename(&mut tensor.name);
    }
    missing.dedup_by(|tensor, before| tensor.name == before.name);
    for tensor in misshaped.iter_mut() {
        rename(&mut tensor.name);
    }
    misshaped.dedup_by(|tensor, before| tensor.name == before.name);
    unexpected.iter_mut().for_each(rename);
    unexpected.extend(made.unknown.iter().cloned());
    unexpected.sort_unstable();
    unexpected.dedup();
}

/// The tensors of all files without repetitions.
struct DistinctTensors<'t> {
    /// Places of the names in the lists.
    places: HashMap<&'t str, usize>,
    shapes: Vec<(&'t str, &'t [u64])>,
    /// First file of each tensor.
    files: Vec<usize>,
    /// Files with another copy of a tensor, by its name.
    others: HashMap<&'t str, Vec<usize>>,
}

impl<'t> DistinctTensors<'t> {
    fn new(tensors: &'t [FileTensor]) -> Self {
        let mut distinct = Self {
            places: HashMap::with_capacity(tensors.len()),
            shapes: Vec::with_capacity(tensors.len()),
            files: Vec::with_capacity(tensors.len()),
            others: HashMap::new(),
        };
        for FileTensor { name, shape, file } in tensors {
            match distinct.places.entry(name) {
                Entry::Vacant(place) => {
                    place.insert(distinct.files.len());
                    distinct.shapes.push((name, shape));
                    distinct.files.push(*file);
                }
                Entry::Occupied(_) => distinct.others.entry(name).or_default().push(*file),
            }
        }
        distinct
    }

    /// Returns the numbers of the files that have a tensor.
    fn files_of(&self, name: &str) -> impl Iterator<Item = usize> {
        let first = self.places.get(name).and_then(|place| self.files.get(*place));
        first.into_iter().chain(self.others.get(name).into_iter().flatten()).copied()
    }
}

/// Returns the names for which the index gives another file than has the tensor, or none.
fn stale_names(index: &Index, files: &[CheckedFile], distinct: &DistinctTensors<'_>) -> Vec<String> {
    let numbers: HashMap<&str, usize> =
        files.iter().enumerate().map(|(number, file)| (file.name.as_str(), number)).collect();
    let indexed: Vec<Option<usize>> =
        index.files.iter().map(|name| numbers.get(name.as_str()).copied()).collect();
    let mut is_named = vec![false; distinct.files.len()];
    let mut stale = Vec::new();
    // Of several entries with a name, the last one counts.
    for (name, file) in index.tensors().rev() {
        let place = distinct.places.get(name);
        let Some(is_named) = place.and_then(|place| is_named.get_mut(*place)) else {
            stale.push(name.to_owned());
            continue;
        };
        let number = indexed.get(file).copied().flatten();
        if !*is_named && !number.is_some_and(|number| distinct.files_of(name).any(|file| file == number)) {
            stale.push(name.to_owned());
        }
        *is_named = true;
    }
    if !index.is_empty() {
        let is_indexed = |file: &usize| files.get(*file).is_some_and(|file| file.is_indexed);
        let all = distinct.shapes.iter().zip(&distinct.files).zip(is_named);
        let unnamed = all.filter(|((_, file), is_named)| !is_named && is_indexed(file));
        stale.extend(unnamed.map(|(((name, _), _), _)| (*name).to_owned()));
    }
    stale
}

/// Returns the files that the index does not name, with their tensors.
fn unindexed_files(files: &[CheckedFile], tensors: &[FileTensor]) -> Vec<UnindexedFile> {
    files
        .iter()
        .enumerate()
        .filter(|(_, file)| !file.is_indexed)
        .map(|(number, file)| UnindexedFile {
            file: file.name.clone(),
            tensors: tensors
                .iter()
                .filter(|tensor| tensor.file == number)
                .map(|tensor| tensor.name.clone())
                .collect(),
        })
        .collect()
}
