//! Flags for the factors of embeddings, residuals and logits, whose lines are in `infer`.

use super::super::flag::Flag;

pub(super) const FLAGS: &[Flag] = &[
    Flag::new("embedding scale", |it| changes(it.decoder.block().scales.embedding)),
    Flag::new("residual scale", |it| changes(it.decoder.block().scales.residual)),
    Flag::new("logits scale", |it| changes(it.decoder.block().scales.logits)),
    Flag::new("logits cap", |it| it.decoder.block().scales.logits_soft_cap.is_some()),
    Flag::new("logits bias", |it| it.decoder.biases().logits),
];

#[expect(clippy::float_cmp, reason = "a factor of exactly 1 changes nothing")]
fn changes(factor: f64) -> bool {
    factor != 1.0
}
