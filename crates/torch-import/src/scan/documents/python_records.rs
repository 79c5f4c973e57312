//! Python code in an archive, which a document in it may name.

use std::collections::HashSet;

use super::INNER_DOCUMENTS_MAX;

/// Python code in an archive: its paths without their extension, and their folders.
#[derive(Default)]
pub(in crate::scan) struct PythonRecords {
    pub(super) modules: HashSet<String>,
    pub(super) folders: HashSet<String>,
}

impl PythonRecords {
    /// Returns true if the module of a dotted name is in a folder, which ends with a slash.
    pub(super) fn has_module(&self, folder: &str, reference: &str) -> bool {
        let mut modules = reference.match_indices('.').map(|(at, _)| reference.get(..at).unwrap_or_default());
        modules.by_ref().take(INNER_DOCUMENTS_MAX).any(|module| {
            let module = [folder, &module.replace('.', "/")].concat();
            self.modules.contains(&module) || self.modules.contains(&[&module, "/__init__"].concat())
        })
    }
}
