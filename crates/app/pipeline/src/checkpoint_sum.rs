//! Sums of the selected tensors with those of other checkpoints.

use std::path::{Path, PathBuf};

use adapter::{SumReport, SumRule, Summand};
use checkpoint_files::CheckpointSources;
use serde::{Deserialize, Serialize};
use tensor::Tensors;
use torch_import::{Checkpoint, Container};

use crate::adapter_overview::refuse_adapter;
use crate::select::Selected;
use crate::{
    ConvertOptions, DequantizedReport, Error, InvalidOption, Observer, Result, WeightedPath, dequantize,
    path_json, rename, select,
};

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

pub(crate) struct SummedTensors {
    pub(crate) tensors: Tensors,
    pub(crate) report: SumReport,
    /// Files of the checkpoints, which are compared with what they were before the output is committed.
    pub(crate) containers: Vec<Container>,
}

impl CheckpointSum {
    /// Returns true if nothing is summed.
    pub fn is_empty(&self) -> bool {
        self.add.is_empty() && self.average.is_empty()
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        let added = self.add.iter().map(|file| file.path.as_path());
        added.chain(self.average.iter().map(PathBuf::as_path))
    }

    /// Checks the options before any file is opened.
    ///
    /// # Errors
    /// When they ask for both sums, or for none that could be limited.
    pub(crate) fn check(&self) -> Result<(), InvalidOption> {
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
    pub(crate) fn find(options: &ConvertOptions, path: &Path) -> Result<CheckpointSources> {
        let path = path.to_owned();
        let sources = match options.given.find(&path) {
            Some(source) => CheckpointSources::find_source(source, options.shards())?,
            None => CheckpointSources::find(std::slice::from_ref(&path), options.shards())?,
        };
        refuse_adapter(&sources, Some(&output::shown_path(&path)))?;
        Ok(sources)
    }

    /// Reads the checkpoints as the options say for the base, and sums their tensors with it.
    ///
    /// # Errors
    /// When a checkpoint cannot be read, or differs from the base.
    pub(crate) fn apply(
        &self,
        base: &Tensors,
        options: &ConvertOptions,
        judge: &dyn Fn(&Path, &Checkpoint) -> Result<()>,
        observer: &dyn Observer,
    ) -> Result<SummedTensors> {
        let (mut summands, mut containers) = (Vec::new(), Vec::new());
        for path in self.paths() {
            let mut sources = Self::find(options, path)?;
            let documents =
                options.dequantize.then(|| dequantize::take_documents(&mut sources)).transpose()?;
            let opened = sources.open_with_observer(observer)?;
            let (mut checkpoint, _) = sources.read_with_observer::<Error>(&opened, judge, observer)?;
            dequantize::encode_descriptions(options.dequantize, &mut checkpoint);
            let selected = match select_renamed(options, documents.as_ref(), &checkpoint) {
                Err(Error::Quantization(quantization::Error::NotQuantized)) => {
                    select_renamed(options, None, &checkpoint)
                }
                selected => selected,
            };
            let (selected, _) = selected.map_err(Error::at(sources.root()))?;
            summands.push(Summand {
                path: output::shown_path(path).display().to_string(),
                tensors: selected.tensors,
            });
            containers.extend(opened);
        }
        let rule = if self.average.is_empty() {
            SumRule::Differences { weights: self.add.iter().map(|file| file.weight).collect() }
        } else {
            SumRule::Mean
        };
        let (tensors, report) =
            adapter::sum(base, &summands, &rule, self.common, observer).map_err(Error::Adapter)?;
        Ok(SummedTensors { tensors, report, containers })
    }
}

/// Selects and renames the tensors of a checkpoint. The documents describe the quantization of the weights, if it is undone.
///
/// # Errors
/// When an option does not fit the checkpoint.
pub(crate) fn select_renamed(
    options: &ConvertOptions,
    quantization: Option<&quantization::QuantizationDocuments>,
    checkpoint: &Checkpoint,
) -> Result<(Selected, Vec<DequantizedReport>)> {
    let (selected, dequantized) = match quantization {
        Some(documents) => dequantize::select_dequantized(options, documents, checkpoint)?,
        None => (select::select_with_origins(&options.selection, checkpoint, options.dry_run)?, Vec::new()),
    };
    Ok((rename::apply_renames(&options.renames, selected)?, dequantized))
}
