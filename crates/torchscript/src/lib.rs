//! TorchScript archives written by hand: named tensors in, a runnable `model.pt` out, no libtorch.
//!
//! An archive is a zip file of a pickled module tree (`data.pkl`), the source text of its classes
//! (`code/`), and one record of bytes a storage (`data/`). [`weights`] makes one that hands any
//! checkpoint's tensors out by name, [`model`] one that runs, and [`auto`] whichever fits. All keep the
//! tensors under their own names with their dtypes, shapes, strides and shared storages.
//!
//! ```
//! use tensor::{Dtype, Storage, Tensor};
//!
//! let storage = Storage::owned(vec![0; 24]);
//! let tensor = Tensor::new(Dtype::BFloat16, vec![3, 4], vec![4, 1], 0, storage)?;
//! let converted = torchscript::weights(&[("output.weight".to_owned(), tensor)])?;
//! assert_eq!(converted.outputs[0].dtype, Dtype::Float32); // Carton has no bfloat16
//! assert_eq!(converted.archive.records()[0].name(), "model/data/0");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Facts: torch's sources, named in each file, and archives that were loaded and run in PyTorch 2.0.1, the
//! version inside of Carton's runner, and 2.15, the newest.

mod archive;
mod code;
mod error;
mod export;
mod module;
mod pickler;
mod record;
mod source;

pub use archive::Archive;
pub use code::weights::weights;
pub use code::{About, Asked, architectures, auto, model};
pub use error::{Error, Fact, Result};
pub use record::{Record, loads_in_2_0};

use tensor::Dtype;

/// What became of a checkpoint.
#[derive(Debug)]
pub struct Converted {
    /// `model.pt`.
    pub archive: Archive,
    /// What the module's `forward` asks for; a weights module asks for nothing.
    pub inputs: Vec<Port>,
    /// What it answers.
    pub outputs: Vec<Port>,
    /// What a user should know about the result, one sentence each.
    pub notes: Vec<String>,
    /// What the module is.
    pub kind: Kind,
    /// Why [`auto`] made weights of it.
    pub why: Option<String>,
}

/// What a module is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Tensors by name.
    Weights,
    /// Tokens in, logits out.
    Model {
        /// The architecture, such as `llama`.
        name: &'static str,
    },
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Weights => "weights",
            Self::Model { name } => name,
        })
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
    /// What it is, where the name does not say it.
    pub description: Option<String>,
    /// Whether it may be left out.
    pub optional: bool,
}

/// One dimension of a [`Port`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dim {
    /// Any size, the same wherever this symbol stands.
    Symbol(String),
    /// This many elements.
    Size(u64),
}
