//! Seed-OSS: LLaMA with biases of queries, keys and values.

use crate::decoder::{Bias, Decoder, LLAMA};
use crate::family::{Row, family};

pub(super) const ROWS: &[Row] = &[(&["seed_oss"], family(&SEED_OSS, &[]))];

const SEED_OSS: Decoder = Decoder { out_bias: Bias::Key("attention_out_bias"), ..LLAMA };
