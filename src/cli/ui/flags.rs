//! Command-line flags for hyperparameters and for notes of the libraries, which do not know the flags.

use pipeline::HyperparameterKind;
use torchscript::ModuleNote;

/// Returns the flag that gives a hyperparameter.
pub(crate) fn hyperparameter_flag(fact: HyperparameterKind) -> &'static str {
    match fact {
        HyperparameterKind::Heads => "--n-heads",
        HyperparameterKind::RopeTheta => "--rope-theta",
        HyperparameterKind::RopeFactor => "--rope-factor",
        HyperparameterKind::NormEps => "--norm-eps",
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
            format!("{note}; `--input {name}=float32[batch,3]` would")
        }
        note => note.to_string(),
    }
}
