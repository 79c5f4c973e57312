//! Which files the paths that a person gives mean together.

use std::path::PathBuf;

use output::{file_name, folder};

use crate::joined::{indexed, numbered};
use crate::listing::INDEX;
use crate::numbering::{Numbering, shard};
use crate::{Error, Result, Sources};

/// The meaning of a file whose name is that of one shard among several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shards {
    /// All of its shards, so that one of them alone is an error.
    #[default]
    Complete,
    /// The file alone.
    ThisFileOnly,
}

impl Sources {
    /// The files that `paths` mean together: a file, a folder, an index, or all shards of a set.
    ///
    /// # Errors
    /// When there is no checkpoint at the paths, or more than one.
    pub fn find(paths: &[PathBuf], shards: Shards) -> Result<Self> {
        match paths {
            [path] if path.is_dir() => crate::folder::find(path),
            // A link that leads nowhere is reported by the system.
            [path] if !path.exists() && !path.is_symlink() => Err(Error::NotFound { path: path.clone() }),
            [path] if path.to_string_lossy().ends_with(INDEX) => indexed(path),
            [path] => match shard(path) {
                Some(shard) if shards == Shards::Complete => {
                    Err(Error::LoneShard { path: path.clone(), number: shard.number, of: shard.of })
                }
                _ => Ok(Self::file(path)),
            },
            paths => set(paths),
        }
    }
}

/// Several files that are to be one checkpoint.
fn set(paths: &[PathBuf]) -> Result<Sources> {
    if let Some(missing) = paths.iter().find(|path| !path.exists()) {
        return Err(Error::NotFound { path: missing.clone() });
    }
    let not_a_set = || Error::NotASet { paths: paths.to_vec() };
    let mut members = Vec::new();
    for path in paths {
        match Numbering::from_name(&file_name(path)) {
            Some(numbering) if path.is_file() => members.push((numbering, path.clone())),
            _ => return Err(not_a_set()),
        }
    }
    let set = |(numbering, path): &(Numbering, PathBuf)| (numbering.set(), folder(path).to_owned());
    let first = members.first().map(set);
    if !members.iter().all(|member| Some(set(member)) == first) {
        return Err(not_a_set());
    }
    numbered(members)
}
