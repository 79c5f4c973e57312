//! The functions and classes that people have reviewed for calls: `lists/reviewed.txt`.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::class_traits::ClassTraits;

/// A reviewed function or class.
#[derive(Clone, Debug)]
pub(crate) struct Reviewed {
    /// Rules for the arguments, of which the last one holds for all that follow; `None` if calls were not reviewed.
    pub(crate) arguments: Option<Vec<ArgumentRule>>,
    pub(crate) result: CallResult,
    /// Uses of instances, if it is a class.
    pub(crate) traits: ClassTraits,
}

/// A condition for an argument of a reviewed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgumentRule {
    /// Numbers, texts, bytes, None, and lists and tuples of these.
    Plain,
    /// Plain values, and instances of classes that functions read as data.
    Data,
    /// As `Data`, and classes and functions, which the function does not call.
    Named,
    /// As `Named`, or a list of pairs of such a key and anything, which the function only stores.
    Pairs,
    /// Anything: the function only stores it.
    Any,
    /// A text, or nothing.
    Text,
    /// A class of which the function makes an empty instance.
    Class,
    /// A class whose `__new__` only makes an instance.
    NewClass,
    /// A built-in type such as `object` or `dict`, whose own constructor the function calls.
    BuiltinType,
    /// A reviewed function, which the function calls with the `Applied` argument.
    Function,
    /// A tuple of arguments for the `Function`.
    Applied,
    /// Attributes that the function sets: dicts whose keys are not special names.
    Attributes,
    /// A class or name of a bit generator of numpy.
    BitGenerator,
    /// A bit generator of numpy, or its class or name.
    Generator,
    BitGeneratorConstructor,
    Storage,
}

/// The class of what a reviewed call returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallResult {
    /// The class is not known, so that any use of the result is a finding.
    Unknown,
    /// A number, a text or a byte string.
    Plain,
    /// An instance of the class that is called.
    Itself,
    /// An instance of the class in an argument.
    OfArgument(usize),
    With(ClassTraits),
}

static REVIEWED: LazyLock<HashMap<&str, HashMap<&str, Reviewed>>> = LazyLock::new(|| {
    let mut by_module: HashMap<&str, HashMap<&str, Reviewed>> = HashMap::new();
    for ((module, name), found) in rows(include_str!("../../lists/reviewed.txt")) {
        by_module.entry(module).or_default().insert(name, found);
    }
    by_module
});

pub(crate) fn reviewed(module: &str, name: &str) -> Option<&'static Reviewed> {
    REVIEWED.get(module)?.get(name)
}

/// Iterates over the rows of a list: `module name | arguments | result | traits | reason and source`.
fn rows(text: &'static str) -> impl Iterator<Item = ((&'static str, &'static str), Reviewed)> {
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).filter_map(row)
}

fn row(line: &'static str) -> Option<((&'static str, &'static str), Reviewed)> {
    let mut cells = line.split('|').map(str::trim);
    let names = cells.next()?.split_once(' ')?;
    let arguments = match cells.next()? {
        "-" => None,
        words => Some(words.split(',').map(|word| argument_rule(word.trim())).collect::<Option<_>>()?),
    };
    let result = match cells.next()? {
        "-" => CallResult::Unknown,
        "plain" => CallResult::Plain,
        "self" => CallResult::Itself,
        word => match word.strip_prefix("arg") {
            Some(number) => CallResult::OfArgument(number.parse().ok()?),
            None => CallResult::With(ClassTraits::from_letters(word)),
        },
    };
    let traits = ClassTraits::from_letters(cells.next()?);
    cells.next().filter(|reason| !reason.is_empty())?;
    Some((names, Reviewed { arguments, result, traits }))
}

fn argument_rule(word: &str) -> Option<ArgumentRule> {
    Some(match word {
        "plain" => ArgumentRule::Plain,
        "data" => ArgumentRule::Data,
        "named" => ArgumentRule::Named,
        "pairs" => ArgumentRule::Pairs,
        "any" => ArgumentRule::Any,
        "text" => ArgumentRule::Text,
        "class" => ArgumentRule::Class,
        "new" => ArgumentRule::NewClass,
        "type" => ArgumentRule::BuiltinType,
        "function" => ArgumentRule::Function,
        "applied" => ArgumentRule::Applied,
        "attributes" => ArgumentRule::Attributes,
        "bitgenerator" => ArgumentRule::BitGenerator,
        "generator" => ArgumentRule::Generator,
        "generatorctor" => ArgumentRule::BitGeneratorConstructor,
        "storage" => ArgumentRule::Storage,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Risk;

    #[test]
    fn each_row_is_read() {
        let text = include_str!("../../lists/reviewed.txt");
        let lines: Vec<&str> =
            text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
        for line in &lines {
            assert!(row(line).is_some(), "{line}");
        }
        let count: usize = REVIEWED.values().map(HashMap::len).sum();
        assert_eq!(count, lines.len(), "a name has two rows");
        assert!(lines.len() <= 300, "{}", lines.len());
    }

    #[test]
    fn what_is_reviewed_may_be_named() {
        let names = REVIEWED.iter().flat_map(|(module, names)| names.keys().map(move |name| (module, name)));
        for (module, name) in names {
            assert_eq!(Risk::from_names(module, name), Risk::Known, "{module} {name}");
        }
    }
}
