//! `MANIFEST`: SHA-256 of every file of a carton.
//!
//! Facts: the Carton v1 specification.

use std::collections::BTreeMap;
use std::fmt;

use crate::hash::sha256_from_hex;
use crate::links::Links;
use crate::path::is_valid_carton_path;
use crate::problem::{DocumentProblem, DocumentProblems, ProblemKind, TextPosition};
use crate::{Problem, Result};

/// Paths and SHA-256 hashes of a carton's files, one line `path=sha256` per file, sorted by the bytes of the path. MANIFEST
/// itself and LINKS are not listed.
///
/// ```
/// use carton_format::Manifest;
///
/// let mut manifest = Manifest::default();
/// manifest.add("misc/a=b", [0x11; 32])?;
/// let text = manifest.to_string();
/// assert_eq!(text, format!("misc/a=b={}\n", "11".repeat(32)));
/// assert_eq!(Manifest::parse(&text)?.hash("misc/a=b"), Some([0x11; 32]));
/// # Ok::<(), carton_format::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    lines: BTreeMap<String, [u8; 32]>,
}

impl Manifest {
    /// Path of the document in a carton.
    pub const PATH: &'static str = "MANIFEST";

    /// Adds a file with its SHA-256.
    ///
    /// # Errors
    /// When the path is already listed, or contains a line break.
    pub fn add(&mut self, path: &str, sha256: [u8; 32]) -> Result<()> {
        if path.contains(['\n', '\r']) {
            return Err(Problem::ManifestPath { path: path.to_owned() }.into());
        }
        if self.lines.insert(path.to_owned(), sha256).is_some() {
            return Err(Problem::Duplicate { path: path.to_owned() }.into());
        }
        Ok(())
    }

    /// Returns the SHA-256 of the file at `path`.
    pub fn hash(&self, path: &str) -> Option<[u8; 32]> {
        self.lines.get(path).copied()
    }

    /// Returns all paths and hashes, sorted by path.
    pub fn lines(&self) -> impl Iterator<Item = (&str, [u8; 32])> {
        self.lines.iter().map(|(path, sha256)| (path.as_str(), *sha256))
    }

    /// Returns the number of listed files.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns true if no files are listed.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Parses and checks the document.
    ///
    /// # Errors
    /// All problems of the document, each with its line.
    pub fn parse(text: &str) -> Result<Self> {
        let mut manifest = Self::default();
        let mut problems = Vec::new();
        let mut last = "";
        for (index, line) in text.strip_suffix('\n').unwrap_or(text).split('\n').enumerate() {
            if text.is_empty() {
                break;
            }
            let mut wrong = |key: &str, kind| {
                let place = Some(TextPosition { line: index.saturating_add(1), column: 1 });
                problems.push(DocumentProblem {
                    document: Self::PATH.to_owned(),
                    place,
                    key: key.to_owned(),
                    kind,
                });
            };
            let value = |found: &str, expected: &str| ProblemKind::Value {
                found: found.to_owned(),
                expected: expected.to_owned(),
            };
            let Some((path, hash)) = line.rsplit_once('=') else {
                wrong("line", value(line, "path=sha256"));
                continue;
            };
            let Some(sha256) = sha256_from_hex(hash) else {
                wrong(path, value(hash, "the 64 lower-case hex digits of a SHA-256"));
                continue;
            };
            if !is_valid_carton_path(path) || path == Self::PATH || path == Links::PATH {
                wrong("path", value(path, "the path of a file inside the carton"));
                continue;
            }
            if manifest.lines.insert(path.to_owned(), sha256).is_some() {
                wrong("path", ProblemKind::Duplicate { name: path.to_owned() });
            } else if path < last {
                wrong(path, ProblemKind::LineOrder { other: last.to_owned() });
            }
            last = path;
        }
        if problems.is_empty() {
            Ok(manifest)
        } else {
            Err(Problem::Document(DocumentProblems(problems)).into())
        }
    }
}

/// Prints the document's text, with a final line break.
impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, sha256) in &self.lines {
            writeln!(f, "{path}={}", byte_source::hex(sha256))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::MODEL_PT;

    #[test]
    fn lines_are_sorted_by_bytes() {
        let mut manifest = Manifest::default();
        manifest.add(MODEL_PT, [0xab; 32]).expect("new");
        manifest.add("carton.toml", [0; 32]).expect("new");
        manifest.add("Z", [1; 32]).expect("new");
        assert_eq!((manifest.hash("Z"), manifest.hash("z")), (Some([1; 32]), None));
        assert_eq!((manifest.len(), manifest.is_empty()), (3, false));
        assert_eq!((Manifest::default().len(), Manifest::default().is_empty()), (0, true));
        let text = manifest.to_string();
        let paths: Vec<&str> = text.lines().filter_map(|line| line.rsplit_once('=')).map(|l| l.0).collect();
        assert_eq!(paths, ["Z", "carton.toml", MODEL_PT]);
        assert!(text.ends_with(&format!("={}\n", "ab".repeat(32))));
        assert!(manifest.add("Z", [1; 32]).is_err());
        assert!(manifest.add("a\nb", [1; 32]).is_err());
        assert_eq!(Manifest::parse(&text).ok(), Some(Manifest { lines: manifest.lines }));
    }

    #[test]
    fn every_bad_line_is_reported() {
        let hash = "0".repeat(64);
        let text = format!("b={hash}\na={hash}\nb={hash}\n../c={hash}\nd=zz\n\nx=y={hash}\n");
        let error = Manifest::parse(&text).expect_err("five are wrong");
        let Some(Problem::Document(problems)) = error.detail() else { panic!("{error}") };
        let error = problems.to_string();
        for line in [2, 3, 4, 5, 6] {
            assert!(error.contains(&format!("MANIFEST:{line}:1: ")), "{error}");
        }
        assert!(!error.contains("MANIFEST:7"), "{error}");
        for path in ["MANIFEST", "LINKS", "/a", ""] {
            Manifest::parse(&format!("{path}={hash}\n")).expect_err("it cannot be listed");
        }
    }
}
