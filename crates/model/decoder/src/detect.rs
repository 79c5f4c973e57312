//! Detection of a checkpoint's architecture, and the decoder that its documents and tensors describe.

use tensor::Tensors;

use crate::architecture::Architecture;
use crate::architectures::{ARCHITECTURES, MULTIMODAL, llama};
use crate::documents::config::ConfigJson;
use crate::documents::params::Params;
use crate::hyperparameters::Hyperparameters;
use crate::layout::{LayoutOwner, TensorNames};
use crate::missing_blocks::missing_blocks;
use crate::multimodal::Multimodal;
use crate::sizes::{Decoder, head_dim_without_document};
use crate::weight::{LayerPart, Weight};
use crate::{DecoderNote, NoModelReason, Overrides, Problem, Result, TokenDocuments};

/// Texts of the documents next to a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct ModelDocuments {
    /// Text of Meta's `params.json`.
    pub params: Option<String>,
    /// Text of Hugging Face's `config.json`.
    pub config: Option<String>,
    /// Text of `adapter_config.json`, which marks the tensors as an adapter for another model.
    pub adapter: Option<String>,
    /// Documents of the tokenizer, which only a translation into another layout reads.
    pub tokens: TokenDocuments,
}

/// Options for building a decoder: the documents next to a checkpoint, overrides, and the handling of unused tensors.
#[derive(Clone, Debug, Default)]
pub struct DecoderOptions {
    pub documents: ModelDocuments,
    /// Numbers that the documents omit.
    pub overrides: Overrides,
    /// True to keep tensors that the model does not use; otherwise they are an error.
    pub keep_extra: bool,
}

/// Result of detecting a model in a checkpoint.
#[derive(Debug)]
pub enum Detected {
    /// A decoder with a forward implementation.
    Model(Box<Decoder>),
    /// Tensors without a forward implementation.
    Weights {
        /// Reason why the tensors are not a model.
        no_model_reason: NoModelReason,
        notes: Vec<DecoderNote>,
    },
}

/// Returns the names of the architectures with a forward implementation.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    all().map(|architecture| architecture.name)
}

fn all() -> impl Iterator<Item = &'static Architecture> {
    ARCHITECTURES.iter().copied().chain(MULTIMODAL.iter().map(|row| row.architecture))
}

pub(crate) fn find_architecture(is_it: impl Fn(&Architecture) -> bool) -> Option<&'static Architecture> {
    all().find(|architecture| is_it(architecture))
}

/// Builds the decoder of the architecture `name` over these tensors.
///
/// # Errors
/// Returns an error if there is no such architecture, if the names of the tensors do not belong to it, or if the documents
/// contradict the shapes or omit a fact that the shapes do not reveal. [`Decoder::assign`] checks the other tensors.
pub fn build_decoder(name: &str, tensors: &Tensors, options: &DecoderOptions) -> Result<Decoder> {
    let Some(architecture) = find_architecture(|known| known.name == name) else {
        return Err(Problem::UnknownArchitecture { name: name.to_owned() }.into());
    };
    let has_meta = architecture.has_layout(LayoutOwner::Meta);
    if has_meta && LayoutOwner::Meta.llama_names().missing_tensor(0, tensors).is_none() {
        return from_meta(tensors, options);
    }
    from_hugging_face(architecture, tensors, options)
}

/// Builds the decoder that the names and documents describe, or returns the reason why the tensors are plain weights.
///
/// # Errors
/// Returns an error as [`build_decoder`] does, and if numbers are given for tensors that are plain weights.
pub fn detect(tensors: &Tensors, options: &DecoderOptions) -> Result<Detected> {
    let model = |decoder| Detected::Model(Box::new(decoder));
    match detect_kind(tensors, options)? {
        DetectedKind::Meta => from_meta(tensors, options).map(model),
        DetectedKind::HuggingFace(architecture) => {
            from_hugging_face(architecture, tensors, options).map(model)
        }
        DetectedKind::Weights(why) if !options.overrides.is_empty() => Err(Problem::NotAModel { why }.into()),
        DetectedKind::Weights(why) => {
            let is_alike = |owner: LayoutOwner| owner.llama_names().missing_tensor(0, tensors).is_none();
            let named_alike = is_alike(LayoutOwner::Meta) || is_alike(LayoutOwner::HuggingFace);
            let note = (why == NoModelReason::NoDocuments && named_alike).then_some(DecoderNote::LlamaNames);
            Ok(Detected::Weights { no_model_reason: why, notes: note.into_iter().collect() })
        }
    }
}

