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

/// Returns true for a name, a path or a number, which does nothing if Python runs it.
pub(super) fn is_plain_value(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || "_-./: ".contains(c)) && !text.contains("import")
}

/// Returns true for the name of an argument that fairseq evaluates.
pub(super) fn is_evaluated(argument: &str) -> bool {
    EVALUATED.binary_search(&argument).is_ok()
}

/// Returns true for the address of a file on a web server. Python can't run such a text.
pub(super) fn is_address(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

/// Returns true for the name of a library, as ONNX Runtime loads those of `custom_ops_library`.
pub(super) fn names_native_code(text: &str) -> bool {
    let file = text.rsplit(['/', '\\']).next().unwrap_or_default();
    let (_, extensions) = file.split_once('.').unwrap_or_default();
    // `libx.so.1` has a version.
    let extension = extensions.rsplit('.').find(|part| !part.bytes().all(|byte| byte.is_ascii_digit()));
    extension.is_some_and(|extension| {
        ["so", "dylib", "dll", "pyd"].iter().any(|it| extension.eq_ignore_ascii_case(it))
    })
}

/// Returns true for a text that is false in YAML, or that a program reads as false.
pub(super) fn is_off(text: &str) -> bool {
    ["0", "~", "false", "n", "no", "none", "null", "off"].iter().any(|off| text.eq_ignore_ascii_case(off))
}

/// Returns true for the path of a shard that is not in the folder of its index or below it.
pub(in crate::scan) fn leads_out(path: &str) -> bool {
    path.starts_with(['/', '\\']) || path.contains(':') || path.split(['/', '\\']).any(|part| part == "..")
}

/// Returns true for a command whose output Kaldi's readers take for a file, such as `gunzip -c a.gz |`.
pub(super) fn is_pipe(text: &str) -> bool {
    let is_command = |text: &str| {
        text.contains(' ')
            && text.starts_with(|first: char| first.is_ascii_alphanumeric() || "./~".contains(first))
    };
    let command = text.trim().strip_suffix('|').map(str::trim_end);
    text.starts_with("pipe:") || !text.contains(['\n', '{']) && command.is_some_and(is_command)
}

/// Returns a text as messages show it: without control characters, and with its quotes as they are.
pub(super) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '"' | '\'') { shown.push(c) } else { shown.extend(c.escape_debug()) }
    }
    truncate_name(shown)
}
