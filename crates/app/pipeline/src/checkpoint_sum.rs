//! Sums of the selected tensors with those of other checkpoints.

use std::path::{Path, PathBuf};

use adapter::{SumReport, SumRule, Summand};
use checkpoint_files::CheckpointSources;
use tensor::Tensors;
use torch_import::{Checkpoint, Container};

use crate::adapter_overview::refuse_adapter;
use crate::select::Selected;
use crate::{
    ConvertOptions, DequantizedReport, Error, Observer, Result, WeightedPath, dequantize, rename, select,
};

/// Checkpoints that are summed with the selected and renamed tensors of the input, which are the base.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckpointSum {
    pub terms: SumTerms,
    /// True to sum only what the checkpoints have in common, instead of refusing those that differ in a name, a shape or a
    /// dtype.
    pub only_common: bool,
}

/// What is computed from the base and other checkpoints, in double precision and rounded once to the dtype of the base.
#[derive(Clone, Debug, PartialEq)]
pub enum SumTerms {
    /// Base + Σ weight · (checkpoint − base), as in task arithmetic.
    Differences(Vec<WeightedPath>),
    /// The mean of the base and the checkpoints, all with the same weight.
    Average(Vec<PathBuf>),
}

pub(crate) struct SummedTensors {
    pub(crate) tensors: Tensors,
    pub(crate) report: SumReport,
    /// Files of the checkpoints, which are compared with what they were before the output is committed.
    pub(crate) containers: Vec<Container>,
}

impl CheckpointSum {
    pub(crate) fn paths(&self) -> Vec<&Path> {
        match &self.terms {
            SumTerms::Differences(files) => files.iter().map(|file| file.path.as_path()).collect(),
            SumTerms::Average(files) => files.iter().map(PathBuf::as_path).collect(),
        }
    }

    /// Finds the files of a checkpoint.
    ///
    /// # Errors
    /// When they are not one checkpoint, or are an adapter.
    pub(crate) fn find(options: &ConvertOptions, path: &Path) -> Result<CheckpointSources> {
        let path = path.to_owned();
        let sources = match options.given.find(&path) {
            Some(source) => CheckpointSources::find_source(source, options.shards)?,
            None => CheckpointSources::find(std::slice::from_ref(&path), options.shards)?,
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
        let rule = match &self.terms {
            SumTerms::Differences(files) => {
                SumRule::Differences { weights: files.iter().map(|file| file.weight).collect() }
            }
            SumTerms::Average(_) => SumRule::Mean,
        };
        let (tensors, report) =
            adapter::sum(base, &summands, &rule, self.only_common, observer).map_err(Error::Adapter)?;
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
