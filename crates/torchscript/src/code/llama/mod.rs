//! LLaMA: Meta's files, and Hugging Face's `LlamaForCausalLM`.
//!
//! Facts: `model.py` in Meta's `llama-models` 0.3.0, `modeling_llama.py` in `transformers` 5.23.

pub(super) mod params;

use super::Architecture;
use super::decoder::config::Config;
use super::decoder::{Biases, Said};
use crate::Result;

pub(super) static LLAMA: Architecture = Architecture { name: "llama", class: "Llama", plain: true, said };

fn said(config: &Config) -> Result<Said> {
    let attention = config.flag("attention_bias")?;
    let biases = Biases { qkv: attention, output: attention, feed_forward: config.flag("mlp_bias")? };
    Ok(Said { biases, ..config.said(&["attention_bias", "mlp_bias"])? })
}
