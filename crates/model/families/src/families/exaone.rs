//! EXAONE 4: norms after the parts of a layer, and of queries and keys.

use crate::decoder::{Decoder, HeadNorms, LLAMA, NORMS_AFTER};
use crate::family::{Row, family};

pub(super) const ROWS: &[Row] = &[(&["exaone4"], family(&EXAONE4, &[]))];

const EXAONE4: Decoder = Decoder { head_norms: HeadNorms::QK, norms: NORMS_AFTER, ..LLAMA };
