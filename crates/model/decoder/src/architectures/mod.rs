//! Table of the architectures with a forward implementation, each in a file of its own.

mod gemma;
mod gemma2;
mod gemma3;
mod gpt_oss;
mod granite;
pub(crate) mod llama;
mod ministral;
mod mistral;
mod mixtral;
mod mllama;
mod multimodal;
mod olmo2;
mod phi3;
mod qwen2;
mod qwen2_moe;
mod qwen2_vl;
mod qwen3;
mod qwen3_moe;
mod qwen3_vl;
mod qwen3_vl_moe;
mod smollm3;
mod stablelm;
#[cfg(test)]
mod tests;

use crate::architecture::Architecture;
use crate::multimodal::Multimodal;

pub(crate) static ARCHITECTURES: &[&Architecture] = &[
    &llama::ARCHITECTURE,
    &mistral::ARCHITECTURE,
    &qwen2::ARCHITECTURE,
    &qwen3::ARCHITECTURE,
    &phi3::ARCHITECTURE,
    &gemma::ARCHITECTURE,
    &gemma2::ARCHITECTURE,
    &gemma3::ARCHITECTURE,
    &granite::ARCHITECTURE,
    &smollm3::ARCHITECTURE,
    &olmo2::ARCHITECTURE,
    &stablelm::ARCHITECTURE,
    &ministral::ARCHITECTURE,
    &mixtral::ARCHITECTURE,
    &qwen3_moe::ARCHITECTURE,
    &gpt_oss::ARCHITECTURE,
    &qwen2_moe::ARCHITECTURE,
];

/// Models of several parts, of which the text model runs.
pub(crate) static MULTIMODAL: &[&Multimodal] = &[
    &multimodal::GEMMA3,
    &multimodal::MISTRAL3,
    &multimodal::LLAVA,
    &qwen2_vl::QWEN2,
    &qwen2_vl::QWEN2_5,
    &qwen3_vl::QWEN3,
    &qwen3_vl_moe::QWEN3,
    &mllama::MLLAMA,
];
