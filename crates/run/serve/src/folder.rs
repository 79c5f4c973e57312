//! Lists a model repository: a folder with one folder for each model, which holds one file for each version.
//!
//! A file is `NAME/VERSION.carton`, such as `llama/3.carton`. Only files found by listing the folder are ever opened: no
//! part of a request becomes a path.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use byte_source::{Location, Stores};

/// Folder of a model repository.
#[derive(Clone, Debug)]
pub struct RepositoryFolder {
    /// Path or address of the folder.
    pub path: PathBuf,
    /// Extension of the model files, without a dot.
    pub extension: String,
    /// Stores that have the folder, which is located again each time that it is listed.
    pub stores: Stores,
}

/// Model version found in a repository folder.
#[derive(Clone, Debug)]
pub struct ModelVersion {
    /// Name of the model, which is the name of its folder.
    pub name: String,
    /// Version number, which is the file name without its extension.
    pub version: u64,
    pub location: Location,
}

#[derive(Clone, Debug, Default)]
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
        let folder = self.stores.locate(&self.path)?;
        let mut listing = if folder.is_local() { self.list_local()? } else { self.list_elsewhere(&folder)? };
        listing.model_versions.sort_by(|a, b| (&a.name, a.version).cmp(&(&b.name, b.version)));
        listing.ignored.sort();
        Ok(listing)
    }

    fn list_local(&self) -> io::Result<RepositoryListing> {
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
                        let (name, location) = (name.clone(), file.path().into());
                        listing.model_versions.push(ModelVersion { name, version, location });
                    }
                    _ if self.has_model_extension(&file.file_name()) => listing.ignored.push(file.path()),
                    _ => {}
                }
            }
        }
        Ok(listing)
    }

    /// Finds the model versions in a folder that is not on this machine. An unpacked carton, which is a folder, is ignored.
    fn list_elsewhere(&self, folder: &Location) -> io::Result<RepositoryListing> {
        let mut listing = RepositoryListing::default();
        for file in &folder.files_below()? {
            let version =
                file.split_once('/').and_then(|(name, file)| Some((name, self.version(file.as_ref())?)));
            if let Some((name, version)) = version {
                let (name, location) = (name.to_owned(), folder.join(file));
                listing.model_versions.push(ModelVersion { name, version, location });
            } else {
                let named =
                    Path::new(file).ancestors().filter(|path| self.has_model_extension(path.as_os_str()));
                listing.ignored.extend(named.last().map(|named| folder.path().join(named)));
            }
        }
        listing.ignored.dedup();
        Ok(listing)
    }

    fn has_model_extension(&self, name: &OsStr) -> bool {
        Path::new(name).extension().is_some_and(|extension| extension == self.extension.as_str())
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
    use std::sync::Arc;

    use byte_source::{BufferSource, MemoryStore, Source};

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
        let of = RepositoryFolder {
            path: folder.path().to_owned(),
            extension: "carton".to_owned(),
            stores: Stores::default(),
        };
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

    #[test]
    fn a_listing_has_the_same_versions() {
        let files = [
            "1.carton",
            "a/01.carton",
            "a/10.carton",
            "a/3.carton/carton.toml",
            "a/3.carton/model/model.pt",
            "a/9.carton",
            "a/notes.txt",
            "b/2.pth",
            "c/d/1.carton",
        ];
        let source =
            |file: &str| Arc::new(BufferSource::new(format!("s3://b/models/{file}"), "")) as Arc<dyn Source>;
        let store = Arc::new(files.into_iter().map(source).collect::<MemoryStore>());
        let stores = Stores::with_addresses(move |path| {
            Ok(Some(Location::new(Arc::<MemoryStore>::clone(&store), path)))
        });
        let of =
            RepositoryFolder { path: PathBuf::from("s3://b/models"), extension: "carton".to_owned(), stores };
        let listing = of.list().expect("it can be listed");
        let found: Vec<(&str, u64, &Path)> = listing
            .model_versions
            .iter()
            .map(|found| (found.name.as_str(), found.version, found.location.path()))
            .collect();
        let at = |file: &str| Path::new("s3://b/models").join(file);
        assert_eq!(found, [("a", 9, &*at("a/9.carton")), ("a", 10, &*at("a/10.carton"))]);
        assert_eq!(listing.ignored, ["1.carton", "a/01.carton", "a/3.carton", "c/d/1.carton"].map(at));
    }
}
