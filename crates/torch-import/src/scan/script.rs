//! Finds the operators and classes in TorchScript code that read or write files or belong to other libraries.
//!
//! The code of a `torch.jit.save` archive is text. `torch.jit.load` compiles it and runs each `__setstate__`; calling
//! the model runs the rest. The text is split into tokens as PyTorch's lexer does, and not parsed: a name that may lead to
//! an operator is reported wherever it occurs, and so is what hides a name and `torch.jit.save` never writes.
//!
//! Facts: `torch/csrc/jit/frontend/lexer.h` and `schema_matching.cpp`, `SourceImporterImpl` in
//! `torch/csrc/jit/serialization/import_source.cpp`, `python_print.cpp`: `torch.NAME` and methods of values are operators of `aten`,
//! `ops.NAMESPACE.NAME` is any operator, `__torch__.torch.classes.NAMESPACE.NAME` is a class in C++, and `autograd` in a namespace is `aten`.

use std::collections::HashMap;

use pickle_vm::{Machine, Object, PickleLimits, Reader};

use super::budget::{ScanBudget, truncate_name};
use super::operators::{is_file_method, operator_risk};
use super::report::CALLS_MAX;
use super::script_tokens::{CodeToken, CodeTokens, is_word};
use super::{GlobalCall, GlobalUse};
use crate::{Global, Risk};

/// Returns the operators and classes in the text of a code record that are not PyTorch's own harmless ones.
pub(super) fn uses_in_code(code: &[u8], budget: &mut ScanBudget<'_>) -> Vec<GlobalUse> {
    let mut spotted = OperatorUses { uses: Vec::new(), places: HashMap::new(), budget };
    let (mut chain, mut after_dot) = (NameChain::default(), false);
    let mut lookups = AttributeLookups::default();
    for (offset, token) in CodeTokens::new(code) {
        if matches!(token, CodeToken::Odd | CodeToken::OddBlank) {
            spotted.add_use(LANGUAGE, "syntax", Risk::Dangerous, CodeLocation { offset, code });
            if token == CodeToken::OddBlank {
                continue;
            }
        }
        match token {
            CodeToken::Name(name) if chain.ends_in_dot => {
                chain.names.push(name);
                chain.ends_in_dot = false;
            }
            CodeToken::Dot if !chain.names.is_empty() && !chain.ends_in_dot => chain.ends_in_dot = true,
            token => {
                if chain.is_lookup() {
                    lookups.begin(chain.offset);
                } else {
                    spotted.add_chain(&chain, code);
                }
                chain.after_dot = after_dot && chain.names.is_empty();
                chain.names.clear();
                chain.ends_in_dot = false;
                if let CodeToken::Name(name) = token {
                    chain.offset = offset;
                    chain.names.push(name);
                }
            }
        }
        if let Some(offset) = lookups.refused_by(token) {
            spotted.add_use(LANGUAGE, "getattr", Risk::Dangerous, CodeLocation { offset, code });
        }
        after_dot = token == CodeToken::Dot;
    }
    if chain.is_lookup() {
        lookups.begin(chain.offset);
    }
    if let Some(offset) = lookups.open.first() {
        spotted.add_use(LANGUAGE, "getattr", Risk::Dangerous, CodeLocation { offset: *offset, code });
    }
    spotted.add_chain(&chain, code);
    spotted.uses
}

/// Module of the findings about the language itself.
const LANGUAGE: &str = "TorchScript";

/// The calls of `getattr` that are open. `torch.jit.save` writes `getattr(self.layers, "0")`, which names one attribute.
#[derive(Default)]
struct AttributeLookups {
    /// Offsets of the calls, outermost first.
    open: Vec<u64>,
    state: LookupState,
}

/// Token that comes next in the innermost call of `getattr`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum LookupState {
    #[default]
    Parenthesis,
    Receiver,
    Literal,
    End,
}

impl AttributeLookups {
    /// Begins a call; the next token is what follows `getattr`.
    fn begin(&mut self, offset: u64) {
        self.open.push(offset);
        self.state = LookupState::Parenthesis;
    }

    /// Goes on by a token; returns the offset of the outermost call if it is not one of those that are written.
    fn refused_by(&mut self, token: CodeToken<'_>) -> Option<u64> {
        let first = *self.open.first()?;
        self.state = match (self.state, token) {
            (LookupState::Parenthesis, CodeToken::Other(b'('))
            | (LookupState::Receiver, CodeToken::Name(_) | CodeToken::Dot) => LookupState::Receiver,
            (LookupState::Receiver, CodeToken::Other(b',')) => LookupState::Literal,
            (LookupState::Literal, CodeToken::Text(text))
                if !(text.contains(&b'\\') || is_file_method(text)) =>
            {
                LookupState::End
            }
            (LookupState::End, CodeToken::Other(b')')) => {
                self.open.pop();
                LookupState::Receiver
            }
            _ => {
                self.open.clear();
                return Some(first);
            }
        };
        None
    }
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

/// Names are ASCII.
fn text(name: &[u8]) -> &str {
    std::str::from_utf8(name).unwrap_or_default()
}

/// A chain of names joined by dots.
#[derive(Default)]
struct NameChain<'t> {
    offset: u64,
    /// True if a dot precedes the first name, as in `f(x).save`.
    after_dot: bool,
    names: Vec<&'t [u8]>,
    ends_in_dot: bool,
}

