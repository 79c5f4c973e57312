//! Finds the operators and classes in TorchScript code that read or write files or belong to other libraries.
//!
//! The code of a `torch.jit.save` archive is text. `torch.jit.load` compiles it and runs each `__setstate__`; calling
//! the model runs the rest. The text is split into words, strings and comments, and not parsed: a name that may lead to
//! an operator is reported wherever it occurs.
//!
//! Facts: `torch/csrc/jit/frontend/lexer.h` and `schema_matching.cpp`, `SourceImporterImpl` in
//! `torch/csrc/jit/serialization/import_source.cpp`: `torch.NAME` and methods of values are operators of `aten`,
//! `ops.NAMESPACE.NAME` is any operator, `__torch__.torch.classes.NAMESPACE.NAME` is a class in C++.

use std::collections::HashMap;

use pickle_vm::{Machine, Object, PickleLimits, Reader};

use super::budget::{ScanBudget, truncate_name};
use super::operators::{is_file_method, operator_risk};
use super::{GlobalCall, GlobalUse};
use crate::{Global, Risk};

/// Maximum number of uses shown per operator.
const CALLS_MAX: usize = 8;

/// Returns the operators and classes in the text of a code record that are not PyTorch's own harmless ones.
pub(super) fn uses_in_code(code: &[u8], budget: &mut ScanBudget<'_>) -> Vec<GlobalUse> {
    let mut spotted = OperatorUses { uses: Vec::new(), places: HashMap::new(), budget };
    let tokens = CodeTokens { text: code, at: 0 };
    let (mut chain, mut after_dot) = (NameChain::default(), false);
    // Inside the parentheses of `getattr(`, a string names an attribute.
    let mut getattr = false;
    for (offset, token) in tokens {
        match token {
            CodeToken::Name(name) if chain.names.is_empty() => {
                chain = NameChain { offset, after_dot, names: vec![name], ends_in_dot: false }
            }
            CodeToken::Name(name) if chain.ends_in_dot => {
                chain.names.push(name);
                chain.ends_in_dot = false;
            }
            CodeToken::Dot if !chain.names.is_empty() && !chain.ends_in_dot => chain.ends_in_dot = true,
            token => {
                let last = std::mem::take(&mut chain);
                getattr |= last.names == ["getattr"];
                spotted.add_chain(&last, code);
                match token {
                    CodeToken::Name(name) => {
                        chain = NameChain { offset, after_dot: false, names: vec![name], ends_in_dot: false }
                    }
                    CodeToken::Text(text)
                        if getattr && (text.contains(&b'\\') || names_file_method(text)) =>
                    {
                        let name = String::from_utf8_lossy(text);
                        spotted.add_use("torch", &name, Risk::Dangerous, CodeLocation { offset, code });
                    }
                    CodeToken::Other(b'\n') => getattr = false,
                    _ => {}
                }
            }
        }
        after_dot = token.is_dot() || (after_dot && token.is_name());
    }
    spotted.add_chain(&chain, code);
    spotted.uses
}

/// Returns the operators and classes named in a mobile model's `bytecode.pkl`: `aten::add`,
/// `__torch__.torch.classes.a.B`.
pub(super) fn uses_in_bytecode(bytes: &[u8], budget: &mut ScanBudget<'_>) -> Vec<GlobalUse> {
    let mut machine = Machine::new(PickleLimits::default());
    for instruction in Reader::new(bytes) {
        if !instruction.is_ok_and(|instruction| matches!(machine.step(instruction), Ok(None))) {
            break;
        }
    }
    let heap = machine.heap();
    let mut spotted = OperatorUses { uses: Vec::new(), places: HashMap::new(), budget };
    for id in heap.ids().filter(|id| matches!(heap.get(*id), Object::Text(_))) {
        let Some(text) = heap.text(id) else { continue };
        let class = text.find(CLASS_PREFIX).and_then(|at| text.get(at..)?.strip_prefix(CLASS_PREFIX));
        if let Some((namespace, name)) = class.and_then(|class| class.split_once('.')) {
            let name = name.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
            spotted.add_class(namespace, name, CodeLocation { offset: heap.offset(id), code: b"" });
        } else if let Some((namespace, name)) = text.split_once("::") {
            let is_word = |word: &str| !word.is_empty() && word.bytes().all(is_word);
            if is_word(namespace) && is_word(name) {
                spotted.add_operator(namespace, name, CodeLocation { offset: heap.offset(id), code: b"" });
            }
        }
    }
    spotted.uses
}

