//! Converts checkpoints.

use std::path::PathBuf;
use std::sync::Arc;

use byte_source::Source;
use pipeline::{
    AllowedGlobals, BatchItem, Cast, CastFrom, ConvertOptions, ConvertReport, Dtype, EachReport, Given,
    IfExists, Observer, Rename, Selection, Shards, Target,
};

use crate::Result;

/// Returns a conversion of the checkpoint at `input`, a file or a folder, which [`Convert::run`] starts.
pub fn convert(input: impl Into<PathBuf>) -> Convert {
    Convert::new(input)
}

/// A conversion that has not started. [`convert`] has an example.
#[derive(Clone, Debug)]
#[must_use = "a conversion starts with `run`"]
pub struct Convert {
    options: ConvertOptions,
    /// Whether the target was given, so that the extension of the output does not choose it.
    is_chosen: bool,
}

impl Convert {
    /// A conversion of the checkpoint at `input` into a carton next to it.
    pub fn new(input: impl Into<PathBuf>) -> Self {
        Self { options: ConvertOptions::new(input), is_chosen: false }
    }

    /// A conversion of a file that is read from `source`, into a carton named after its path.
    pub fn from_source(source: Arc<dyn Source>) -> Self {
        Self { options: ConvertOptions::from_source(source), is_chosen: false }
    }

    /// Adds an input: another shard of the checkpoint, or for [`run_each`](Self::run_each) another checkpoint.
    pub fn input(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.inputs.push(path.into());
        self
    }

    /// Sets the kind of output, with its options.
    pub fn to(mut self, target: impl Into<Target>) -> Self {
        self.options.target = target.into();
        self.is_chosen = true;
        self
    }

    /// Sets the file or folder to write. Without [`to`](Self::to), its extension chooses the kind of output.
    pub fn output(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.output = Some(path.into());
        self
    }

    /// Sets what happens to a file that exists at the output.
    pub fn if_exists(mut self, if_exists: IfExists) -> Self {
        self.options.if_exists = if_exists;
        self
    }

    /// Converts the file alone, even if it is one shard of several.
    pub fn single_shard(mut self) -> Self {
        self.options.shards = Shards::ThisFileOnly;
        self
    }

    /// Sets which globals a pickle may name. None of them is executed.
    pub fn globals(mut self, allowed: AllowedGlobals) -> Self {
        self.options.globals = allowed;
        self
    }

    /// Sets numbers of a language model that no document has.
    pub fn given(mut self, given: Given) -> Self {
        self.options.given = given;
        self
    }

    /// Sets which tensors are converted.
    pub fn select(mut self, selection: Selection) -> Self {
        self.options.selection = selection;
        self
    }

    /// Replaces each match of a regular expression in the names of tensors, after the replacements that were given before.
    pub fn rename(mut self, pattern: impl Into<String>, to: impl Into<String>) -> Self {
        self.options.renames.push(Rename { pattern: pattern.into(), to: to.into() });
        self
    }

    /// Converts tensors of one dtype into another.
    pub fn cast(mut self, from: impl Into<CastFrom>, to: Dtype) -> Self {
        self.options.casts.push(Cast { from: from.into(), to });
        self
    }

    /// Converts all floating-point tensors to this dtype, except those that [`cast`](Self::cast) names.
    pub fn dtype(self, dtype: Dtype) -> Self {
        self.cast(CastFrom::FloatingPoint, dtype)
    }

    /// Stops before anything is written. The report is that of the whole conversion.
    pub fn dry_run(mut self) -> Self {
        self.options.dry_run = true;
        self
    }

    /// Converts the checkpoint.
    ///
    /// # Errors
    /// When the inputs are not one checkpoint, a file is damaged or changes, an option does not fit the input, the output
    /// cannot be written, or `observer` stops the work. No output is left then.
    pub fn run(&self, observer: &dyn Observer) -> Result<ConvertReport> {
        Ok(pipeline::convert(&self.options()?, observer)?)
    }

    /// Converts each input on its own into the folder that is the output, and goes on after a failure. `done` receives each
    /// result at once. With `resume`, an input is skipped if its output exists, is whole and is not older.
    ///
    /// # Errors
    /// When the output is not a folder, two inputs have the same output, or `observer` stops the work.
    pub fn run_each(
        &self,
        resume: bool,
        observer: &dyn Observer,
        done: &mut dyn FnMut(BatchItem),
    ) -> Result<EachReport> {
        let mut done = |item| {
            done(item);
            Ok(())
        };
        Ok(pipeline::convert_each(&self.options, resume, observer, &mut done)?)
    }

    fn options(&self) -> Result<ConvertOptions, pipeline::Error> {
        let mut options = self.options.clone();
        if let Some(output) = options.output.as_ref().filter(|_| !self.is_chosen) {
            options.target = Target::from_path(output)?;
        }
        Ok(options)
    }
}

/// The target of the options is used as it is.
impl From<ConvertOptions> for Convert {
    fn from(options: ConvertOptions) -> Self {
        Self { options, is_chosen: true }
    }
}
