//! Checks that a folder, a carton or a file has every tensor that its configuration asks for. Only headers are read.

mod files;
mod index;

use std::hash::BuildHasher;

use byte_source::{Error, Location, Observer, Result};
use families::{MisshapedTensor, MissingTensor, Model, ModelComparison, TensorGroup};
use foldhash::fast::RandomState;
use foldhash::{HashMap, HashMapExt, HashSet};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use open::HuggingFaceModel;
use serde::{Deserialize, Serialize};

use crate::Problem;
use files::{CheckedFile, CheckedFiles};
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
    let CheckedFiles { config, files, index, gguf } = CheckedFiles::find(&options.input, observer)?;
    let (config, place) = config;
    let config = config.ok_or_else(|| Error::from(Problem::NoConfiguration).in_file(path))?;
    let (half, rest) = files.split_at(files.len() / 2);
    let mut shapes = Vec::with_capacity(files.iter().map(|file| file.tensors.len()).sum());
    let (model, others) = rayon::join(
        || {
            shapes.extend(shapes_of(half));
            Model::from_config(&config)
        },
        || shapes_of(rest).collect::<Vec<_>>(),
    );
    shapes.extend(others);
    let model = model.map_err(|reason| Error::from(Problem::Configuration { reason }).in_file(&place))?;

    let of_files = || {
        let by_name = TensorsByName::new(&shapes, &files);
        let stale = stale_names(&index, &files, &by_name);
        (by_name, stale)
    };
    let ((by_name, mut stale), comparison) = rayon::join(of_files, || model.compare(&shapes));
    let comparison = if by_name.others.is_empty() { comparison } else { model.compare(&by_name.distinct()) };
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
        by_name.files_of(name).filter_map(|number| Some(files.get(number)?.name.clone())).collect()
    };
    let mut repeated: Vec<&str> = by_name.others.keys().copied().collect();
    repeated.extend(other_layout.iter().map(String::as_str).filter(|name| files_of(name).len() < 2));
    repeated.sort_unstable();
    let twice: Vec<RepeatedTensor> = repeated
        .into_iter()
        .map(|name| RepeatedTensor { name: name.to_owned(), files: files_of(name) })
        .collect();
    let prefix = if missing.is_empty() { None } else { open::other_prefix(&model, &by_name.distinct()) };
    let unindexed = unindexed_files(&files);
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
        tensors: shapes.len(),
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

/// Returns the tensors of files, in their order.
fn shapes_of(files: &[CheckedFile]) -> impl Iterator<Item = (&str, &[u64])> {
    files.iter().flat_map(|file| file.tensors.iter())
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

/// The tensors of all files, by their names.
struct TensorsByName<'t> {
    tensors: &'t [(&'t str, &'t [u64])],
    /// Place of the first tensor of each name.
    places: HashTable<u32>,
    hasher: RandomState,
    /// End of the tensors of each file.
    ends: Vec<usize>,
    /// Files with another copy of a tensor, by its name.
    others: HashMap<&'t str, Vec<usize>>,
}

impl<'t> TensorsByName<'t> {
    fn new(tensors: &'t [(&'t str, &'t [u64])], files: &[CheckedFile]) -> Self {
        let mut ends: Vec<usize> = Vec::with_capacity(files.len());
        for file in files {
            ends.push(ends.last().map_or(0, |end| *end).saturating_add(file.tensors.len()));
        }
        let (hasher, others) = (RandomState::default(), HashMap::new());
        let places = HashTable::with_capacity(tensors.len());
        let mut by_name = Self { tensors, places, hasher: hasher.clone(), ends, others };
        let name_at = |place: &u32| tensors.get(*place as usize).map_or("", |(name, _)| name);
        let hash = |name: &str| hasher.hash_one(name);
        for (place, (name, _)) in (0_u32..).zip(tensors) {
            match by_name.places.entry(hash(name), |at| name_at(at) == *name, |at| hash(name_at(at))) {
                Entry::Vacant(slot) => {
                    slot.insert(place);
                }
                Entry::Occupied(_) => {
                    let file = by_name.file(place as usize);
                    by_name.others.entry(name).or_default().push(file);
                }
            }
        }
        by_name
    }

    /// Returns the tensors without repetitions.
    fn distinct(&self) -> Vec<(&'t str, &'t [u64])> {
        let mut places: Vec<u32> = self.places.iter().copied().collect();
        places.sort_unstable();
        places.iter().filter_map(|place| self.tensors.get(*place as usize)).copied().collect()
    }

    /// Returns the place of the first tensor of a name.
    fn place(&self, name: &str) -> Option<usize> {
        let is_name =
            |place: &u32| self.tensors.get(*place as usize).is_some_and(|(other, _)| *other == name);
        self.places.find(self.hasher.hash_one(name), is_name).map(|place| *place as usize)
    }

    /// Returns the number of the file of a tensor.
    fn file(&self, place: usize) -> usize {
        self.ends.partition_point(|end| *end <= place)
    }

    /// Returns the numbers of the files that have a tensor.
    fn files_of(&self, name: &str) -> impl Iterator<Item = usize> {
        let first = self.place(name).map(|place| self.file(place));
        first.into_iter().chain(self.others.get(name).into_iter().flatten().copied())
    }
}

/// Returns the names for which the index gives another file than has the tensor, or none.
fn stale_names(index: &Index, files: &[CheckedFile], by_name: &TensorsByName<'_>) -> Vec<String> {
    let numbers: HashMap<&str, usize> =
        files.iter().enumerate().map(|(number, file)| (file.name.as_str(), number)).collect();
    let indexed: Vec<Option<usize>> =
        index.files.iter().map(|name| numbers.get(name.as_str()).copied()).collect();
    let mut is_named = vec![false; by_name.tensors.len()];
    let mut stale = Vec::new();
    // Of several entries with a name, the last one counts.
    for (name, file) in index.tensors().rev() {
        let place = by_name.place(name);
        let Some((place, is_named)) = place.and_then(|place| Some((place, is_named.get_mut(place)?))) else {
            stale.push(name.to_owned());
            continue;
        };
        let number = indexed.get(file).copied().flatten();
        // The first file of a tensor needs no second lookup.
        let is_there =
            |number| by_name.file(place) == number || by_name.files_of(name).any(|file| file == number);
        if !*is_named && !number.is_some_and(is_there) {
            stale.push(name.to_owned());
        }
        *is_named = true;
    }
    if !index.is_empty() {
        let is_indexed = |file: usize| files.get(file).is_some_and(|file| file.is_indexed);
        let tensors = by_name.tensors.iter().zip(is_named).enumerate();
        let unnamed = tensors.filter(|(place, ((name, _), is_named))| {
            !is_named && is_indexed(by_name.file(*place)) && by_name.place(name) == Some(*place)
        });
        stale.extend(unnamed.map(|(_, ((name, _), _))| (*name).to_owned()));
    }
    stale
}

/// Returns the files that the index does not name, with their tensors.
fn unindexed_files(files: &[CheckedFile]) -> Vec<UnindexedFile> {
    files
        .iter()
        .filter(|file| !file.is_indexed)
        .map(|file| UnindexedFile {
            file: file.name.clone(),
            tensors: file.tensors.iter().map(|(name, _)| name.to_owned()).collect(),
        })
        .collect()
}
