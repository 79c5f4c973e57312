//! Layouts of checkpoints: whose document states the sizes, and the names of the tensors, which are those of the table of families.
//!
//! Facts: `model.py` in Meta's `llama-models` 0.3.0; the modeling files of Hugging Face's `transformers` 5.23.

use std::sync::LazyLock;

use families::{DecoderNames, Role};
use tensor::Tensors;

use crate::weight::{IN_ORDER, LayerPart, Weight};

/// Who defines a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutOwner {
    Meta,
    HuggingFace,
}

/// Keys of sizes in a document.
#[derive(Clone, Copy, Debug)]
pub struct SizeKeys {
    pub dim: &'static str,
    pub n_layers: &'static str,
    pub n_heads: &'static str,
    pub n_kv_heads: &'static str,
    pub head_dim: &'static str,
    pub vocab: &'static str,
}

impl LayoutOwner {
    /// Returns the name of the organisation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Meta => "Meta",
            Self::HuggingFace => "Hugging Face",
        }
    }

    /// Returns the name of the document that states the sizes.
    pub fn file(self) -> &'static str {
        match self {
            Self::Meta => "params.json",
            Self::HuggingFace => "config.json",
        }
    }

    /// Returns the keys of the sizes in that document.
    pub fn keys(self) -> &'static SizeKeys {
        match self {
            Self::Meta => &SizeKeys {
                dim: "dim",
                n_layers: "n_layers",
                n_heads: "n_heads",
                n_kv_heads: "n_kv_heads",
                head_dim: "head_dim",
                vocab: "vocab_size",
            },
            Self::HuggingFace => &SizeKeys {
                dim: "hidden_size",
                n_layers: "num_hidden_layers",
                n_heads: "num_attention_heads",
                n_kv_heads: "num_key_value_heads",
                head_dim: "head_dim",
                vocab: "vocab_size",
            },
        }
    }

    /// Returns the names that LLaMA has in this layout.
    pub fn llama_names(self) -> &'static TensorNames {
        static META: LazyLock<TensorNames> =
            LazyLock::new(|| TensorNames { owner: LayoutOwner::Meta, names: DecoderNames::meta() });
        static HUGGING_FACE: LazyLock<TensorNames> = LazyLock::new(|| {
            let llama = TensorNames::hugging_face("llama").into_iter().next();
            llama.expect("the table of families has LLaMA")
        });
        match self {
            Self::Meta => &META,
            Self::HuggingFace => &HUGGING_FACE,
        }
    }

    /// Returns true if the name is that of a rotary frequency tensor, of the model or of a layer.
    pub(crate) fn names_frequencies(self, name: &str) -> bool {
        let (whole, layers, end) = match self {
            Self::Meta => ("rope.freqs", "layers.", ".attention.inner_attention.rope.freqs"),
            Self::HuggingFace => ("model.rotary_emb.inv_freq", "model.layers.", ".rotary_emb.inv_freq"),
        };
        name == whole || (layer_number(layers, name).is_some() && name.ends_with(end))
    }
}

/// Returns true if the name is that of a rotary frequency tensor in any layout.
pub(crate) fn is_frequencies_name(name: &str) -> bool {
    [LayoutOwner::Meta, LayoutOwner::HuggingFace].iter().any(|owner| owner.names_frequencies(name))
}

fn layer_number(layers: &str, name: &str) -> Option<u64> {
    name.strip_prefix(layers)?.split('.').next()?.parse().ok()
}

/// Names of a decoder's tensors in one form.
#[derive(Clone, Debug)]
pub struct TensorNames {
    pub owner: LayoutOwner,
    names: DecoderNames,
}

#[derive(Debug)]
pub(crate) struct WeightPlace {
    pub(crate) name: String,
    /// Parts whose rows the tensor concatenates; empty if the tensor is not fused.
    pub(crate) fused_parts: &'static [LayerPart],
    /// True for a matrix that is stored with its columns first.
    pub(crate) has_columns_first: bool,
    /// For a tensor that stacks all experts: the index of the expert, and true if columns come before rows.
    pub(crate) stack_index: Option<(u64, bool)>,
}

impl WeightPlace {
    /// Returns a substitute for the location of a weight that the layout does not support.
    pub(crate) fn unsupported_weight(weight: Weight) -> Self {
        Self { name: format!("{weight:?}"), fused_parts: &[], has_columns_first: false, stack_index: None }
    }
}

impl TensorNames {
    /// Returns the forms of the names that files of a model type of transformers have, the released one first.
    pub fn hugging_face(model_type: &str) -> Vec<Self> {
        let forms = DecoderNames::of(model_type).into_iter();
        forms.map(|names| Self { owner: LayoutOwner::HuggingFace, names }).collect()
    }

    /// Returns the start of the names of layers, before the number of a layer.
    pub(crate) fn layers(&self) -> &str {
        &self.names.layers
    }

