//! Inputs of a batch: the checkpoints in folders, and the outputs that they get.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Component, Path, PathBuf};

use batch::clean_absolute;
use byte_source::{Error, Location};
use carton_format::Config;
use open::files::{CheckpointSources, Problem, is_checkpoint};
use output::{RemoteAddress, is_own_output, parent_folder, shown_path};
use torch_import::starts_as_checkpoint;

use super::input::EachInput;
use super::pipeline::PipelineInput;
use crate::output_path::{self, OutputNaming};
use crate::{ConvertOptions, InvalidOption, OutputFormat, PlannedConversion, Result};

/// Maximum number of folders that are searched for checkpoints below one input.
const FOLDERS_MAX: usize = 100_000;
/// Bytes at the start of a file that show what it is.
const HEAD_LEN: u64 = 64 << 10;

/// Inputs of a batch, found in its folders.
#[derive(Debug, Default)]
pub(crate) struct EachInputs {
    pub(crate) checkpoints: Vec<EachInput>,
    pub(crate) pipelines: Vec<PipelineInput>,
    /// Files in the folders that start as checkpoints do, and are not named like one.
    pub(crate) left_out: Vec<PathBuf>,
}

/// Returns the files of each checkpoint among the inputs. A file is one input, but a zip archive of checkpoints stands for those in
/// it. A folder is searched with its subfolders, but without links to folders: a set of files that belong together by their names or
/// an index is one checkpoint, and so is every other file. An input without a checkpoint is kept, so that its error is reported.
pub(crate) fn expand_inputs(options: &ConvertOptions) -> EachInputs {
    let mut all = EachInputs::default();
    let ConvertOptions { inputs, stores, .. } = options;
    for input in inputs {
        let before = all.checkpoints.len();
        // What cannot be opened now is reported when its turn comes.
        let folder = if names_folder(input) { stores.locate(input.path()).ok() } else { Some(input.clone()) };
        if let Some(folder) = folder.filter(|folder| !is_address(folder) && folder.is_folder()) {
            let below = if inputs.len() == 1 { PathBuf::new() } else { name_among(&folder, inputs) };
            all.add_folder(&folder, options, &below);
        } else {
            all.add_archive(input);
        }
        if all.checkpoints.len() == before {
            all.checkpoints.push(EachInput::given(input.clone()));
        }
    }
    all
}

