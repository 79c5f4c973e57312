//! `MANIFEST`: the SHA-256 of every file of a carton.

use std::collections::BTreeMap;
use std::fmt;

use crate::Error;

/// One line a file, `path=sha256`, sorted by the bytes of the path. MANIFEST itself and LINKS have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    lines: BTreeMap<String, [u8; 32]>,
}

impl Manifest {
    /// Adds a file.
    ///
    /// # Errors
    /// When there is one of that path already, or the path breaks the line.
    pub fn add(&mut self, path: &str, sha256: [u8; 32]) -> Result<(), Error> {
        if path.contains(['\n', '\r']) {
            return Err(Error::ManifestPath { path: path.to_owned() });
        }
        if self.lines.insert(path.to_owned(), sha256).is_some() {
            return Err(Error::Duplicate { path: path.to_owned() });
        }
        Ok(())
    }
}

/// The file's text, with a final line break.
impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, sha256) in &self.lines {
            write!(f, "{path}=")?;
            sha256.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_sorted_by_bytes() {
        let mut manifest = Manifest::default();
        manifest.add("model/model.pt", [0xab; 32]).expect("new");
        manifest.add("carton.toml", [0; 32]).expect("new");
        manifest.add("Z", [1; 32]).expect("new");
        let text = manifest.to_string();
        let paths: Vec<&str> = text.lines().filter_map(|line| line.rsplit_once('=')).map(|l| l.0).collect();
        assert_eq!(paths, ["Z", "carton.toml", "model/model.pt"]);
        assert!(text.ends_with(&format!("={}\n", "ab".repeat(32))));
        assert!(manifest.add("Z", [1; 32]).is_err());
        assert!(manifest.add("a\nb", [1; 32]).is_err());
    }
}
