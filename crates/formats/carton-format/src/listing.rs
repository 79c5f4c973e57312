//! Lists the files of a carton: the entries of its zip file, or the files of an unpacked folder.

use std::collections::BTreeMap;
use std::path::Path;

use byte_source::FileError;
use zip_format::{CompressionMethod, ZipIndex};

use crate::link::MODEL_FOLDER;
use crate::{CartonEntry, Error, Problem, Result, is_valid_carton_path};

/// Files that operating systems add to folders for their own use.
const SYSTEM_FILES: &[&str] = &[".DS_Store", "Thumbs.db"];

/// Lists the files of a zip file.
pub(crate) fn zip_entries(index: ZipIndex) -> Result<BTreeMap<String, CartonEntry>> {
    let mut entries = BTreeMap::new();
    for entry in index.entries {
        // Many zip files have entries for folders, but Carton's own never do.
        let is_folder = entry.len == 0 && entry.name.ends_with('/');
        let path = if is_folder { entry.name.trim_end_matches('/') } else { &entry.name };
        // Invalid UTF-8 has become replacement characters, so the name could be ambiguous.
        if !is_valid_carton_path(path) || path.contains(char::REPLACEMENT_CHARACTER) {
            return Err(Problem::InvalidPath { path: entry.name }.into());
        }
        if is_folder {
            continue;
        }
        let packed_len = entry.stored_len();
        let (place, path) = (entry.data, entry.name);
        let entry = CartonEntry {
            path: path.clone(),
            len: entry.len,
            packed_len,
            method: entry.method,
            is_symbolic_link: entry.is_link,
            data_and_crc: Some((place, entry.crc)),
        };
        if entry.is_symbolic_link && !path.starts_with(MODEL_FOLDER) {
            return Err(Problem::LinkOutsideModel { path }.into());
        }
        entries.insert(path, entry);
    }
    Ok(entries)
}

/// Lists the files below `root` without recursion; links are not followed.
pub(crate) fn folder_entries(root: &Path) -> Result<BTreeMap<String, CartonEntry>> {
    let mut entries = BTreeMap::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let at = root.join(&folder);
        let io = |reason| FileError::Read { path: at.clone(), reason };
        for item in at.read_dir().map_err(io)? {
            let item = item.map_err(io)?;
            let name = item.file_name();
            let name =
                name.to_str().ok_or_else(|| Error::from(Problem::NameNotUtf8).in_file(&item.path()))?;
            if SYSTEM_FILES.contains(&name) {
                continue;
            }
            let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            if !is_valid_carton_path(&path) {
                return Err(Problem::InvalidPath { path }.into());
            }
            let kind = item.metadata().map_err(io)?;
            if kind.is_dir() {
                folders.push(path);
                continue;
            }
            let len = kind.len();
            let link = kind.is_symlink();
            if !link && !kind.is_file() {
                return Err(Problem::NotAFile { path }.into());
            }
            if link && !path.starts_with(MODEL_FOLDER) {
                return Err(Problem::LinkOutsideModel { path }.into());
            }
            let method = CompressionMethod::Stored;
            entries.insert(
                path.clone(),
                CartonEntry {
                    path,
                    len,
                    packed_len: len,
                    method,
                    is_symbolic_link: link,
                    data_and_crc: None,
                },
            );
        }
    }
    Ok(entries)
}
