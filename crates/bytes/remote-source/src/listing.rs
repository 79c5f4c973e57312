//! Documents that list the files of a remote folder.
//!
//! Facts: the answer of the Hub's `/api/models/OWNER/NAME/revision/REVISION?blobs=true`, and the index that `transformers`
//! writes next to shards.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// Files of a repository at one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubListing {
    pub commit: String,
    /// Length of each file, by its path.
    pub files: BTreeMap<String, Option<u64>>,
}

#[derive(Deserialize)]
struct RepositoryDocument {
    sha: String,
    #[serde(default)]
    siblings: Vec<FileDocument>,
}

#[derive(Deserialize)]
struct FileDocument {
    rfilename: String,
    #[serde(default)]
    size: Option<u64>,
}

#[derive(Deserialize)]
struct IndexDocument {
    weight_map: BTreeMap<String, String>,
}

impl HubListing {
    /// Parses the Hub's listing. Files with paths that a folder cannot have are left out.
    ///
    /// # Errors
    /// When the text is not a listing, or its commit is none.
    pub fn from_json(text: &[u8]) -> Result<Self, String> {
        let document: RepositoryDocument =
            serde_json::from_slice(text).map_err(|reason| format!("it is not a listing: {reason}"))?;
        let commit = document.sha;
        if !(40..=64).contains(&commit.len()) || !commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err("it names no commit".to_owned());
        }
        let files = document.siblings.into_iter().filter(|file| is_plain_path(&file.rfilename));
        Ok(Self { commit, files: files.map(|file| (file.rfilename, file.size)).collect() })
    }

    /// Returns the files below a folder, with paths relative to it.
    #[must_use]
    pub fn below(self, folder: &str) -> Self {
        if folder.is_empty() {
            return self;
        }
        let below = |(path, len): (String, Option<u64>)| {
            Some((path.strip_prefix(folder)?.strip_prefix('/')?.to_owned(), len))
        };
        Self { files: self.files.into_iter().filter_map(below).collect(), ..self }
    }
}

/// Returns the names of the shards that an index names, all of them next to the index.
///
/// # Errors
/// When the text is not an index.
pub fn index_files(text: &[u8]) -> Result<BTreeSet<String>, String> {
    let index: IndexDocument =
        serde_json::from_slice(text).map_err(|reason| format!("it is not an index: {reason}"))?;
    let is_name = |name: &String| is_plain_path(name) && !name.contains('/');
    Ok(index.weight_map.into_values().filter(is_name).collect())
}

/// Returns true for a path that is below its folder, on every system.
pub(crate) fn is_plain_path(path: &str) -> bool {
    let is_name = |part: &str| !matches!(part, "" | "." | "..");
    path.split('/').all(is_name) && !path.contains(|c: char| c == '\\' || c.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn a_listing_has_a_commit_and_plain_paths() {
        let text = format!(
            r#"{{"id": "a/b", "sha": "{COMMIT}", "siblings": [
                {{"rfilename": "x/model.bin", "size": 3, "lfs": {{"size": 3}}}}, {{"rfilename": "config.json"}},
                {{"rfilename": "../up"}}, {{"rfilename": "/etc/passwd"}}, {{"rfilename": "x\\y"}}, {{"rfilename": "a//b"}}]}}"#
        );
        let listing = HubListing::from_json(text.as_bytes()).expect("a listing");
        assert_eq!(listing.commit, COMMIT);
        let files = [("config.json".to_owned(), None), ("x/model.bin".to_owned(), Some(3))];
        assert_eq!(listing.files, files.into());
        assert_eq!(listing.below("x").files, [("model.bin".to_owned(), Some(3))].into());
        for text in
            ["", "[]", "{}", r#"{"sha": "main"}"#, r#"{"sha": "../../../../../../../../../../../../../x"}"#]
        {
            HubListing::from_json(text.as_bytes()).expect_err(text);
        }
    }

    #[test]
    fn an_index_names_files_next_to_it() {
        let text = br#"{"metadata": {}, "weight_map": {"a": "m-1.bin", "b": "m-2.bin", "c": "m-1.bin", "d": "../m"}}"#;
        let names: Vec<String> = index_files(text).expect("an index").into_iter().collect();
        assert_eq!(names, ["m-1.bin", "m-2.bin"]);
        index_files(b"{}").expect_err("no index");
    }
}
