//! Opens inputs, and changes their tensors: a checkpoint file, shards, a trainer's folder or a carton becomes one [`Model`], and
//! [`Step`]s select, rename, dequantize, sum, merge, translate and cast its tensors.
//!
//! ```
//! use open::{Context, Model, OpenOptions, Selection, Step, files::ShardPolicy};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("model.safetensors");
//! # let header = br#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
//! # std::fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header, &[7]].concat())?;
//! let mut model = Model::open(&OpenOptions::reading(vec![path.into()], ShardPolicy::RequireAll), &())?;
//! model.apply(&[Box::new(Selection::default().include("a*")) as Box<dyn Step>], &Context::new(&()))?;
//! for (name, tensor) in model.tensors().iter() {
//!     println!("{name} {:?}", tensor.shape());
//! }
//! # assert_eq!(model.tensors().len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! [`files`] finds the files of a checkpoint, and [`trainers`] joins what the ranks of a training wrote. Nothing of a tensor is read
//! before an output, a listing or a digest asks for its elements.

mod carton;
mod digest;
mod error;
mod error_text;
pub mod files;
mod globals;
mod model;
mod note;
mod options;
mod steps;
mod totals;
pub mod trainers;
mod values;
mod weights;

pub use adapter::{AdapterReport, MergeKind, MergeReports, MergedTensor, SumReport, SummedFile};
pub use byte_source::{Error, Result};
pub use carton::own_tensors::own_tensors;
pub use carton::{CartonInput, open_model, read_model};
pub use digest::{TensorContent, TensorsDigest, digest_tensors};
pub use error::{Problem, in_carton, name_damaged_tensor};
pub use gguf_model::HuggingFaceModel;
pub use globals::AllowedGlobals;
pub use model::{
    DEFAULT_MAX_EXPANSION, FoundInput, Model, OpenCarton, OpenOptions, allowed_nbytes, find_sources,
};
pub use note::Note;
pub use options::invalid_option::InvalidOption;
#[cfg(feature = "cli")]
pub use options::invalid_option::flag;
pub use options::json::{add_options, changed_options, set_options, to_object};
#[doc(hidden)]
pub use options::path_json;
pub use options::size_text::{self, parse_size};
pub use steps::adapter_overview::{AdapterOverview, refuse_adapter};
pub use steps::blocks::CastToBlocks;
pub use steps::cast::{CastReport, Casts};
pub use steps::cast_options::{Cast, CastFrom, CastOptions, WantedDtype, check_casts};
pub use steps::complete::Complete;
pub use steps::dequantize::{
    Dequantize, DequantizedReport, add_header, encode_descriptions, quantized_method, read_documents,
    take_documents,
};
pub use steps::merge::{ADAPTER_CONFIG, Merge, WeightedPath, config_with_own_head, tensor_file};
pub use steps::name_patterns::NamePatterns;
pub use steps::part::{ModelPart, TakePart, take_part};
pub use steps::rename::{Rename, check_renames};
pub use steps::select::Selection;
pub use steps::sum::{CheckpointSum, Sum};
pub use steps::translate::{
    TargetLayout, Translate, documents_in, hugging_face_of, in_checkpoint, lone_shard,
};
pub use steps::whole::{ModelPurpose, RequireWhole, other_prefix};
pub use steps::{Context, Step, StepReport};
pub use totals::Totals;
pub use values::array_text::array_text;
pub use values::decoded::{complex, float};
pub use values::npy::NpyFile;
pub use values::{VALUES_PATH, ValueRow, ValueRows, subclass, values_document};
