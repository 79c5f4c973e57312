//! Finds and opens the files that a path stands for: a checkpoint file, a folder with a checkpoint, or a set of shards, and
//! the documents next to them.
//!
//! [`CheckpointSources::find`] decides which files make up a checkpoint, [`CheckpointSources::open`] maps them, and [`CheckpointSources::read`]
//! joins them into one [`Checkpoint`](torch_import::Checkpoint):
//!
//! ```
//! use open::files::{ShardPolicy, CheckpointSources};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("model.safetensors");
//! # let header = br#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
//! # std::fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header, &[7]].concat())?;
//! # let paths = [folder.path().to_owned()];
//! let sources = CheckpointSources::find(&paths, ShardPolicy::RequireAll)?;
//! let containers = sources.open()?;
//! let (checkpoint, notes) = sources.read(&containers, &|_, _| Ok(()))?;
//! for (name, tensor) in checkpoint.tensors() {
//! println!("{name} {:?}", tensor.shape());
//! }
//! for note in &notes {
//! println!("note: {note}");
//! }
//! # assert_eq!(checkpoint.items.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! Paths are used as given, without resolving symbolic links: the cache of a model hub contains links to files that are
//! stored elsewhere under other names. A companion that links out of the folder, except into the files of such a cache, is
//! left out with a note, because a folder from elsewhere could link to any file of this machine.
//!
//! Facts: the names that Meta's `llama-models`, Hugging Face's `transformers`, Lightning and `DeepSpeed` give their
//! files.

mod companions;
mod deepspeed;
mod diagnosis;
mod document_cache;
mod error;
mod find;
mod folder;
mod folder_names;
mod links;
mod note;
mod numbering;
mod pipeline;
mod rank_part;
mod shard_set;
mod sources;

pub use crate::trainers::TrainerSummary;
pub use byte_source::{Error, Result};
pub use companions::{COMMON_COMPANIONS, Companion, has_tokenizer, is_companion_name};
pub use deepspeed::ZeroCheckpoint;
pub use diagnosis::{FolderDiagnosis, TENSOR_DICT};
pub use document_cache::{DOCUMENT_MAX, DocumentCache, read_document};
pub use error::{CheckpointCandidate, Problem};
pub use find::ShardPolicy;
pub(crate) use folder_names::checkpoints;
pub use folder_names::is_checkpoint;
pub use note::FilesNote;
pub use numbering::ShardNumber;
pub use pipeline::{Pipeline, PipelineDocuments};
pub use sources::{CheckpointSources, ToContainer};
