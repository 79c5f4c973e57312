//! Finds operators and classes in TorchScript code that PyTorch 2.0.1 does not have.
//!
//! Facts: `torch.NAME` is an operator of `aten`, `ops.NAMESPACE.NAME` is any operator,
//! `__torch__.torch.classes.NAMESPACE.NAME` is a class in C++ (`torch/csrc/jit/serialization/import_source.cpp`).
//! `operators.py` lists the operators of 2.0.1.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use crate::script_text::name_scanner::{FLOAT16, LiteralType, NameUse, OperatorCall, scan_names};

/// Namespaces of PyTorch's own operators and classes that the operator table lacks.
const LIBTORCH_NAMESPACES: &[&str] = &[
    "_native",
    "cuda",
    "inductor",
    "inductor_prims",
    "metal",
    "metal_prepacked",
    "onednn",
    "rngprims",
    "rnn",
    "vulkan",
    "vulkan_prepacked",
    "xnnpack",
];

/// Operators and classes that PyTorch 2.0.1 does not have, as found by [`unsupported_operators`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnsupportedOperators {
    /// Operators of newer PyTorch versions; listed with the call's arguments if 2.0.1 has the operator but no overload that
    /// accepts them.
    pub newer: BTreeSet<String>,
    /// Numbers of dtypes of newer PyTorch versions that operators are called with (`c10::ScalarType`).
    pub newer_dtypes: BTreeSet<u8>,
    /// True if an operator is called with the number of float16, of which PyTorch 2.0.1 has no products on a CPU.
    pub has_float16: bool,
    /// Operators and classes of libraries other than PyTorch.
    pub third_party: BTreeSet<String>,
}

/// Operator for a constant in the layout of MKL-DNN, which `torch.jit.optimize_for_inference` makes. The text of an archive
/// lacks its value, so no version of PyTorch loads the archive.
const UNLOADABLE_CONSTANT: [&str; 3] = ["ops", "prim", "ConstantMKLDNNTensor"];

/// Returns the operator in `texts` whose call no version of PyTorch loads, if there is one.
pub fn unloadable_operator<'t>(texts: impl Iterator<Item = &'t str>) -> Option<&'static str> {
    let mut found = None;
    for text in texts {
        scan_names(text, |used| {
            if matches!(used, NameUse::Name(path) if path == UNLOADABLE_CONSTANT) {
                found = Some("prim::ConstantMKLDNNTensor");
            }
        });
    }
    found
}

/// Table of the operators of PyTorch 2.0.1, in the format that `operators.py` describes.
const OPERATOR_TABLE: &str = include_str!("operators-2.0.1.txt");

/// Table entry of an overload without arguments.
const NO_ARGUMENTS: &str = "()";

/// Finds the names in `texts` that PyTorch 2.0.1 does not define, and the operator calls that match none of its overloads.
pub fn unsupported_operators<'t>(texts: impl Iterator<Item = &'t str>) -> UnsupportedOperators {
    let mut found = UnsupportedOperators::default();
    for text in texts {
        scan_names(text, |used| match used {
            NameUse::Name(path) => found.check_operator_name(&OVERLOADS_2_0_1, path),
            NameUse::Call(path, call) => found.check_operator_call(&OVERLOADS_2_0_1, path, call),
        });
    }
    found
}

type OverloadTable = BTreeMap<&'static str, BTreeMap<&'static str, Vec<&'static str>>>;

static OVERLOADS_2_0_1: LazyLock<OverloadTable> = LazyLock::new(parse_operator_table);

