//! TorchScript archives written by hand: named tensors in, a runnable `model.pt` out, no libtorch.
//!
//! An archive is a zip file of a pickled module tree (`data.pkl`), the source text of its classes
//! (`code/`), and one record of bytes for each storage (`data/`). [`weights`] makes one that returns
//! any checkpoint's tensors by name, [`model`] one that runs, and [`auto`] whichever fits. Their `forward` takes and
//! returns a dict; [`positional`] makes a model whose `forward` takes and returns tensors. [`script`] makes the module of an
//! archive callable by name. All keep the tensors
//! under their own names with their dtypes, shapes, strides and shared storages. The crate `decoder` reads
//! documents and names; this one writes text and archives.
//!
//! ```
//! use tensor::{Dtype, Storage, Tensor};
//!
//! let storage = Storage::owned(vec![0; 24]);
//! let tensor = Tensor::new(Dtype::BFloat16, vec![3, 4], vec![4, 1], 0, storage)?;
//! let tensors = [("output.weight".to_owned(), tensor)].into();
//! let converted = torchscript::weights(&tensors, torchscript::Errors::Return)?;
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
mod module;
mod note;
mod pickler;
mod record;
mod source;
mod wrap;

pub use archive::{Archive, Difference};
pub use code::recognise::{Model, Recognised, recognise};
pub use code::weights::weights;
pub use code::{auto, model, positional};
pub use error::{Error, Result};
pub use export::exported;
pub use note::{Note, WhyFlat};
pub use record::{Record, loads_in_2_0};
pub use wrap::{Declared, ScriptOptions, Scripted, Uncallable, is_kept, script};

use decoder::{Decoder, WhyWeights};
use tensor::{Dtype, Tensors};

/// The module that a checkpoint became.
#[derive(Debug)]
pub struct Module {
    /// `model.pt`.
    pub archive: Archive,
    /// What the module's `forward` takes; nothing for a weights module.
    pub inputs: Vec<Port>,
    /// What it returns.
    pub outputs: Outputs,
    /// What a user should know about the result.
    pub notes: Vec<Note>,
    /// What it computes.
    pub code: Code,
}

/// What `forward` does with wrong inputs. An exception ends the process of Carton's runner, and its client waits forever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Errors {
    /// It returns a dict with the message as `error`.
    #[default]
    Return,
    /// It raises an exception with the message.
    Raise,
}

/// What the `forward` of a module returns.
#[derive(Debug)]
pub struct Outputs(Returns);

#[derive(Debug)]
enum Returns {
    /// The tensors under their names.
    Tensors,
    Ports(Vec<Port>),
}

impl Outputs {
    /// The outputs of the module that was made of `tensors`. Those of tensors are made when they are needed, because
    /// there may be a million of them.
    pub fn ports<'c>(&'c self, tensors: &'c Tensors) -> impl Iterator<Item = Port> + 'c {
        let (ports, tensors) = match &self.0 {
            Returns::Tensors => ([].as_slice(), tensors.as_slice()),
            Returns::Ports(ports) => (ports.as_slice(), [].as_slice()),
        };
        // `weights` has checked that there is a port for each.
        let of_tensors = tensors.iter().filter_map(|(name, tensor)| export::port(name, tensor).ok());
        ports.iter().cloned().chain(of_tensors)
    }
}

/// What a module computes.
#[derive(Debug)]
#[non_exhaustive]
pub enum Code {
    /// Nothing: it returns tensors by name.
    Weights {
        /// Why [`auto`] made such a module; `None` if it was asked for.
        why: Option<WhyWeights>,
    },
    /// What the TorchScript module of the archive computes.
    Script {
        /// The signature of the `forward` that is called.
        signature: String,
    },
    /// Logits from tokens.
    Decoder(Box<Decoder>),
}

impl Code {
    /// The name of modules of weights.
    pub const WEIGHTS: &str = "weights";
    /// The name of modules that the archive already had.
    pub const SCRIPT: &str = "script";

    /// Returns the name of the architecture, or one of the other two names.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Weights { .. } => Self::WEIGHTS,
            Self::Script { .. } => Self::SCRIPT,
            Self::Decoder(decoder) => decoder.architecture().name(),
        }
    }
}

/// One input or output of `forward`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its key in the dict.
    pub name: String,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its dimensions, in elements.
    pub shape: Vec<Dim>,
    /// What it is, if the name does not say it.
    pub description: Option<String>,
    /// Whether it can be omitted.
    pub optional: bool,
}

/// One dimension of a [`Port`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dim {
    /// Any size, the same wherever this symbol is used.
    Symbol(String),
    /// This many elements.
    Size(u64),
}
