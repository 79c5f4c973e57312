//! Inputs of a batch: the checkpoints in folders, and the outputs that they get.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};

use batch::clean_absolute;
use byte_source::Location;
use carton_format::Config;
use open::files::{CheckpointSources, Problem};
use output::{RemoteAddress, is_own_output, parent_folder, shown_path};

use super::pipeline::PipelineInput;
use crate::output_path::{self, OutputNaming};
use crate::{ConvertOptions, InvalidOption, OutputFormat, PlannedConversion, Result};

/// Maximum number of folders that are searched for checkpoints below one input.
const FOLDERS_MAX: usize = 100_000;

/// Inputs of a batch, found in its folders.
#[derive(Debug, Default)]
pub(crate) struct EachInputs {
    /// Files of each checkpoint.
    pub(crate) checkpoints: Vec<Vec<Location>>,
    pub(crate) pipelines: Vec<PipelineInput>,
}

/// Returns the files of each checkpoint among the inputs. A file is one input. A folder is searched with its subfolders, but
/// without links to folders: a set of files that belong together by their names or an index is one checkpoint, and so is every other
/// file. An input without a checkpoint is kept, so that its error is reported.
pub(crate) fn expand_inputs(options: &ConvertOptions) -> EachInputs {
    let mut all = EachInputs::default();
    let ConvertOptions { inputs, stores, .. } = options;
    for input in inputs {
        let before = all.checkpoints.len();
        // What cannot be opened now is reported when its turn comes.
        let folder = if names_folder(input) { stores.locate(input.path()).ok() } else { Some(input.clone()) };
        if let Some(folder) = folder.filter(|folder| !is_address(folder) && folder.is_folder()) {
            let below = if inputs.len() == 1 { PathBuf::new() } else { folder.folder_name().into() };
            all.add_folder(&folder, options, &below);
        }
        if all.checkpoints.len() == before {
            all.checkpoints.push(vec![input.clone()]);
        }
    }
    all
}

/// Returns true if the folder contains the files of a carton.
fn is_unpacked_carton(folder: &Location) -> bool {
    folder.join(Config::PATH).is_file()
}

/// Returns true for an address that was not opened.
fn is_address(input: &Location) -> bool {
    input.is_local() && RemoteAddress::from_path(input.path()).is_some()
}

/// Returns true for an address whose last part has no extension, which is rather that of a folder.
fn names_folder(input: &Location) -> bool {
    let name = input.path().file_name().unwrap_or_default().to_string_lossy();
    is_address(input) && !name.contains('.')
}

impl EachInputs {
    /// Appends the checkpoints in the folder `root` and its subfolders. The outputs of pipelines keep their paths in it, after `below`.
    fn add_folder(&mut self, root: &Location, options: &ConvertOptions, below: &Path) {
        // With each folder, true if the one above is a model: what a trainer wrote in it is another form of the same.
        let mut folders = VecDeque::from([(root.clone(), false)]);
        let mut searched = 0_usize;
        while let Some((folder, is_in_model)) = folders.pop_front() {
            searched = searched.saturating_add(1);
            let in_root = folder.path().strip_prefix(root.path()).unwrap_or(Path::new(""));
            self.pipelines.extend(PipelineInput::at(&folder, &below.join(in_root)));
            if is_unpacked_carton(&folder) {
                self.checkpoints.push(vec![folder]);
                continue;
            }
            let found = CheckpointSources::find(std::slice::from_ref(&folder), options.shards());
            let mut is_model = false;
            match found.map_err(byte_source::Error::downcast) {
                Err(Ok(Problem::SeveralCheckpoints { candidates, .. })) => {
                    let mut sets: Vec<_> = candidates.into_iter().map(|candidate| candidate.paths).collect();
                    sets.sort();
                    let at = |paths: Vec<PathBuf>| paths.into_iter().map(|path| folder.at(path)).collect();
                    let sets = sets.into_iter().map(at);
                    self.checkpoints.extend(sets.filter(|set: &Vec<_>| !is_output(set, options)));
                }
                Ok(found) if found.is_of_trainer() && (is_in_model || found.is_step_below()) => {}
                Ok(found) if is_output(&found.locations().collect::<Vec<_>>(), options) => {}
                Err(Ok(Problem::NoCheckpoint { .. })) => {}
                Ok(found) => {
                    self.checkpoints.push(vec![folder.clone()]);
                    let others = found.separate_files().into_iter().map(|file| vec![file]);
                    self.checkpoints.extend(others.filter(|file| !is_output(file, options)));
                    is_model = !found.is_alone_by_chance().unwrap_or(false);
                    if found.is_of_trainer() {
                        continue;
                    }
                }
                // A step of a training that cannot be read has an error of its own when its turn comes.
                Err(Err(error)) if is_of_folder_below(&error, &folder) => {}
                // One that cannot be read, whose error is reported.
                Err(_) => self.checkpoints.push(vec![folder.clone()]),
            }
            if searched < FOLDERS_MAX {
                folders.extend(subfolders(&folder).into_iter().map(|below| (below, is_model)));
            }
        }
    }
}