enum DetectedKind {
    /// A LLaMA with Meta's names.
    Meta,
    /// An architecture with Hugging Face's names.
    HuggingFace(&'static Architecture),
    Weights(NoModelReason),
}

fn detect_kind(tensors: &Tensors, options: &DecoderOptions) -> Result<DetectedKind> {
    let documents = &options.documents;
    if let Some(adapter) = &documents.adapter {
        let adapter = ConfigJson::from_json(adapter).ok();
        let base =
            adapter.as_ref().and_then(|adapter| adapter.text("base_model_name_or_path").ok().flatten());
        return Ok(DetectedKind::Weights(NoModelReason::Adapter { base: base.map(truncate_for_line) }));
    }
    let missing_of_meta = LayoutOwner::Meta.llama_names().missing_tensor(0, tensors);
    if missing_of_meta.is_none() && (documents.params.is_some() || !options.overrides.is_empty()) {
        return Ok(DetectedKind::Meta);
    }
    // Matches the names of any Hugging Face transformer, complete or partial, plain or quantized.
    let is_transformer = tensors.iter().any(|(name, _)| name.contains("layers.0.self_attn."));
    let config = match &documents.config {
        Some(text) => match ConfigJson::from_json(text) {
            Ok(config) => Some(config),
            Err(error) if is_transformer => return Err(error),
            Err(_) => None,
        },
        None => None,
    };
    let Some(config) = config else {
        // Encoders, such as that of the texts in Stable Diffusion, have these names too, and no document makes them run.
        let is_decoder = |name: &str| {
            name.contains("layers.0.self_attn.") && !name.contains("encoder.layers.0.self_attn.")
        };
        let is_decoder = tensors.names().any(is_decoder);
        return Ok(DetectedKind::Weights(match missing_of_meta {
            Some(name) if documents.params.is_some() && !is_transformer => {
                NoModelReason::MissingTensor { name }
            }
            _ if documents.params.is_some() => NoModelReason::NoConfig,
            _ if is_decoder => NoModelReason::NoDocuments,
            _ if tensors.iter().any(|(name, _)| name.contains("layers.0.attention.w")) => {
                NoModelReason::NoDocuments
            }
            _ => NoModelReason::NoArchitecture,
        }));
    };
    detect_from_config(&config, tensors, is_transformer)
}

fn detect_from_config(config: &ConfigJson, tensors: &Tensors, is_transformer: bool) -> Result<DetectedKind> {
    let model_type = config.get("model_type").and_then(serde_json::Value::as_str);
    let class = first_class(config);
    let matches = |architecture: &Architecture| match model_type {
        Some(model_type) => model_type == architecture.name,
        None => class.is_some_and(|class| class.strip_suffix("ForCausalLM") == Some(architecture.class)),
    };
    let Some(architecture) = find_architecture(matches) else {
        return Ok(DetectedKind::Weights(match model_type {
            Some(model_type) => unsupported(model_type),
            None => NoModelReason::NoModelType,
        }));
    };
    if is_transformer {
        config.reject_quantized()?;
    }
    let parts = Multimodal::of(architecture);
    if let Some(Err(model_type)) = parts.map(|parts| parts.text(config)).transpose()? {
        return Ok(DetectedKind::Weights(unsupported(&model_type)));
    }
    let forms = architecture.forms();
    if let Err(tensor) = TensorNames::find(&forms, 0, tensors) {
        return Ok(DetectedKind::Weights(if is_bare_model(&forms, tensors) {
            NoModelReason::BareModel { class: architecture.class }
        } else {
            NoModelReason::NotThisArchitecture { architecture: architecture.name, tensor }
        }));
    }
    let is_causal = class.is_none_or(|class| class.ends_with("ForCausalLM") || class == "GPT2LMHeadModel");
    let is_causal =
        is_causal || (parts.is_some() && class.is_some_and(|class| class.ends_with("Generation")));
    if !is_causal && !tensors.contains("lm_head.weight") {
        let class = truncate_for_line(class.unwrap_or_default());
        return Ok(DetectedKind::Weights(NoModelReason::NotCausalHead { class }));
    }
    Ok(DetectedKind::HuggingFace(architecture))
}

/// Returns true if the tensors belong to the bare module of the architecture, whose names lack the prefix `model.` and which
/// has no output matrix.
fn is_bare_model(forms: &[TensorNames], tensors: &Tensors) -> bool {
    let prefixed = tensors.iter().map(|(name, tensor)| (format!("model.{name}"), tensor.clone()));
    TensorNames::find(forms, 0, &prefixed.collect()).is_ok()
}

fn unsupported(model_type: &str) -> NoModelReason {
    NoModelReason::UnsupportedModelType {
        model_type: truncate_for_line(model_type),
        needs: missing_blocks(model_type),
    }
}

fn first_class(config: &ConfigJson) -> Option<&str> {
    config.get("architectures")?.as_array()?.first()?.as_str()
}

fn truncate_for_line(text: &str) -> String {
    const SHOWN: usize = 80;
    let short: String = text.chars().take(SHOWN).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

fn from_meta(tensors: &Tensors, options: &DecoderOptions) -> Result<Decoder> {
    let (given, document) = (&options.overrides, &options.documents.params);
    let mut params = match document {
        Some(text) => Params::from_json(text)?,
        None => Params::from_head_dim(head_dim_without_document(LayoutOwner::Meta, tensors, given)?),
    };
    let heads_given = params.override_params(given)?;
    if let Some(count) = params.shard_count(tensors) {
        return Err(Problem::Shard { count }.into());
    }
    let facts = Hyperparameters {
        has_document: document.is_some(),
        heads_from_caller: heads_given,
        ..params.params_hyperparameters(tensors)
    };
    Decoder::new(&llama::ARCHITECTURE, LayoutOwner::Meta.llama_names().clone(), facts, tensors)
}

fn from_hugging_face(
    architecture: &'static Architecture,
    tensors: &Tensors,
    options: &DecoderOptions,
) -> Result<Decoder> {
    let names = TensorNames::find(&architecture.forms(), 0, tensors)
        .map_err(|name| Problem::NotThisArchitecture { architecture: architecture.name, name })?;
    let (given, document) = (&options.overrides, &options.documents.config);
    let config = match document {
        Some(text) => ConfigJson::from_json(text)?,
        None if architecture.works_without_config => {
            ConfigJson::from_head_dim(head_dim_without_document(LayoutOwner::HuggingFace, tensors, given)?)
        }
        None => return Err(Problem::NoConfig { architecture: architecture.name }.into()),
    };
    if let Some(other) = config.text("model_type")?.filter(|model_type| *model_type != architecture.name) {
        return Err(config.invalid_value(
            "model_type",
            &format!("{other:?}"),
            format!("{:?}", architecture.name),
        ));
    }
    let (text, mut config) = match Multimodal::of(architecture) {
        None => (architecture, config),
        Some(parts) => match parts.text(&config)? {
            Ok((row, text)) => (row.architecture, text),
            Err(other) => {
                let known: Vec<String> =
                    parts.texts.iter().map(|row| format!("{:?}", row.model_type)).collect();
                let found = format!("{other:?}");
                return Err(config.invalid_value("text_config.model_type", &found, known.join(" or ")));
            }
        },
    };
    for (key, alias) in text.config_defaults.aliases {
        if let Some(value) = config.get(alias).cloned() {
            config.map.insert((*key).to_owned(), value);
        }
    }
    for (key, own) in text.config_defaults.renamed {
        match config.get(own).cloned() {
            Some(value) => config.map.insert((*key).to_owned(), value),
            None => config.map.remove(*key),
        };
    }
    let heads_given = config.override_config(given, text.config_defaults)?;
    let has_document = document.is_some();
    let config = config.with_layers(checked_layer_count(&names, tensors)?);
    let facts = text.read_hyperparameters(&config)?;
    let facts = Hyperparameters {
        has_document,
        heads_from_caller: heads_given,
        tied: facts.tied || !has_document,
        ..facts
    };
    Decoder::new(architecture, names, facts, tensors)
}

/// Returns the number of layers in the checkpoint. Lists of this length are allocated, so the number must not exceed the
/// number of tensors.
fn checked_layer_count(names: &TensorNames, tensors: &Tensors) -> Result<u64> {
    let n_layers = names.count_layers(tensors.names());
    if n_layers <= tensors.len() as u64 {
        return Ok(n_layers);
    }
    let has_tensors = |layer: &u64| tensors.names().any(|name| names.layer_number(name) == Some(*layer));
    let layer = (0..n_layers).find(|layer| !has_tensors(layer)).unwrap_or_default();
    let name = names.name_or_role(Weight::Layer { layer, part: LayerPart::Wq });
    Err(Problem::MissingTensor { name, n_layers }.into())
}