    /// Returns the entry of tensors that models do not use to which the name belongs.
    pub(crate) fn unused_part(&self, name: &str) -> Option<&'static str> {
        let is_it = |part: &&str| {
            if part.ends_with('.') { name.starts_with(part) } else { name.ends_with(part) }
        };
        self.names.unread.iter().copied().find(is_it)
    }

    /// Returns the name of the tensor that usually holds a weight; `None` if the layout has no such weight.
    pub fn name(&self, weight: Weight) -> Option<String> {
        self.places(weight).into_iter().next().map(|place| place.name)
    }

    /// Returns the name of the tensor that usually holds a weight, or a substitute for the name if the layout has no such weight.
    pub(crate) fn name_or_role(&self, weight: Weight) -> String {
        self.name(weight).unwrap_or_else(|| WeightPlace::unsupported_weight(weight).name)
    }

    /// Returns the places where a weight may be, the usual one first.
    pub(crate) fn places(&self, weight: Weight) -> Vec<WeightPlace> {
        let (role, numbers) = role(weight);
        let is_bias = weight.is_bias();
        if is_bias && self.owner == LayoutOwner::Meta {
            return Vec::new();
        }
        let place = |place: &families::TensorPlace| {
            let name = place.name(&numbers)?;
            let name = match name.strip_suffix(".weight") {
                _ if !is_bias => name,
                Some(module) => format!("{module}.bias"),
                None => format!("{name}_bias"),
            };
            let has_columns_first = place.has_columns_first && !is_bias;
            let expert = numbers.get(1).filter(|_| place.is_stack);
            Some(WeightPlace {
                name,
                fused_parts: place.fused_parts,
                has_columns_first: has_columns_first && expert.is_none(),
                stack_index: expert.map(|expert| (*expert, has_columns_first)),
            })
        };
        self.names.places(role).filter_map(place).collect()
    }

    /// Returns true if a part is usually in a fused tensor, whose shape does not reveal the part's.
    pub(crate) fn is_fused(&self, part: LayerPart) -> bool {
        self.names.places(Role::Layer(part)).next().is_some_and(|place| !place.fused_parts.is_empty())
    }

    /// Returns the first tensor name that identifies this layout and that `tensors` lack. Their first layer is `first`.
    pub(crate) fn missing_tensor(&self, first: u64, tensors: &Tensors) -> Option<String> {
        let signs = [Weight::Layer { layer: first, part: self.names.signature }, Weight::Embedding];
        signs.into_iter().find_map(|sign| {
            let places = self.places(sign);
            let is_there = places.iter().any(|place| tensors.contains(&place.name));
            (!is_there).then(|| self.name_or_role(sign))
        })
    }

    /// Returns the form that these tensors have, whose first layer is `first`; otherwise, the name of a missing tensor.
    pub(crate) fn find(forms: &[Self], first: u64, tensors: &Tensors) -> Result<Self, String> {
        let missing = |form: &Self| form.missing_tensor(first, tensors);
        let whole = forms.iter().rev().filter(|form| missing(form).is_none());
        // Of forms that match alike, `max_by_key` takes the last.
        let best = whole.max_by_key(|form| form.matches(first, tensors));
        best.cloned().ok_or_else(|| forms.first().and_then(missing).unwrap_or_default())
    }

    /// Returns the number of weights of a layer that `tensors` have under the usual names.
    pub(crate) fn matches(&self, layer: u64, tensors: &Tensors) -> usize {
        let weights = IN_ORDER
            .into_iter()
            .flat_map(|part| [Weight::Layer { layer, part }, Weight::Expert { layer, part, expert: 0 }]);
        let weights = weights.chain([Weight::Embedding, Weight::Output]);
        weights.filter_map(|weight| self.name(weight)).filter(|name| tensors.contains(name)).count()
    }

    pub(crate) fn layer_number(&self, name: &str) -> Option<u64> {
        layer_number(self.layers(), name)
    }

    pub(crate) fn count_layers<'n>(&self, names: impl Iterator<Item = &'n str>) -> u64 {
        names.filter_map(|name| self.layer_number(name)).max().map_or(0, |last| last.saturating_add(1))
    }
}

/// Returns the role of a weight, and the numbers in its name.
fn role(weight: Weight) -> (Role, Vec<u64>) {
    match weight {
        Weight::Embedding => (Role::Embedding, Vec::new()),
        Weight::Positions => (Role::Positions, Vec::new()),
        Weight::EmbeddingNorm | Weight::EmbeddingNormBias => (Role::EmbeddingNorm, Vec::new()),
        Weight::LayerEmbedding => (Role::LayerEmbedding, Vec::new()),
        Weight::LayerProjection => (Role::LayerProjection, Vec::new()),
        Weight::LayerProjectionNorm => (Role::LayerProjectionNorm, Vec::new()),
        Weight::Norm | Weight::NormBias => (Role::Norm, Vec::new()),
        Weight::Output | Weight::OutputBias => (Role::Output, Vec::new()),
        Weight::Layer { layer, part } | Weight::Bias { layer, part } => (Role::Layer(part), vec![layer]),
        Weight::Head { layer, part, head } => (Role::Layer(part), vec![layer, head]),
        Weight::Expert { layer, part, expert } | Weight::ExpertBias { layer, part, expert } => {
            (Role::Expert(part), vec![layer, expert])
        }
    }
}
