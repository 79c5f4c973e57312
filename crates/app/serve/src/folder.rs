//! Lists a model repository: a folder with one folder for each model, which holds one file for each version.
//!
//! A file is `NAME/VERSION.carton`, such as `llama/3.carton`. Only files found by listing the folder are ever opened: no
//! part of a request becomes a path.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::{fs, io};

/// Folder of a model repository.
#[derive(Clone, Debug)]
pub struct RepositoryFolder {
    pub path: PathBuf,
    /// Extension of the model files, without a dot.
    pub extension: String,
}

/// Model version found in a repository folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelVersion {
    /// Name of the model, which is the name of its folder.
    pub name: String,
    /// Version number, which is the file name without its extension.
    pub version: u64,
    pub path: PathBuf,
}

/// Result of listing a repository folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RepositoryListing {
    /// Model versions, sorted by name and version.
    pub(crate) model_versions: Vec<ModelVersion>,
    /// Files with the extension whose name or location is not that of a version.
    pub(crate) ignored: Vec<PathBuf>,
}

impl RepositoryFolder {
    /// Lists the model versions that are in the folder now.
    ///
    /// # Errors
    /// Returns an error if the folder or one of its subfolders cannot be listed.
    pub(crate) fn list(&self) -> io::Result<RepositoryListing> {
        let mut listing = RepositoryListing::default();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let path = entry.path();
            if !path.is_dir() {
                if self.has_model_extension(&entry.file_name()) {
                    listing.ignored.push(path);
                }
                continue;
            }
            let name = entry.file_name().into_string();
            for file in fs::read_dir(&path)? {
                let file = file?;
                let version = self.version(&file.file_name());
                match (&name, version) {
                    (Ok(name), Some(version)) => {
                        listing.model_versions.push(ModelVersion {
                            name: name.clone(),
                            version,
                            path: file.path(),
                        });
                    }
                    _ if self.has_model_extension(&file.file_name()) => listing.ignored.push(file.path()),
                    _ => {}
                }
            }
        }
        listing.model_versions.sort_by(|a, b| (&a.name, a.version).cmp(&(&b.name, b.version)));
        listing.ignored.sort();
        Ok(listing)
    }

    fn has_model_extension(&self, name: &OsStr) -> bool {
        PathBuf::from(name).extension().is_some_and(|extension| extension == self.extension.as_str())
    }

    /// Parses a file name as a version: a decimal number from 1 on, without leading zeros or sign, so that no two files have
    /// the same version.
    fn version(&self, name: &OsStr) -> Option<u64> {
        let stem = name.to_str()?.strip_suffix(self.extension.as_str())?.strip_suffix('.')?;
        let version: u64 = stem.parse().ok()?;
        (version > 0 && version.to_string() == stem).then_some(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers_in_folders() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let make = |path: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
            fs::write(path, "").expect("a file");
        };
        for path in [
            "b/10.carton",
            "b/9.carton",
            "a/1.carton",
            "a/01.carton",
            "a/0.carton",
            "a/+2.carton",
            "a/x.carton",
            "a/2.pth",
            "a/carton",
            "a/3.carton/nested",
            "a/notes.txt",
            "1.carton",
            "c/d/1.carton",
        ] {
            make(path);
        }
        let of = RepositoryFolder { path: folder.path().to_owned(), extension: "carton".to_owned() };
        let listing = of.list().expect("it can be listed");
        let found: Vec<(&str, u64)> =
            listing.model_versions.iter().map(|found| (found.name.as_str(), found.version)).collect();
        // An unpacked carton is a folder.
        assert_eq!(found, [("a", 1), ("a", 3), ("b", 9), ("b", 10)]);
        let ignored: Vec<_> = listing
            .ignored
            .iter()
            .filter_map(|path| path.strip_prefix(folder.path()).ok()?.to_str())
            .collect();
        assert_eq!(ignored, ["1.carton", "a/+2.carton", "a/0.carton", "a/01.carton", "a/x.carton"]);
    }
}
