//! Detects links in a checkpoint's folder that lead out of it.
//!
//! Facts: symlink(7), and the cache of `huggingface_hub`: the files of `models--ORG--NAME/snapshots/REVISION/` are links
//! into `models--ORG--NAME/blobs/`.

use std::path::{Path, PathBuf};

/// Returns the target of the link at `path` if the target cannot be resolved, or is outside `folder` and, for a folder in
/// the cache of a model hub, outside the files of the same repository. Returns `None` if the file is not such a link.
pub(crate) fn link_target_outside(path: &Path, folder: &Path) -> Option<PathBuf> {
    path.symlink_metadata().ok()?.is_symlink().then_some(())?;
    let named = || path.read_link().unwrap_or_else(|_| path.to_owned());
    // The whole chain of links is resolved: a link inside the folder may lead to a second one that leads out.
    let (Ok(target), Ok(folder)) = (path.canonicalize(), folder.canonicalize()) else { return Some(named()) };
    let is_blob = || hub_blob_folders(&folder).any(|blobs| target.parent() == Some(&blobs));
    if target.starts_with(&folder) || is_blob() { None } else { Some(target) }
}

/// Returns the `blobs` folders of the hub repositories of which `folder` is a snapshot, or part of a snapshot.
fn hub_blob_folders(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let snapshots =
        folder.ancestors().skip(1).filter(|above| above.file_name().is_some_and(|it| it == "snapshots"));
    snapshots.filter_map(|snapshots| Some(snapshots.parent()?.join("blobs")))
}
