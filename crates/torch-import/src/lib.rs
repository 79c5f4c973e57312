//! PyTorch checkpoints as named tensors over mapped storages.
//!
//! ```no_run
//! # fn main() -> Result<(), torch_import::Error> {
//! let container = torch_import::Container::open("consolidated.00.pth".as_ref())?;
//! let checkpoint = torch_import::Checkpoint::read(&container)?;
//! for (name, tensor) in checkpoint.tensors() {
//!     println!("{name} {} {:?}", tensor.dtype(), tensor.shape());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A [`Container`] finds the pickle and the storages in a file and owns its mapping; `pickle-vm` reads the pickle into
//! inert objects; [`Checkpoint`] walks the objects once and interprets `torch._utils._rebuild_*`. Nothing in the file
//! is executed or imported.
//!
//! Facts: `torch/serialization.py`, `torch/_utils.py` and `caffe2/serialize` of PyTorch 2.15.

mod annotate;
mod assembly;
mod checkpoint;
mod children;
mod compound;
mod container;
mod dicts;
mod encoded;
mod error;
mod find_omissions;
mod globals;
mod item;
mod judged_calls;
mod key;
mod limits;
mod lists;
mod modules;
mod note;
mod objects;
mod omission;
mod path;
mod persistent;
mod pickled_parts;
mod pickles;
mod rebuild;
mod risk;
mod scan;
mod script_blocks;
mod script_modules;
mod shard_position;
mod shards;
mod unlisted_objects;
mod uses;
mod walk;
mod wrapper;

pub use annotate::annotate;
pub use assembly::{CheckpointAssembly, ItemPath};
pub use byte_source::{Error, Result};
pub use checkpoint::{Checkpoint, TwinName};
pub use compound::CompoundItem;
pub use container::formats::zip::archive_member;
pub use container::formats::{
    CONTAINERS, containers, is_checkpoint_extension, register_container, starts_as_checkpoint,
};
pub use container::{
    Container, ContainerContents, ContainerFormat, ExportedModel, GraphArgument, GraphSignature,
};
pub use encoded::EncodedBytes;
pub use error::{Problem, pickle_kind};
pub use globals::Global;
pub use item::{CheckpointItem, CheckpointValue, ItemContent, ValueExtent};
pub use note::CheckpointNote;
pub use objects::{PersistentObject, PickledObjects, PickledStorage};
pub use omission::{Omission, OmissionKind, OmissionReason, OmissionTotal, Omissions};
pub use pickles::Pickles;
pub use rebuild::count_tensors;
pub use risk::Risk;
pub use scan::{
    CodeReference, DocumentKind, Finding, GlobalCall, GlobalUse, KIND_PEEK, NamedRange, OmittedCounts,
    PicklePlace, PlaceStep, Scan, ScanDepth, ScannedPickle, UNKNOWN_KIND, is_foreign_model, unread_kind,
};
pub use shard_position::{MeshDimension, Placement, ShardPosition};
pub use shards::{
    MergedCheckpoint, ModelSizes, Shard, WeightMapIndex, merge_model_parallel, merge_whole_tensors,
};
pub use tensor::CompoundKind;
pub use uses::{GlobalUseKind, GlobalUseKinds};
