//! A conversion before it starts: which files it reads, and what it writes where.

use std::path::{Path, PathBuf};

use checkpoint_files::Sources;
use output::file_name;

use crate::{ConvertOptions, InvalidOption, Result, cast, input, naming, rename};

/// A conversion that is ready to run. Its files were looked up, and none was opened.
#[derive(Debug)]
pub struct Conversion {
    pub(crate) options: ConvertOptions,
    pub(crate) sources: Sources,
    /// The name that the model gets.
    pub(crate) name: String,
    /// The file or folder to write.
    pub(crate) output: PathBuf,
    /// Whether the output is a folder for the files of a model.
    pub(crate) is_folder: bool,
    /// Whether a dry run needs the folder of the output, which another run would create first.
    pub(crate) needs_folder: bool,
}

impl Conversion {
    /// Finds the files of the inputs, and names the output: without a given one it is next to the checkpoint, under its
    /// name. A folder is a checkpoint too, so its output is next to the folder.
    ///
    /// # Errors
    /// When the inputs are not one checkpoint, or an option has a value that it cannot have.
    pub fn plan(options: &ConvertOptions) -> Result<Self> {
        Self::new(options.clone(), None)
    }

    /// The same with an output in `folder`, which is created before the conversion runs.
    pub(crate) fn plan_in(folder: &Path, options: ConvertOptions) -> Result<Self> {
        Self::new(options, Some(folder))
    }

    fn new(options: ConvertOptions, folder: Option<&Path>) -> Result<Self> {
        check(&options)?;
        let format = options.target.format();
        let sources = input::sources(&options)?;
        let name = naming::model_name(&options, &sources);
        let default = || naming::output_of(&options, &sources, format.is_folder(None));
        let output = match (folder, &options.output) {
            (Some(folder), _) if format.is_repository() => folder.to_owned(),
            (Some(folder), _) => folder.join(file_name(&default())),
            (None, Some(output)) => output.clone(),
            (None, None) => default(),
        };
        let is_given = folder.is_some() || options.output.is_some();
        let is_folder = format.is_folder(Some(&output).filter(|_| is_given).map(PathBuf::as_path));
        Ok(Self { sources, name, output, is_folder, needs_folder: folder.is_none(), options })
    }

    /// The file or folder that the conversion writes.
    pub fn output(&self) -> &Path {
        &self.output
    }

    /// The part of the output that belongs to this conversion alone: all of it, or the folder of its model in a repository.
    pub(crate) fn own_output(&self) -> PathBuf {
        if self.options.target.format().is_repository() {
            self.output.join(&self.name)
        } else {
            self.output.clone()
        }
    }
}

/// What can be checked before a file is looked up.
fn check(options: &ConvertOptions) -> Result<()> {
    if options.inputs.is_empty() {
        return Err(InvalidOption::NoInput.into());
    }
    for input in &options.inputs {
        output::refuse_remote(input)?;
    }
    cast::check(&options.casts)?;
    rename::check(&options.renames)?;
    options.target.format().check()
}
