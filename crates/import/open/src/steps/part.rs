//! The text model of a model of several parts.

use std::collections::BTreeMap;

use families::{LayoutId, TextPart};
use serde::{Deserialize, Serialize};
use tensor::Tensors;

use super::family::{Family, configuration, shapes};
use crate::files::CheckpointSources;
use crate::{Context, Model, Note, Problem, Result, Step, StepReport};

/// Part of a model of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum ModelPart {
    /// The language model, without the towers for pictures and sounds
    Text,
}

/// Puts the configuration of the text model in the place of that of the whole model.
///
/// # Errors
/// When there is no configuration, or its model has no text part.
pub fn take_part(sources: &mut CheckpointSources) -> Result<TextPart> {
    let part = configuration(sources).and_then(|config| {
        TextPart::from_config(config).map_err(|reason| Problem::Untranslatable { reason }.into())
    });
    let part = part.map_err(|error| error.in_file(sources.root()))?;
    sources.documents.replace_config(part.config.clone());
    Ok(part)
}

/// Takes the tensors of a part, under the names of its own class. The model must be opened for this step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakePart;

impl Step for TakePart {
    fn apply(&self, model: &mut Model, _: &Context<'_>) -> Result<StepReport> {
        model.tensors_mut();
        let Some(part) = model.part.take() else { return Ok(StepReport::Names) };
        let taken = take(&part, model.tensors()).map_err(|error| error.in_file(model.root()));
        let (tensors, places, left_out) = taken?;
        let origins = model.origins.take();
        let origins =
            origins.map(|old| places.iter().map(|place| old.get((*place)?).cloned().flatten()).collect());
        model.notes.push(Note::PartTaken { left_out });
        model.set_tensors(tensors, origins);
        Ok(StepReport::Names)
    }
}

type Taken = (Tensors, Vec<Option<usize>>, Vec<(String, usize)>);

/// Returns the tensors of a part, their places among those of the whole model, and the modules that are left out, with the number of
/// their tensors.
fn take(part: &TextPart, all: &Tensors) -> Result<Taken> {
    let whole = Family::of(part.whole.clone(), all)?;
    let (in_memory, places) = whole.translate(all, LayoutId::MODULES)?;
    let mut tensors = Tensors::default();
    let mut origins = Vec::new();
    let mut left_out: BTreeMap<String, usize> = BTreeMap::new();
    for ((name, tensor), place) in in_memory.into_iter().zip(places) {
        if let Some(name) = part.name(&name) {
            tensors.push(name, tensor);
            origins.push(place);
            continue;
        }
        let old = place.and_then(|place| all.get_index(place)).map_or(name.as_str(), |(old, _)| old);
        let count = left_out.entry(module(old).to_owned()).or_default();
        *count = count.saturating_add(1);
    }
    let text =
        families::Model::from_config(&part.config).map_err(|reason| Problem::Configuration { reason })?;
    let mut comparison = text.compare(&shapes(&tensors));
    comparison.unexpected.clear();
    if !comparison.is_empty() {
        return Err(Problem::PartNotWhole { comparison: Box::new(comparison) }.into());
    }
    let (tensors, places) =
        Family { model: text, layout: LayoutId::MODULES }.translate(&tensors, LayoutId::RELEASED)?;
    let origins = places.into_iter().map(|place| origins.get(place?).copied().flatten()).collect();
    Ok((tensors, origins, left_out.into_iter().collect()))
}

/// Returns the module of a tensor in its class, which may be below another one.
fn module(name: &str) -> &str {
    let skipped = usize::from(name.starts_with("model."));
    let end = name.match_indices('.').nth(skipped).map_or(name.len(), |(end, _)| end);
    name.get(..end).unwrap_or(name)
}
