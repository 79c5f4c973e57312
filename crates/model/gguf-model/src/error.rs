//! Errors of models that are to be written for llama.cpp.

use byte_source::details;

/// Reason why a model cannot be written as llama.cpp has it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A model without its configuration.
    #[error("it has no config.json, which says what model the tensors are")]
    NoConfig,
    /// A configuration that is not a JSON object.
    #[error("config.json is not a JSON object: {0}")]
    Config(String),
    /// A model that llama.cpp does not know, or that is not written here.
    #[error("the architecture `{}` is not written as GGUF", class.escape_debug())]
    Architecture {
        class: String,
        /// Architectures that are written, in the names of llama.cpp.
        known: Vec<&'static str>,
    },
    /// A hyperparameter that is missing or has a value that the format has no place for.
    #[error("config.json: `{key}` is {found}, expected {expected}")]
    Key { key: String, found: String, expected: &'static str },
    /// A tensor that the model has no name for.
    #[error("tensor `{}` has no name in the model `{architecture}` of llama.cpp", tensor.escape_debug())]
    NoName { tensor: String, architecture: &'static str },
    /// A file of an architecture whose names in `transformers` are not known here.
    #[error("the names of the architecture `{}` in transformers are not known", name.escape_debug())]
    OtherArchitecture { name: String },
    /// A tensor of a file that has no name in `transformers`.
    #[error("tensor `{}` of the architecture `{architecture}` has no name in transformers", tensor.escape_debug())]
    NoOtherName { tensor: String, architecture: &'static str },
    /// A tensor that is one part of another in `transformers`, whose other part is missing.
    #[error("tensor `{}` needs `{}`, which is missing", tensor.escape_debug(), partner.escape_debug())]
    NoPartner { tensor: String, partner: String },
    /// Blocks, whose rows and experts cannot be taken apart.
    #[error("tensor `{}` consists of blocks of {scheme}, and only numbers get the names of transformers", tensor.escape_debug())]
    Blocks { tensor: String, scheme: String },
    /// Factors of rotary embeddings that no setting leads to.
    #[error("`rope_freqs.weight` has factors that no setting of Llama 3's scaling leads to")]
    Factors,
    /// A number of an activation that is not there.
    #[error("`{}`, a number of the activation of a layer, is missing or has several elements", tensor.escape_debug())]
    Activation { tensor: String },
    /// A tensor of another shape than its role needs.
    #[error("tensor `{}` has shape {shape:?}, expected {expected}", tensor.escape_debug())]
    Shape { tensor: String, shape: Vec<u64>, expected: String },
    /// A tensor without real numbers.
    #[error("tensor `{}` has dtype {dtype}, expected real numbers", tensor.escape_debug())]
    Dtype { tensor: String, dtype: tensor::Dtype },
    /// Numbers for which there is no scale of `Q8_0`.
    #[error(
        "32 numbers in a row have no float16 scale of q8_0: expected finite numbers of at most 8.3 million in size"
    )]
    NoScale,
    /// A weight of experts of which some are missing.
    #[error("layer {layer} has {found} weights of experts, expected {expected}")]
    Experts { layer: u64, found: usize, expected: u64 },
    /// A model without a tokenizer that is read.
    #[error("it has no {expected} next to it, and the file of llama.cpp holds the tokenizer")]
    NoTokenizer { expected: &'static str },
    /// A file of a tokenizer that is damaged, or of an unexpected form.
    #[error("{file}: {reason}")]
    Tokenizer { file: String, reason: String },
    /// A vocabulary whose pre-tokenizer llama.cpp does not know.
    #[error(
        "llama.cpp does not know the pre-tokenizer of tokenizer.json, whose hash is {hash}{}",
        split_text(alike)
    )]
    PreTokenizer {
        hash: String,
        /// Names of those that split a text by the same rules, as far as they are known here.
        alike: Vec<&'static str>,
    },
    /// A name of a pre-tokenizer that does not exist.
    #[error("llama.cpp has no pre-tokenizer `{}`{}", name.escape_debug(), meant(*similar))]
    NoPreTokenizer {
        name: String,
        /// Name with the same letters and digits.
        similar: Option<&'static str>,
    },
}

details! {
    Problem {
        Input: Activation, NoConfig, Config, Key, NoName, NoOtherName, NoPartner, Blocks, Shape, Dtype, NoScale, Experts, NoTokenizer;
        Unsupported: Architecture, OtherArchitecture, Factors, PreTokenizer;
        Option: NoPreTokenizer;
        Damaged: Tokenizer;
    }
}

fn split_text(alike: &[&str]) -> String {
    if alike.is_empty() { String::new() } else { format!("; it splits texts as {} do", alike.join(" and ")) }
}

fn meant(similar: Option<&str>) -> String {
    similar.map_or_else(String::new, |name| format!(", but {name}"))
}
