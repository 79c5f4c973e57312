//! Comparison of a model's tensors with those that its configuration asks for.

use super::family::{Family, shapes};
use crate::{Context, Error, Model, Note, Problem, Result, Step, StepReport};

/// Refuses a model of which tensors are missing, or that has others than its configuration says. A model that is not known passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequireWhole {
    /// True to let such a model pass, with a note.
    pub passes_incomplete: bool,
    /// True for a model that runs: only those that do are compared, and what they do not use is not their business.
    pub for_decoder: bool,
}

impl RequireWhole {
    /// Creates the step.
    pub fn new(passes_incomplete: bool, for_decoder: bool) -> Self {
        Self { passes_incomplete, for_decoder }
    }
}

impl Step for RequireWhole {
    fn apply(&self, model: &mut Model, _: &Context<'_>) -> Result<StepReport> {
        model.tensors_mut();
        let Ok(family) = Family::find(&model.sources, model.tensors()) else { return Ok(StepReport::Names) };
        let runs = || {
            let mut known = decoder::architectures();
            !family.model.is_quantized && known.any(|known| known == family.model.model_type)
        };
        if self.for_decoder && !runs() {
            return Ok(StepReport::Names);
        }
        let mut comparison = family.model.compare(&shapes(model.tensors()));
        if self.for_decoder {
            comparison.unexpected.clear();
        }
        if comparison.is_empty() {
            return Ok(StepReport::Names);
        }
        if !self.passes_incomplete {
            let comparison = Box::new(comparison);
            return Err(Error::from(Problem::NotWhole { comparison }).in_file(model.root()));
        }
        model.notes.push(Note::NotWhole { differences: comparison.to_string() });
        model.incomplete = Some(comparison);
        Ok(StepReport::Names)
    }
}
