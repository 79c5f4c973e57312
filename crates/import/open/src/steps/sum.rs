//! Sums of the selected tensors with those of other checkpoints.

use std::path::{Path, PathBuf};

use adapter::{SumRule, Summand};
use serde::{Deserialize, Serialize};

use super::adapter_overview::refuse_adapter;
use crate::files::CheckpointSources;
use crate::model::find_sources;
use crate::options::path_json;
use crate::{Context, InvalidOption, Model, OpenOptions, Result, Step, StepReport, WeightedPath};

/// Checkpoints that are summed with the selected and renamed tensors of the input, which are the base, in double precision and
/// rounded once to the dtype of the base.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
pub struct CheckpointSum {
    /// Add WEIGHT (1 if it is left out) times what PATH, a fine-tuned copy of the base, differs from it, as task arithmetic
    /// does: base + WEIGHT × (PATH − base); repeatable, the terms are summed
    #[cfg_attr(feature = "cli", arg(long, value_name = "PATH[=WEIGHT]", group = "sum", value_hint = clap::ValueHint::AnyPath))]
    pub add: Vec<WeightedPath>,
    /// Write the mean of the input and PATH, such as another checkpoint of the same training; repeatable, all count the same
    #[serde(with = "path_json::list")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "PATH", group = "sum", value_hint = clap::ValueHint::AnyPath))]
    pub average: Vec<PathBuf>,
    /// With --add or --average, sum what the checkpoints have in common: a tensor stays that of the input where PATH lacks
    /// it or has another shape, what only PATH has is left out, and dtypes may differ
    #[cfg_attr(feature = "cli", arg(long, requires = "sum"))]
    pub common: bool,
}

/// Sums other checkpoints with the tensors of a model.
#[derive(Debug)]
#[non_exhaustive]
pub struct Sum {
    pub sum: CheckpointSum,
    /// Steps for each of the other checkpoints, such as those that the model went through.
    pub steps: Vec<Box<dyn Step>>,
}

impl CheckpointSum {
    /// Returns true if nothing is summed.
    pub fn is_empty(&self) -> bool {
        self.add.is_empty() && self.average.is_empty()
    }

    /// Returns the paths of the other checkpoints.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let added = self.add.iter().map(|file| file.path.as_path());
        added.chain(self.average.iter().map(PathBuf::as_path))
    }

    /// Checks the options before any file is opened.
    ///
    /// # Errors
    /// When they ask for both sums, or for none that could be limited.
    pub fn check(&self) -> Result<(), InvalidOption> {
        match (self.add.is_empty(), self.average.is_empty(), self.common) {
            (false, false, _) => Err(InvalidOption::Exclusive { first: "add", second: "average" }),
            (true, true, true) => Err(InvalidOption::NoSum),
            _ => Ok(()),
        }
    }

    /// Finds the files of a checkpoint.
    ///
    /// # Errors
    /// When they are not one checkpoint, or are an adapter.
    pub fn find(options: &OpenOptions) -> Result<CheckpointSources> {
        let sources = find_sources(options)?;
        refuse_adapter(&sources, options.inputs.first())?;
        Ok(sources)
    }
}

impl Sum {
    /// Creates the step, with steps for each of the other checkpoints.
    pub fn new(sum: CheckpointSum, steps: Vec<Box<dyn Step>>) -> Self {
        Self { sum, steps }
    }
}

impl Step for Sum {
    fn apply(&self, model: &mut Model, context: &Context<'_>) -> Result<StepReport> {
        let mut summands = Vec::new();
        let mut containers = Vec::new();
        for path in self.sum.paths() {
            let mut options = context.open_options(path)?;
            options.dequantize = model.quantization.is_some();
            let mut other = Model::open(&options, context.observer)?;
            refuse_adapter(&other.sources, options.inputs.first())?;
            other.apply(&self.steps, context)?;
            let path = output::shown_path(path).display().to_string();
            summands.push(Summand { path, tensors: other.take_tensors() });
            containers.append(&mut other.containers);
        }
        let rule = if self.sum.average.is_empty() {
            SumRule::Differences { weights: self.sum.add.iter().map(|file| file.weight).collect() }
        } else {
            SumRule::Mean
        };
        let base = model.tensors_mut();
        let (tensors, report) = adapter::sum(base, &summands, &rule, self.sum.common, context.observer)?;
        *base = tensors;
        model.containers.extend(containers);
        Ok(StepReport::Summed(report))
    }
}
