//! `LINKS`: URLs of the files that a carton leaves out.
//!
//! Facts: the Carton v1 specification.

use std::collections::BTreeMap;

use serde::Serialize;
use toml::Table;

use crate::fields::DocumentReader;
use crate::hash::sha256_from_hex;
use crate::path::is_url;
use crate::problem::ProblemKind;
use crate::{Problem, Result};

/// Version of the LINKS document.
const VERSION: u64 = 1;

/// URLs by SHA-256. MANIFEST does not list LINKS, so LINKS does not change the model's hash.
///
/// ```
/// use carton_format::Links;
///
/// let mut links = Links::default();
/// links.add([7; 32], "https://example.org/weights".to_owned());
/// assert_eq!(Links::parse(&links.to_toml()?)?.urls(&[7; 32]), ["https://example.org/weights"]);
/// # Ok::<(), carton_format::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Links {
    /// URLs of each file by its SHA-256, in the order in which to try them.
    pub urls: BTreeMap<[u8; 32], Vec<String>>,
    pub other: Table,
}

impl Links {
    /// Path of the document in a carton.
    pub const PATH: &'static str = "LINKS";

    /// Returns the URLs of the file with this SHA-256.
    pub fn urls(&self, sha256: &[u8; 32]) -> &[String] {
        self.urls.get(sha256).map_or(&[], Vec::as_slice)
    }

    /// Adds a URL after the existing ones, unless it is already among them.
    pub fn add(&mut self, sha256: [u8; 32], url: String) {
        let urls = self.urls.entry(sha256).or_default();
        if !urls.contains(&url) {
            urls.push(url);
        }
    }

    /// Parses and checks the document.
    ///
    /// # Errors
    /// All problems of the document, each with its place.
    pub fn parse(text: &str) -> Result<Self> {
        let (mut source, root) = DocumentReader::parse(Self::PATH, text).map_err(Problem::Document)?;
        let mut root = source.fields("", root.get_ref());
        match root.take("version") {
            None => source.add_missing("", "version"),
            Some(field) => {
                if let Some(version) = source.number(&field)
                    && version != VERSION
                {
                    let expected = format!("{VERSION}, the only version there is");
                    source.add_problem(
                        &field.path,
                        ProblemKind::Value { found: version.to_string(), expected },
                    );
                }
            }
        }
        let mut links = Self::default();
        let table = root.take("urls");
        if table.is_none() {
            source.add_missing("", "urls");
        }
        let fields =
            table.and_then(|field| source.table(&field)).map(|table| table.fields).unwrap_or_default();
        for (key, field) in fields {
            let hash = sha256_from_hex(&key);
            if hash.is_none() {
                let expected = "the 64 lower-case hex digits of a SHA-256".to_owned();
                source.add_problem(&field.path, ProblemKind::Value { found: key, expected });
            }
            let urls = source.strings(&field);
            for (index, url) in urls.iter().enumerate() {
                if !is_url(url) {
                    let expected = "an http or https URL".to_owned();
                    let found = url.clone();
                    source.add_problem(
                        &format!("{}[{index}]", field.path),
                        ProblemKind::Value { found, expected },
                    );
                }
            }
            if let Some(hash) = hash {
                links.urls.insert(hash, urls);
            }
        }
        links.other = source.remaining_fields(root);
        source.finish().map_err(Problem::Document)?;
        Ok(links)
    }

    /// Prints the document as TOML.
    ///
    /// # Errors
    /// When TOML cannot express it.
    pub fn to_toml(&self) -> Result<String, Problem> {
        #[derive(Serialize)]
        struct LinksDocument {
            version: u64,
            urls: Table,
            #[serde(flatten)]
            other: Table,
        }
        let urls =
            self.urls.iter().map(|(hash, urls)| (byte_source::hex(hash), toml::Value::from(urls.clone())));
        let document = LinksDocument { version: VERSION, urls: urls.collect(), other: self.other.clone() };
        toml::to_string(&document)
            .map_err(|error| Problem::Print { document: Self::PATH, reason: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_survive_printing_and_parsing() {
        let mut links = Links::default();
        links.add([7; 32], "https://example.org/a".to_owned());
        links.add([7; 32], "https://example.org/b".to_owned());
        links.add([7; 32], "https://example.org/a".to_owned());
        assert_eq!(links.urls(&[7; 32]), ["https://example.org/a", "https://example.org/b"]);
        assert!(links.urls(&[8; 32]).is_empty());
        let text = links.to_toml().expect("TOML can express it");
        assert!(text.starts_with("version = 1\n\n[urls]\n0707"), "{text}");
        assert_eq!(Links::parse(&text).ok(), Some(links));
    }
}
