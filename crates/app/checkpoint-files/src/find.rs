//! Resolves the paths that the user gives to the files of one checkpoint.

use std::path::PathBuf;
use std::sync::Arc;

use byte_source::InputSource;
use output::{file_name, parent_folder};
use trainer_shards::TrainerArchive;

use crate::folder_listing::INDEX_SUFFIX;
use crate::numbering::{NumberedFileName, shard_number, shard_number_among};
use crate::rank_part::rank_part;
use crate::shard_set::{check_numbered_set, read_indexed_set};
use crate::{CheckpointSources, Error, FilesNote, Result};

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
        let found = paths.first().map(|path| path.metadata());
        let exists = matches!(&found, Some(Ok(_)));
        let is_folder = matches!(&found, Some(Ok(metadata)) if metadata.is_dir());
        match paths {
            [path] if is_folder => crate::folder::find(path),
            // A dangling link is reported by the system when it is opened.
            [path] if !exists && !path.is_symlink() => Err(Error::NotFound { path: path.clone() }),
            [path] if path.to_string_lossy().ends_with(INDEX_SUFFIX) => read_indexed_set(path, None),
            [path] if file_name(path) == ".metadata" => crate::folder::find(parent_folder(path)),
            [path] if TrainerArchive::is_one(path) => Self::archive(path),
            [path] if shards == ShardPolicy::RequireAll && rank_part(path).is_some() => {
                let what = rank_part(path).unwrap_or_default();
                Err(Error::RankPart { path: path.clone(), what })
            }
            [path] => match shard_number(path) {
                Some(shard) if shards == ShardPolicy::RequireAll => {
                    Err(Error::LoneShard { path: path.clone(), number: shard.number, of: shard.files_in_set })
                }
                _ => {
                    let mut found = Self::file(path);
                    found.notes.extend(rank_part(path).map(|what| FilesNote::RankPart { what }));
                    Ok(found)
                }
            },
            paths => find_shard_set(paths),
        }
    }

    /// Resolves an input that is not on this machine to the files of one checkpoint.
    ///
    /// # Errors
    /// When the input is not exactly one checkpoint, or its index cannot be read.
    pub fn find_source(input: &InputSource, shards: ShardPolicy) -> Result<Self> {
        let (folder, name) = match input {
            InputSource::File(source) => return Ok(Self::source(Arc::clone(source))),
            InputSource::Folder { folder, file: None } => return crate::folder::find_remote(folder),
            InputSource::Folder { folder, file: Some(name) } => (folder, name),
        };
        let path = folder.path_of(name);
        if !folder.contains(name) {
            return Err(Error::NotFound { path });
        }
        if name.ends_with(INDEX_SUFFIX) {
            return read_indexed_set(&path, Some(folder));
        }
        let mut found = Self::file(&path).of(Some(folder));
        let part = rank_part(&path);
        if shards == ShardPolicy::RequireAll {
            if let Some(what) = part {
                return Err(Error::RankPart { path, what });
            }
            if let Some(shard) = shard_number_among(name, folder.files()) {
                return Err(Error::LoneShard { path, number: shard.number, of: shard.files_in_set });
            }
        }
        found.notes.extend(part.map(|what| FilesNote::RankPart { what }));
        Ok(found)
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