impl UnsupportedOperators {
    fn check_operator_name(&mut self, known: &OverloadTable, path: &[&str]) {
        let (namespace, name, is_class) = match path {
            ["torch", name] => ("aten", *name, false),
            ["ops", namespace, name] => (*namespace, *name, false),
            ["__torch__", "torch", "classes", namespace, name, ..] => (*namespace, *name, true),
            _ => return,
        };
        let (others, text) = match known.get(namespace) {
            // The compiler handles names in `prim` that are not registered operators.
            Some(_) if namespace == "prim" => return,
            Some(names) if is_class || names.contains_key(name) => return,
            None if is_class && LIBTORCH_NAMESPACES.contains(&namespace) => return,
            Some(_) => (false, format!("{namespace}::{name}")),
            None if is_class => (true, format!("torch.classes.{namespace}.{name}")),
            None => (!LIBTORCH_NAMESPACES.contains(&namespace), format!("{namespace}::{name}")),
        };
        let names = if others { &mut self.third_party } else { &mut self.newer };
        names.insert(text);
    }

    fn check_operator_call(&mut self, known: &OverloadTable, path: &[&str], call: &OperatorCall<'_>) {
        let (namespace, name) = match path {
            ["torch", name] => ("aten", *name),
            ["ops", namespace, name] if *namespace != "prim" => (*namespace, *name),
            _ => return,
        };
        let overloads = known.get(namespace).and_then(|names| names.get(name));
        let Some(overloads) = overloads.filter(|overloads| !overloads.is_empty()) else { return };
        if !any_overload_accepts(overloads, call) {
            self.newer.insert(format!("{namespace}::{name}({})", format_operator_call(call)));
        } else if let Some(numbers) = dtype_numbers(overloads, call) {
            self.has_float16 |= numbers.contains(&FLOAT16);
            self.newer_dtypes.extend(numbers.into_iter().filter(|number| *number != FLOAT16));
        }
    }
}

/// Formats the arguments of a call, with `_` in place of values.
fn format_operator_call(call: &OperatorCall<'_>) -> String {
    let value = |literal: &LiteralType| match literal {
        LiteralType::None => "None",
        LiteralType::List => "[_]",
        _ => "_",
    };
    let positional = call.positional.iter().map(|literal| value(literal).to_owned());
    let keywords = call.keywords.iter().map(|(name, literal)| format!("{name}={}", value(literal)));
    positional.chain(keywords).collect::<Vec<_>>().join(", ")
}

fn any_overload_accepts(overloads: &[&str], call: &OperatorCall<'_>) -> bool {
    let names = overloads.iter().find_map(|text| text.strip_prefix('=')).unwrap_or_default();
    // A positional argument may be passed by name. PyTorch never writes this, so its position is not checked.
    let is_named = |(keyword, _): &(&str, LiteralType)| names.split(',').any(|name| name == *keyword);
    call.keywords.iter().any(is_named)
        || overloads
            .iter()
            .filter(|text| !text.starts_with('='))
            .any(|overload| overload_accepts(overload, call))
}

/// Returns the numbers in a call that an overload takes as those of dtypes, unless another overload takes them as other
/// numbers: of float16, and of dtypes that PyTorch 2.0.1 does not have.
fn dtype_numbers(overloads: &[&str], call: &OperatorCall<'_>) -> Option<Vec<u8>> {
    let is_dtype = |literal: &LiteralType| matches!(literal, LiteralType::DtypeNumber(_));
    let keywords = || call.keywords.iter().map(|(_, literal)| literal);
    if !call.positional.iter().chain(keywords()).any(is_dtype) {
        return None;
    }
    let mut numbers = None;
    for overload in overloads.iter().filter(|text| !text.starts_with('=')) {
        if !overload_accepts(overload, call) {
            continue;
        }
        let (mut dtypes, mut implausible) = (Vec::new(), false);
        let (positional, named) = overload.split_once('*').unwrap_or((overload, ""));
        let letters = positional.chars().filter(|letter| *letter != ',');
        let passed = letters.zip(&call.positional).map(|(letter, literal)| (letter, *literal));
        let by_name = call.keywords.iter().filter_map(|(name, literal)| {
            let mut entries = named.split(',').filter_map(|entry| entry.split_once(':'));
            Some((entries.find(|(its, _)| its == name)?.1.chars().next()?, *literal))
        });
        for (letter, literal) in passed.chain(by_name) {
            match (letter.to_ascii_lowercase(), literal) {
                ('d', LiteralType::DtypeNumber(number)) => dtypes.push(number),
                // PyTorch does not make a tensor, a device or a list of any length of a number.
                ('t' | 'v' | 'l', LiteralType::DtypeNumber(_)) => implausible = true,
                _ => {}
            }
        }
        match (dtypes.is_empty(), implausible) {
            (true, false) => return None,
            (false, _) => numbers = Some(dtypes),
            (true, true) => {}
        }
    }
    numbers
}

