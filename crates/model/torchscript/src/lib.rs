//! Writer of TorchScript archives without libtorch: turns named tensors into a runnable `model.pt`.
//!
//! An archive is a zip file of a pickled module tree (`data.pkl`), the source text of its classes (`code/`), and one record
//! of bytes for each storage (`data/`). [`weights_module`] makes a module that returns any checkpoint's tensors by name, [`decoder_module`]
//! a module that runs a decoder, and [`detect_module`] chooses between the two. Their `forward` takes and returns a dict;
//! [`positional_decoder_module`] makes a decoder whose `forward` takes and returns tensors. [`wrap_script`] wraps the module of an existing
//! archive so that it can be called by name, [`wrap_positional_script`] so that it takes and returns tensors. All of them keep the tensors under their own names with their dtypes, shapes,
//! strides and shared storages. The crate `decoder` reads documents and tensor names; this crate writes source text and
//! archives.
//!
//! ```
//! use tensor::{Dtype, Storage, Tensor};
//!
//! let storage = Storage::owned(vec![0; 24]);
//! let tensor = Tensor::new(Dtype::BFloat16, vec![3, 4], vec![4, 1], 0, storage)?;
//! let tensors = [("output.weight".to_owned(), tensor)].into();
//! let converted = torchscript::weights_module(&tensors, torchscript::OnInvalidInput::Return)?;
//! let outputs: Vec<_> = converted.outputs.ports(&tensors).collect();
//! assert_eq!(outputs[0].dtype, Dtype::Float32); // Carton has no bfloat16
//! assert_eq!(converted.archive.records()[0].name(), "model/data/0");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Facts: torch's sources, named in each file, and archives that were loaded and run in PyTorch 2.0.1, the
//! version in Carton's runner, and 2.15, the newest.

mod archive;
mod code;
mod error;
mod export;
mod module_tree;
mod note;
mod pickler;
mod record;
pub mod script_text;
mod source_names;
mod wrap;

pub use archive::{ArchiveDifference, ScriptArchive};
pub use byte_source::{Error, Result};
pub use code::recognise::{Recognised, RecognisedModel, recognise};
pub use code::weights::weights_module;
pub use code::{decoder_module, detect_module, positional_decoder_module};
pub use error::Problem;
pub use export::output_dtype;
pub use note::{FlatReason, ModuleNote};
pub use record::{DataRecord, check_loads_in_2_0};
pub use wrap::{
    DeclaredInput, DeclaredOutput, ScriptOptions, Uncallable, WrapOutcome, is_kept_record, unwrap_script,
    wrap_positional_script, wrap_script,
};

use decoder::{Decoder, NoModelReason};
use serde::{Deserialize, Serialize};
use tensor::{Dtype, Tensors};

/// TorchScript module made of a checkpoint, with its inputs, outputs and notes.
#[derive(Debug)]
pub struct Module {
    /// Contents of the file `model.pt`.
    pub archive: ScriptArchive,
    /// Inputs of the module's `forward`; empty for a weights module.
    pub inputs: Vec<ModulePort>,
    pub outputs: ModuleOutputs,
    pub notes: Vec<ModuleNote>,
    pub code: ModuleCode,
}

/// Reaction of `forward` to invalid inputs. An exception ends the process of Carton's runner, and its client waits forever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum OnInvalidInput {
    /// Return a dict with the message as `error`
    #[default]
    Return,
    /// Raise an exception
    Raise,
}

/// Name of the output that holds the message about invalid inputs.
pub(crate) const ERROR_OUTPUT: &str = "error";

/// Outputs of a module's `forward`.
#[derive(Debug)]
pub struct ModuleOutputs(OutputPorts);

#[derive(Debug)]
enum OutputPorts {
    /// Every tensor of the checkpoint, under its own name.
    Tensors,
    Ports(Vec<ModulePort>),
}

impl ModuleOutputs {
    /// Returns the outputs of the module that was made of `tensors`. Ports of tensors are created on demand, because there
    /// may be a million of them.
    pub fn ports<'c>(&'c self, tensors: &'c Tensors) -> impl Iterator<Item = ModulePort> + 'c {
        let (ports, tensors) = match &self.0 {
            OutputPorts::Tensors => ([].as_slice(), tensors.as_slice()),
            OutputPorts::Ports(ports) => (ports.as_slice(), [].as_slice()),
        };
        // `weights` has checked that each tensor has a port.
        let of_tensors = tensors.iter().filter_map(|(name, tensor)| export::tensor_port(name, tensor).ok());
        ports.iter().cloned().chain(of_tensors)
    }
}

/// Computation of a module: a decoder, an archive's own code, or none.
#[derive(Debug)]
#[non_exhaustive]
pub enum ModuleCode {
    /// No computation: the module returns tensors by name.
    Weights {
        /// Reason why [`detect_module`] made no model; `None` if the caller asked for weights.
        why: Option<NoModelReason>,
    },
    /// The computation of the wrapped TorchScript module.
    Script {
        /// Signature of the original `forward`.
        signature: String,
    },
    /// Decoder that computes logits from tokens.
    Decoder(Box<Decoder>),
}

impl ModuleCode {
    /// Name of modules that return weights.
    pub const WEIGHTS: &str = "weights";
    /// Name of modules that wrap an existing TorchScript module.
    pub const SCRIPT: &str = "script";

    /// Returns the name of the decoder's architecture, or [`WEIGHTS`](Self::WEIGHTS) or [`SCRIPT`](Self::SCRIPT).
    pub fn name(&self) -> &'static str {
        match self {
            Self::Weights { .. } => Self::WEIGHTS,
            Self::Script { .. } => Self::SCRIPT,
            Self::Decoder(decoder) => decoder.architecture().name(),
        }
    }
}

/// Input or output of `forward`: a named tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModulePort {
    /// Key in the dict of inputs or outputs.
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<Dim>,
    /// Meaning of the tensor, where the name does not tell it.
    pub description: Option<String>,
    /// True if the tensor can be absent.
    pub optional: bool,
}

/// Dimension of a [`ModulePort`]: a symbol or a fixed size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dim {
    /// Symbolic size, which is equal wherever the symbol occurs.
    Symbol(String),
    /// Fixed size, in elements.
    Size(u64),
}
