//! Table of the flags of all kinds of blocks.

use super::super::flag::{Condition, Flag};
use super::{
    alibi, attention, checks, delta_net, embedding_norm, experts, feed_forward, fused_heads, layer_inputs,
    learned_positions, mixed_heads, norm, query_scale, rotation, router, scales,
};

/// Flags of all kinds of blocks.
const FLAGS: &[&[Flag]] = &[
    &[Flag::new("half", HAS_HALF), Flag::new("blocks", |it| it.has_blocks)],
    checks::FLAGS,
    norm::FLAGS,
    learned_positions::FLAGS,
    rotation::FLAGS,
    query_scale::FLAGS,
    attention::FLAGS,
    alibi::FLAGS,
    delta_net::FLAGS,
    mixed_heads::FLAGS,
    layer_inputs::FLAGS,
    embedding_norm::FLAGS,
    fused_heads::FLAGS,
    feed_forward::FLAGS,
    experts::FLAGS,
    router::FLAGS,
    scales::FLAGS,
];

pub(super) const HAS_HALF: Condition = |it| it.has_float16;

/// Returns the flag of this name.
pub(super) fn named(name: &str) -> Option<Flag> {
    FLAGS.iter().copied().flatten().find(|flag| flag.name() == name).copied()
}
