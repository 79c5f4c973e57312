//! Opens cartons lazily: a `.carton` file or an unpacked folder.
//!
//! [`Carton::open`] reads the directory, MANIFEST and LINKS. Any file is then read in constant memory,
//! its checksum and hash compared as the bytes pass; the tensors of a stored model are mapped in place.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let carton = carton_reader::Carton::open("llama.carton".as_ref())?;
//! for entry in carton.entries() {
//!     println!("{} {}", entry.path, entry.len);
//! }
//! let model = carton.model("model/model.pt")?;
//! let checkpoint = torch_import::Checkpoint::read(&model)?;
//! println!("{} tensors", checkpoint.tensors.len());
//! # Ok(())
//! # }
//! ```
//!
//! Facts: the Carton v1 specification; what its real client needs beyond it is told apart as notes.

mod carton;
mod entry;
mod error;
mod tensors;
mod verify;

pub use carton::{Carton, MODEL, resolve_link};
pub use entry::{Entry, EntryReader};
pub use error::{Error, Result};
pub use tensors::TensorData;
pub use verify::{Finding, Report};
pub use zip_index::Method;
