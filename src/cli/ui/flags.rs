//! Command-line flags for hyperparameters and for notes of the libraries, which do not know the flags.

use convert::{HyperparameterKind, ModelChange};
use torchscript::ModuleNote;

use super::shell::shell_quoted;

pub(crate) fn hyperparameter_flag(fact: HyperparameterKind) -> &'static str {
    match fact {
        HyperparameterKind::Heads => "--n-heads",
        HyperparameterKind::RopeTheta => "--rope-theta",
        HyperparameterKind::RopeFactor => "--rope-factor",
        HyperparameterKind::NormEps => "--norm-eps",
    }
}

pub(crate) fn change_flags(change: ModelChange) -> &'static str {
    match change {
        ModelChange::Selection => "--key, --include, --exclude, --strip-prefix",
        ModelChange::Renames => "--rename",
        ModelChange::Sum => "--add, --average",
        ModelChange::Merge => "--merge",
        ModelChange::Dequantize => "--dequantize",
        ModelChange::Casts => "--dtype, --cast",
        ModelChange::Model => "--arch, --keep-extra, --n-heads, --rope-theta, --rope-factor, --norm-eps",
    }
}

/// Returns the text of a note, with the flag that helps if there is one.
pub(crate) fn module_note_text(note: &ModuleNote) -> String {
    match note {
        ModuleNote::Decoder(decoder::DecoderNote::LlamaNames) => {
            format!("{note}; `--arch llama` says what else it needs to run")
        }
        ModuleNote::UnlistedInputs { names } => {
            let name = names.first().map_or("NAME", String::as_str);
            format!("{note}; `--input {name}=DTYPE[SHAPE]` would, such as {name}=float32[batch,3]")
        }
        ModuleNote::BFloat16Inputs { names } => {
            let name = names.first().map_or("NAME", String::as_str);
            format!("{note}; `--input {name}=bfloat16[batch,3]` makes the module cast it")
        }
        ModuleNote::NewerOperators { names }
            if names.iter().any(|name| name.starts_with("aten::scaled_dot_product_attention(")) =>
        {
            format!(
                "{note}; a trace of a `transformers` model that was loaded with `attn_implementation=\"eager\"` does \
                 without scaled_dot_product_attention"
            )
        }
        note => note.to_string(),
    }
}

pub(crate) fn exclude_advice(tensor: &str) -> String {
    format!("; leave it out with --exclude {}", shell_quoted(&glob_literal(tensor)))
}

/// Returns a glob that matches only `name`.
pub(crate) fn glob_literal(name: &str) -> String {
    let mut pattern = String::with_capacity(name.len());
    for c in name.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}