const CLASS_PREFIX: &str = "__torch__.torch.classes.";

fn names_file_method(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(is_file_method)
}

/// A chain of names joined by dots.
#[derive(Default)]
struct NameChain<'t> {
    offset: u64,
    /// True if a dot precedes the first name, as in `f(x).save`.
    after_dot: bool,
    names: Vec<&'t str>,
    ends_in_dot: bool,
}

#[derive(Clone, Copy)]
struct CodeLocation<'c> {
    offset: u64,
    /// Text with the name at `offset`; empty if there is none.
    code: &'c [u8],
}

struct OperatorUses<'b, 'o> {
    uses: Vec<GlobalUse>,
    places: HashMap<(String, String), usize>,
    budget: &'b mut ScanBudget<'o>,
}

impl OperatorUses<'_, '_> {
    fn add_chain(&mut self, chain: &NameChain<'_>, code: &[u8]) {
        let at = CodeLocation { offset: chain.offset, code };
        match chain.names.as_slice() {
            ["__torch__", "torch", "classes", namespace, name, ..] if !chain.after_dot => {
                self.add_class(namespace, name, at);
            }
            ["__torch__", ..] if !chain.after_dot => {}
            ["ops", namespace, name, ..] if !chain.after_dot => self.add_operator(namespace, name, at),
            // An alias of a namespace of operators, or of all namespaces.
            ["ops", namespace] if !chain.after_dot => self.add_use("torch.ops", namespace, Risk::Unknown, at),
            ["ops"] if !chain.after_dot => self.add_use("torch", "ops", Risk::Unknown, at),
            names => {
                let methods = names.iter().skip(usize::from(!chain.after_dot));
                for name in methods.filter(|name| is_file_method(name)) {
                    self.add_operator("aten", name, at);
                }
            }
        }
    }

    fn add_operator(&mut self, namespace: &str, name: &str, at: CodeLocation<'_>) {
        let risk = operator_risk(namespace, name);
        if risk != Risk::Known {
            self.add_use(&format!("torch.ops.{namespace}"), name, risk, at);
        }
    }

    fn add_class(&mut self, namespace: &str, name: &str, at: CodeLocation<'_>) {
        let risk = operator_risk(namespace, name);
        if risk != Risk::Known {
            self.add_use(&format!("torch.classes.{namespace}"), name, risk, at);
        }
    }

    fn add_use(
        &mut self,
        module: &str,
        name: &str,
        risk: Risk,
        CodeLocation { offset, code }: CodeLocation<'_>,
    ) {
        if !self.budget.spend(module.len().saturating_add(name.len()) as u64) {
            return;
        }
        let (module, name) = (truncate_name(module.to_owned()), truncate_name(name.to_owned()));
        let next = self.uses.len();
        let place = *self.places.entry((module.clone(), name.clone())).or_insert(next);
        if place == next {
            let global = Global::with_risk(&module, &name, offset, risk);
            self.uses.push(GlobalUse {
                global,
                risk,
                calls: Vec::new(),
                unlisted_calls: 0,
                after_error: false,
            });
        }
        let Some(found) = self.uses.get_mut(place) else { return };
        if found.calls.len() < CALLS_MAX
            && let Some(text) = self.budget.spend_text(|| line_at(code, offset))
        {
            found.calls.push(GlobalCall { opcode: "code", offset, text, has_arguments: true });
        } else {
            found.unlisted_calls = found.unlisted_calls.saturating_add(1);
        }
    }
}

