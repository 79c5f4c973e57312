//! Resolves the paths that the user gives to the files of one checkpoint.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{InputSource, Source};
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

impl ShardPolicy {
    /// Returns the policy for a file that is read alone, or for a whole checkpoint.
    pub fn from_single(single: bool) -> Self {
        if single { Self::ThisFileOnly } else { Self::RequireAll }
    }
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
            [path] => Self::find_of_file(path, shards, None),
            paths => find_shard_set(paths),
        }
    }

    /// Resolves a file, which the caller may have opened, to the files of one checkpoint.
    ///
    /// # Errors
    /// When the file leads to no checkpoint.
    pub fn find_of_file(path: &Path, shards: ShardPolicy, opened: Option<&Arc<dyn Source>>) -> Result<Self> {
        let name = file_name(path);
        if name.ends_with(INDEX_SUFFIX) {
            return read_indexed_set(path, None);
        }
        if name == ".metadata" {
            return crate::folder::find(parent_folder(path));
        }
        if TrainerArchive::is_one(path) {
            return Self::archive(path, opened);
        }
        let part = rank_part(path);
        if shards == ShardPolicy::RequireAll {
            if let Some(what) = part {
                return Err(Error::RankPart { path: path.to_owned(), what });
            }
            if let Some(shard) = shard_number(path) {
                let (number, of) = (shard.number, shard.files_in_set);
                return Err(Error::LoneShard { path: path.to_owned(), number, of });
            }
        }
        let mut found = Self::file(path);
        found.notes.extend(part.map(|what| FilesNote::RankPart { what }));
        Ok(found)
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
