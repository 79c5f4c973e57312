//! Why a checkpoint is treated as weights and not as a model that runs.

use std::fmt;

/// Why a checkpoint is treated as weights and not as a model that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhyWeights {
    /// It is an adapter, which only changes another model.
    Adapter {
        /// The model that it changes, if `adapter_config.json` names it.
        base: Option<String>,
    },
    /// It is one of several shards.
    OneShard,
    /// There is a `params.json`, but a tensor that Meta's models have is missing.
    MissingTensor {
        /// The tensor.
        name: String,
    },
    /// The names are Hugging Face's, and only a `params.json` was found.
    NoConfig,
    /// The names are a transformer's, and neither `params.json` nor `config.json` was found.
    NoDocuments,
    /// Neither names nor documents belong to a known architecture.
    NoArchitecture,
    /// `config.json` names an architecture without a forward here.
    ModelType {
        /// Its `model_type`, cut if it is long.
        model_type: String,
    },
    /// `config.json` names no architecture.
    NoModelType,
    /// The body of a language model without its output matrix.
    BareModel {
        /// The beginning of its class, such as `Llama`.
        class: &'static str,
    },
    /// `config.json` names an architecture, but a tensor that it has is missing.
    NotThisArchitecture {
        /// The architecture.
        architecture: &'static str,
        /// The tensor.
        tensor: String,
    },
    /// A class with another head than a language model's.
    OtherHead {
        /// The class, cut if it is long.
        class: String,
    },
}

impl fmt::Display for WhyWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Adapter { base } => {
                let base = base.as_deref().unwrap_or("its base model");
                write!(f, "an adapter, which runs only after it is merged into {base}")
            }
            Self::OneShard => f.write_str("one of several shards"),
            Self::MissingTensor { name } => write!(f, "there is no tensor `{name}`"),
            Self::NoConfig => f.write_str("no config.json next to it"),
            Self::NoDocuments => f.write_str("no params.json or config.json next to it"),
            Self::NoArchitecture => f.write_str("no known architecture"),
            Self::ModelType { model_type } => write!(f, "no forward for model_type \"{model_type}\""),
            Self::NoModelType => f.write_str("config.json has no model_type"),
            Self::BareModel { class } => {
                write!(f, "a bare {class}Model: it has no lm_head to compute logits")
            }
            Self::NotThisArchitecture { architecture, tensor } => {
                write!(f, "config.json says {architecture}, but there is no tensor `{tensor}`")
            }
            Self::OtherHead { class } => write!(f, "a {class}: it has no lm_head to compute logits"),
        }
    }
}