fn line_at(code: &[u8], offset: u64) -> String {
    let at = usize::try_from(offset).unwrap_or(usize::MAX);
    let (before, after) = code.split_at_checked(at).unwrap_or_default();
    let start = before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let end = after.split(|byte| *byte == b'\n').next().unwrap_or_default();
    // A line can be as long as the file.
    let start = start.get(start.len().saturating_sub(200)..).unwrap_or_default();
    let end = end.get(..end.len().min(400)).unwrap_or_default();
    String::from_utf8_lossy(&[start, end].concat()).trim().to_owned()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CodeToken<'t> {
    Name(&'t str),
    Dot,
    /// Text between quotes, with its escapes.
    Text(&'t [u8]),
    Other(u8),
}

impl CodeToken<'_> {
    fn is_dot(self) -> bool {
        self == Self::Dot
    }

    fn is_name(self) -> bool {
        matches!(self, Self::Name(_))
    }
}

/// Splits code into words, dots and strings; skips comments and spaces, and keeps line ends.
struct CodeTokens<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Iterator for CodeTokens<'t> {
    type Item = (u64, CodeToken<'t>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let start = self.at;
            let rest = self.text.get(start..)?;
            let (&first, after) = rest.split_first()?;
            let offset = start as u64;
            let (len, token) = match first {
                b' ' | b'\t' | b'\r' => (1, None),
                // A backslash at the end of a line continues the statement.
                b'\\' => (if after.first() == Some(&b'\n') { 2 } else { 1 }, None),
                b'#' => (rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()), None),
                b'\'' | b'"' => {
                    let (len, text) = quoted(rest, first);
                    (len, Some(CodeToken::Text(text)))
                }
                b'.' if !after.first().is_some_and(u8::is_ascii_digit) => (1, Some(CodeToken::Dot)),
                byte if is_word(byte) => {
                    let len = rest.iter().position(|byte| !is_word(*byte)).unwrap_or(rest.len());
                    let word = rest.get(..len).and_then(|word| std::str::from_utf8(word).ok());
                    (
                        len,
                        Some(if byte.is_ascii_digit() {
                            CodeToken::Other(byte)
                        } else {
                            CodeToken::Name(word.unwrap_or_default())
                        }),
                    )
                }
                other => (1, Some(CodeToken::Other(other))),
            };
            self.at = start.saturating_add(len.max(1));
            if let Some(token) = token {
                return Some((offset, token));
            }
        }
    }
}

