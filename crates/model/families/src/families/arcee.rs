//! Arcee: a feed-forward layer without a gate.

use crate::decoder::{Bias, Decoder, LLAMA, Mlp};
use crate::family::{Row, family};

pub(super) const ROWS: &[Row] = &[(&["arcee"], family(&ARCEE, &[]))];

const ARCEE: Decoder = Decoder { mlp: Mlp::Plain("up_proj", "down_proj", Bias::Key("mlp_bias")), ..LLAMA };
