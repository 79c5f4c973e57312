//! Files of numbers without a format, of which a document next to them says their names and lengths: the storages of an unpacked
//! checkpoint, and the parts of an array of zarr.
//!
//! Facts: version 2 of the specification of zarr; the header of `c-blosc`.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{Location, Source};
use open::files::{DOCUMENT_MAX, read_document};
use serde::Deserialize;
use serde_json::Value;
use torch_import::{Container, PickledObjects};

/// Documents by the folders of the files that they describe.
#[derive(Default)]
pub(super) struct DescribedNumbers(HashMap<PathBuf, Description>);

/// What a document says of the files in a folder.
enum Description {
    Nothing,
    /// Names and lengths in bytes.
    Storages(HashSet<(String, u64)>),
    Array(ZarrArray),
}

/// An array of zarr.
#[derive(Deserialize)]
struct ZarrArray {
    shape: Vec<u64>,
    chunks: Vec<u64>,
    dtype: String,
    #[serde(default)]
    compressor: Value,
    #[serde(default)]
    filters: Value,
}

impl DescribedNumbers {
    /// Returns true if a document says that the file is numbers, and its length is theirs. `opened` is the file, if it is open.
    pub(super) fn has(&mut self, file: &Location, opened: Option<&Arc<dyn Source>>) -> bool {
        let folder = file.parent();
        let described =
            self.0.entry(folder.path().to_owned()).or_insert_with(|| Description::of_folder(&folder));
        let name = file.path().file_name().unwrap_or_default().to_string_lossy();
        let Ok(source) = opened.cloned().map_or_else(|| file.open(), Ok) else { return false };
        match described {
            Description::Nothing => false,
            Description::Storages(storages) => storages.contains(&(name.into_owned(), source.len())),
            Description::Array(array) => array.has_part(&name) && array.is_whole(&*source),
        }
    }
}

impl Description {
    fn of_folder(folder: &Location) -> Self {
        let pickle = folder.parent().join(Path::new("data.pkl"));
        if folder.path().ends_with("data") && pickle.is_file() {
            let container = pickle.open().and_then(Container::from_source);
            let objects = container.and_then(|container| PickledObjects::read(&container));
            return objects.ok().flatten().map_or(Self::Nothing, |it| Self::Storages(it.storages()));
        }
        let document = read_document(&folder.join(Path::new(".zarray")), DOCUMENT_MAX);
        let array = document.ok().and_then(|text| serde_json::from_str(&text).ok());
        array.map_or(Self::Nothing, Self::Array)
    }
}

impl ZarrArray {
    /// Returns true for the name of a part: its place along each dimension.
    fn has_part(&self, name: &str) -> bool {
        if self.shape.is_empty() {
            return name == "0";
        }
        let places: Vec<&str> = name.split('.').collect();
        let is_inside = |((place, chunk), len): ((&&str, &u64), &u64)| {
            let start = place.parse::<u64>().ok().and_then(|place| place.checked_mul(*chunk));
            start.is_some_and(|start| start < *len)
        };
        [places.len(), self.chunks.len()] == [self.shape.len(); 2]
            && places.iter().zip(&self.chunks).zip(&self.shape).all(is_inside)
    }

    /// Returns true if the file is the numbers of a part, or what blosc made of them.
    fn is_whole(&self, source: &dyn Source) -> bool {
        let numel = self.chunks.iter().try_fold(1_u64, |numel, chunk| numel.checked_mul(*chunk));
        let size = match self.dtype.as_bytes() {
            [b'<' | b'>' | b'|', b'b' | b'i' | b'u' | b'f' | b'c', size @ ..] => {
                std::str::from_utf8(size).ok().and_then(|size| size.parse::<u64>().ok())
            }
            _ => None,
        };
        let Some(nbytes) = numel.zip(size).and_then(|(numel, size)| numel.checked_mul(size)) else {
            return false;
        };
        match self.compressor.get("id").and_then(Value::as_str) {
            _ if !self.filters.is_null() => false,
            None => self.compressor.is_null() && source.len() == nbytes,
            Some("blosc") => is_blosc(source, nbytes),
            Some(_) => false,
        }
    }
}

/// Returns true for bytes that blosc made of `nbytes`: its version, and the two lengths.
fn is_blosc(source: &dyn Source, nbytes: u64) -> bool {
    let Ok(header) = source.read_range(0..source.len().min(16)) else { return false };
    let number = |at: usize| {
        let bytes = header.get(at..at.saturating_add(4))?;
        Some(u64::from(u32::from_le_bytes(bytes.try_into().ok()?)))
    };
    header.first() == Some(&2) && number(4) == Some(nbytes) && number(12) == Some(source.len())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_numbers_if_its_name_and_its_length_are_described() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(&path, bytes).expect("a file");
            path
        };
        let array = |compressor: &str| {
            format!(
                r#"{{"zarr_format": 2, "shape": [3, 2], "chunks": [2, 2], "dtype": "<f4", "compressor": {compressor}, "filters": null}}"#
            )
        };
        write("w/.zarray", array("null").as_bytes());
        write("b/.zarray", array(r#"{"id": "blosc", "cname": "lz4"}"#).as_bytes());
        write("z/.zarray", array(r#"{"id": "lz4"}"#).as_bytes());
        // `{"w": ('storage', torch.FloatStorage, '0', 'cpu', 2)}` as a persistent id.
        let pickle = b"\x80\x02}X\x01\0\0\0w(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x02tQs.";
        write("data.pkl", pickle);
        let blosc = [&b"\x02\x01\x21\x04\x10\0\0\0\x10\0\0\0\x13\0\0\0"[..], b"abc"].concat();
        let mut described = DescribedNumbers::default();
        for (name, bytes, expected) in [
            ("data/0", &[0; 8][..], true),
            ("data/1", &[0; 8], false),
            ("data/data.mdb", &[0; 8], false),
            ("w/0.0", &[0; 16], true),
            ("w/1.0", &[0; 16], true),
            ("w/2.0", &[0; 16], false),
            ("w/0", &[0; 16], false),
            ("w/0.1", &[0; 16], false),
            ("w/data.mdb", &[0; 16], false),
            ("w/1.00", &[0; 12], false),
            ("b/0.0", &blosc, true),
            ("b/1.0", &[0; 16], false),
            ("z/0.0", &blosc, false),
            ("elsewhere/0.0", &[0; 16], false),
        ] {
            let file = Location::from(&write(name, bytes));
            assert_eq!(described.has(&file, None), expected, "{name}");
        }
        fs::write(folder.path().join("data/0"), [0; 12]).expect("a file");
        assert!(!described.has(&Location::from(&folder.path().join("data/0")), None), "another length");
    }
}