/// Returns the name of a folder, with those above it if another input has the same name.
fn name_among(folder: &Location, inputs: &[Location]) -> PathBuf {
    let path = clean_absolute(folder.path());
    let others = inputs.iter().map(|input| clean_absolute(input.path()));
    let common = common_folder(
        others
            .filter(|other| other.file_name() == path.file_name())
            .map(|other| parent_folder(&other).to_owned()),
    );
    path.strip_prefix(common).unwrap_or(&path).to_owned()
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
    /// Appends the checkpoints in a zip archive, whose outputs are in a folder of its name; nothing for another file.
    fn add_archive(&mut self, input: &Location) {
        let is_archive = input.path().extension().is_some_and(|it| it.eq_ignore_ascii_case("zip"));
        let Some(archive) = input.open().ok().filter(|_| input.is_local() && is_archive) else { return };
        let error = torch_import::Container::from_source(archive).err();
        let Some(torch_import::Problem::Archive { members }) = error.as_ref().and_then(Error::detail) else {
            return;
        };
        let folder = PathBuf::from(input.path().file_stem().unwrap_or_default());
        self.checkpoints.extend(members.iter().map(|member| {
            let inside = Path::new(member).parent().into_iter().flat_map(Path::components);
            let inside: PathBuf = inside.filter(|part| matches!(part, Component::Normal(_))).collect();
            EachInput {
                files: vec![input.clone()],
                member: Some(member.clone()),
                below: Some(folder.join(inside)),
            }
        }));
    }

    /// Appends the checkpoints in the folder `root` and its subfolders. The outputs of pipelines keep their paths in it, after `below`.
    fn add_folder(&mut self, root: &Location, options: &ConvertOptions, below: &Path) {
        // With each folder, true if the one above is a model: what a trainer wrote in it is another form of the same.
        let mut folders = VecDeque::from([(root.clone(), false)]);
        let mut searched = 0_usize;
        while let Some((folder, is_in_model)) = folders.pop_front() {
            searched = searched.saturating_add(1);
            let in_root = folder.path().strip_prefix(root.path()).unwrap_or(Path::new(""));
            let below = below.join(in_root);
            let whole = |folder: &Location| {
                EachInput::below(vec![folder.clone()], below.parent().unwrap_or(Path::new("")).to_owned())
            };
            let in_folder = |files: Vec<Location>| EachInput::below(files, below.clone());
            self.pipelines.extend(PipelineInput::at(&folder, &below));
            if is_unpacked_carton(&folder) {
                self.checkpoints.push(whole(&folder));
                continue;
            }
            let found = CheckpointSources::find(std::slice::from_ref(&folder), options.shards());
            let is_of_trainer = found.as_ref().is_ok_and(CheckpointSources::is_of_trainer);
            if !is_of_trainer && !is_in_model {
                self.left_out.extend(unnamed_checkpoints(&folder));
            }
            let mut is_model = false;
            match found.map_err(byte_source::Error::downcast) {
                Err(Ok(Problem::SeveralCheckpoints { candidates, .. })) => {
                    let mut sets: Vec<_> = candidates.into_iter().map(|candidate| candidate.paths).collect();
                    sets.sort();
                    let at = |paths: Vec<PathBuf>| paths.into_iter().map(|path| folder.at(path)).collect();
                    let sets = sets.into_iter().map(at);
                    let sets = sets.filter(|set: &Vec<_>| !is_output(set, options));
                    self.checkpoints.extend(sets.map(in_folder));
                }
                Ok(found) if found.is_of_trainer() && (is_in_model || found.is_step_below()) => {}
                Ok(found) if is_output(&found.locations().collect::<Vec<_>>(), options) => {}
                Err(Ok(Problem::NoCheckpoint { .. })) => {}
                Ok(found) => {
                    is_model = !found.is_alone_by_chance().unwrap_or(false);
                    // Another file in the folder must not change the name of its output.
                    let of_folder = || whole(&folder);
                    let of_file = || in_folder(found.locations().collect());
                    self.checkpoints.push(if is_model { of_folder() } else { of_file() });
                    let others = found.separate_files().into_iter().map(|file| vec![file]);
                    self.checkpoints.extend(others.filter(|file| !is_output(file, options)).map(in_folder));
                    if found.is_of_trainer() {
                        continue;
                    }
                }
                // A step of a training that cannot be read has an error of its own when its turn comes.
                Err(Err(error)) if is_of_folder_below(&error, &folder) => {}
                // One that cannot be read, whose error is reported.
                Err(_) => self.checkpoints.push(whole(&folder)),
            }
            if searched < FOLDERS_MAX {
                folders.extend(subfolders(&folder).into_iter().map(|below| (below, is_model)));
            }
        }
    }
}

/// Returns the files of a local folder that start as checkpoints do, and are not named like one.
fn unnamed_checkpoints(folder: &Location) -> Vec<PathBuf> {
    if !folder.is_local() {
        return Vec::new();
    }
    let Ok(listing) = folder.store().list(folder.path()) else { return Vec::new() };
    let is_unnamed = |name: &&String| !name.starts_with('.') && !is_checkpoint(name);
    let files = listing.files.iter().filter(is_unnamed).map(|name| folder.join(name));
    let is_one = |file: &Location| {
        let head = file.open().and_then(|file| file.read_range(0..file.len().min(HEAD_LEN)));
        head.is_ok_and(|head| starts_as_checkpoint(&head)) && !is_own_output(file.path())
    };
    files.filter(is_one).map(|file| shown_path(file.path())).collect()
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
    /// A checkpoint in a zip archive, which is opened when its turn comes, because one that is compressed takes memory.
    Member {
        archive: Location,
        name: String,
        options: Box<ConvertOptions>,
        folder: Option<PathBuf>,
        naming: OutputNaming,
    },
}

