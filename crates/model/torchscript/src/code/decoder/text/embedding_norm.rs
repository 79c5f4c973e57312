//! Text of the norm of the embeddings.

use super::super::flag::Flag;

pub(super) const FLAGS: &[Flag] = &[Flag::new("embedding norm", |it| it.decoder.block().embedding_norm)];

/// Line of `infer` after the embeddings.
pub(super) const NORMALISED: &str = r"    [embedding norm] h = {norm embedding_norm h 0}
";
