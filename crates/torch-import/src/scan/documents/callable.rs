//! Risk of a callable that a document names.

use crate::Risk;

/// Packages whose classes configurations make, and which nothing but their parameters runs.
const HARMLESS_PACKAGES: [&str; 5] =
    ["nemo.collections.", "nemo.core.", "torch.nn.", "torch.optim.", "torchmetrics."];
/// Modules of Keras that have classes.
const KERAS_MODULES: &str = "activations constraints dtype_policies initializers layers losses metrics models optimizers regularizers";
/// Parts of a dotted name that are compared with the lists.
const PARTS_MAX: usize = 16;

/// Modules of `TensorFlow` whose operations compute.
const OPERATIONS: &str =
    "__operators__ bitwise dtypes image keras linalg math nn ragged random signal sparse strings";

/// Extensions of files in texts.
const FILES: [&str; 3] = ["json", "py", "txt"];

/// Callable that a document names.
pub(super) struct Callable<'t> {
    pub(super) text: &'t str,
    pub(super) module: String,
    pub(super) name: String,
    pub(super) risk: Risk,
}

impl<'t> Callable<'t> {
    /// Judges a dotted name. What is none is unknown.
    pub(super) fn new(text: &'t str) -> Self {
        let parts: Vec<&str> = text.split('.').take(PARTS_MAX.saturating_add(1)).collect();
        let is_plain = parts.len() <= PARTS_MAX && parts.iter().all(|part| is_identifier(part));
        let (Some((module, name)), true) = (text.rsplit_once('.'), is_plain) else {
            return Self::unknown(text);
        };
        let is_class = |name: &str| name.starts_with(|first: char| first.is_ascii_uppercase());
        let risk = if has_dangerous_part(&parts) {
            Risk::Dangerous
        } else if HARMLESS_PACKAGES.iter().any(|package| text.starts_with(package))
            && is_class(name)
            && !module.split('.').any(is_class)
        {
            Risk::Known
        } else {
            Risk::Unknown
        };
        Self { text, module: module.to_owned(), name: name.to_owned(), risk }
    }

    /// Describes a text that is not the plain name of a callable.
    pub(super) fn unknown(text: &'t str) -> Self {
        let (module, name) = text.rsplit_once('.').unwrap_or(("_target_", text));
        Self { text, module: module.to_owned(), name: name.to_owned(), risk: Risk::Unknown }
    }
}

/// Returns true if some module and name in a row are dangerous: modules have others as attributes.
fn has_dangerous_part(parts: &[&str]) -> bool {
    let all = 0..parts.len();
    all.clone().any(|start| {
        let ends = all.clone().filter(|end| *end > start);
        ends.into_iter().any(|end| {
            let module = parts.get(start..end).unwrap_or_default().join(".");
            let name = parts.get(end).copied().unwrap_or_default();
            Risk::from_names(&module, name) == Risk::Dangerous
        })
    })
}

pub(super) fn is_identifier(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Returns true for the dotted name of a function that is not known to be harmless, as the case of its first letter says.
pub(super) fn is_function_name(text: &str) -> bool {
    text.rsplit_once('.').is_some_and(|(module, name)| {
        name.starts_with(|first: char| !first.is_ascii_uppercase())
            && text.split('.').all(is_identifier)
            && Risk::from_names(module, name) != Risk::Known
    })
}

/// Returns true for the dotted name of a class that a program imports under `type` or `target`, from a package that is not known.
pub(super) fn imports_package(text: &str) -> bool {
    let Some((module, name)) = text.rsplit_once('.') else { return false };
    name.starts_with(|first: char| first.is_ascii_uppercase())
        && module.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && text.split('.').all(is_identifier)
        && !module.starts_with("sentence_transformers")
        && Callable::new(text).risk != Risk::Known
        && !is_harmless_class(module, name)
}

/// Returns true for the name of an operation of `TensorFlow` that computes: not one that reads or writes files, loads libraries or calls
/// Python.
pub(super) fn is_harmless_operation(text: &str) -> bool {
    match text.rsplit_once('.') {
        Some((module, _)) => {
            let first = module.split('.').next().unwrap_or_default();
            OPERATIONS.split(' ').any(|known| known == first) && !text.contains("py_func")
        }
        None => !["function", "group", "load", "print", "py_"].iter().any(|it| text.starts_with(it)),
    }
}

/// Returns true for the dotted name of a callable that is dangerous under any key. `code.py` is the name of a file.
pub(super) fn is_dangerous_name(text: &str) -> bool {
    text.rsplit_once('.').is_some_and(|(_, name)| !FILES.contains(&name)) && is_dangerous_chain(text)
}

/// Returns true for names that are joined by dots and lead to something dangerous.
pub(super) fn is_dangerous_chain(chain: &str) -> bool {
    chain.split('.').all(is_identifier) && Callable::new(chain).risk == Risk::Dangerous
}

/// Returns true for a type that is data, for a class of a model of transformers or timm, and for a class or an activation of Keras
/// itself.
pub(super) fn is_harmless_class(module: &str, class: &str) -> bool {
    let is_class = class.starts_with(|first: char| first.is_ascii_uppercase()) && is_identifier(class);
    let is_model =
        ["transformers.models.", "timm.models.", "diffusers.models."].iter().any(|it| module.starts_with(it));
    if (is_class && is_model) || Risk::from_names(module, class) == Risk::Known {
        return true;
    }
    let package = module.strip_prefix("tensorflow.").or(module.strip_prefix("tf_")).unwrap_or(module);
    let package = package.strip_prefix("keras").unwrap_or("-");
    let first = package.strip_prefix(".src").unwrap_or(package).split('.').nth(1).unwrap_or_default();
    (module == "builtins" && class == "function")
        || (is_class && (package.is_empty() || KERAS_MODULES.split(' ').any(|known| known == first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_by_all_their_parts() {
        for (text, risk) in [
            ("torch.optim.AdamW", Risk::Known),
            ("torch.optim.lr_scheduler.StepLR", Risk::Known),
            ("torch.nn.modules.linear.Linear", Risk::Known),
            ("nemo.collections.asr.modules.ConformerEncoder", Risk::Known),
            ("nemo.collections.asr.modules.build", Risk::Unknown),
            ("mine.Model", Risk::Unknown),
            ("${model.target}", Risk::Unknown),
            ("open", Risk::Unknown),
            ("", Risk::Unknown),
            ("os.system", Risk::Dangerous),
            ("os.system.__call__", Risk::Dangerous),
            ("nemo.core.subprocess.Popen", Risk::Dangerous),
            ("builtins.exec", Risk::Dangerous),
            ("hydra.utils.get_method", Risk::Dangerous),
        ] {
            assert_eq!(Callable::new(text).risk, risk, "{text}");
        }
        assert!(
            is_harmless_class("keras.layers", "Dense")
                && is_harmless_class("keras.src.models.functional", "Functional")
        );
        assert!(!is_harmless_class("keras.utils", "get_file") && !is_harmless_class("os", "Popen"));
    }
}
