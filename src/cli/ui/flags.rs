//! Command-line flags for hyperparameters and for notes of the libraries, which do not know the flags.

use pipeline::Fact;
use torchscript::Note;

/// Returns the flag that gives a hyperparameter.
pub(crate) fn option(fact: Fact) -> &'static str {
    match fact {
        Fact::Heads => "--n-heads",
        Fact::RopeTheta => "--rope-theta",
        Fact::RopeFactor => "--rope-factor",
        Fact::NormEps => "--norm-eps",
    }
}

/// Returns the text of a note, with the flag that helps if there is one.
pub(crate) fn note(note: &Note) -> String {
    match note {
        Note::Decoder(decoder::Note::NamesOfLlama) => {
            format!("{note}; `--arch llama` says what else it needs to run")
        }
        Note::UnlistedInputs { names } => {
            let name = names.first().map_or("NAME", String::as_str);
            format!("{note}; `--input {name}=float32[batch,3]` would")
        }
        note => note.to_string(),
    }
}
