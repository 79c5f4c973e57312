//! The table of families: what each model type of transformers has. A family is a file.

mod apertus;
mod arcee;
mod bart;
mod bert;
mod bloom;
mod cohere;
mod deepseek;
mod ernie;
mod exaone;
mod falcon;
mod gemma;
mod glm;
mod gpt2;
mod gpt_neox;
mod gpt_oss;
mod granite;
mod helium;
mod hunyuan;
mod lfm2;
mod llama;
mod mamba;
mod minimax;
mod mistral;
mod nemotron;
mod olmo;
mod opt;
mod phi;
mod qwen;
mod seed_oss;
mod stablelm;
mod starcoder;
mod t5;
mod vit;
mod whisper;

use crate::family::{Family, Row};
use crate::rule;

pub(crate) use qwen::qwen_mtp;

const FAMILIES: &[&[Row]] = &[
    apertus::ROWS,
    arcee::ROWS,
    bart::ROWS,
    bert::ROWS,
    bloom::ROWS,
    cohere::ROWS,
    deepseek::ROWS,
    ernie::ROWS,
    exaone::ROWS,
    falcon::ROWS,
    gemma::ROWS,
    glm::ROWS,
    gpt2::ROWS,
    gpt_neox::ROWS,
    gpt_oss::ROWS,
    granite::ROWS,
    helium::ROWS,
    hunyuan::ROWS,
    lfm2::ROWS,
    llama::ROWS,
    mamba::ROWS,
    minimax::ROWS,
    mistral::ROWS,
    nemotron::ROWS,
    olmo::ROWS,
    opt::ROWS,
    phi::ROWS,
    qwen::ROWS,
    seed_oss::ROWS,
    stablelm::ROWS,
    starcoder::ROWS,
    t5::ROWS,
    vit::ROWS,
    whisper::ROWS,
];

fn rows() -> impl Iterator<Item = &'static Row> {
    FAMILIES.iter().flat_map(|rows| rows.iter())
}

/// Returns the family of a model type.
pub(crate) fn find(model_type: &str) -> Option<Family> {
    let (_, family) = rows().find(|(types, _)| types.contains(&model_type))?;
    Some(*family)
}

/// Returns the model types that have one part.
pub(crate) fn model_types() -> impl Iterator<Item = &'static str> {
    rows().flat_map(|(types, _)| types.iter().copied())
}

/// Returns the other names that a module or tensor has in any family: in memory for a released one, and the reverse.
///
/// ```
/// let others: Vec<String> = families::other_names("model.layers.0.mlp.gate.weight").collect();
/// assert!(others.contains(&"model.layers.0.block_sparse_moe.gate.weight".to_owned()));
/// ```
pub fn other_names(name: &str) -> impl Iterator<Item = String> {
    rows().filter_map(move |(_, family)| rule::other_name(family.rules, name))
}
