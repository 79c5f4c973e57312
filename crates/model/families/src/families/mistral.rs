//! Mistral, Ministral and Mixtral, of which the last one has experts.

use crate::decoder::{Bias, Decoder, LLAMA, LOCAL_EXPERTS, Mlp};
use crate::family::{Row, family};
use crate::rule::NUMBERED_SPARSE;

pub(super) const ROWS: &[Row] = &[
    (&["mistral", "ministral3"], family(&LLAMA, &[])),
    (&["ministral"], family(&MINISTRAL, &[])),
    (&["mixtral"], family(&MIXTRAL, NUMBERED_SPARSE)),
];

const MINISTRAL: Decoder =
    Decoder { qkv_bias: Bias::No, out_bias: Bias::No, mlp: Mlp::Gated(Bias::No), ..LLAMA };

const MIXTRAL: Decoder = Decoder { experts: Some(LOCAL_EXPERTS), ..LLAMA };
