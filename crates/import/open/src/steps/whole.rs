//! Comparison of a model's tensors with those that its configuration asks for.

use super::family::{configuration, is_of, shapes};
use crate::{Context, Error, Model, Note, Problem, Result, Step, StepReport};

/// Starts of names that wrappers and a second saving add.
const PREFIXES: &[&str] = &["module.", "_orig_mod.", "base_model.model.", "model."];

/// Returns the prefix of all names of a model's tensors that a loader does not expect.
pub fn other_prefix(model: &families::Model, tensors: &[(&str, &[u64])]) -> Option<&'static str> {
    let is_other = |prefix: &&&str| {
        let inner = tensors.iter().map(|(name, shape)| Some((name.strip_prefix(**prefix)?, *shape)));
        inner.collect::<Option<Vec<_>>>().is_some_and(|inner| is_of(model, &inner))
    };
    (!is_of(model, tensors)).then(|| PREFIXES.iter().find(is_other).copied())?
}

/// Refuses a model of which tensors are missing, or that has others than its configuration says. A model that is not known passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequireWhole {
    /// True to let such a model pass, with a note.
    pub passes_incomplete: bool,
    pub purpose: ModelPurpose,
}

/// Purpose of a whole model, which decides on what counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelPurpose {
    /// A loader of the same model type, for which unexpected tensors count, too.
    #[default]
    Loader,
    /// A decoder's carton: only model types that run are compared.
    Decoder,
    /// A GGUF file, whose writer names the tensors that it does not know.
    LlamaCpp,
}

impl RequireWhole {
    /// Creates the step for a model of this purpose.
    pub fn new(passes_incomplete: bool, purpose: ModelPurpose) -> Self {
        Self { passes_incomplete, purpose }
    }
}

impl Step for RequireWhole {
    fn apply(&self, model: &mut Model, _: &Context<'_>) -> Result<StepReport> {
        model.tensors_mut();
        let config = configuration(&model.sources).ok();
        let Some(known) = config.and_then(|config| families::Model::from_config(config).ok()) else {
            return Ok(StepReport::Names);
        };
        let runs = !known.is_quantized && decoder::architectures().any(|runs| runs == known.model_type);
        let tensors = shapes(model.tensors());
        let prefix = other_prefix(&known, &tensors);
        let is_known = if self.purpose == ModelPurpose::Decoder {
            runs && (prefix.is_some() || is_of(&known, &tensors))
        } else {
            is_of(&known, &tensors)
        };
        if !is_known || !model.tensors().compounds().is_empty() {
            return Ok(StepReport::Names);
        }
        let mut comparison = known.compare(&tensors);
        if self.purpose != ModelPurpose::Loader {
            comparison.unexpected.clear();
        }
        if comparison.is_empty() {
            return Ok(StepReport::Names);
        }
        if !self.passes_incomplete {
            let comparison = Box::new(comparison);
            return Err(Error::from(Problem::NotWhole { comparison, prefix }).in_file(model.root()));
        }
        model.notes.push(Note::NotWhole { differences: comparison.to_string() });
        model.incomplete = Some(comparison);
        Ok(StepReport::Names)
    }
}
