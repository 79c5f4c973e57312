//! Paths in JSON: a text, or the bytes of a path that is not UTF-8.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Path that any JSON has room for.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a path")]
enum AnyPath {
    Text(PathBuf),
    Bytes(Vec<u8>),
}

impl From<AnyPath> for PathBuf {
    fn from(path: AnyPath) -> Self {
        match path {
            AnyPath::Text(path) => path,
            #[cfg(unix)]
            AnyPath::Bytes(bytes) => {
                <std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(bytes).into()
            }
            #[cfg(not(unix))]
            AnyPath::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
        }
    }
}

struct PathRef<'p>(&'p Path);

impl Serialize for PathRef<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => serializer.serialize_str(text),
            None => self.0.as_os_str().as_encoded_bytes().serialize(serializer),
        }
    }
}

/// One path.
pub mod one {
    use super::{
        AnyPath, Deserialize as _, Deserializer, Path, PathBuf, PathRef, Serialize as _, Serializer,
    };

    /// Writes a path.
    ///
    /// # Errors
    /// When the serializer fails.
    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        PathRef(path).serialize(serializer)
    }

    /// Reads a path.
    ///
    /// # Errors
    /// When the value is of another kind.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        AnyPath::deserialize(deserializer).map(PathBuf::from)
    }
}

/// A path, or null.
pub mod option {
    use super::{AnyPath, Deserialize as _, Deserializer, PathBuf, PathRef, Serialize as _, Serializer};

    /// Writes a path or null.
    ///
    /// # Errors
    /// When the serializer fails.
    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_deref().map(PathRef).serialize(serializer)
    }

    /// Reads a path or null.
    ///
    /// # Errors
    /// When the value is of another kind.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<AnyPath>::deserialize(deserializer)?.map(PathBuf::from))
    }
}

/// A list of paths.
pub mod list {
    use super::{AnyPath, Deserialize as _, Deserializer, PathBuf, PathRef, Serializer};

    /// Writes a list of paths.
    ///
    /// # Errors
    /// When the serializer fails.
    pub fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().map(|path| PathRef(path)))
    }

    /// Reads a list of paths.
    ///
    /// # Errors
    /// When the value is of another kind.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
        Ok(Vec::<AnyPath>::deserialize(deserializer)?.into_iter().map(PathBuf::from).collect())
    }
}