/// Returns the length of a string with its quotes, and the text between them.
fn quoted(text: &[u8], quote: u8) -> (usize, &[u8]) {
    let triple = text.starts_with(&[quote; 3]);
    let width = if triple { 3 } else { 1 };
    let end: &[u8] = if triple { &[quote; 3] } else { &[quote] };
    let mut at = width;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        // An unterminated single-line string is not TorchScript; scanning continues after the line.
        if rest.starts_with(end) || (!triple && rest.starts_with(b"\n")) {
            return (at.saturating_add(width), text.get(width..at).unwrap_or_default());
        }
        at = at.saturating_add(if rest.starts_with(b"\\") { 2 } else { 1 });
    }
    (text.len(), text.get(width..).unwrap_or_default())
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(code: &str) -> Vec<String> {
        let uses = uses_in_code(code.as_bytes(), &mut ScanBudget::new(1 << 20));
        uses.iter().map(|used| format!("{} {}", used.risk.name(), used.global)).collect()
    }

    #[test]
    fn operators_are_found_however_they_are_reached() {
        for (code, expected) in [
            ("x = torch.from_file(\"a\", True, 4)", "dangerous torch.ops.aten.from_file"),
            ("t = torch\ny = t . from_file(\"a\")", "dangerous torch.ops.aten.from_file"),
            ("f(x)[0].save(\"a\")", "dangerous torch.ops.aten.save"),
            ("f = \\\n torch.save", "dangerous torch.ops.aten.save"),
            ("getattr(torch, \"save\")(x, \"a\")", "dangerous torch.save"),
            ("getattr(torch, \"s\\x61ve\")(x, \"a\")", "dangerous torch.s\\x61ve"),
            ("ops.image.write_file(\"a\", x)", "dangerous torch.ops.image.write_file"),
            ("ops.torchvision.nms(a, b, 0.5)", "unknown torch.ops.torchvision.nms"),
            ("o = ops", "unknown torch.ops"),
            ("o = ops.image", "unknown torch.ops.image"),
            (
                "s : __torch__.torch.classes.dist_c10d.FileStore",
                "dangerous torch.classes.dist_c10d.FileStore",
            ),
            ("s : __torch__.torch.classes.mine.Thing", "unknown torch.classes.mine.Thing"),
        ] {
            assert_eq!(names(code), [expected], "{code}");
        }
    }

    #[test]
    fn ordinary_code_is_silent() {
        for code in [
            "# torch.from_file(\"a\")",
            "x = \"torch.save(\"",
            "x = '''\ntorch.save(x)\n'''",
            "def save(self: __torch__.m.Model, x: Tensor) -> Tensor:",
            "_0 = __torch__.mine.save(x)",
            "ops.prim.RaiseException(\"AssertionError: \")",
            "w : __torch__.torch.classes.quantized.LinearPackedParamsBase",
            "x = self.ops.weight",
            "y = 1.5 + .5e3",
        ] {
            assert!(names(code).is_empty(), "{code}");
        }
    }

    #[test]
    fn the_line_is_shown() {
        let uses = uses_in_code(b"a = 1\n  b = torch.from_file(a)\nc = 2", &mut ScanBudget::new(100));
        assert_eq!(uses[0].calls[0].text, "b = torch.from_file(a)");
        assert_eq!(uses[0].global.offset, 12);
    }

    #[test]
    fn a_chain_ends_where_its_words_do() {
        for (code, expected) in [
            // Two names without a dot, a line break, and a digit are not parts of one name.
            ("ops image.write_file(x)", &["unknown torch.ops"][..]),
            ("x.ops\nops.image.write_file(x)", &["dangerous torch.ops.image.write_file"]),
            ("a.\nb = ops.image.write_file(x)", &["dangerous torch.ops.image.write_file"]),
            ("a.1 ops.image.write_file(x)", &["dangerous torch.ops.image.write_file"]),
            ("a = 1.\ntorch.save(x)", &["dangerous torch.ops.aten.save"]),
            ("getattr(x, \"y\")\nz = \"save\"", &[]),
            ("x = ops2.image.write_file(x)", &[]),
        ] {
            assert_eq!(names(code), expected, "{code:?}");
        }
    }

    #[test]
    fn names_after_a_call_are_attributes() {
        for code in [
            "f().__torch__.torch.classes.mine.Thing",
            "f().ops.mine.f(x)",
            "f().ops.mine",
            "f().ops",
            "f()[0].ops.mine.f",
        ] {
            assert!(names(code).is_empty(), "{code}");
        }
        assert_eq!(names("f().__torch__.save(x)"), ["dangerous torch.ops.aten.save"]);
    }

    #[test]
    fn eight_calls_of_an_operator_are_shown() {
        for (count, more) in [(8, 0), (9, 1)] {
            let uses =
                uses_in_code("torch.save(x)\n".repeat(count).as_bytes(), &mut ScanBudget::new(1 << 20));
            assert_eq!((uses.len(), uses[0].calls.len(), uses[0].unlisted_calls), (1, 8, more));
        }
    }

    #[test]
    fn bytecode_names_operators_and_classes() {
        let names = |text: &str| {
            let pickle =
                [&[b'X', u8::try_from(text.len()).expect("short"), 0, 0, 0][..], text.as_bytes(), b"."]
                    .concat();
            let uses = uses_in_bytecode(&pickle, &mut ScanBudget::new(1 << 20));
            uses.iter().map(|used| format!("{} {}", used.risk.name(), used.global)).collect::<Vec<_>>()
        };
        for (text, expected) in [
            ("aten::save", "dangerous torch.ops.aten.save"),
            ("mine::f_1", "unknown torch.ops.mine.f_1"),
            ("Optional[__torch__.torch.classes.mine.My_Thing]", "unknown torch.classes.mine.My_Thing"),
        ] {
            assert_eq!(names(text), [expected], "{text}");
        }
        for text in
            ["aten::add", "a b::f", "mine::f g", "::f", "mine::", "mine", "__torch__.torch.classes.mine"]
        {
            assert!(names(text).is_empty(), "{text}");
        }
    }
}
