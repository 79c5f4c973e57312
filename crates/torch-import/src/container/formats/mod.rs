//! The container formats: those of this crate, each in a file of its own, and those that other crates register.

mod byte_order;
pub(crate) mod exported;
pub(crate) mod gguf;
pub(crate) mod legacy;
pub(crate) mod pickle;
pub(super) mod safetensors;
pub(crate) mod tar;
pub(super) mod unpacked;
pub(crate) mod zip;
pub(crate) mod zip_archive;

use std::sync::{PoisonError, RwLock};

use self::gguf::GgufFormat;
use self::legacy::LegacyFormat;
use self::pickle::PickleFormat;
use self::safetensors::SafetensorsFormat;
use self::tar::TarFormat;
use self::zip::ZipFormat;
use super::format::ContainerFormat;

/// Container formats of this crate that start with a signature, in the order in which they are tried. The bare pickle, which has none,
/// is tried after those of other crates.
pub static CONTAINERS: &[&dyn ContainerFormat] =
    &[&ZipFormat, &LegacyFormat, &TarFormat, &SafetensorsFormat, &GgufFormat];

static REGISTERED: RwLock<Vec<&'static dyn ContainerFormat>> = RwLock::new(Vec::new());

/// Adds a container format to those that this process reads. Its files are checkpoints for every function from now on. Returns false,
/// and adds nothing, if there is a format of its name already.
pub fn register_container(format: &'static dyn ContainerFormat) -> bool {
    let is_known = |known: &&dyn ContainerFormat| known.name() == format.name();
    let mut registered = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
    let is_new = !CONTAINERS.iter().chain([&PICKLE]).chain(registered.iter()).any(is_known);
    registered.extend(is_new.then_some(format));
    is_new
}

/// The bare pickle.
pub(crate) const PICKLE: &dyn ContainerFormat = &PickleFormat;

/// Returns the container formats that this process reads, in the order in which they are tried.
pub fn containers() -> impl Iterator<Item = &'static dyn ContainerFormat> {
    with_signature().chain([PICKLE])
}

fn with_signature() -> impl Iterator<Item = &'static dyn ContainerFormat> {
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner).clone();
    CONTAINERS.iter().copied().chain(registered)
}

/// Returns the format whose signature a file starts with.
pub(crate) fn recognise(head: &[u8]) -> Option<&'static dyn ContainerFormat> {
    with_signature().find(|format| format.recognises(head))
}

/// Returns true if a file starts as one of a format of checkpoints. `head` is all of the file, or at least its first 64 KiB.
pub fn starts_as_checkpoint(head: &[u8]) -> bool {
    recognise(head).is_some()
}

/// Returns true if the names of checkpoints end with this extension, written without its dot.
pub fn is_checkpoint_extension(extension: &str) -> bool {
    containers().any(|format| format.extensions().contains(&extension))
}
