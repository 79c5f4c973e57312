//! Checkpoints that the ranks of a training wrote in parts, joined into whole tensors without the trainer.
//!
//! A [`TrainerLayout`] recognises the files of one trainer in a folder and joins their parts. The tensors are computed
//! when they are read, so joining takes no memory and writes no file. Nothing in the files is executed: the machine of
//! `pickle-vm` records the classes of a trainer, and the layouts read their attributes.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use byte_source::Location;
//! use open::trainers::TrainerFolder;
//!
//! if let Some(found) = TrainerFolder::at(&Location::local("step-1000").list()?)? {
//!     let sources = found.folder.store().open(&found.files)?;
//!     let containers: Result<Vec<_>, _> = sources.into_iter().map(|source| found.layout.open(source)).collect();
//!     let joined = found.layout.join(&containers?, &())?;
//!     println!("{}: {} tensors", joined.summary, joined.checkpoint.tensors().count());
//! }
//! # Ok(())
//! # }
//! ```

mod archive;
mod attributes;
mod dcp;
mod error;
mod flat_parts;
mod folder;
mod hf_shards;
mod join;
mod layouts;
mod listing;
mod megatron;
mod mesh;
mod rank_file;
mod rank_files;
mod summary;
mod trainer_layout;
mod universal;
mod zero;
mod zero_names;

pub use archive::TrainerArchive;
pub use byte_source::{Error, Result};
pub use error::Problem;
pub use folder::TrainerFolder;
pub use layouts::LAYOUTS;
pub(crate) use listing::list;
pub use rank_file::RankFile;
pub(crate) use rank_file::all_ranks;
pub(crate) use rank_files::RankFiles;
pub use rank_files::is_flat_parameter;
pub use summary::TrainerSummary;
pub use trainer_layout::{JoinedCheckpoint, TrainerLayout};
