//! Resolves the paths that the user gives to the files of one checkpoint.

use std::path::PathBuf;

use output::{file_name, parent_folder};

use crate::folder_listing::INDEX_SUFFIX;
use crate::numbering::{NumberedFileName, shard_number};
use crate::shard_set::{check_numbered_set, read_indexed_set};
use crate::{CheckpointSources, Error, Result};

/// Treatment of a file whose name marks it as one of several shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShardPolicy {
    /// The checkpoint needs all of its shards; a single one is an error.
    #[default]
    RequireAll,
    /// The file is read as a checkpoint of its own.
    ThisFileOnly,
}

impl CheckpointSources {
    /// Resolves `paths`, which are a file, a folder, an index, or all shards of a set, to the files of one checkpoint.
    ///
    /// # Errors
    /// When the paths lead to no checkpoint, or to more than one.
    pub fn find(paths: &[PathBuf], shards: ShardPolicy) -> Result<Self> {
        match paths {
            [path] if path.is_dir() => crate::folder::find(path),
            // A dangling link is reported by the system when it is opened.
            [path] if !path.exists() && !path.is_symlink() => Err(Error::NotFound { path: path.clone() }),
            [path] if path.to_string_lossy().ends_with(INDEX_SUFFIX) => read_indexed_set(path),
            [path] => match shard_number(path) {
                Some(shard) if shards == ShardPolicy::RequireAll => {
                    Err(Error::LoneShard { path: path.clone(), number: shard.number, of: shard.files_in_set })
                }
                _ => Ok(Self::file(path)),
            },
            paths => find_shard_set(paths),
        }
    }
}

/// Checks that several files belong to the same numbered set, and returns the set.
fn find_shard_set(paths: &[PathBuf]) -> Result<CheckpointSources> {
    if let Some(missing) = paths.iter().find(|path| !path.exists()) {
        return Err(Error::NotFound { path: missing.clone() });
    }
    let not_a_set = || Error::NotASet { paths: paths.to_vec() };
    let mut members = Vec::new();
    for path in paths {
        match NumberedFileName::parse_file_name(&file_name(path)) {
            Some(numbering) if path.is_file() => members.push((numbering, path.clone())),
            _ => return Err(not_a_set()),
        }
    }
    let set = |(numbering, path): &(NumberedFileName, PathBuf)| {
        (numbering.set_key(), parent_folder(path).to_owned())
    };
    let first = members.first().map(set);
    if !members.iter().all(|member| Some(set(member)) == first) {
        return Err(not_a_set());
    }
    check_numbered_set(members)
}
