//! The inputs and outputs of a decoder.

use decoder::Decoder;
use tensor::Dtype;

use crate::{Dim, Port};

/// What `forward` takes and what it returns.
pub(super) fn ports(decoder: &Decoder) -> (Vec<Port>, Vec<Port>) {
    let symbol = |name: &str| Dim::Symbol(name.to_owned());
    let port = |name: &str, dtype, shape, description: String, optional| Port {
        name: name.to_owned(),
        dtype,
        shape,
        description: Some(description),
        optional,
    };
    let batch_seq = || vec![symbol("batch"), symbol("seq")];
    let cache = |tokens: &str| {
        let (heads, head_dim) = (Dim::Size(decoder.n_kv_heads()), Dim::Size(decoder.head_dim()));
        vec![Dim::Size(decoder.n_layers()), symbol("batch"), symbol(tokens), heads, head_dim]
    };
    let past = |name: &str, of: &str| {
        port(
            name,
            Dtype::Float32,
            cache("past"),
            format!("{of}s of the preceding tokens, as returned in present_{of}"),
            true,
        )
    };
    let present = |name: &str, of: &str| {
        let description =
            format!("{of}s of all tokens so far; returned if use_cache is on or past_key is present");
        port(name, Dtype::Float32, cache("total"), description, true)
    };
    let flag = |name: &str, what: &str| {
        port(name, Dtype::Int64, Vec::new(), format!("if present and not 0, {what}"), true)
    };
    let inputs = vec![
        port(
            "tokens",
            Dtype::Int64,
            batch_seq(),
            format!("token ids below {}; a tensor with one dimension is a batch of one", decoder.vocab()),
            false,
        ),
        flag("last_only", "logits are returned for the last token only"),
        flag("use_cache", "present_key and present_value are returned"),
        past("past_key", "key"),
        past("past_value", "value"),
    ];
    let mut logits = batch_seq();
    logits.push(Dim::Size(decoder.vocab()));
    let outputs = vec![
        port(
            "logits",
            Dtype::Float32,
            logits,
            "scores for the token that follows each position".to_owned(),
            false,
        ),
        present("present_key", "key"),
        present("present_value", "value"),
    ];
    (inputs, outputs)
}
