//! gpt-oss: attention with sinks, and experts with biases, which are [in, out].

use crate::decoder::{Decoder, ExpertLayer, LLAMA, LOCAL_EXPERTS};
use crate::family::{Row, family};

pub(super) const ROWS: &[Row] = &[(&["gpt_oss"], family(&GPT_OSS, &[]))];

const GPT_OSS: Decoder = Decoder {
    per_head: &["sinks"],
    experts: Some(ExpertLayer {
        router: "router.weight",
        per_expert: &["router.bias"],
        is_transposed: true,
        ..LOCAL_EXPERTS
    }),
    ..LLAMA
};