/// Returns true if an error is about a folder below another one.
fn is_of_folder_below(error: &byte_source::Error, folder: &Location) -> bool {
    let place = error.location().path;
    place.is_some_and(|path| {
        path != folder.path() && path.starts_with(folder.path()) && folder.at(path).is_folder()
    })
}

/// Returns true if the files are an output that another run wrote in this format, to the same place. Each run would make outputs
/// of those of the one before.
fn is_output(files: &[Location], options: &ConvertOptions) -> bool {
    let output = options.output.as_deref().map(clean_absolute);
    files.iter().all(|file| {
        let path = file.path();
        let is_here = output.as_ref().is_none_or(|folder| clean_absolute(path).starts_with(folder));
        let is_of_format = OutputFormat::from_path(path) == Some(options.target.format())
            || path.extension().is_some_and(|it| it == "json");
        file.is_local() && is_here && is_of_format && is_own_output(path)
    })
}

/// Returns the folders in a folder, sorted by name, without links and hidden ones.
fn subfolders(folder: &Location) -> Vec<Location> {
    let Ok(listing) = folder.store().list(folder.path()) else { return Vec::new() };
    let is_kept = |name: &&String| !name.starts_with('.') && !listing.links.contains(name);
    listing.folders.iter().filter(is_kept).map(|name| folder.join(name)).collect()
}

/// Checkpoint of a batch whose output has a name.
#[derive(Debug)]
pub(crate) enum NamedInput {
    /// A checkpoint whose store is open.
    Found(Box<PlannedConversion>),
    /// A checkpoint at an address, which is opened when its turn comes, so that only those that are worked on are open.
    Address { address: PathBuf, options: Box<ConvertOptions>, folder: Option<PathBuf>, naming: OutputNaming },
}

impl NamedInput {
    /// Names the output of one checkpoint, in `folder` if there is one.
    fn new(
        options: &ConvertOptions,
        files: &[Location],
        folder: Option<&Path>,
        naming: OutputNaming,
    ) -> Result<Self> {
        let alone = ConvertOptions { inputs: files.to_vec(), output: None, ..options.clone() };
        if let [input] = files
            && is_address(input)
        {
            let (options, folder) = (Box::new(alone), folder.map(Path::to_owned));
            return Ok(Self::Address { address: input.path().to_owned(), options, folder, naming });
        }
        Ok(Self::Found(Box::new(PlannedConversion::new(alone, folder, naming)?)))
    }

    /// Gives a model of a pipeline this output.
    fn in_pipeline(options: &ConvertOptions, files: &[Location], output: PathBuf) -> Result<Self> {
        let alone = ConvertOptions { inputs: files.to_vec(), output: Some(output), ..options.clone() };
        Ok(Self::Found(Box::new(PlannedConversion::new(alone, None, OutputNaming::Stem)?)))
    }

    /// Returns the part of the output that only this conversion writes, as far as the text of an address tells.
    fn own_output(&self) -> PathBuf {
        match self {
            Self::Found(conversion) => conversion.own_output(),
            Self::Address { address, options, folder, naming } => {
                let folder = folder.as_deref().or(Some(Path::new("")));
                output_path::expected_output_named(&shown_path(address), options, folder, *naming)
            }
        }
    }

    /// Plans the conversion, after the checkpoint is opened if it is at an address.
    pub(crate) fn plan(self) -> Result<PlannedConversion> {
        match self {
            Self::Found(conversion) => Ok(*conversion),
            Self::Address { address, mut options, folder, naming } => {
                options.inputs = vec![options.locate(&address)?];
                PlannedConversion::new(*options, folder.as_deref(), naming)
            }
        }
    }
}

/// Outputs of a batch with the inputs that they are made from.
#[derive(Debug, Default)]
pub(crate) struct TakenOutputs(HashMap<PathBuf, PathBuf>);

impl TakenOutputs {
    /// Takes the output for an input.
    ///
    /// # Errors
    /// When the output is that of another input.
    pub(crate) fn take(&mut self, output: PathBuf, input: &Path) -> Result<()> {
        match self.0.entry(output) {
            Entry::Occupied(taken) if taken.get() != input => {
                let (output, first) = (taken.key().clone(), taken.get().clone());
                Err(InvalidOption::SameOutput { output, first, second: input.to_owned() }.into())
            }
            Entry::Occupied(_) => Ok(()),
            Entry::Vacant(free) => {
                free.insert(input.to_owned());
                Ok(())
            }
        }
    }
}

