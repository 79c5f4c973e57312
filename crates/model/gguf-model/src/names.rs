//! Names of tensors: those of `transformers`, and what llama.cpp calls them. The table of families has both.

use families::DecoderNames;

use crate::architecture::Architecture;

/// Parts of the names of tensors that do not belong to the language model: those of the towers for images and sound.
const OTHER_PARTS: &[&str] =
    &["visual.", "vision.", "audio.", "vision_", "audio_", "projector.", "patch_embed", "image_newline"];
/// Ends of the names of buffers that the forward pass computes.
const COMPUTED: &[&str] =
    &[".attention.masked_bias", ".attention.bias", ".attn.masked_bias", ".attn.bias", ".rotary_emb.inv_freq"];

/// Modules of a model with their names in llama.cpp, the usual ones first. The number of an expert or a head is `{}`.
#[derive(Debug)]
pub(crate) struct ModuleNames {
    modules: Vec<(String, &'static str)>,
    /// Starts of the names of layers, the usual one first.
    layers: Vec<String>,
}

impl ModuleNames {
    pub(crate) fn of(architecture: &Architecture) -> Self {
        let forms = DecoderNames::of(architecture.model_type);
        let modules = forms.iter().flat_map(DecoderNames::gguf_modules);
        let modules =
            modules.map(|(module, known)| (module.to_owned(), architecture.own_name(module, known)));
        Self {
            modules: modules.chain(architecture.mtp_modules()).collect(),
            layers: forms.into_iter().map(|form| form.layers).collect(),
        }
    }

    /// Splits a name; `None` if its layer is not a number.
    pub(crate) fn split<'n>(&self, name: &'n str) -> Option<SplitName<'n>> {
        let end = [".weight", ".bias"].into_iter().find(|end| name.ends_with(end)).unwrap_or_default();
        let rest = name.strip_suffix(end)?;
        match self.layers.iter().find_map(|layers| rest.strip_prefix(layers.as_str())) {
            None => Some(SplitName { layer: None, weight: rest, end }),
            Some(rest) => {
                let (layer, weight) = rest.split_once('.')?;
                Some(SplitName { layer: Some(layer.parse().ok()?), weight, end })
            }
        }
    }

    /// Returns the start of the names in a layer.
    pub(crate) fn layer(&self, number: &str) -> String {
        format!("{}{number}.", self.layers.first().map(String::as_str).unwrap_or_default())
    }

    /// Returns what llama.cpp calls a weight, and the number of the expert or the head that it is of.
    pub(crate) fn known(&self, split: SplitName<'_>) -> Option<(&'static str, Option<u64>)> {
        let find =
            |module: &str| self.modules.iter().find(|(name, _)| name == module).map(|(_, known)| *known);
        if let Some(known) = find(split.weight) {
            return Some((known, None));
        }
        let number = split.weight.split('.').find_map(|part| part.parse::<u64>().ok())?;
        let module = split.weight.replacen(&format!(".{number}"), ".{}", 1);
        Some((find(&module)?, Some(number)))
    }

    /// Returns the module that has a name in llama.cpp.
    pub(crate) fn module(&self, known: &str) -> Option<&str> {
        self.modules.iter().find(|(_, name)| *name == known).map(|(module, _)| module.as_str())
    }
}

/// Modules outside of Qwen's layers that are in the first layer that predicts a further token, with their names there.
const MTP: [(&str, &str); 4] = [
    ("fc", "eh_proj"),
    ("pre_fc_norm_embedding", "enorm"),
    ("pre_fc_norm_hidden", "hnorm"),
    ("norm", "shared_head.norm"),
];

/// Returns the name of a weight of the layers that predict further tokens, which Qwen numbers on their own, after the other `layers`.
pub(crate) fn numbered_mtp(name: &str, layers: u64) -> Option<String> {
    let rest = name.strip_prefix("model.").unwrap_or(name).strip_prefix("mtp.")?;
    if let Some((number, weight)) = rest.strip_prefix("layers.").and_then(|rest| rest.split_once('.')) {
        return Some(format!("model.layers.{}.{weight}", layers.checked_add(number.parse().ok()?)?));
    }
    let (module, end) = rest.rsplit_once('.')?;
    let (_, own) = MTP.iter().find(|(outer, _)| *outer == module)?;
    Some(format!("model.layers.{layers}.{own}.{end}"))
}

/// Returns the name that Qwen has for such a weight; `None` for one of the other `layers`.
pub(crate) fn qwen_mtp(name: &str, layers: u64) -> Option<String> {
    let (number, weight) = name.strip_prefix("model.layers.")?.split_once('.')?;
    let number = number.parse::<u64>().ok()?.checked_sub(layers)?;
    let outer = weight.rsplit_once('.').and_then(|(module, end)| {
        let (outer, _) = MTP.iter().find(|(_, own)| *own == module)?;
        Some(format!("mtp.{outer}.{end}"))
    });
    Some(outer.unwrap_or_else(|| format!("mtp.layers.{number}.{weight}")))
}

/// Returns the end of the name of a parameter of its module, which has none in `transformers`, in llama.cpp.
pub(crate) fn bare_end(known: &str) -> Option<&'static str> {
    match known {
        "ssm_a" | "ffn_gate_inp.scale" | "ffn_down_exps.scale" => Some(""),
        "attn_sinks" | "layer_output_scale" => Some(".weight"),
        "exp_probs_b" | "ssm_dt" => Some(".bias"),
        _ => None,
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

impl SplitName<'_> {
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