fn overload_accepts(overload: &str, call: &OperatorCall<'_>) -> bool {
    let (overload, varies) = match overload.strip_suffix('~') {
        Some(overload) => (overload, true),
        None => (overload, false),
    };
    let (positional, keywords) = overload.split_once('*').unwrap_or((overload, ""));
    let positional = if positional == NO_ARGUMENTS { "" } else { positional };
    let (required, optional) = positional.split_once(',').unwrap_or((positional, ""));
    let passed = call.positional.len();
    if passed < required.len() || (!varies && passed > required.len().saturating_add(optional.len())) {
        return false;
    }
    let mut letters = required.chars().chain(optional.chars()).zip(&call.positional);
    // Name, type letter and requiredness (`!`) of each keyword-only argument.
    let keywords = || {
        keywords.split(',').filter_map(|keyword| {
            let (name, letter) = keyword.split_once(':')?;
            Some((name, letter.chars().next()?, letter.ends_with('!')))
        })
    };
    letters.all(|(letter, literal)| literal_fits(letter, *literal))
        && call.keywords.iter().all(|(name, literal)| {
            keywords().any(|(its, letter, _)| its == *name && literal_fits(letter, *literal))
        })
        && keywords()
            .filter(|(.., is_required)| *is_required)
            .all(|(name, ..)| call.keywords.iter().any(|(keyword, _)| *keyword == name))
}

/// Returns true if a literal fits an argument type, given by its letter in the table.
fn literal_fits(letter: char, literal: LiteralType) -> bool {
    let kind = letter.to_ascii_lowercase();
    match literal {
        LiteralType::None => letter.is_ascii_uppercase() || kind == 'x',
        LiteralType::List => matches!(kind, 'l' | 'x'),
        LiteralType::Text => matches!(kind, 's' | 'x'),
        LiteralType::Float => !matches!(kind, 'i' | 'd' | 'b' | 's' | 'v'),
        LiteralType::Int | LiteralType::DtypeNumber(_) => !matches!(kind, 'b' | 's' | 'v'),
        LiteralType::Tensor => !matches!(kind, 's' | 'l'),
        LiteralType::Bool => !matches!(kind, 's' | 'l' | 't'),
        LiteralType::Other => true,
    }
}

