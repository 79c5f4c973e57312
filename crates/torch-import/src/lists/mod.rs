//! Lists of names: the modules of the standard library, torch, numpy and what torch requires, their harmless names, and aliases.
//!
//! `lists/README.md` describes how the lists are made. Generated lists are sorted for binary search.

mod class_traits;
mod reviewed;

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

pub(crate) use self::class_traits::ClassTraits;
pub(crate) use self::reviewed::{ArgumentRule, CallResult, Reviewed, reviewed};

static CORE_MODULES: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    let packages =
        list_lines(include_str!("../../lists/required.txt")).filter_map(|line| line.split(' ').next());
    packages.chain(words(include_str!("../../lists/inside.txt"))).collect()
});

/// Paths of modules and names in which everything is dangerous that is not known to be harmless.
static REFUSED: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    words(include_str!("../../lists/refused.txt"))
        .chain(words(include_str!("../../lists/native.txt")))
        .collect()
});

static HARMLESS_NAMES: LazyLock<Vec<(&str, &str)>> =
    LazyLock::new(|| names_by_module(include_str!("../../lists/harmless.txt")).collect());

static DANGEROUS_NAMES: LazyLock<HashSet<(&str, &str)>> =
    LazyLock::new(|| names_by_module(include_str!("../../lists/dangerous.txt")).collect());

static CLASS_TRAITS: LazyLock<HashMap<(&str, &str), ClassTraits>> = LazyLock::new(|| {
    let rows = names_by_module(include_str!("../../lists/instances.txt"));
    rows.filter_map(|(module, word)| {
        let (name, letters) = word.split_once('=')?;
        Some(((module, name), ClassTraits::from_letters(letters)))
    })
    .collect()
});

static ALIASES: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    list_lines(include_str!("../../lists/aliases.txt")).filter_map(|line| line.split_once(' ')).collect()
});

fn list_lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

fn words(text: &'static str) -> impl Iterator<Item = &'static str> {
    list_lines(text).flat_map(str::split_whitespace)
}

/// Iterates over a list of modules, each followed by its names, as pairs of module and name.
fn names_by_module(text: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut module = "";
    list_lines(text).flat_map(move |line| {
        let mut words = line.split_whitespace();
        // An indented line continues the module of the line before it.
        if !line.starts_with(' ') {
            module = words.next().unwrap_or_default();
        }
        let module = module;
        words.map(move |name| (module, name))
    })
}

/// Returns true if a module belongs to the standard library, torch, numpy or a package that torch requires, of any version.
pub(crate) fn is_core_module(module: &str) -> bool {
    CORE_MODULES.contains(module.split('.').next().unwrap_or(module))
}

/// Returns true if a name of the standard library, torch or numpy, or the name of which it is an alias, is listed as
/// harmless.
pub(crate) fn is_harmless_core_name(module: &str, name: &str) -> bool {
    HARMLESS_NAMES.binary_search(&(module, name)).is_ok()
        || same_object(module, name).is_some_and(|names| HARMLESS_NAMES.binary_search(&names).is_ok())
}

/// Modules that implement another one once more: what was judged of that one was not judged of these.
const OTHER_IMPLEMENTATIONS: [&str; 7] =
    ["_pydatetime", "_pydecimal", "_pyio", "_pylong", "_sre", "_strptime", "sre_compile"];

/// Resolves an alias of the same object; `None` if the module implements the better-known one anew.
pub(crate) fn same_object<'n>(module: &'n str, name: &'n str) -> Option<(&'n str, &'n str)> {
    resolve_alias(module, name).filter(|_| !OTHER_IMPLEMENTATIONS.contains(&module))
}

/// Returns the uses for which a class was judged; `None` if it is not listed.
pub(crate) fn class_traits(module: &str, name: &str) -> Option<ClassTraits> {
    CLASS_TRAITS.get(&(module, name)).copied()
}

/// Returns true if a callable of the standard library, torch or numpy, or one that it is a member of, runs code, starts
/// programs, or uses files or the network.
pub(crate) fn is_dangerous_core_name(module: &str, name: &str) -> bool {
    path_prefixes(name).any(|name| {
        DANGEROUS_NAMES.contains(&(module, name))
            || resolve_alias(module, name).is_some_and(|names| DANGEROUS_NAMES.contains(&names))
    })
}

/// Returns true if everything at or below a path, such as `torch.hub.load`, is dangerous unless it is known to be harmless.
pub(crate) fn is_refused(path: &str) -> bool {
    path_prefixes(path).any(|prefix| REFUSED.contains(prefix))
}

/// Iterates over the beginnings of a dotted path, up to the whole path.
fn path_prefixes(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
    ends.filter_map(|end| path.get(..end))
}

/// Resolves an alias to its better-known module and name: `posix`, `system` to `os`, `system`.
pub(crate) fn resolve_alias<'n>(module: &'n str, name: &'n str) -> Option<(&'n str, &'n str)> {
    if let Some(found) = ALIASES.get([module, ".", name].concat().as_str()) {
        return found.rsplit_once('.');
    }
    ALIASES.get(module).map(|found| (*found, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_harmless_names_are_sorted_and_inside() {
        assert!(HARMLESS_NAMES.is_sorted_by(|a, b| a < b));
        assert!(HARMLESS_NAMES.len() > 5000, "{}", HARMLESS_NAMES.len());
        for (module, name) in HARMLESS_NAMES.iter() {
            assert!(is_core_module(module), "{module}.{name}");
        }
    }

    #[test]
    fn aliases_have_familiar_names() {
        assert_eq!(resolve_alias("posix", "system"), Some(("os", "system")));
        assert_eq!(resolve_alias("nt", "system"), Some(("os", "system")));
        assert_eq!(resolve_alias("_io", "open"), Some(("io", "open")));
        assert_eq!(resolve_alias("__builtin__", "eval"), Some(("builtins", "eval")));
        assert_eq!(resolve_alias("__builtin__", "reduce"), Some(("functools", "reduce")));
        assert_eq!(resolve_alias("ntpath", "join"), Some(("os.path", "join")));
        assert_eq!(resolve_alias("os", "system"), None);
    }
}
