//! Names in a tar archive that lead a program that unpacks it out of its folder.
//!
//! Facts: `TarFile.extractall` of CPython before 3.14, which `NeMo` and others call, follows `..`, absolute names and the links that
//! earlier members are.

use std::collections::HashSet;

/// Folders in the name of a member that has links in its archive.
const FOLDERS_MAX: usize = 256;

/// Links among the members so far.
#[derive(Debug, Default)]
pub(super) struct TarPaths(HashSet<String>);

/// Target of a link; that of a symbolic one is relative to the link.
pub(super) struct LinkTarget<'t> {
    pub(super) path: &'t str,
    pub(super) is_symbolic: bool,
}

impl TarPaths {
    /// Adds a member; returns how its name or its target leads out of the folder.
    pub(super) fn add(&mut self, name: &str, target: Option<&LinkTarget<'_>>) -> Option<&'static str> {
        let Some(parts) = inside(name.starts_with('/'), name.split('/')) else {
            return Some("leads out of the archive");
        };
        if !self.0.is_empty() {
            let folders = parts.get(..parts.len().saturating_sub(1)).unwrap_or_default();
            if folders.len() > FOLDERS_MAX {
                return Some("has more folders than are compared with the links");
            }
            if (1..=folders.len())
                .any(|len| folders.get(..len).is_some_and(|it| self.0.contains(&it.join("/"))))
            {
                return Some("is below a link");
            }
        }
        let target = target?;
        self.0.insert(parts.join("/"));
        let folder = parts.iter().copied().take(parts.len().saturating_sub(1));
        let folder = folder.filter(|_| target.is_symbolic);
        let whole = inside(target.path.starts_with('/'), folder.chain(target.path.split('/')));
        whole.is_none().then_some("is a link that leads out of the archive")
    }
}

/// Returns the parts of a path without `.` and `..`; `None` if it leads out of its root.
fn inside<'p>(is_absolute: bool, path: impl Iterator<Item = &'p str>) -> Option<Vec<&'p str>> {
    let mut parts = Vec::new();
    for part in path {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    (!is_absolute).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_out_is_found() {
        let mut paths = TarPaths::default();
        let link = |path, is_symbolic| Some(LinkTarget { path, is_symbolic });
        for (name, target, expected) in [
            ("a/../b", None, None),
            ("a/../../b", None, Some("leads out of the archive")),
            ("/a", None, Some("leads out of the archive")),
            ("lib/x.so", link("x.so.1", true), None),
            ("lib/y", link("../bin/y", true), None),
            ("lib/z", link("../../z", true), Some("is a link that leads out of the archive")),
            ("lib/h", link("../z", false), Some("is a link that leads out of the archive")),
            ("lib/e", link("/etc", true), Some("is a link that leads out of the archive")),
            ("folder", link(".", true), None),
            ("./folder/a", None, Some("is below a link")),
            ("folder", None, None),
        ] {
            assert_eq!(paths.add(name, target.as_ref()), expected, "{name}");
        }
        assert!(paths.add(&"a/".repeat(1000), None).is_some());
    }
}
