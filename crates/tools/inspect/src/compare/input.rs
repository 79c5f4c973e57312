//! Opens a checkpoint or a carton as the tensors that a conversion selects from it, and its values.

use std::path::PathBuf;

use byte_source::{Location, Observer};
use foldhash::{HashSet, HashSetExt};
use open::files::ShardPolicy;
use open::{Context, Dequantize, Error, Model, OpenOptions, Problem, Result, Selection, Step, ValueRows};
use serde::{Deserialize, Serialize};
use tensor::Tensors;

/// Checkpoint or carton whose tensors are compared or hashed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
#[non_exhaustive]
pub struct InputOptions {
    /// Checkpoint file, folder with a checkpoint, or carton.
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub input: Location,
    /// Take the numbers that quantized weights stand for, as `convert --dequantize` writes them; a file without is taken as it is
    #[cfg_attr(feature = "cli", arg(long))]
    pub dequantize: bool,
    /// Each file is a single shard
    #[cfg_attr(feature = "cli", arg(long))]
    pub single: bool,
    /// Selection of tensors, and of the prefix to remove from their names.
    #[serde(flatten)]
    #[cfg_attr(feature = "cli", command(flatten, next_help_heading = "Tensors"))]
    pub selection: Selection,
}

impl InputOptions {
    /// Creates options for the tensors that a conversion of `input` selects by default.
    pub fn new(input: impl Into<Location>) -> Self {
        Self { input: input.into(), ..Self::default() }
    }

    /// Sets the selection of tensors.
    #[must_use]
    pub fn select(self, selection: Selection) -> Self {
        Self { selection, ..self }
    }

    /// Takes the numbers that quantized weights stand for in place of their codes.
    #[must_use]
    pub fn dequantize(self) -> Self {
        Self { dequantize: true, ..self }
    }

    /// Returns the treatment of an input that is a single shard.
    pub fn shards(&self) -> ShardPolicy {
        ShardPolicy::from_single(self.single)
    }

    /// Treats a file that is one of several shards as a checkpoint.
    #[must_use]
    pub fn single_shard(self) -> Self {
        Self { single: true, ..self }
    }

    /// Returns the steps that select the tensors.
    fn steps(&self) -> Vec<Box<dyn Step>> {
        let selection = self.selection.clone();
        if self.dequantize {
            Dequantize::new(Vec::new(), true).with_selection(selection)
        } else {
            vec![Box::new(selection)]
        }
    }
}

/// An open checkpoint or carton.
pub(crate) struct OpenedInput {
    pub(crate) model: Model,
    pub(crate) values: ValueRows,
    pub(crate) path: PathBuf,
}

impl OpenedInput {
    /// Opens a checkpoint or a carton, and applies the steps. Reads no elements, except to compare the copies that shards have of a
    /// tensor. `with_left_out` adds what a selection without options leaves out.
    ///
    /// # Errors
    /// When the input cannot be read or is damaged, the selection does not fit it, or `observer` stops the work.
    pub(crate) fn open(options: &InputOptions, with_left_out: bool, observer: &dyn Observer) -> Result<Self> {
        let inputs = vec![options.input.clone()];
        let mut open = OpenOptions::reading(inputs, ShardPolicy::from_single(options.single));
        open.dequantize = options.dequantize;
        let mut model = Model::open(&open, observer)?;
        model.note_omissions();
        model.apply(&options.steps(), &Context::new(observer))?;
        if with_left_out && options.selection.is_empty() {
            model.add_left_out();
        }
        let values = model.take_values();
        Ok(Self { model, values, path: options.input.path().to_owned() })
    }

    pub(crate) fn tensors(&self) -> &Tensors {
        self.model.tensors()
    }

    /// Checks that views do not repeat too many bytes: a scalar can be expanded to terabytes.
    ///
    /// # Errors
    /// When the views have more bytes than the output of a conversion may have.
    pub(crate) fn check_views(&self) -> Result<()> {
        let mut seen = HashSet::new();
        let distinct = self.tensors().iter().filter(|(_, tensor)| seen.insert(tensor.view_id()));
        let nbytes = distinct.fold(0_u64, |sum, (_, tensor)| sum.saturating_add(tensor.nbytes()));
        let allowed = self.model.allowed_nbytes();
        if nbytes > allowed {
            return Err(Error::from(Problem::DigestExpansion { nbytes, allowed }).in_file(&self.path));
        }
        Ok(())
    }

    /// Checks that no file changed since it was opened.
    ///
    /// # Errors
    /// When a file changed, or its metadata cannot be read.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        self.model.check_unchanged()
    }
}
