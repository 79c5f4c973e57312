//! Symbolic links in a zip file, and their targets.
//!
//! Source: Info-ZIP stores the target of a symbolic link as the data of its entry.

use std::collections::HashSet;

use super::Survey;
use crate::CompressionMethod;

/// Maximum bytes of a link's target that are read: the longest path in Linux.
const TARGET_BYTES_MAX: usize = 4096;

impl Survey {
    /// Reports links whose target is not in the archive: a program that unpacks such a link may follow it to a file of
    /// the system.
    pub(super) fn survey_links(&mut self, bytes: &[u8]) {
        // Few archives have links.
        let mut names: Option<HashSet<&str>> = None;
        let mut lost = Vec::new();
        // The target of a compressed link is not available without decompression.
        for entry in
            self.entries.iter().filter(|entry| entry.is_link && entry.method == CompressionMethod::Stored)
        {
            let target = entry.stored(bytes);
            let target = target.get(..target.len().min(TARGET_BYTES_MAX)).unwrap_or_default();
            let target = String::from_utf8_lossy(target);
            let there = resolve_link_target(&entry.name, &target);
            let names =
                names.get_or_insert_with(|| self.entries.iter().map(|entry| entry.name.as_str()).collect());
            if !there.is_some_and(|there| names.contains(there.as_str())) {
                lost.push((entry.name.clone(), target.into_owned()));
            }
        }
        for (name, target) in lost {
            let (name, target) = (name.escape_debug(), target.escape_debug());
            self.add_oddity(
                "link",
                format!("entry `{name}` is a link to `{target}`, which is not in the archive"),
            );
        }
    }
}

/// Returns the name of the entry to which the link `name` leads, or `None` if the target is outside the archive.
fn resolve_link_target(name: &str, target: &str) -> Option<String> {
    if target.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = name.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}
