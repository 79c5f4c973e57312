//! The operators and classes that code names and that PyTorch 2.0.1 does not have.
//!
//! Facts: `torch.NAME` is an operator of `aten`, `ops.NAMESPACE.NAME` is any operator, `__torch__.torch.classes.NAMESPACE.NAME`
//! is a class in C++ (`torch/csrc/jit/serialization/import_source.cpp`). `operators.py` lists those of 2.0.1.

use std::collections::{BTreeMap, BTreeSet};

use crate::lexer::{Kind, Lexer};

/// Namespaces of PyTorch's own operators and classes, besides those in the table.
const OWN: &[&str] = &[
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

/// What [`foreign`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Foreign {
    /// Operators that PyTorch has and 2.0.1 does not: they came later.
    pub newer: BTreeSet<String>,
    /// Operators and classes of other libraries.
    pub others: BTreeSet<String>,
}

/// The names of 2.0.1's operators: a namespace on a line of its own that ends in `::`, and its operators below it.
const TABLE: &str = include_str!("operators-2.0.1.txt");

/// What the names in `texts` mean that PyTorch 2.0.1 does not know.
pub fn foreign<'t>(texts: impl Iterator<Item = &'t str>) -> Foreign {
    let known = known();
    let mut found = Foreign::default();
    for text in texts {
        let (mut chain, mut open): (Vec<&str>, bool) = (Vec::new(), false);
        let mut after_dot = false;
        for token in Lexer::new(text, &(0..text.len())) {
            match token.kind {
                Kind::Name(name) if open => {
                    chain.push(name);
                    open = false;
                }
                Kind::Name(name) => {
                    found.judge(&known, &chain);
                    chain.clear();
                    if !after_dot {
                        chain.push(name);
                    }
                }
                Kind::Symbol(b'.') if !chain.is_empty() => open = true,
                _ => {
                    found.judge(&known, &chain);
                    chain.clear();
                    open = false;
                }
            }
            after_dot = token.is(b'.');
        }
        found.judge(&known, &chain);
    }
    found
}

impl Foreign {
    fn judge(&mut self, known: &BTreeMap<&str, BTreeSet<&str>>, chain: &[&str]) {
        let (namespace, name, is_class) = match chain {
            ["torch", name] => ("aten", *name, false),
            ["ops", namespace, name] => (*namespace, *name, false),
            ["__torch__", "torch", "classes", namespace, name, ..] => (*namespace, *name, true),
            _ => return,
        };
        let (others, text) = match known.get(namespace) {
            // The compiler knows more names in it than there are operators.
            Some(_) if namespace == "prim" => return,
            Some(names) if is_class || names.contains(name) => return,
            None if is_class && OWN.contains(&namespace) => return,
            Some(_) => (false, format!("{namespace}::{name}")),
            None if is_class => (true, format!("torch.classes.{namespace}.{name}")),
            None => (!OWN.contains(&namespace), format!("{namespace}::{name}")),
        };
        let names = if others { &mut self.others } else { &mut self.newer };
        names.insert(text);
    }
}

fn known() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut namespace = "";
    for line in TABLE.lines() {
        if let Some(name) = line.strip_suffix("::") {
            namespace = name;
        } else {
            all.entry(namespace).or_default().extend(line.split(' '));
        }
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
        let found = foreign([text].into_iter());
        assert_eq!(found.newer.iter().collect::<Vec<_>>(), ["aten::newest_thing"]);
        assert_eq!(found.others.iter().collect::<Vec<_>>(), ["torch.classes.mine.Thing", "torchvision::nms"]);
    }
}
