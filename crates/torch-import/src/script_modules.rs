//! The modules of TorchScript code that an archive has. Their classes are the archive's own, and Python never imports them.
//!
//! Facts: `_is_torchscript_zip` in `torch/serialization.py` of PyTorch 2.15, which loads such an archive in C++.

use std::collections::HashSet;

/// Records that only a TorchScript archive has, besides its code.
const RECORDS: [&str; 2] = ["constants.pkl", "attributes.pkl"];
/// Package of the custom classes of C++, which have no code in an archive.
pub(crate) const CUSTOM_CLASSES: &str = "__torch__.torch.classes.";

/// Modules of the code of a TorchScript archive, such as `__torch__.net`.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScriptModules(HashSet<String>);

impl ScriptModules {
    /// Finds the modules of an archive's code by the names of its records; none if PyTorch would unpickle the archive in Python.
    pub(crate) fn in_records<'n>(names: impl Iterator<Item = &'n str> + Clone) -> Self {
        let is_script = names.clone().any(|name| RECORDS.contains(&name.rsplit('/').next().unwrap_or(name)));
        if !is_script {
            return Self::default();
        }
        let module = |name: &str| {
            let code = name.find("code/__torch__").and_then(|at| name.get(at..)?.strip_prefix("code/"))?;
            Some(code.strip_suffix(".py")?.replace('/', "."))
        };
        Self(names.filter(|name| is_code(name)).filter_map(module).collect())
    }

    /// Returns true if a global is a class of the archive.
    pub(crate) fn has_class_of(&self, module: &str) -> bool {
        self.0.contains(module) || (!self.0.is_empty() && module.starts_with(CUSTOM_CLASSES))
    }
}

/// Returns true if a record is TorchScript code.
pub(crate) fn is_code(name: &str) -> bool {
    if !is_python(name) {
        return false;
    }
    let name = name.to_ascii_lowercase();
    name.starts_with("code/") || name.contains("/code/")
}

/// Returns true if a record is Python code.
pub(crate) fn is_python(name: &str) -> bool {
    has_extension(name, "py")
}

/// Returns true if the name of a record has this extension, in capital or small letters.
pub(crate) fn has_extension(name: &str, extension: &str) -> bool {
    let at = name.len().checked_sub(extension.len());
    let parts = at.and_then(|at| name.as_bytes().split_at_checked(at));
    parts.is_some_and(|(stem, end)| stem.ends_with(b".") && end.eq_ignore_ascii_case(extension.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_classes_of_an_archive_are_its_own() {
        let names =
            ["net/data.pkl", "net/code/__torch__/a/b.py", "net/code/__torch__.py", "net/constants.pkl"];
        let modules = ScriptModules::in_records(names.into_iter());
        for own in ["__torch__.a.b", "__torch__", "__torch__.torch.classes.quantized"] {
            assert!(modules.has_class_of(own), "{own}");
        }
        for other in ["__torch__.a", "__torch__.os", "a.b"] {
            assert!(!modules.has_class_of(other), "{other}");
        }
        let pickled = ScriptModules::in_records(names.into_iter().take(3));
        assert!(!pickled.has_class_of("__torch__.a.b"));
    }
}
