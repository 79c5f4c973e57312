//! Parts of a model that the logits of text do not depend on, such as the tower of pictures.

use tensor::Tensors;

use crate::DecoderNote;
use crate::architecture::Architecture;
use crate::architectures::MULTIMODAL;
use crate::multimodal::Multimodal;
use crate::sizes::Decoder;
use crate::weight::{LayerPart, Weight};

impl Multimodal {
    /// Returns the row of an architecture; `None` for a text model.
    pub(crate) fn of(architecture: &Architecture) -> Option<&'static Self> {
        MULTIMODAL.iter().copied().find(|row| row.architecture.name == architecture.name)
    }
}

impl Decoder {
    /// Returns the tensors without those of parts that the logits of text do not depend on, such as the tower of pictures, and
    /// a note that names these parts; `None` if there are none.
    pub fn without_other_parts(&self, tensors: &Tensors) -> Option<(Tensors, DecoderNote)> {
        let names = self.names();
        let (root, output) = (names.layers().trim_end_matches("layers."), names.name(Weight::Output));
        let has_towers = Multimodal::of(self.architecture()).is_some();
        let is_left_out = |name: &str| {
            let skips = || names.layer_number(name).is_some_and(|layer| self.skipped_layers.contains(&layer));
            let is_unused = names.unused_part(name).is_some() || self.unused_keys(name).is_some();
            output.as_deref() != Some(name)
                && (is_unused || (has_towers && !name.starts_with(root)) || skips())
        };
        let (mut kept, mut parts) = (Tensors::with_capacity(tensors.len()), Vec::new());
        for (name, tensor) in tensors {
            if !is_left_out(name) {
                kept.push(name.clone(), tensor.clone());
                continue;
            }
            let unused = names.unused_part(name).map(|part| part.trim_matches('.').to_owned());
            let part = match (unused.or_else(|| self.unused_keys(name)), names.layer_number(name)) {
                (Some(part), _) => part,
                (None, Some(layer)) => format!("{}{layer}", names.layers()),
                (None, None) => name
                    .splitn(3, '.')
                    .take(if name.starts_with("model.") { 2 } else { 1 })
                    .collect::<Vec<_>>()
                    .join("."),
            };
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        let count = tensors.len().saturating_sub(kept.len());
        (count > 0).then_some((kept, DecoderNote::PartsLeftOut { count, parts }))
    }

    /// Returns the module of a tensor that makes keys and values in a layer that uses those of another one.
    fn unused_keys(&self, name: &str) -> Option<String> {
        let layer = self.names().layer_number(name).filter(|layer| self.shares_keys(*layer))?;
        let is_it = |part: &LayerPart| {
            let weight = Weight::Layer { layer, part: *part };
            self.names().name(weight).as_deref() == Some(name)
        };
        let parts = [LayerPart::Wk, LayerPart::Wv, LayerPart::KNorm];
        parts.iter().find(|part| is_it(part))?;
        let rest = name.strip_prefix(self.names().layers())?;
        let (_, module) = rest.split_once('.')?;
        Some(module.trim_end_matches(".weight").to_owned())
    }
}
