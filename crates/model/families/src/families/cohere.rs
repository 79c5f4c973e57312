//! Command R: one norm for both parts of a layer.

use crate::decoder::{Decoder, HeadNorms, LLAMA};
use crate::family::{Family, Row, family};

pub(super) const ROWS: &[Row] =
    &[(&["cohere", "cohere2"], Family { flags: &["use_qk_norm"], ..family(&COHERE, &[]) })];

const COHERE: Decoder =
    Decoder { head_norms: HeadNorms::Each("use_qk_norm"), norms: &["input_layernorm"], ..LLAMA };
