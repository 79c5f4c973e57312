//! Reasons to convert a checkpoint as plain weights instead of a model that runs.

use std::fmt;

/// Reason to convert a checkpoint as plain weights instead of a model that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoModelReason {
    /// The checkpoint is an adapter, which only modifies another model.
    Adapter {
        /// Name of the base model, if `adapter_config.json` states it.
        base: Option<String>,
    },
    /// The checkpoint is one of several shards.
    OneShard,
    /// A `params.json` is present, but a tensor of Meta's models is missing.
    MissingTensor { name: String },
    /// The names are Hugging Face's, but only a `params.json` was found.
    NoConfig,
    /// The names are a transformer's, but neither `params.json` nor `config.json` was found.
    NoDocuments,
    /// Neither names nor documents match a known architecture.
    NoArchitecture,
    /// `config.json` names an architecture without a forward implementation.
    UnsupportedModelType {
        /// Value of `model_type`, truncated if it is long.
        model_type: String,
        /// Kind of block that no forward has, if it is known.
        needs: Option<&'static str>,
    },
    /// `config.json` has no `model_type`.
    NoModelType,
    /// The body of a language model, without its output matrix.
    BareModel {
        /// Prefix of its class, such as `Llama`.
        class: &'static str,
    },
    /// `config.json` names an architecture, but one of its tensors is missing.
    NotThisArchitecture { architecture: &'static str, tensor: String },
    /// A class whose head does not compute logits.
    NotCausalHead {
        /// Name of the class, truncated if it is long.
        class: String,
    },
}

impl fmt::Display for NoModelReason {
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
            Self::UnsupportedModelType { model_type, needs: Some(needs) } => {
                write!(f, "{model_type} needs {needs}, which decoders do not have yet")
            }
            Self::UnsupportedModelType { model_type, needs: None } => {
                write!(f, "no forward for model_type \"{model_type}\"")
            }
            Self::NoModelType => f.write_str("config.json has no model_type"),
            Self::BareModel { class } => {
                write!(f, "a bare {class}Model: it has no lm_head to compute logits")
            }
            Self::NotThisArchitecture { architecture, tensor } => {
                write!(f, "config.json says {architecture}, but there is no tensor `{tensor}`")
            }
            Self::NotCausalHead { class } => write!(f, "a {class}: it has no lm_head to compute logits"),
        }
    }
}
