//! A base in Meta's layout, translated for adapters that name the modules of Hugging Face's.

use adapter::Adapter;
use decoder::{LayerPart, LayoutOwner, Overrides, TranslatedModel, Weight, translate};
use tensor::Tensors;

use super::translate::{decoder_options, translation_error};
use crate::Result;
use crate::files::CheckpointSources;

/// Parts of names that Hugging Face's layout has, and Meta's has not.
const PARTS: [&str; 5] = [".self_attn.", ".mlp.", "embed_tokens.", "lm_head.", "_layernorm."];

/// Base in Hugging Face's layout.
pub(crate) struct TranslatedBase(TranslatedModel);

impl TranslatedBase {
    /// Translates the base; `None` if it is not in Meta's layout, or the adapters are for that. `given` has hyperparameters that
    /// are missing from the documents.
    ///
    /// # Errors
    /// When the tensors and the documents are not a model of Meta's.
    pub(crate) fn new(
        base: &Tensors,
        adapters: &[Adapter],
        given: Overrides,
        sources: &CheckpointSources,
    ) -> Result<Option<Self>> {
        let is_foreign = |name: &str| PARTS.iter().any(|part| name.contains(part));
        let mut names = adapters.iter().flat_map(Adapter::names);
        let sign = LayoutOwner::Meta.llama_names().name(Weight::Layer { layer: 0, part: LayerPart::Wq });
        if !sign.is_some_and(|sign| base.contains(&sign)) || !names.any(is_foreign) {
            return Ok(None);
        }
        let options = decoder_options(given, false, sources)?;
        let translated = translate(base.clone(), &options, LayoutOwner::HuggingFace);
        Ok(Some(Self(translated.map_err(|reason| translation_error(reason, sources))?)))
    }

    pub(crate) fn tensors(&self) -> &Tensors {
        &self.0.tensors
    }

    /// Returns the name that a tensor has in Meta's layout; `None` if the base does not have it.
    pub(crate) fn old_name(&self, base: &Tensors, name: &str) -> Option<String> {
        let origin = self.0.origins.get(self.0.tensors.position(name)?)?;
        let (name, _) = base.get_index((*origin)?)?;
        Some(name.to_owned())
    }

    /// Returns the base with the changes of `merged`, which are translated back.
    ///
    /// # Errors
    /// When a changed tensor has another shape than before.
    pub(crate) fn restore(&self, mut base: Tensors, merged: Tensors) -> Result<Tensors> {
        let mut changed = Vec::with_capacity(base.len());
        changed.resize(base.len(), None);
        let mut added = Vec::new();
        for (position, (name, tensor)) in merged.into_iter().enumerate() {
            let Some((_, old)) = self.0.tensors.get_index(position) else {
                added.push((name, tensor));
                continue;
            };
            if old.view_id() == tensor.view_id() {
                continue;
            }
            let place = self.0.origins.get(position).copied().flatten();
            if let Some(place) = place.and_then(|place| changed.get_mut(place)) {
                let restored = self.0.with_old_rows(position, &tensor);
                *place = Some(restored.map_err(|error| byte_source::Error::from(error).in_tensor(&name))?);
            }
        }
        for ((_, tensor), changed) in base.tensors_mut().zip(changed) {
            if let Some(changed) = changed {
                *tensor = changed;
            }
        }
        base.extend(added);
        Ok(base)
    }
}
