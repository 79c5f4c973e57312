//! Links in a checkpoint's folder that lead out of it.
//!
//! Facts: symlink(7), and the cache of `huggingface_hub`: the files of `models--ORG--NAME/snapshots/REVISION/` are links
//! into `models--ORG--NAME/blobs/`.

use std::path::{Path, PathBuf};

/// Where the link at `path` leads, if that is neither in `folder` nor, for a folder in the cache of a model hub, among the
/// files of the same repository. `None` for a file that is not a link.
pub(crate) fn leads_out(path: &Path, folder: &Path) -> Option<PathBuf> {
    path.symlink_metadata().ok()?.is_symlink().then_some(())?;
    let named = || path.read_link().unwrap_or_else(|_| path.to_owned());
    // All links on the way are followed: one inside may lead to one that leads out.
    let (Ok(target), Ok(folder)) = (path.canonicalize(), folder.canonicalize()) else { return Some(named()) };
    let is_blob = || blobs(&folder).any(|blobs| target.parent() == Some(&blobs));
    if target.starts_with(&folder) || is_blob() { None } else { Some(target) }
}

/// The folders with the files of the repository that `folder` is a snapshot of, or a part of one.
fn blobs(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let snapshots =
        folder.ancestors().skip(1).filter(|above| above.file_name().is_some_and(|it| it == "snapshots"));
    snapshots.filter_map(|snapshots| Some(snapshots.parent()?.join("blobs")))
}
