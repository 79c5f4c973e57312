//! Resolves the paths that the user gives to the files of one checkpoint.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::trainers::{RankFile, TrainerArchive};
use byte_source::{Location, Stat};
use output::{file_name, parent_folder};

use crate::files::folder::rank_sources;
use crate::files::folder_names::{PICKLE, is_unpacked, whole_of_index};
use crate::files::numbering::{NumberedFileName, shard_number};
use crate::files::rank_part::rank_part;
use crate::files::shard_set::{check_numbered_set, read_indexed_set};
use crate::files::{CheckpointSources, FilesNote, Problem, Result};

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
    /// Resolves `inputs`, which are a file, a folder, an index, or all shards of a set, to the files of one checkpoint.
    ///
    /// # Errors
    /// When the inputs lead to no checkpoint, or to more than one.
    pub fn find<L: Clone + Into<Location>>(inputs: &[L], shards: ShardPolicy) -> Result<Self> {
        let inputs: Vec<Location> = inputs.iter().cloned().map(Into::into).collect();
        let [input] = inputs.as_slice() else { return find_shard_set(&inputs) };
        match input.stat()? {
            Some(Stat::Folder) => find_of_folder(input),
            None => Err(Problem::NotFound { path: input.path().to_owned() }.into()),
            // What is wrong with a pipe or a dangling link, the system says when it is opened.
            Some(Stat::File(_) | Stat::Other) if stands_for_folder(input) => find_of_folder(&input.parent()),
            Some(Stat::File(_) | Stat::Other) => find_of_file(input, shards),
        }
    }
}

fn find_of_folder(folder: &Location) -> Result<CheckpointSources> {
    let mut found = crate::files::folder::find(folder)?;
    found.folder = Some(folder.clone());
    Ok(found)
}

/// Returns true for a file that describes the checkpoint in its folder, and holds no tensors itself.
fn stands_for_folder(file: &Location) -> bool {
    let name = file_name(file.path());
    name == ".metadata"
        || (name == PICKLE && file.parent().list().is_ok_and(|folder| is_unpacked(&folder.listing)))
}

/// Resolves a file to the files of one checkpoint.
fn find_of_file(file: &Location, shards: ShardPolicy) -> Result<CheckpointSources> {
    let path = file.path();
    let name = file_name(path);
    if whole_of_index(&name).is_some() {
        return read_indexed_set(file);
    }
    if TrainerArchive::is_one(path) {
        return CheckpointSources::archive(file);
    }
    let mut found = CheckpointSources::file(file);
    let part = rank_part(file);
    let numbered = NumberedFileName::parse_file_name(&name);
    if part.is_none() && (numbered.is_none() || shards == ShardPolicy::ThisFileOnly) {
        return Ok(found);
    }
    // Of a file in a store without listings, such as a web server, the others cannot be found.
    let neighbours = file.parent().list();
    if neighbours.as_ref().is_err_and(|reason| reason.kind() == io::ErrorKind::Unsupported) {
        return Ok(found);
    }
    // As in llama.cpp, the first file of a split stands for all of them.
    if let (Some(first), Ok(folder)) = (&numbered, &neighbours)
        && shards == ShardPolicy::RequireAll
        && file.path().extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
        && first.number == 1
        && first.files_in_set.is_some_and(|files| files > 1)
    {
        let members = folder.listing.files.iter().filter_map(|name| {
            let other = NumberedFileName::parse_file_name(name)?;
            (other.set_key() == first.set_key()).then(|| (other, folder.location.join(name)))
        });
        return check_numbered_set(members.collect());
    }
    if shards == ShardPolicy::RequireAll {
        if let Some(what) = part {
            return Err(Problem::RankPart { path: path.to_owned(), what }.into());
        }
        if let Some(shard) = shard_number(file) {
            return Err(Problem::LoneShard {
                path: path.to_owned(),
                number: shard.number,
                of: shard.files_in_set,
            }
            .into());
        }
    }
    found.notes.extend(part.map(|what| FilesNote::RankPart { what }));
    Ok(found)
}

/// Returns the folder of files that are those of the ranks of one checkpoint; `None` if they are not.
fn folder_of_ranks(files: &[Location]) -> Option<Location> {
    let first = files.first()?;
    let rank = RankFile::parse_any(&file_name(first.path()))?;
    let is_same = |file: &Location| {
        RankFile::parse_any(&file_name(file.path())).is_some_and(|other| other.is_next_to(&rank))
            && parent_folder(file.path()) == parent_folder(first.path())
            && Arc::ptr_eq(file.store(), first.store())
    };
    files.iter().all(is_same).then(|| first.parent())
}

/// Checks that several files belong to the same numbered set, and returns the set.
fn find_shard_set(files: &[Location]) -> Result<CheckpointSources> {
    let paths = || files.iter().map(|file| file.path().to_owned()).collect::<Vec<PathBuf>>();
    if let Some(missing) = files.iter().find(|file| !matches!(file.stat(), Ok(Some(_)))) {
        return Err(Problem::NotFound { path: missing.path().to_owned() }.into());
    }
    if let Some(folder) = folder_of_ranks(files) {
        let names = files.iter().map(|file| file_name(file.path())).collect();
        return rank_sources(names, &folder).map_err(|error| error.in_folder(folder.path()));
    }
    let mut members = Vec::new();
    for file in files {
        match NumberedFileName::parse_file_name(&file_name(file.path())) {
            Some(numbering) if file.is_file() => members.push((numbering, file.clone())),
            _ => return Err(Problem::NotASet { paths: paths() }.into()),
        }
    }
    let is_same = |(a, file): &(NumberedFileName, Location), (b, other): &(NumberedFileName, Location)| {
        a.set_key() == b.set_key()
            && parent_folder(file.path()) == parent_folder(other.path())
            && Arc::ptr_eq(file.store(), other.store())
    };
    match members.first() {
        Some(first) if !members.iter().all(|member| is_same(member, first)) => {
            Err(Problem::NotASet { paths: paths() }.into())
        }
        _ => check_numbered_set(members),
    }
}
