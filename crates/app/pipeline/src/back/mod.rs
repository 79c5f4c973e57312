//! Back ends: each lays out the selected tensors in one output format, and `commit.rs` writes the files of any of them.

pub(crate) mod carton;
pub(crate) mod commit;
mod documents;
mod folder;
pub(crate) mod ports;
pub(crate) mod safetensors;
mod stream;
pub(crate) mod ties;
pub(crate) mod torch;
pub(crate) mod triton;

use std::path::{Path, PathBuf};

use checkpoint_files::{Companion, Shards, Sources};
use decoder::{Decoder, Given};
use output::IfExists;
use tensor::Tensors;
use torch_import::{CompoundKind, Container, Format as ContainerFormat};
use torchscript::Module;

use self::commit::Files;
use crate::notes::Notes;
use crate::{Error, Names, Result};

/// The most tensors that a note or an error names.
const SHOWN: usize = 4;

/// An output format. The options that only this format has implement it.
pub(crate) trait Format {
    /// The members of the report that only this format has.
    type Report
    where
        Self: Sized;

    /// Lays out the files of the output. Reads no weight and creates nothing.
    ///
    /// # Errors
    /// When the format has no room for the tensors, the options do not fit them, or a file that exists must not be replaced.
    fn plan<'p>(&'p self, job: &Job<'p>, kept: Kept, notes: &mut Notes<'_>) -> Result<Plan<'p, Self::Report>>
    where
        Self: Sized;

    /// Checks the options before a file is opened.
    ///
    /// # Errors
    /// When one of them has a value that it cannot have.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Whether the output is a folder, if its path is this one, or is not given.
    fn is_folder(&self, path: Option<&Path>) -> bool;

    /// Whether the output is a folder for the models of several conversions, each in a folder with the model's name.
    fn is_repository(&self) -> bool {
        false
    }

    /// The model's name, if it is given.
    fn model_name(&self) -> Option<&str> {
        None
    }

    /// The layout that the model gets, if it gets another one.
    fn names(&self) -> Option<Names> {
        None
    }

    /// The files that are given to be kept next to the tensors.
    fn misc(&self) -> &[PathBuf] {
        &[]
    }

    /// The file of `output` that is written last.
    fn last_file(&self, output: &Path) -> PathBuf {
        output.to_owned()
    }

    /// Whether the output of an earlier conversion is whole. Hashes are not compared.
    fn is_whole(&self, output: &Path) -> bool;
}

/// The tensors that were selected for an output, and what is known about them.
pub(crate) struct Job<'j> {
    pub(crate) sources: &'j Sources,
    pub(crate) containers: &'j [Container],
    /// Reads a shard alone, or the checkpoint that it is a part of.
    pub(crate) shards: Shards,
    /// Numbers of the model that no document has.
    pub(crate) given: Given,
    /// The file or folder to write.
    pub(crate) target: &'j Path,
    pub(crate) is_folder: bool,
    pub(crate) if_exists: IfExists,
    /// The name that the model gets.
    pub(crate) name: &'j str,
    /// The files to keep: those next to the checkpoint, and those that are given.
    pub(crate) misc: &'j [Companion],
    pub(crate) tensors: &'j Tensors,
    /// The decoder whose tensors they are, if that is known without documents.
    pub(crate) decoder: Option<&'j Decoder>,
    /// The layout that the tensors got.
    pub(crate) names: Option<Names>,
    /// The document that describes the tensors in place of those next to the checkpoint: the name of its file, and its text.
    pub(crate) document: Option<(&'static str, String)>,
    /// The compound tensors that some of them are parts of, by name.
    /// The number of values of the checkpoint that are not tensors and are worth a note.
    pub(crate) values: usize,
}

/// The parts of a checkpoint that are not tensors, for an output that keeps them.
#[derive(Default)]
pub(crate) struct Kept {
    /// The module that the input already is, if its code is kept.
    pub(crate) script: Option<Box<Module>>,
    /// The values that are not tensors, as a document.
    pub(crate) values: Option<String>,
}

/// An output that is laid out and not written.
pub(crate) struct Plan<'p, R> {
    pub(crate) files: Files<'p>,
    /// Makes the report once the files are written, or were dropped after a dry run.
    pub(crate) report: Box<dyn FnOnce() -> R + 'p>,
}

impl<'p, R: 'p> Plan<'p, R> {
    /// The same plan with another report.
    pub(crate) fn map<S>(self, report: impl FnOnce(R) -> S + 'p) -> Plan<'p, S> {
        let Self { files, report: make } = self;
        Plan { files, report: Box::new(|| report(make())) }
    }
}

impl Job<'_> {
    /// The compound tensors that a format of plain tensors cannot represent, with their kinds.
    pub(crate) fn inseparable(&self) -> impl Iterator<Item = (String, String)> {
        self.tensors.compounds().iter().filter_map(|compound| {
            let what = match &compound.kind {
                CompoundKind::Quantized { .. } => "quantized".to_owned(),
                CompoundKind::Sparse { layout } => layout.clone(),
                CompoundKind::Nested => "nested".to_owned(),
                CompoundKind::Jagged => "jagged".to_owned(),
                // Its parts are tensors like others.
                CompoundKind::Subclass { .. } | CompoundKind::Meta { .. } => return None,
            };
            Some((compound.name.clone(), what))
        })
    }

    /// Whether a document next to the checkpoint does not describe the tensors of this output.
    pub(crate) fn is_replaced(&self, document: &str) -> bool {
        let replaced = self.names.map(Names::replaced_documents).unwrap_or_default();
        self.document.as_ref().is_some_and(|(name, _)| *name == document) || replaced.contains(&document)
    }

    /// An error of the whole input.
    pub(crate) fn error(&self, error: Error) -> Error {
        Error::at(self.sources.root())(error)
    }
}

/// Whether an input has code.
pub(crate) fn has_code(containers: &[Container]) -> bool {
    containers.iter().any(|container| container.format() == ContainerFormat::TorchScript)
}

/// Whether the directory or header of each file of the checkpoint at `path` can be read.
fn is_checkpoint(path: &Path) -> bool {
    let sources = Sources::find(&[path.to_owned()], Shards::Complete);
    sources.is_ok_and(|sources| sources.open().is_ok())
}