/// Names the output of each checkpoint. Checkpoints whose outputs would have the same name keep the folders in which they
/// are, from the last folder that all of them have in common; those in one folder keep their extensions. An input that is
/// given twice is an error, and so is an output that is still that of an earlier checkpoint. Models of pipelines keep the names of
/// their folders.
pub(crate) fn name_all(options: &ConvertOptions, all: &EachInputs) -> Vec<Result<NamedInput>> {
    let inputs = &all.checkpoints;
    let output = options.output.as_deref();
    let mut seen = HashSet::new();
    let plan = |paths: &Vec<Location>| {
        let path = first_path(paths);
        if !seen.insert(clean_absolute(&path)) {
            return Err(InvalidOption::SameInput { path }.into());
        }
        match all.pipelines.iter().find_map(|pipeline| pipeline.model_output(options, paths)) {
            Some((output, true)) => NamedInput::in_pipeline(options, paths, output),
            Some((folder, false)) => NamedInput::new(options, paths, Some(&folder), OutputNaming::Stem),
            None => NamedInput::new(options, paths, output, OutputNaming::Stem),
        }
    };
    let mut planned: Vec<_> = inputs.iter().map(plan).collect();
    // A model repository has one level of folders, which are named after the models.
    if options.target.output().is_repository() {
        return reject_repeated_outputs(inputs, planned);
    }
    if let Some(output) = output {
        let colliding = colliding_inputs(&planned);
        let parents =
            colliding.iter().filter_map(|place| inputs.get(*place)).map(|paths| input_folder(paths));
        let common = common_folder(parents);
        for place in colliding {
            if let (Some(paths), Some(slot)) = (inputs.get(place), planned.get_mut(place)) {
                let folder = folder_below(output, &common, paths);
                *slot = NamedInput::new(options, paths, Some(&folder), OutputNaming::Stem);
            }
        }
    }
    for place in colliding_inputs(&planned) {
        if let (Some(paths), Some(slot)) = (inputs.get(place), planned.get_mut(place)) {
            let folder = slot.as_ref().ok().map(|it| parent_folder(&it.own_output()).to_owned());
            *slot = NamedInput::new(options, paths, folder.as_deref(), OutputNaming::FileName);
        }
    }
    reject_repeated_outputs(inputs, planned)
}

/// Returns the folder below `output` that is to `output` what the checkpoint's folder is to `common`.
fn folder_below(output: &Path, common: &Path, paths: &[Location]) -> PathBuf {
    let parent = input_folder(paths);
    output.join(parent.strip_prefix(common).unwrap_or(Path::new("")))
}

/// Returns the positions of the conversions whose output another one has, too.
fn colliding_inputs(planned: &[Result<NamedInput>]) -> Vec<usize> {
    let mut places: HashMap<PathBuf, Vec<usize>> = HashMap::new();
    for (place, conversion) in planned.iter().enumerate() {
        if let Ok(conversion) = conversion {
            places.entry(conversion.own_output()).or_default().push(place);
        }
    }
    let mut found: Vec<usize> = places.into_values().filter(|places| places.len() > 1).flatten().collect();
    found.sort_unstable();
    found
}

/// Returns the first file of a checkpoint.
fn first_path(paths: &[Location]) -> PathBuf {
    paths.first().map_or_else(PathBuf::new, |file| shown_path(file.path()))
}

/// Returns the absolute folder of a checkpoint's files.
fn input_folder(paths: &[Location]) -> PathBuf {
    clean_absolute(parent_folder(&first_path(paths)))
}

/// Returns the last folder that all paths have in common.
fn common_folder(mut paths: impl Iterator<Item = PathBuf>) -> PathBuf {
    let first = paths.next().unwrap_or_default();
    paths.fold(first, |common, path| {
        let same = common.components().zip(path.components()).take_while(|(a, b)| a == b);
        same.map(|(part, _)| part).collect()
    })
}

/// Replaces each input whose output is that of an earlier one by an error.
fn reject_repeated_outputs(
    inputs: &[Vec<Location>],
    named: Vec<Result<NamedInput>>,
) -> Vec<Result<NamedInput>> {
    let mut taken = TakenOutputs::default();
    let check = |(named, paths): (Result<NamedInput>, &Vec<Location>)| {
        let named = named?;
        taken.take(named.own_output(), &first_path(paths))?;
        Ok(named)
    };
    named.into_iter().zip(inputs).map(check).collect()
}
