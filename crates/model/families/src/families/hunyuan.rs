//! Hunyuan: LLaMA with norms of queries and keys.

use crate::decoder::{Decoder, HeadNorms, LLAMA};
use crate::family::{Row, family};

pub(super) const ROWS: &[Row] = &[(&["hunyuan_v1_dense"], family(&HUNYUAN, &[]))];

const HUNYUAN: Decoder = Decoder { head_norms: HeadNorms::Head("query_layernorm", "key_layernorm"), ..LLAMA };
