//! LLaMA: Hugging Face's `LlamaForCausalLM`. `documents/params.rs` reads Meta's own files.
//!
//! Facts: `modeling_llama.py` in `transformers` 5.23.

use crate::Result;
use crate::architecture::Architecture;
use crate::class::{CLASS, Class};
use crate::documents::config::Config;
use crate::facts::{Biases, Facts};
use crate::layout::{HUGGING_FACE, META};

pub(crate) static ARCHITECTURE: Architecture = Architecture {
    name: "llama",
    class: "Llama",
    works_without_config: true,
    layouts: &[&META, &HUGGING_FACE],
    config: &Class { own: OWN, ..CLASS },
    facts,
};

const OWN: &[&str] = &["attention_bias", "mlp_bias"];

fn facts(config: &Config, base: Facts) -> Result<Facts> {
    let attention = config.flag("attention_bias")?;
    let biases = Biases { qkv: attention, output: attention, feed_forward: config.flag("mlp_bias")? };
    Ok(Facts { biases, ..base })
}
