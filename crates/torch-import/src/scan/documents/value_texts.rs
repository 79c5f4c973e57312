//! Texts in documents that programs run or open, under any key.

use crate::scan::budget::truncate_name;

/// Arguments that fairseq gives to `eval`, sorted. Its own values have brackets and numbers: `[(512, 10, 5)] + [(512, 3, 2)] * 4`.
const EVALUATED: [&str; 27] = [
    "adafactor_eps",
    "adam_betas",
    "adamax_betas",
    "character_filters",
    "conv_aggregator_layers",
    "conv_dec_config",
    "conv_enc_config",
    "conv_feature_layers",
    "decoder_attention",
    "decoder_layers",
    "downsample",
    "encoder_attention",
    "encoder_layers",
    "feature_encoder_spec",
    "gated_attention",
    "lamb_betas",
    "model_overrides",
    "override_encoder_layers",
    "pretrained",
    "project_input",
    "self_attention",
    "transformer_context",
    "transformer_dec_config",
    "transformer_enc_config",
    "transformer_sampling",
    "vggblock_enc_config",
    "wer_args",
];

/// Returns true for a text that MONAI gives to `eval` or `exec`: `$` and an import, or a call of something that is not a number.
pub(super) fn is_python_text(text: &str) -> bool {
    let Some(code) = text.strip_prefix('$') else { return false };
    ["import ", "from "].iter().any(|start| code.trim_start().starts_with(start)) || calls_something(code)
}

/// Returns true for an expression of Python with a call, such as `[f(512)] * 4`; `[(512, 10, 5)] * 4` has none.
pub(super) fn calls_something(expression: &str) -> bool {
    let is_called = |at: usize| {
        let before = expression.get(..at).unwrap_or_default().trim_end();
        let name = before.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
        before.ends_with([')', ']']) || name.starts_with(|first: char| !first.is_numeric())
    };
    expression.match_indices('(').any(|(at, _)| is_called(at))
}

/// Returns true for a name, a path or a number, which does nothing if Python runs it.
pub(super) fn is_plain_value(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || "_-./: ".contains(c)) && !text.contains("import")
}

/// Returns true for the name of an argument that fairseq evaluates.
pub(super) fn is_evaluated(argument: &str) -> bool {
    EVALUATED.binary_search(&argument).is_ok()
}

/// Returns true for a text that is meant to run if something evaluates it: no program writes such names into its data.
pub(super) fn reaches_code(text: &str) -> bool {
    let names = ["__import__", "__builtins__", "__globals__", "__subclasses__", "__loader__"];
    text.contains('(') && names.iter().any(|name| text.contains(name)) && calls_something(text)
}

/// Returns true for the address of a file on a web server. Python can't run such a text.
pub(super) fn is_address(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

/// Returns true for the name of a library, as ONNX Runtime loads those of `custom_ops_library`.
pub(super) fn names_native_code(text: &str) -> bool {
    let extension = text.rsplit_once('.').map_or("", |(_, extension)| extension);
    ["so", "dylib", "dll", "pyd"].iter().any(|it| extension.eq_ignore_ascii_case(it))
}

/// Returns true for the key of arguments that a program gives to another one.
pub(super) fn names_arguments(key: &str) -> bool {
    ["args", "config", "kwargs"].iter().any(|end| key.ends_with(end))
}

/// Returns true for the path of a shard that is not in the folder of its index or below it.
pub(in crate::scan) fn leads_out(path: &str) -> bool {
    path.starts_with(['/', '\\']) || path.contains(':') || path.split(['/', '\\']).any(|part| part == "..")
}

/// Returns a text as messages show it.
pub(super) fn shown(text: &str) -> String {
    truncate_name(text.escape_debug().to_string())
}
