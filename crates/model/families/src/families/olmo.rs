//! `OLMo` 1 to 3 and `OLMoE`, with and without norms before the parts of a layer.

use crate::decoder::{Decoder, EXPERTS, ExpertLayer, HeadNorms, LLAMA, NORMS, NORMS_AFTER};
use crate::family::{Row, family};
use crate::rule::NUMBERED;

pub(super) const ROWS: &[Row] = &[
    (&["olmo"], family(&OLMO, &[])),
    (&["olmo2", "olmo3"], family(&OLMO2, &[])),
    (&["olmoe"], family(&OLMOE, NUMBERED)),
];

const OLMO: Decoder = Decoder { norms: &[], last_norm: None, ..LLAMA };

const OLMO2: Decoder = Decoder { head_norms: HeadNorms::All, norms: NORMS_AFTER, ..LLAMA };

const OLMOE: Decoder =
    Decoder { experts: Some(ExpertLayer { inner: "intermediate_size", ..EXPERTS }), norms: NORMS, ..OLMO2 };