fn parse_operator_table() -> OverloadTable {
    let mut all = OverloadTable::new();
    let (mut namespace, mut last) = ("", "");
    for line in OPERATOR_TABLE.lines() {
        if let Some(name) = line.strip_suffix("::") {
            namespace = name;
            continue;
        }
        let mut words = line.split_ascii_whitespace();
        // A line with a leading space continues the previous operator.
        if !line.starts_with(' ') {
            last = words.next().unwrap_or_default();
        }
        all.entry(namespace).or_default().entry(last).or_default().extend(words);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_up() {
        let text = "a = torch.add(torch.newest_thing(x), ops.prim.dtype(y))\n\
            b = ops.torchvision.nms(a, b, 0.5)\nc = self.torch.mine(x).torch.yours\n\
            d : __torch__.torch.classes.quantized.LinearPackedParamsBase\n\
            e : __torch__.torch.classes.mine.Thing\nf = \"torch.text\"\ng = __torch__.torch.nn.f(x)";
        let found = unsupported_operators([text].into_iter());
        assert_eq!(found.newer.iter().collect::<Vec<_>>(), ["aten::newest_thing"]);
        assert_eq!(
            found.third_party.iter().collect::<Vec<_>>(),
            ["torch.classes.mine.Thing", "torchvision::nms"]
        );
    }

    #[test]
    fn numbers_of_newer_dtypes_are_found_where_a_call_takes_a_dtype() {
        let numbers = |text: &str| unsupported_operators([text].into_iter()).newer_dtypes;
        for text in [
            "torch.to(x, 24)",
            "torch.to(x, torch.device(\"cpu\"), 24)",
            "torch.to(x, dtype=24, layout=0)",
            "torch.to(x, 24, False, True)",
            "torch.view(x, 24)",
            "torch.zeros([2, 3], dtype=24, layout=None)",
            "torch.softmax(x, -1, 24)",
            "torch.tensor(1., dtype=24)",
            "torch.sum(x, dtype=24)",
            "if a:\n  kind = 24\nelse:\n  kind = 5\ny = torch.to(x, kind)",
        ] {
            assert_eq!(numbers(text), BTreeSet::from([24]), "{text}");
        }
        for text in [
            "torch.to(x, 17)",
            "torch.softmax(x, 24)",
            "torch.add(x, 24)",
            "torch.zeros([24, 24], dtype=6)",
            "torch.arange(24, dtype=4)",
            "torch.view(x, [24])",
            "torch.eq(ops.prim.dtype(x), 24)",
            "torch.to(x, 6, False, True, 24)",
            "kind = 24\ny = torch.add(x, kind)",
        ] {
            assert_eq!(numbers(text), BTreeSet::new(), "{text}");
        }
        assert!(unsupported_operators(["torch.to(x, 24)"].into_iter()).newer.is_empty());
        assert!(unsupported_operators(["torch.to(x, 5)"].into_iter()).has_float16);
        assert!(!unsupported_operators(["torch.add(torch.to(x, 6), 5)"].into_iter()).has_float16);
    }

    #[test]
    fn a_constant_without_its_value_is_found() {
        let found = |text: &str| unloadable_operator([text].into_iter());
        assert_eq!(found("w = ops.prim.ConstantMKLDNNTensor()"), Some("prim::ConstantMKLDNNTensor"));
        assert_eq!(found("# ops.prim.ConstantMKLDNNTensor()\nw = \"ops.prim.ConstantMKLDNNTensor\""), None);
    }

    #[test]
    fn calls_are_compared_with_the_overloads() {
        let known = |text: &str| unsupported_operators([text].into_iter()).newer.is_empty();
        for text in [
            "torch.add(x, y, alpha=2)",
            "torch.add(x, 1, 2)",
            "torch.sum(x)",
            "torch.sum(x, None)",
            "torch.sum(x, [0, 1], True, dtype=6)",
            "torch.format(\"{}\", x, y, z)",
            "torch.linspace(0, 1)",
            "torch.to_dense(x)",
            "torch.squeeze(x, dim=1)",
            "ops.quantized.linear(x, self.p, 0.5, 3)",
            "ops.prim.anything(x)",
        ] {
            assert!(known(text), "{text}");
        }
        for (text, shown) in [
            ("torch.to_dense(x, masked_grad=True)", "aten::to_dense(_, masked_grad=_)"),
            ("torch.add(x)", "aten::add(_)"),
            ("torch.all(x, [0, 1])", "aten::all(_, [_])"),
            ("torch.all(x, None, True)", "aten::all(_, None, _)"),
            ("torch.std(x, [0], correction=1.5)", "aten::std(_, [_], correction=_)"),
            ("torch.relu(x, inplace=True)", "aten::relu(_, inplace=_)"),
            (
                "def f(x: Tensor, n: int, b: bool, o: Optional[bool]=None) -> T:\n  y = torch.stft(x, n, a, a, a, b, o, o, e)",
                "aten::stft(_, _, _, _, _, _, _, _, _)",
            ),
            ("ops.quantized.linear(x, y)", "quantized::linear(_, _)"),
        ] {
            assert_eq!(
                unsupported_operators([text].into_iter()).newer.into_iter().collect::<Vec<_>>(),
                [shown]
            );
        }
    }
}