impl NameChain<'_> {
    fn is_lookup(&self) -> bool {
        !self.after_dot && matches!(self.names.as_slice(), [b"getattr"])
    }
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
        let names = chain.names.as_slice();
        match names {
            _ if chain.after_dot => self.add_methods(names, at),
            [b"__torch__", b"torch", b"classes", namespace, name, ..] => {
                self.add_class(text(namespace), text(name), at);
            }
            // An alias of a namespace, whose names may be looked up later.
            [b"__torch__"]
            | [b"__torch__", b"torch"]
            | [b"__torch__", b"torch", b"classes"]
            | [b"__torch__", b"torch", b"classes", _] => {
                self.add_use(LANGUAGE, text(&names.join(&b'.')), Risk::Dangerous, at);
            }
            [b"__torch__", ..] | [] => {}
            [b"ops", namespace, name @ b"autograd", ..] => {
                self.add_use(&format!("torch.ops.{}", text(namespace)), text(name), Risk::Dangerous, at);
            }
            [b"ops", namespace, name, ..] => self.add_operator(text(namespace), text(name), at),
            [b"ops", namespace] => self.add_use("torch.ops", text(namespace), Risk::Dangerous, at),
            [b"ops"] => self.add_use("torch", "ops", Risk::Dangerous, at),
            [b"torch"] => self.add_use(LANGUAGE, "torch", Risk::Dangerous, at),
            [_, methods @ ..] => self.add_methods(methods, at),
        }
    }

    fn add_methods(&mut self, names: &[&[u8]], at: CodeLocation<'_>) {
        for name in names.iter().filter(|name| is_file_method(name)) {
            self.add_operator("aten", text(name), at);
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

/// Returns the line at an offset, shortened: a line can be as long as the file.
fn line_at(code: &[u8], offset: u64) -> String {
    let at = usize::try_from(offset).unwrap_or(usize::MAX);
    let (before, after) = code.split_at_checked(at).unwrap_or_default();
    let before = before.get(before.len().saturating_sub(200)..).unwrap_or_default();
    let after = after.get(..after.len().min(400)).unwrap_or_default();
    let start = before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let end = after.split(|byte| *byte == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(&[start, end].concat()).trim().to_owned()
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
            ("y = t . from_file(\"a\")", "dangerous torch.ops.aten.from_file"),
            ("f(x)[0].save(\"a\")", "dangerous torch.ops.aten.save"),
            ("f = torch.\n  save", "dangerous torch.ops.aten.save"),
            ("f(\n # c\n).save", "dangerous torch.ops.aten.save"),
            ("ops.aten.autograd.save(x)", "dangerous torch.ops.aten.autograd"),
            ("ops.image.write_file(\"a\", x)", "dangerous torch.ops.image.write_file"),
            ("ops.torchvision.nms(a, b, 0.5)", "unknown torch.ops.torchvision.nms"),
            ("o = ops", "dangerous torch.ops"),
            ("o = ops.image", "dangerous torch.ops.image"),
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
            "x = getattr(self.layers, \"0\")\ny = getattr(getattr(self, \"a.b\").c, \"1\").forward(x)",
            "x is not None and not y in (1.5e-3, 2., 3j, .5)",
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
    fn what_is_never_written_is_dangerous() {
        for lookup in [
            "getattr(self, \"save\")",
            "getattr(self, \"s\\x61ve\")",
            "getattr(self, \"sa\" \"ve\")",
            "getattr(self, \"sa\" + \"ve\")",
            "getattr(self, (\"save\"))",
            "getattr(self, name)",
            "getattr(self, \"a\", 1)",
            "getattr(f(x), \"a\")",
            "getattr(getattr(x, \"a\" \"b\"), \"a\")",
            "getattr # (self, \"a\")\n(\nself,\n# a\n\"save\")",
            "getattr(self, \"a\"",
            "g = getattr",
        ] {
            assert_eq!(names(lookup), ["dangerous TorchScript.getattr"], "{lookup}");
        }
        for (alias, name) in [
            ("t = torch", "torch"),
            ("c = __torch__.torch.classes", "__torch__.torch.classes"),
            ("c = __torch__.torch.classes.dist_c10d", "__torch__.torch.classes.dist_c10d"),
            ("c = __torch__.torch", "__torch__.torch"),
            ("c = __torch__\nc.torch", "__torch__"),
        ] {
            assert_eq!(names(alias), [format!("dangerous TorchScript.{name}")], "{alias}");
        }
        for odd in [
            "x =\x0c1",
            "x =\x0b1",
            "x =\t1",
            "x = 1\r\n",
            "x = \\\n1",
            "x = 1;",
            "x = \u{e9}",
            "x = \"a\ny",
            "# type: (Tensor) -> Tensor",
            "y = 0x1f",
            "y = 1if x else 2",
            "y = 1_000",
            "x is notx",
            "x not inx",
        ] {
            assert!(
                names(odd).contains(&"dangerous TorchScript.syntax".to_owned()),
                "{odd:?}: {:?}",
                names(odd)
            );
        }
        let hidden = names("y = x is notops.image.write_file(x)\nx =\x0ctorch\x0b.\x0csave(x)");
        assert!(hidden.contains(&"dangerous torch.ops.aten.save".to_owned()), "{hidden:?}");
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
            ("ops image.write_file(x)", &["dangerous torch.ops"][..]),
            ("x.ops\nops.image.write_file(x)", &["dangerous torch.ops.image.write_file"]),
            ("a.\nb = ops.image.write_file(x)", &["dangerous torch.ops.image.write_file"]),
            ("a.1 or ops.image.write_file(x)", &["dangerous torch.ops.image.write_file"]),
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
