//! Table of the architectures with a forward implementation, each in a file of its own.

mod apertus;
mod arcee;
mod bloom;
mod cohere;
mod cohere2;
mod ernie4_5;
mod exaone4;
mod falcon;
mod gemma;
mod gemma2;
mod gemma3;
mod gemma4;
mod glm;
mod glm4;
mod glm4_moe;
mod gpt2;
mod gpt_neox;
mod gpt_oss;
mod granite;
mod granitemoe;
mod helium;
mod hunyuan_v1_dense;
pub(crate) mod llama;
mod minimax_m2;
mod ministral;
mod ministral3;
mod mistral;
mod mixtral;
mod mllama;
mod multimodal;
mod olmo2;
mod olmo3;
mod olmoe;
mod opt;
mod phi;
mod phi3;
mod phimoe;
mod qwen2;
mod qwen2_moe;
mod qwen2_vl;
mod qwen3;
mod qwen3_5;
mod qwen3_moe;
mod qwen3_next;
mod qwen3_vl;
mod qwen3_vl_moe;
mod seed_oss;
mod smollm3;
mod stablelm;
mod starcoder2;
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
    &arcee::ARCHITECTURE,
    &seed_oss::ARCHITECTURE,
    &ministral3::ARCHITECTURE,
    &olmo3::ARCHITECTURE,
    &cohere::ARCHITECTURE,
    &cohere2::ARCHITECTURE,
    &glm::ARCHITECTURE,
    &glm4::ARCHITECTURE,
    &exaone4::ARCHITECTURE,
    &helium::ARCHITECTURE,
    &ernie4_5::ARCHITECTURE,
    &hunyuan_v1_dense::ARCHITECTURE,
    &granitemoe::ARCHITECTURE,
    &olmoe::ARCHITECTURE,
    &apertus::ARCHITECTURE,
    &starcoder2::ARCHITECTURE,
    &phi::ARCHITECTURE,
    &phimoe::ARCHITECTURE,
    &glm4_moe::ARCHITECTURE,
    &minimax_m2::ARCHITECTURE,
    &gpt2::ARCHITECTURE,
    &opt::ARCHITECTURE,
    &gpt_neox::ARCHITECTURE,
    &bloom::ARCHITECTURE,
    &falcon::ARCHITECTURE,
    &qwen3_next::ARCHITECTURE,
    &qwen3_5::DENSE,
    &qwen3_5::MOE,
    &gemma4::ARCHITECTURE,
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
    &qwen3_5::DENSE_WITH_TOWER,
    &qwen3_5::MOE_WITH_TOWER,
    &gemma4::WITH_TOWERS,
];
