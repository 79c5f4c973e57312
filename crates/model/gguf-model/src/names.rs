//! Names of tensors: those of `transformers`, and what llama.cpp calls them. The table of families has both.

use families::DecoderNames;

use crate::architecture::Architecture;

/// Parts of the names of tensors that do not belong to the language model: those of the towers for images and sound.
const OTHER_PARTS: &[&str] =
    &["visual.", "vision.", "audio.", "vision_", "audio_", "projector.", "patch_embed", "image_newline"];
/// Ends of the names of buffers that the forward pass computes.
const COMPUTED: &[&str] = &[".attention.masked_bias", ".attention.bias", ".rotary_emb.inv_freq"];

/// Modules of a model with their names in llama.cpp, the usual ones first. The number of an expert or a head is `{}`.
#[derive(Debug)]
pub(crate) struct ModuleNames(Vec<(String, &'static str)>);

impl ModuleNames {
    pub(crate) fn of(architecture: &Architecture) -> Self {
        let forms = DecoderNames::of(architecture.model_type);
        let modules = forms.iter().flat_map(DecoderNames::gguf_modules);
        Self(modules.map(|(module, known)| (module.to_owned(), architecture.own_name(known))).collect())
    }

    /// Returns what llama.cpp calls a weight, and the number of the expert or the head that it is of.
    pub(crate) fn known(&self, split: SplitName<'_>) -> Option<(&'static str, Option<u64>)> {
        let find = |module: &str| self.0.iter().find(|(name, _)| name == module).map(|(_, known)| *known);
        if let Some(known) = find(split.weight) {
            return Some((known, None));
        }
        let number = split.weight.split('.').find_map(|part| part.parse::<u64>().ok())?;
        let module = split.weight.replacen(&format!(".{number}"), ".{}", 1);
        Some((find(&module)?, Some(number)))
    }

    /// Returns the module that has a name in llama.cpp.
    pub(crate) fn module(&self, known: &str) -> Option<&str> {
        self.0.iter().find(|(_, name)| *name == known).map(|(module, _)| module.as_str())
    }
}

/// A name, split into what the tables know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SplitName<'n> {
    pub(crate) layer: Option<u64>,
    /// Name of the weight, without its layer and its end.
    pub(crate) weight: &'n str,
    /// `.weight`, `.bias`, or nothing.
    pub(crate) end: &'n str,
}

impl<'n> SplitName<'n> {
    /// Splits a name; `None` if its layer is not a number.
    pub(crate) fn new(name: &'n str) -> Option<Self> {
        let end = [".weight", ".bias"].into_iter().find(|end| name.ends_with(end)).unwrap_or_default();
        let rest = name.strip_suffix(end)?;
        match rest.strip_prefix("model.layers.") {
            None => Some(Self { layer: None, weight: rest, end }),
            Some(rest) => {
                let (layer, weight) = rest.split_once('.')?;
                Some(Self { layer: Some(layer.parse().ok()?), weight, end })
            }
        }
    }

    /// Returns a name of llama.cpp in this name's layer.
    pub(crate) fn in_layer(self, known: &str, end: &str) -> String {
        match self.layer {
            Some(layer) => format!("blk.{layer}.{known}{end}"),
            None => format!("{known}{end}"),
        }
    }
}

/// Returns the name of a weight of a language model; `None` for what llama.cpp does not store.
pub(crate) fn language_name(name: &str) -> Option<String> {
    let is_other = name.starts_with("mlp") || OTHER_PARTS.iter().any(|part| name.contains(part));
    let is_computed = COMPUTED.iter().any(|end| name.ends_with(end));
    (!is_other && !is_computed).then(|| name.replace("language_model.", ""))
}
