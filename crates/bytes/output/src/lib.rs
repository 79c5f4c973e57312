//! Local files that are written atomically, and outputs at addresses.
//!
//! An [`OutputFile`] is written next to its target and replaces the target when it is committed. Until then, the target is
//! unchanged:
//!
//! ```
//! use std::io::Write;
//!
//! use output::{IfExists, OutputFile};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("weights.bin");
//! let bytes = b"four";
//! output::check_target(&path, &[], IfExists::Fail)?;
//! let mut output = OutputFile::create(&path, bytes.len() as u64)?;
//! output.write_all(bytes)?;
//! assert!(!path.exists());
//! output.commit(IfExists::Fail)?;
//! assert_eq!(std::fs::read(&path)?, bytes);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An existing file is replaced only if this program wrote it, unless the caller decides otherwise: see [`IfExists`].
//!
//! Dropping an [`OutputFile`] removes its temporary file. This crate installs no signal handler: a program that ends on a
//! signal calls [`remove_unfinished`] before it exits.
//!
//! A [`Destination`] also writes outputs at addresses, into a store such as a bucket, which are seen there when they are complete.
//!
//! Paths that are addresses, such as `s3://bucket/model.pth`, are recognised by [`RemoteAddress`] and refused by
//! [`refuse_remote`].

mod abandoned;
mod commit;
mod destination;
#[cfg_attr(not(target_os = "linux"), path = "direct_missing.rs")]
mod direct;
mod documents;
mod error;
mod if_exists;
mod local;
mod location;
mod mark;
mod output_file;
mod permissions;
mod records;
mod remote;
mod stored_record;
mod stream;
mod unfinished;
mod windows_name;
mod writeback;

pub use abandoned::remove_abandoned;
pub use byte_source::{Error, Result};
pub use commit::{CommitTarget, FileContent, FileSums, OutputFiles, PlannedFile, commit};
pub use destination::Destination;
pub use documents::OutputDocuments;
pub use error::Problem;
pub use if_exists::IfExists;
pub use local::{Scratch, check_target, free_space, require_free_space, sync_folder};
pub use location::{
    file_name, is_given_as_folder, parent_folder, refuse_remote, refuse_remote_output, shown_path,
};
pub use mark::{is_own_output, note_origin, noted_origin};
pub use output_file::OutputFile;
pub use records::{FileRecord, OutputRecord, OutputRecords, RECORDS_NAME, WrittenFile};
pub use remote::{RemoteAddress, UrlScheme};
pub use stream::read_error;
pub use unfinished::{OutputHalt, remove_unfinished};
pub use windows_name::check_system_name;
