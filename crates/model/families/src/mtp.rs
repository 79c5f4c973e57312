//! Heads that predict several tokens, which a configuration declares by writing their number.

use std::cell::RefCell;

use serde_json::Value;

use crate::config::Config;
use crate::families::{self, qwen_mtp};
use crate::family::Body;
use crate::heads::Head;
use crate::indices::Indices;
use crate::tree::{Scope, TensorPattern};

/// Largest number of layers of such heads.
const LAYERS_MAX: u64 = 64;

/// Returns the tensors of the heads that a configuration declares. A class's default declares none.
pub(crate) fn entries(c: &Config<'_>, head: Head) -> Vec<TensorPattern> {
    let declared = |key: &str| c.written(key).and_then(Value::as_u64).unwrap_or_default().min(LAYERS_MAX);
    let entries = RefCell::new(Vec::new());
    match c.model_type.as_str() {
        "qwen3_next" | "qwen3_5_text" | "qwen3_5_moe_text" => {
            let layers = declared("mtp_num_hidden_layers").max(declared("num_nextn_predict_layers"));
            if layers > 0 {
                qwen_mtp(c, &Scope::new(&entries, "mtp.").part("mtp"), layers);
            }
        }
        "deepseek_v3" | "glm4_moe" | "glm4_moe_lite" => {
            if let Some(family) = families::find(&c.model_type)
                && let Body::Decoder(decoder) = family.body
            {
                let first = u32::try_from(c.count("num_hidden_layers")).unwrap_or_default();
                let layers = u32::try_from(declared("num_nextn_predict_layers")).unwrap_or_default();
                let layers = Indices::Range(first, first.saturating_add(layers));
                let prefix = if head == Head::None { "" } else { "model." };
                let s = Scope::new(&entries, prefix).part("mtp");
                decoder.add_layers(c, &s, &layers);
                let (l, hidden, vocab) =
                    (s.each("layers", &layers), c.size("hidden_size"), c.size("vocab_size"));
                for norm in ["enorm", "hnorm", "shared_head.norm"] {
                    l.module(norm, &[hidden], false);
                }
                l.tensor("eh_proj.weight", &[hidden, hidden * 2]);
                l.optional("embed_tokens.weight", &[vocab, hidden]);
                l.optional("shared_head.head.weight", &[vocab, hidden]);
            }
        }
        _ => {}
    }
    entries.take()
}
