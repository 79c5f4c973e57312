//! A container format: how its files are recognised and opened.

use std::fmt::Debug;
use std::sync::Arc;

use byte_source::{Checks, Observer, Source};

use super::contents::ContainerContents;
use crate::Result;

/// Extensions of the files that `torch.save` writes, whatever their format.
pub(super) const TORCH_EXTENSIONS: &[&str] =
    &["pth", "pt", "bin", "ckpt", "th", "torch", "pth.tar", "pt.tar", "pt2"];

/// A container format of checkpoints. [`register_container`](crate::register_container) adds one of another crate.
///
/// A file may be hostile: a format counts with checked arithmetic, and allocates no more than the bytes that it has seen justify.
/// [`Tensor::new`](tensor::Tensor::new) and [`Region::new`](byte_source::Region::new) refuse what is not inside of the file.
pub trait ContainerFormat: Debug + Sync {
    /// Returns the format's name in listings, such as `safetensors`.
    fn name(&self) -> &'static str;

    /// Returns the ends of the names of its files after a dot, such as `pth`, in lower case. A file is recognised by its content; these
    /// say which files of a folder are checkpoints.
    fn extensions(&self) -> &'static [&'static str];

    /// Returns true if a file starts as one of this format. `head` is all of the file, or at least its first 64 KiB.
    fn recognises(&self, head: &[u8]) -> bool;

    /// Opens a file that was recognised: reads what describes its tensors, and not their elements. `checks` says when to compare the
    /// rest, if there is anything to compare.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged, or `observer` stops the work.
    fn open(
        &self,
        file: Arc<dyn Source>,
        checks: Checks,
        observer: &dyn Observer,
    ) -> Result<ContainerContents>;
}
