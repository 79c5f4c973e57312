//! Text models of folders with several parts: where their configuration and their tensors are.
//!
//! Facts: the configuration files of `llava`, `mistral3`, `gemma3`, `qwen2_vl`, `qwen2_5_vl`, `qwen3_vl`, `qwen3_vl_moe` and
//! `mllama`, and `conversion_mapping.py`, in `transformers` 5.23.

use crate::Result;
use crate::architecture::Architecture;
use crate::documents::config::ConfigJson;

/// A model type of a text model and other parts.
#[derive(Debug)]
pub(crate) struct Multimodal {
    pub(crate) architecture: &'static Architecture,
    /// Text models; without a `model_type`, a `text_config` is of the first.
    pub(crate) texts: &'static [TextVariant],
    /// Default of the root's `tie_word_embeddings`; `None` if the embeddings are never tied.
    pub(crate) tied: Option<bool>,
}

#[derive(Debug)]
pub(crate) struct TextVariant {
    pub(crate) model_type: &'static str,
    /// Architecture that reads the configuration.
    pub(crate) architecture: &'static Architecture,
    /// Default of `num_attention_heads`, which published files omit.
    pub(crate) heads: u64,
}

/// Keys of a `text_config` that older versions of `transformers` wrote for all classes. They change no logits.
const OLDER_KEYS: &[&str] = &[
    "add_cross_attention",
    "bad_words_ids",
    "begin_suppress_tokens",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "is_decoder",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_scores",
    "prefix",
    "pruned_heads",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torchscript",
    "typical_p",
    "use_bfloat16",
];

impl Multimodal {
    /// Returns the text model of a configuration and its part of it, or the type of a text model that is not known.
    ///
    /// # Errors
    /// Returns an error if a value has another type.
    pub(crate) fn text(
        &self,
        config: &ConfigJson,
    ) -> Result<Result<(&'static TextVariant, ConfigJson), String>> {
        let mut text = config.part("text_config")?;
        // The type of a document without parts is that of the whole model.
        let model_type = text.text("model_type")?.filter(|name| *name != self.architecture.name);
        let is_it = |row: &&TextVariant| model_type.is_none_or(|name| name == row.model_type);
        let Some(row) = self.texts.iter().find(is_it) else {
            return Ok(Err(model_type.unwrap_or_default().to_owned()));
        };
        let tied = match self.tied {
            None => false,
            Some(default) => {
                let key = "tie_word_embeddings";
                text.flag(key)? || config.flag_or(key, default)?
            }
        };
        text.map.retain(|key, _| !OLDER_KEYS.contains(&key.as_str()));
        text.map.insert("tie_word_embeddings".to_owned(), tied.into());
        text.set_default("num_attention_heads", Some(row.heads.into()));
        text.set_default("quantization_config", config.get("quantization_config").cloned());
        Ok(Ok((row, text)))
    }
}
