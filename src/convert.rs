//! Builder for the conversion of a checkpoint into a carton, safetensors, a `.pth` file or a model for Triton.

use std::path::PathBuf;

use byte_source::{Location, Observer};
use convert::{BatchItem, BatchOptions, BatchReport, ConvertOptions, ConvertReport, Overrides, Target};
use open::{AllowedGlobals, Cast, CastFrom, CheckpointSum, ModelPart, Rename, Selection, WeightedPath};
use output::{Destination, IfExists};
use tensor::Dtype;

use crate::Result;

/// Returns a conversion of the checkpoint at `input`, a file or a folder, which [`Convert::run`] starts.
pub fn convert(input: impl Into<Location>) -> Convert {
    Convert::new(input)
}

/// A conversion that has not started. [`convert()`] has an example.
#[derive(Clone, Debug)]
#[must_use = "a conversion starts with `run`"]
pub struct Convert {
    options: ConvertOptions,
    /// True if [`Convert::to`] set the target, so that the extension of the output does not choose it.
    has_explicit_target: bool,
}

impl Convert {
    /// Creates a conversion of the checkpoint at `input` into a carton next to it.
    pub fn new(input: impl Into<Location>) -> Self {
        Self { options: ConvertOptions::new(input), has_explicit_target: false }
    }

    /// Adds an input: another shard of the checkpoint, or for [`run_each`](Self::run_each) another checkpoint.
    pub fn input(mut self, path: impl Into<Location>) -> Self {
        self.options.inputs.push(path.into());
        self
    }

    /// Sets the kind of output, with its options.
    pub fn to(mut self, target: impl Into<Target>) -> Self {
        self.options.target = target.into();
        self.has_explicit_target = true;
        self
    }

    /// Sets the file or folder to write. Without [`to`](Self::to), its extension chooses the kind of output.
    pub fn output(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.output = Some(path.into());
        self
    }

    /// Sets where an output at an address goes: to a store, such as that of `remote::BucketOutputs`.
    pub fn destination(mut self, destination: Destination) -> Self {
        self.options.destination = destination;
        self
    }

    /// Sets the policy for a file that exists at the output path.
    pub fn if_exists(mut self, if_exists: IfExists) -> Self {
        self.options.if_exists = if_exists;
        self
    }

    /// Converts the input file alone, even if it is one shard of several.
    pub fn single_shard(mut self) -> Self {
        self.options.single = true;
        self
    }

    /// Takes a part of a model of several, as a model of its own.
    pub fn part(mut self, part: ModelPart) -> Self {
        self.options.part = Some(part);
        self
    }

    /// Takes the tensors that the model lacks from the base that it was trained from.
    pub fn complete_from(mut self, base: impl Into<PathBuf>) -> Self {
        self.options.complete_from = Some(base.into());
        self
    }

    /// Converts a model of which tensors are missing, or that has others than its configuration says, with a note.
    pub fn incomplete(mut self) -> Self {
        self.options.incomplete = true;
        self
    }

    /// Sets the globals that a pickle may name. No global is executed.
    pub fn globals(mut self, allowed: AllowedGlobals) -> Self {
        self.options.allow_dangerous = allowed == AllowedGlobals::All;
        self.options.deny_unknown = allowed == AllowedGlobals::Known;
        self
    }

    /// Sets hyperparameters of a language model that no document of the checkpoint states.
    pub fn overrides(mut self, given: Overrides) -> Self {
        self.options.overrides = given;
        self
    }

    /// Sets the selection of tensors to convert.
    pub fn select(mut self, selection: Selection) -> Self {
        self.options.selection = selection;
        self
    }

    /// Replaces each match of a regular expression in the tensor names, after the replacements of earlier calls.
    pub fn rename(mut self, pattern: impl Into<String>, to: impl Into<String>) -> Self {
        self.options.renames.push(Rename { pattern: pattern.into(), to: to.into() });
        self
    }

    /// Merges an adapter of peft into the weights, after those of earlier calls. `weight` scales its changes; 1 merges it as it
    /// was trained.
    pub fn merge(mut self, adapter: impl Into<PathBuf>, weight: f64) -> Self {
        self.options.adapters.push(WeightedPath { path: adapter.into(), weight });
        self
    }

    /// Sums other checkpoints with the input, before adapters are merged.
    pub fn sum(mut self, sum: CheckpointSum) -> Self {
        self.options.sum = sum;
        self
    }

    /// Converts the tensors of one dtype into another dtype.
    pub fn cast(mut self, from: impl Into<CastFrom>, to: Dtype) -> Self {
        self.options.casts.extend([Cast { from: from.into(), to }]);
        self
    }

    /// Converts all floating-point tensors to `dtype`, except tensors of a dtype that [`cast`](Self::cast) names.
    pub fn dtype(self, dtype: Dtype) -> Self {
        self.cast(CastFrom::FloatingPoint, dtype)
    }

    /// Computes the digest of the tensors, for the report and for carton.toml.
    pub fn digest(mut self) -> Self {
        self.options.digest = true;
        self
    }

    /// Writes what the output was made from to `file`, so that [`verify_statement`](crate::verify_statement) can repeat the
    /// conversion; with [`run_each`](Self::run_each), into the folder `file`.
    pub fn statement(mut self, file: impl Into<PathBuf>) -> Self {
        self.options.statement = Some(file.into());
        self
    }

    /// Computes the numbers of quantized weights, in the dtype of the configuration unless [`dtype`](Self::dtype) names
    /// another one, and drops what describes the quantization.
    pub fn dequantize(mut self) -> Self {
        self.options.dequantize = true;
        self
    }

    /// Stops before anything is written. The report is the same as for a full conversion.
    pub fn dry_run(mut self) -> Self {
        self.options.dry_run = true;
        self
    }

    /// Sets the maximum size of the output as a multiple of the input, 64 by default: views can repeat the bytes of their
    /// storages.
    pub fn max_expansion(mut self, factor: u64) -> Self {
        self.options.max_expansion = factor;
        self
    }

    /// Converts the checkpoint.
    ///
    /// # Errors
    /// When the inputs are not one checkpoint, a file is damaged or changes, an option does not fit the input, the output
    /// cannot be written, or `observer` stops the work. In each case no output is left.
    pub fn run(&self, observer: &dyn Observer) -> Result<ConvertReport> {
        convert::convert(&self.options()?, observer)
    }

    /// Converts each input on its own into the output folder, and continues after a failure. A folder stands for all
    /// checkpoints in it. `done` receives the results in the order of the inputs. `batch` is a [`Resume`](crate::Resume), which decides what
    /// is skipped (`true` stands for [`Resume::SkipComplete`](crate::Resume::SkipComplete)), or [`BatchOptions`] with a number of jobs.
    ///
    /// # Errors
    /// When the output is not a folder, or `observer` stops the work.
    pub fn run_each(
        &self,
        batch: impl Into<BatchOptions>,
        observer: &dyn Observer,
        done: &mut dyn FnMut(BatchItem),
    ) -> Result<BatchReport> {
        let mut done = |item| {
            done(item);
            Ok(())
        };
        convert::convert_each(&self.options, batch.into(), observer, &mut done)
    }

    fn options(&self) -> Result<ConvertOptions> {
        let mut options = self.options.clone();
        if let Some(output) = options.output.as_ref().filter(|_| !self.has_explicit_target) {
            options.target = Target::from_path(output)?;
        }
        Ok(options)
    }
}

/// Keeps the target of the options; the extension of the output does not choose another.
impl From<ConvertOptions> for Convert {
    fn from(options: ConvertOptions) -> Self {
        Self { options, has_explicit_target: true }
    }
}