impl NamedInput {
    /// Names the output of one checkpoint, in `folder` if there is one.
    fn new(
        options: &ConvertOptions,
        input: &EachInput,
        folder: Option<&Path>,
        naming: OutputNaming,
    ) -> Result<Self> {
        let EachInput { files, member, .. } = input;
        let alone = ConvertOptions { inputs: files.clone(), output: None, ..options.clone() };
        if let ([archive], Some(name)) = (files.as_slice(), member) {
            let (archive, name, options) = (archive.clone(), name.clone(), Box::new(alone));
            return Ok(Self::Member { archive, name, options, folder: folder.map(Path::to_owned), naming });
        }
        if let [input] = files.as_slice()
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
            Self::Member { name, options, folder, naming, .. } => {
                output_path::expected_output_named(Path::new(name), options, folder.as_deref(), *naming)
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
            Self::Member { archive, name, mut options, folder, naming } => {
                let at_archive = |error: Error| error.in_file(archive.path());
                let member = torch_import::archive_member(&archive.open().map_err(at_archive)?, &name);
                options.inputs = member.map_err(at_archive)?.into_iter().map(Location::from).collect();
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

/// Names the output of each checkpoint. One that was found in a folder keeps its place below that folder, so its name does not depend
/// on what else is there. Files that were given, and whose outputs would have the same name, keep the folders in which they
/// are, from the last folder that all of them have in common; those in one folder keep their extensions. An input that is
/// given twice is an error, and so is an output that is still that of an earlier checkpoint. Models of pipelines keep the names of
/// their folders.
pub(crate) fn name_all(options: &ConvertOptions, all: &EachInputs) -> Vec<Result<NamedInput>> {
    let inputs = &all.checkpoints;
    let output = options.output.as_deref();
    let mut seen = HashSet::new();
    let plan = |input: &EachInput| {
        let path = input.shown();
        if !seen.insert(clean_absolute(&path)) {
            return Err(InvalidOption::SameInput { path }.into());
        }
        match all.pipelines.iter().find_map(|pipeline| pipeline.model_output(options, &input.files)) {
            Some((output, true)) => NamedInput::in_pipeline(options, &input.files, output),
            Some((folder, false)) => NamedInput::new(options, input, Some(&folder), OutputNaming::Stem),
            None => {
                let folder = input.output_folder(options);
                NamedInput::new(options, input, folder.as_deref(), OutputNaming::Stem)
            }
        }
    };
    let mut planned: Vec<_> = inputs.iter().map(plan).collect();
    // A model repository has one level of folders, which are named after the models.
    if options.target.output().is_repository() {
        return reject_repeated_outputs(inputs, planned);
    }
    if let Some(output) = output {
        let is_given = |place: &usize| inputs.get(*place).is_some_and(|input| input.below.is_none());
        let colliding: Vec<usize> = colliding_inputs(&planned).into_iter().filter(is_given).collect();
        let common =
            common_folder(colliding.iter().filter_map(|place| inputs.get(*place)).map(EachInput::folder));
        for place in colliding {
            if let (Some(input), Some(slot)) = (inputs.get(place), planned.get_mut(place)) {
                let folder = input.folder();
                let folder = output.join(folder.strip_prefix(&common).unwrap_or(Path::new("")));
                *slot = NamedInput::new(options, input, Some(&folder), OutputNaming::Stem);
            }
        }
    }
    for place in colliding_inputs(&planned) {
        if let (Some(input), Some(slot)) = (inputs.get(place), planned.get_mut(place)) {
            let folder = slot.as_ref().ok().map(|it| parent_folder(&it.own_output()).to_owned());
            *slot = NamedInput::new(options, input, folder.as_deref(), OutputNaming::FileName);
        }
    }
    reject_repeated_outputs(inputs, planned)
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

/// Returns the last folder that all paths have in common.
fn common_folder(mut paths: impl Iterator<Item = PathBuf>) -> PathBuf {
    let first = paths.next().unwrap_or_default();
    paths.fold(first, |common, path| {
        let same = common.components().zip(path.components()).take_while(|(a, b)| a == b);
        same.map(|(part, _)| part).collect()
    })
}

/// Replaces each input whose output is that of an earlier one by an error.
fn reject_repeated_outputs(inputs: &[EachInput], named: Vec<Result<NamedInput>>) -> Vec<Result<NamedInput>> {
    let mut taken = TakenOutputs::default();
    let check = |(named, input): (Result<NamedInput>, &EachInput)| {
        let named = named?;
        taken.take(named.own_output(), &input.shown())?;
        Ok(named)
    };
    named.into_iter().zip(inputs).map(check).collect()
}
