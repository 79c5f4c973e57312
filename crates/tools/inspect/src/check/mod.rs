//! Checks that a folder, a carton or a file has every tensor that its configuration asks for. Only headers are read.

mod files;

use std::collections::hash_map::Entry;

use byte_source::{Error, Location, Observer, Result};
use families::{MisshapedTensor, MissingTensor, Model, ModelComparison, TensorGroup};
use foldhash::{HashMap, HashMapExt, HashSet};
use serde::{Deserialize, Serialize};

use crate::Problem;
use files::{CheckedFile, CheckedFiles, FileTensor};

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
    /// `released`, or `modules` if the names are those in memory.
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
    let CheckedFiles { config, files, tensors, index } = CheckedFiles::find(&options.input, observer)?;
    let (config, place) = config;
    let config = config.ok_or_else(|| Error::from(Problem::NoConfiguration).in_file(path))?;
    let model = Model::from_config(&config)
        .map_err(|reason| Error::from(Problem::Configuration { reason }).in_file(&place))?;

    // The first file of each tensor, and the others of those that are there several times.
    let mut places: HashMap<&str, usize> = HashMap::with_capacity(tensors.len());
    let mut others: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut distinct: Vec<(&str, &[u64])> = Vec::with_capacity(tensors.len());
    for FileTensor { name, shape, file } in &tensors {
        match places.entry(name) {
            Entry::Vacant(place) => {
                place.insert(*file);
                distinct.push((name, shape));
            }
            Entry::Occupied(_) => others.entry(name).or_default().push(*file),
        }
    }
    let comparison = model.compare(&distinct);
    let ModelComparison {
        layout,
        expected,
        missing,
        groups,
        absent,
        unexpected,
        misshaped,
        other_layout,
        ..
    } = comparison;
    let files_of = |name: &str| -> Vec<String> {
        let numbers = places.get(name).into_iter().chain(others.get(name).into_iter().flatten());
        numbers.filter_map(|number| Some(files.get(*number)?.name.clone())).collect()
    };
    let mut repeated: Vec<&str> = others.keys().copied().collect();
    repeated.extend(other_layout.iter().map(String::as_str).filter(|name| files_of(name).len() < 2));
    repeated.sort_unstable();
    let twice: Vec<RepeatedTensor> = repeated
        .into_iter()
        .map(|name| RepeatedTensor { name: name.to_owned(), files: files_of(name) })
        .collect();
    let unindexed = unindexed_files(&files, &tensors);
    let mut missing_names: Vec<&str> = missing.iter().map(|tensor| tensor.name.as_str()).collect();
    missing_names.sort_unstable();
    let numbers: HashMap<&str, usize> =
        files.iter().enumerate().map(|(number, file)| (file.name.as_str(), number)).collect();
    let is_at = |name: &str, file: &str| {
        let number = numbers.get(file);
        let is_other = |number: &usize| others.get(name).is_some_and(|others| others.contains(number));
        number.is_some_and(|number| places.get(name) == Some(number) || is_other(number))
    };
    let stale = index
        .iter()
        .filter(|(name, file)| !is_at(name, file) && missing_names.binary_search(&name.as_str()).is_err())
        .map(|(name, _)| name.clone());
    let unnamed = tensors
        .iter()
        .filter(|tensor| !index.is_empty() && files.get(tensor.file).is_some_and(|file| file.is_indexed))
        .filter(|tensor| !index.contains_key(&tensor.name))
        .map(|tensor| tensor.name.clone());
    let mut stale: Vec<String> = stale.chain(unnamed).collect();
    let unknown: HashSet<&str> = unexpected.iter().map(String::as_str).collect();
    stale.retain(|name| {
        !unknown.contains(name.as_str()) && twice.binary_search_by(|tensor| tensor.name.cmp(name)).is_err()
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
        layout,
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
    })
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
