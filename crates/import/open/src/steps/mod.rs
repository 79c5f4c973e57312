//! What is done to the tensors of a model: steps, which are values that a program puts in an order.
//!
//! ```
//! use open::{CastOptions, Context, Model, OpenOptions, Rename, Selection, Step};
//! use tensor::Dtype;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("model.safetensors");
//! # let header = br#"{"a.w":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},"b.w":{"dtype":"F16","shape":[0],"data_offsets":[2,2]}}"#;
//! # std::fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header, &[0, 60]].concat())?;
//! let mut options = OpenOptions::default();
//! options.inputs = vec![path.into()];
//! let mut model = Model::open(&options, &())?;
//! // A conversion selects before it renames. Here the pattern is about the new names.
//! let to_encoder = Rename { pattern: "^a".to_owned(), to: "encoder".to_owned() };
//! let steps: [Box<dyn Step>; 3] = [
//!     Box::new(vec![to_encoder]),
//!     Box::new(Selection::default().include("encoder.*")),
//!     Box::new(CastOptions { dtype: Some(Dtype::Float32.into()), ..CastOptions::default() }),
//! ];
//! model.apply(&steps, &Context::new(&()))?;
//! let (name, tensor) = model.tensors().get_index(0).expect("one tensor is selected");
//! assert_eq!((name, tensor.dtype()), ("encoder.w", Dtype::Float32));
//! # assert_eq!(model.tensors().len(), 1);
//! # Ok(())
//! # }
//! ```

pub(crate) mod adapter_overview;
mod added_tokens;
pub(crate) mod blocks;
pub(crate) mod cast;
mod cast_groups;
pub(crate) mod cast_options;
pub(crate) mod complete;
pub(crate) mod dequantize;
pub(crate) mod family;
mod left_out;
pub(crate) mod merge;
pub(crate) mod name_patterns;
pub(crate) mod part;
pub(crate) mod rename;
pub(crate) mod select;
pub(crate) mod sum;
pub(crate) mod translate;
mod translated_base;
mod twins;
pub(crate) mod whole;

use std::fmt;
use std::path::Path;

use adapter::{MergeReports, SumReport};
use byte_source::{Observer, Stores};
use decoder::Overrides;

use crate::files::ShardPolicy;
use crate::{AllowedGlobals, Casts, DequantizedReport, Model, OpenOptions, Result};

/// Change of the tensors of a model.
///
/// [`Selection`](crate::Selection), [`CastOptions`](crate::CastOptions) and a list of [`Rename`](crate::Rename)s are steps; so are
/// [`Dequantize`](crate::Dequantize), [`Sum`](crate::Sum), [`Merge`](crate::Merge) and [`Translate`](crate::Translate).
pub trait Step: fmt::Debug {
    /// Changes the tensors. Elements are computed when they are read, not here.
    ///
    /// # Errors
    /// When the step does not fit the tensors, another input of it cannot be read, or the observer stops the work.
    fn apply(&self, model: &mut Model, context: &Context<'_>) -> Result<StepReport>;
}

/// What steps need besides the model.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Context<'c> {
    pub observer: &'c dyn Observer,
    /// Hyperparameters of a language model that are missing from its documents.
    pub overrides: Overrides,
    /// Stores of the inputs of steps.
    pub stores: Option<&'c Stores>,
    /// Treatment of an input of a step that is a single shard.
    pub shards: ShardPolicy,
    /// Globals that the pickles of inputs of steps may name.
    pub globals: AllowedGlobals,
}

impl<'c> Context<'c> {
    /// Creates a context for steps without inputs of their own.
    pub fn new(observer: &'c dyn Observer) -> Self {
        let globals = AllowedGlobals::default();
        Self {
            observer,
            overrides: Overrides::default(),
            stores: None,
            shards: ShardPolicy::default(),
            globals,
        }
    }

    /// Returns the options for opening the input at `path` of a step.
    ///
    /// # Errors
    /// When it is at an address that cannot be opened.
    pub fn open_options(&self, path: &Path) -> Result<OpenOptions> {
        let located = self.stores.map_or_else(|| Ok(path.into()), |stores| stores.locate(path));
        let input = located.map_err(|error| error.in_file(&output::shown_path(path)))?;
        Ok(OpenOptions {
            inputs: vec![input],
            shards: self.shards,
            globals: self.globals,
            ..OpenOptions::default()
        })
    }
}

/// What a step did.
#[derive(Debug)]
pub enum StepReport {
    /// Names changed, or fewer tensors are left; notes of the model say which.
    Names,
    /// Numbers replaced the codes of quantized weights.
    Dequantized(Vec<DequantizedReport>),
    Summed(SumReport),
    /// Adapters were merged. Norms are known once the tensors were read.
    Merged(MergeReports),
    /// Tensors were cast. Numbers out of range are counted once the tensors were read.
    Cast(Casts),
}
