//! Language models as llama.cpp has them.
//!
//! [`gguf_model`] takes the tensors of a model in the names of `transformers`, with the documents next to them, and returns the keys and
//! tensors of a GGUF file: those that `convert_hf_to_gguf.py` of llama.cpp writes, in its order. Tensors are computed when they are
//! read.
//!
//! ```
//! use gguf_model::{Documents, ModelFiles, PreTokenizer, gguf_model};
//! use tensor::Tensors;
//!
//! let read = |name: &str| Ok((name == "config.json").then(|| br#"{"architectures": ["BertModel"]}"#.to_vec()));
//! let documents = Documents::new(&read);
//! let files = ModelFiles { documents: &documents, folder: "x", file_type: None, pre_tokenizer: PreTokenizer::Named("llama-bpe") };
//! let error = gguf_model(Tensors::default().as_slice(), &files).expect_err("there is no decoder");
//! assert_eq!(error.to_string(), "the architecture `BertModel` is not written as GGUF");
//! ```
//!
//! Facts: the converter in the source distribution of `llama_cpp_python` 0.3.36; each file names its parts that it follows.

mod about;
mod architecture;
mod card;
mod config;
mod delta_net;
mod documents;
mod encode;
mod error;
mod file_type;
mod from_gguf;
mod gemma4;
mod hyperparameters;
mod keys;
mod mapped;
mod model_id;
mod mxfp4;
mod names;
mod parameters;
mod rope;
mod tensors;
mod views;
mod vocabulary;
mod xielu;

use byte_source::Result;
use gguf_format::{GgufOutput, GgufValue};
use tensor::Tensor;

pub use documents::{Documents, ReadDocument};
pub use encode::{encode_blocks, encode_finite_q8_0};
pub use error::Problem;
pub use file_type::{FILE_TYPES, FileType};
pub use from_gguf::{HuggingFaceModel, hugging_face_model};
pub use keys::GgufKeys;
pub use vocabulary::{EncodeText, KeyDocuments, PreTokenizer, key_documents, pre_tokenizers};

use about::About;
use config::GgufConfig;
use keys::Keys;
use parameters::Parameters;

/// What a model has besides its tensors, and how its file is written.
pub struct ModelFiles<'f> {
    pub documents: &'f Documents<'f>,
    /// Name of the folder, from which the model gets its name.
    pub folder: &'f str,
    /// Type of most tensors; `None` for the 16-bit type that the model has.
    pub file_type: Option<FileType>,
    pub pre_tokenizer: PreTokenizer<'f>,
}

/// Keys and tensors of a file.
#[derive(Debug)]
#[non_exhaustive]
pub struct GgufModel {
    /// Keys with their values, in the order of the file.
    pub entries: Vec<(String, GgufValue)>,
    /// Tensors in the order of the file.
    pub tensors: Vec<GgufOutput>,
    pub file_type: FileType,
}

/// Version of the blocks of quantized types.
const QUANTIZATION_VERSION: u32 = 2;

/// Returns the keys and tensors of the file of a model.
///
/// # Errors
/// When llama.cpp does not know the architecture, a tensor or the pre-tokenizer; when a document is missing, damaged, or does not fit the
/// tensors.
pub fn gguf_model(tensors: &[(String, Tensor)], files: &ModelFiles<'_>) -> Result<GgufModel> {
    let documents = files.documents;
    let config = GgufConfig::from_json(&documents.text("config.json")?.ok_or(Problem::NoConfig)?, tensors)?;
    let file_type = files.file_type.unwrap_or_else(|| FileType::of(tensors.iter().map(|(_, tensor)| tensor)));
    let tokens = if ["gemma3", "gemma4"].contains(&config.architecture.name) {
        vocabulary::json_tokens(documents)?
    } else {
        None
    };
    let placed = tensors::place(tensors, &config, file_type, tokens)?;
    let file_type = file_type.of_file(&placed);
    let mut keys = Keys::new(config.architecture.name);
    if let Some(factor) = rope::attention_factor(&config)? {
        keys.float(".rope.scaling.attn_factor", factor);
    }
    xielu::set_keys(&mut keys, &config, tensors)?;
    let card = card::read_card(&documents.text("README.md")?.unwrap_or_default());
    let generation = documents.object("generation_config.json").unwrap_or_default();
    let about = About {
        card: &card,
        config: &config.written,
        generation: generation.as_ref(),
        folder: files.folder,
        parameters: Parameters::of(&placed),
    };
    about::set_keys(&mut keys, &about)?;
    hyperparameters::set_keys(&mut keys, &config, file_type.number)?;
    keys.number("general.quantization_version", QUANTIZATION_VERSION);
    vocabulary::set_keys(&mut keys, &config, documents, &files.pre_tokenizer)?;
    Ok(GgufModel { entries: keys.entries, tensors: placed, file_type })
}
