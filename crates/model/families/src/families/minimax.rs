//! `MiniMax` M2: experts, and a norm of all queries and one of all keys.

use crate::decoder::{Decoder, ExpertLayer, HeadNorms, LLAMA, LOCAL_EXPERTS};
use crate::family::{Row, family};
use crate::rule::NUMBERED_SPARSE;

pub(super) const ROWS: &[Row] = &[(&["minimax_m2"], family(&MINIMAX, NUMBERED_SPARSE))];

const MINIMAX: Decoder = Decoder {
    head_norms: HeadNorms::All,
    experts: Some(ExpertLayer { per_expert: &["e_score_correction_bias"], ..LOCAL_EXPERTS }),
    ..LLAMA
};
