//! Back ends: each writes the selected tensors in one output format.

pub(crate) mod carton;
pub(crate) mod carton_fields;
mod folder;
pub(crate) mod safetensors;
pub(crate) mod self_test;
mod stream;
pub(crate) mod ties;
pub(crate) mod torch;
pub(crate) mod triton;

use std::path::Path;

use decoder::Decoder;
use sources::Sources;
use tensor::Tensor;
use torch_import::{Compound, CompoundKind, Container};
use torchscript::Converted;

use crate::cast::Casts;
use crate::{ConvertOptions, Error, Names, Note, Observer, Result, observer};

/// The most tensors that a note or an error names.
const SHOWN: usize = 4;

/// What every back end gets.
pub(crate) struct Job<'j> {
    pub(crate) options: &'j ConvertOptions,
    pub(crate) sources: &'j Sources,
    pub(crate) containers: &'j [Container],
    /// The file or folder to write.
    pub(crate) target: &'j Path,
    pub(crate) tensors: &'j [(String, Tensor)],
    /// The decoder whose tensors they are, if that is known without documents.
    pub(crate) decoder: Option<&'j Decoder>,
    /// The document that describes the tensors in place of those next to the checkpoint: the name of its file, and its text.
    pub(crate) document: Option<(&'static str, String)>,
    /// The compound tensors that some of them are parts of, by name.
    pub(crate) compounds: &'j [(String, Compound)],
    pub(crate) values: Values,
    pub(crate) casts: &'j Casts,
    /// The module that the input already is, if its code is kept.
    pub(crate) script: Option<Box<Converted>>,
    pub(crate) observer: &'j dyn Observer,
}

/// The values of a checkpoint that are not tensors.
pub(crate) struct Values {
    /// How many there are that are worth a note.
    pub(crate) count: usize,
    /// All of them as a document, if the back end keeps them.
    pub(crate) document: Option<String>,
}

impl Job<'_> {
    /// Counts what is out of range in the tensors that were written, and fails if a file that they are in changed since it
    /// was opened. A back end calls this before its output appears.
    pub(crate) fn check_unchanged(&self) -> std::io::Result<()> {
        self.casts.count(&|| observer::check(self.observer))?;
        self.containers.iter().try_for_each(Container::check_unchanged)
    }

    /// Sends the notes to the observer. A back end does so before it writes.
    pub(crate) fn announce(&self, notes: &[Note]) {
        for note in notes {
            self.observer.note(note);
        }
    }

    /// The compound tensors whose parts mean nothing without what joins them, and what they are: a format of plain tensors
    /// has no room for them.
    pub(crate) fn inseparable(&self) -> impl Iterator<Item = (String, String)> {
        self.compounds.iter().filter_map(|(name, compound)| {
            let what = match &compound.kind {
                CompoundKind::Quantized { .. } => "quantized".to_owned(),
                CompoundKind::Sparse { layout } => layout.clone(),
                CompoundKind::Nested => "nested".to_owned(),
                CompoundKind::Jagged => "jagged".to_owned(),
                // Its parts are tensors like others.
                CompoundKind::Subclass { .. } | CompoundKind::Meta { .. } => return None,
                _ => "of several parts".to_owned(),
            };
            Some((name.clone(), what))
        })
    }

    /// Whether a document next to the checkpoint does not describe the tensors of this output.
    pub(crate) fn is_replaced(&self, document: &str) -> bool {
        let replaced = self.options.names.map(Names::replaced_documents).unwrap_or_default();
        self.document.as_ref().is_some_and(|(name, _)| *name == document) || replaced.contains(&document)
    }

    /// An error of the whole input.
    pub(crate) fn error(&self, error: Error) -> Error {
        Error::at(self.sources.root())(error)
    }
}

/// What a back end wrote.
pub(crate) struct Made<R> {
    /// Bytes of all files.
    pub(crate) nbytes: u64,
    /// The members of the report that only this kind of output has.
    pub(crate) report: R,
}

/// The result of a back end's work.
pub(crate) type Outcome<R> = Result<Made<R>>;
