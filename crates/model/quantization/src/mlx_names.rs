//! Names of the tensors of MLX models in Hugging Face's layout.
//!
//! Facts: the methods `sanitize` of the models in mlx-lm 0.32.2, which change names and shapes when they read Hugging Face's tensors.

use tensor::{Tensor, contiguous_strides};

use crate::config::QuantizationConfig;
use crate::{Problem, Result};

/// Types of models whose tensors have the same names and shapes in MLX.
const SAME: &[&str] = &[
    "bitnet",
    "cohere",
    "cohere2",
    "ernie4_5",
    "exaone",
    "exaone4",
    "gemma",
    "gemma2",
    "gemma3_text",
    "glm",
    "glm4",
    "granite",
    "helium",
    "hunyuan_v1_dense",
    "internlm2",
    "internlm3",
    "llama",
    "mimo",
    "minicpm",
    "minicpm3",
    "mistral",
    "nemotron",
    "nemotron-nas",
    "olmo2",
    "olmo3",
    "phi",
    "phi3",
    "qwen2",
    "qwen3",
    "seed_oss",
    "smollm3",
    "stablelm",
    "starcoder2",
    "youtu_llm",
];
/// Types of models that differ in the names of their experts only: in `experts.N`, the projections have the names of MLX, or are called
/// `w1`, `w2` and `w3`.
const EXPERTS: &[(&[&str], bool)] = &[
    (&["deepseek", "glm4_moe", "olmoe", "qwen2_moe", "qwen3_moe"], false),
    (&["minimax", "mixtral", "phimoe"], true),
];
/// Projections of an expert, with the other name.
const PROJECTIONS: &[(&str, &str)] = &[("gate_proj", "w1"), ("down_proj", "w2"), ("up_proj", "w3")];
/// Module of the experts in MLX, whose tensors have all of them.
const SWITCH: &str = "switch_mlp";

/// Change of the names of experts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MlxNames {
    /// The type of the model is not known.
    Unknown,
    Same,
    Experts {
        are_short: bool,
    },
}

impl MlxNames {
    /// Returns the change of names of a model.
    ///
    /// # Errors
    /// When its type is not one of those whose names are known.
    pub(crate) fn of_model(config: &QuantizationConfig) -> Result<Self> {
        let Some(kind) = config.model_type.as_deref() else { return Ok(Self::Unknown) };
        if SAME.contains(&kind) {
            return Ok(Self::Same);
        }
        match EXPERTS.iter().find(|(kinds, _)| kinds.contains(&kind)) {
            Some((_, are_short)) => Ok(Self::Experts { are_short: *are_short }),
            None => Err(Self::unknown(config)),
        }
    }

    fn unknown(config: &QuantizationConfig) -> crate::Error {
        let known = SAME.iter().chain(EXPERTS.iter().flat_map(|(kinds, _)| *kinds));
        Problem::Unsupported {
            method: config.method.clone(),
            key: "model_type".to_owned(),
            found: config.model_type.clone().unwrap_or_else(|| "missing".to_owned()),
            expected: format!("one whose names are known: {}", known.copied().collect::<Vec<_>>().join(", ")),
        }
        .into()
    }

    /// Returns the names of the experts whose tensors are stacked in one; `None` if it is not a tensor of experts.
    ///
    /// # Errors
    /// When it is, and the names of the model's experts are not known, or it has no experts.
    pub(crate) fn experts(
        self,
        config: &QuantizationConfig,
        module: &str,
        leaf: &str,
        shape: &[u64],
    ) -> Result<Option<Vec<String>>> {
        let Some((parent, projection)) = module.rsplit_once('.') else { return Ok(None) };
        let parent = parent.strip_suffix(SWITCH).filter(|parent| parent.is_empty() || parent.ends_with('.'));
        let Some(parent) = parent else { return Ok(None) };
        let Self::Experts { are_short } = self else { return Err(Self::unknown(config)) };
        let tensor = || format!("{module}.{leaf}");
        let known = PROJECTIONS.iter().find(|(name, _)| *name == projection);
        let (long, short) = known.ok_or_else(|| Problem::Content {
            tensor: tensor(),
            problem: "its name is not that of a projection of experts".to_owned(),
        })?;
        let projection = if are_short { short } else { long };
        // Without elements, there could be any number of experts.
        let count = shape.first().filter(|_| shape.len() > 1 && !shape.contains(&0));
        let count = count.ok_or_else(|| Problem::Shape {
            tensor: tensor(),
            found: shape.to_vec(),
            expected: "experts in the first dimension".to_owned(),
        })?;
        Ok(Some((0..*count).map(|number| format!("{parent}experts.{number}.{projection}.{leaf}")).collect()))
    }
}

/// Returns the part of a tensor that belongs to an expert.
///
/// # Errors
/// When the tensor has no such part.
pub(crate) fn expert(tensor: &Tensor, number: u64) -> Result<Tensor> {
    let (shape, stride) = (tensor.shape().get(1..).unwrap_or_default(), tensor.stride());
    let first = stride.first().copied().unwrap_or_default().saturating_mul(number);
    let offset = tensor.storage_offset().saturating_add(first);
    let stride = stride.get(1..).map_or_else(|| contiguous_strides(shape), <[u64]>::to_vec);
    Ok(Tensor::new(tensor.dtype(), shape.to_vec(), stride, offset, tensor.storage().clone())?)
}
