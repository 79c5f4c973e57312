//! Helium: LLaMA without a bias of the output of attention.

use crate::decoder::{Bias, Decoder, LLAMA};
use crate::family::{Row, family};

pub(super) const ROWS: &[Row] = &[(&["helium"], family(&HELIUM, &[]))];

const HELIUM: Decoder = Decoder { out_bias: Bias::No, ..LLAMA };
