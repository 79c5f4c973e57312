//! Finds dotted names in source text, and the arguments of operator calls.
//!
//! Facts: `printNode` in `torch/csrc/jit/serialization/python_print.cpp` names the keyword-only arguments of an operator,
//! and omits trailing arguments that equal their defaults.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use crate::script_text::lexer::{Lexer, Token, TokenKind};

/// Limits of the scan: the bracket depth in which calls are read, the arguments of a call, and the parts of a dotted name.
const DEPTH_MAX: usize = 200;
const ARGUMENTS_MAX: usize = 100;
const PARTS_MAX: usize = 8;
/// Number of float16 in `c10::ScalarType`.
pub(crate) const FLOAT16: u8 = 5;
/// Numbers of the dtypes that only newer PyTorch versions have: `c10::ScalarType` ends at 17 in 2.0.1.
const NEWER_DTYPES: RangeInclusive<u8> = 18..=127;
/// Annotation that is looked through: the literal type of the parameter is that of its argument.
const OPTIONAL: &str = "Optional";

/// Literal type of an argument, inferred from its text or from the annotation of the parameter that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LiteralType {
    None,
    Tensor,
    Bool,
    Int,
    /// Integer that, where a dtype is expected, is the number of float16 or of a dtype that PyTorch 2.0.1 does not have.
    DtypeNumber(u8),
    Float,
    Text,
    List,
    /// Any other expression, such as a variable or a call.
    Other,
}

/// Arguments of an operator call, by their literal types.
#[derive(Clone, Debug, Default)]
pub(crate) struct OperatorCall<'t> {
    pub(crate) positional: Vec<LiteralType>,
    pub(crate) keywords: Vec<(&'t str, LiteralType)>,
}

pub(crate) enum NameUse<'u, 't> {
    /// Dotted name, split at the dots.
    Name(&'u [&'t str]),
    /// Call of an operator, whose name was reported before as a `Name`.
    Call(&'u [&'t str], &'u OperatorCall<'t>),
}

/// Passes each dotted name of a text, and each operator call, to `each`.
pub(crate) fn scan_names<'t>(text: &'t str, mut each: impl FnMut(NameUse<'_, 't>)) {
    let mut walk = NameScanner {
        text,
        path: Vec::new(),
        expects_part: false,
        after_dot: false,
        frames: Vec::new(),
        excess_depth: 0,
        parameters: HashMap::new(),
        def: DefPosition::Elsewhere,
        assignment: AssignmentPosition::Elsewhere,
    };
    for token in Lexer::new(text, &(0..text.len())) {
        walk.scan_token(&token, &mut each);
    }
    each(NameUse::Name(&walk.path));
}

struct NameScanner<'t> {
    text: &'t str,
    /// Parts of the dotted name that is being read.
    path: Vec<&'t str>,
    /// True if the last token was the dot after `path`.
    expects_part: bool,
    after_dot: bool,
    /// Stack of the open brackets, up to the depth limit.
    frames: Vec<OpenBracket<'t>>,
    /// Number of open brackets beyond the depth limit.
    excess_depth: usize,
    /// Literal types of the current function's parameters whose annotation is one word, or one word in `Optional`.
    parameters: HashMap<&'t str, LiteralType>,
    def: DefPosition,
    assignment: AssignmentPosition<'t>,
}

/// Position of the last token in a statement `NAME = NUMBER`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AssignmentPosition<'t> {
    Elsewhere,
    Target(&'t str),
    Equals(&'t str),
}

/// Position of the last token in `def NAME(`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DefPosition {
    Elsewhere,
    Keyword,
    Name,
}

#[derive(Default)]
struct OpenBracket<'t> {
    /// Name of the called operator; `None` for other brackets.
    callee: Option<Vec<&'t str>>,
    /// True if the bracket holds the parameters of a function definition.
    is_def: bool,
    call: OperatorCall<'t>,
    /// Keyword of the argument; in a definition, the parameter whose annotation is being read.
    keyword: Option<&'t str>,
    argument: ArgumentState<'t>,
}

/// State of an argument after the tokens read so far.
#[derive(Clone, Copy, Default)]
enum ArgumentState<'t> {
    #[default]
    Nothing,
    Minus,
    Name(&'t str),
    Inferred(LiteralType),
}

impl<'t> NameScanner<'t> {
    fn scan_token(&mut self, token: &Token<'t>, each: &mut impl FnMut(NameUse<'_, 't>)) {
        let callee = self.extend_name(token, each);
        self.after_dot = token.is(b'.');
        self.scan_assignment(token);
        let is_def = self.def == DefPosition::Name && token.is(b'(');
        self.def = match (self.def, token.kind) {
            (_, TokenKind::Name("def")) if token.indent.is_some() => DefPosition::Keyword,
            (DefPosition::Keyword, TokenKind::Name(_)) => DefPosition::Name,
            _ => DefPosition::Elsewhere,
        };
        match token.kind {
            TokenKind::Symbol(b')' | b']' | b'}') if self.excess_depth > 0 => {
                self.excess_depth = self.excess_depth.saturating_sub(1);
            }
            TokenKind::Symbol(b')' | b']' | b'}') => {
                if let Some(mut frame) = self.frames.pop() {
                    let inside = frame.argument;
                    frame.finish_argument(&mut self.parameters);
                    if let Some(outer) = self.frames.last_mut().filter(|outer| outer.is_def)
                        && matches!(outer.argument, ArgumentState::Name(OPTIONAL))
                    {
                        outer.argument = inside;
                    }
                    if let Some(callee) = frame.callee {
                        each(NameUse::Call(&callee, &frame.call));
                    }
                }
            }
            _ if self.excess_depth > 0 => {
                if is_opening(token) {
                    self.excess_depth = self.excess_depth.saturating_add(1);
                }
            }
            TokenKind::Symbol(b',') => {
                if let Some(frame) = self.frames.last_mut() {
                    frame.finish_argument(&mut self.parameters);
                }
            }
            _ => {
                if let Some(frame) = self.frames.last_mut() {
                    frame.add_argument_token(token, self.text, &mut self.parameters);
                }
                if is_opening(token) {
                    if self.frames.len() < DEPTH_MAX {
                        if is_def {
                            self.parameters.clear();
                        }
                        self.frames.push(OpenBracket { callee, is_def, ..OpenBracket::default() });
                    } else {
                        self.excess_depth = 1;
                    }
                }
            }
        }
    }

    /// Stores the number of a dtype that a statement assigns to a variable. Another assignment of the variable, in the
    /// other branch of a condition, does not remove it.
    fn scan_assignment(&mut self, token: &Token<'t>) {
        self.assignment = match (self.assignment, token.kind) {
            (_, TokenKind::Name(name)) if token.indent.is_some() => AssignmentPosition::Target(name),
            (AssignmentPosition::Target(name), TokenKind::Symbol(b'=')) => AssignmentPosition::Equals(name),
            (AssignmentPosition::Equals(name), TokenKind::Number) => {
                let number = integer_literal(self.text.get(token.range.clone()).unwrap_or_default());
                // The numbers of newer dtypes are larger than that of float16.
                if let LiteralType::DtypeNumber(new) = number
                    && !matches!(self.parameters.get(name), Some(LiteralType::DtypeNumber(old)) if *old > new)
                {
                    self.parameters.insert(name, number);
                }
                AssignmentPosition::Elsewhere
            }
            _ => AssignmentPosition::Elsewhere,
        };
    }

    /// Extends or ends the dotted name. Returns the name of an operator if the token opens its argument list.
    fn extend_name(
        &mut self,
        token: &Token<'t>,
        each: &mut impl FnMut(NameUse<'_, 't>),
    ) -> Option<Vec<&'t str>> {
        let mut callee = None;
        match token.kind {
            TokenKind::Name(part) if self.expects_part => {
                if self.path.len() < PARTS_MAX {
                    self.path.push(part);
                }
                self.expects_part = false;
            }
            TokenKind::Symbol(b'.') if !self.path.is_empty() => self.expects_part = true,
            kind => {
                each(NameUse::Name(&self.path));
                if token.is(b'(') && !self.expects_part && matches!(*self.path, ["torch", _] | ["ops", _, _])
                {
                    callee = Some(self.path.clone());
                }
                self.path.clear();
                self.expects_part = false;
                if let TokenKind::Name(part) = kind
                    && !self.after_dot
                {
                    self.path.push(part);
                }
            }
        }
        callee
    }
}

fn annotated_literal(annotation: &str) -> LiteralType {
    match annotation {
        "Tensor" => LiteralType::Tensor,
        "bool" => LiteralType::Bool,
        "int" => LiteralType::Int,
        "float" => LiteralType::Float,
        "str" => LiteralType::Text,
        _ => LiteralType::Other,
    }
}

fn integer_literal(number: &str) -> LiteralType {
    let found = number.parse().ok().filter(|number| *number == FLOAT16 || NEWER_DTYPES.contains(number));
    found.map_or(LiteralType::Int, LiteralType::DtypeNumber)
}

fn is_opening(token: &Token<'_>) -> bool {
    matches!(token.kind, TokenKind::Symbol(b'(' | b'[' | b'{'))
}

impl<'t> OpenBracket<'t> {
    fn add_argument_token(
        &mut self,
        token: &Token<'t>,
        text: &str,
        parameters: &mut HashMap<&'t str, LiteralType>,
    ) {
        let number = || {
            let number = text.get(token.range.clone()).unwrap_or_default();
            match number {
                _ if number.ends_with('j') => LiteralType::Other,
                _ if number.contains(['.', 'e']) => LiteralType::Float,
                _ => integer_literal(number),
            }
        };
        self.argument = match (self.argument, token.kind) {
            (ArgumentState::Nothing, TokenKind::Name(name)) => ArgumentState::Name(name),
            (ArgumentState::Nothing, TokenKind::Symbol(b'-')) => ArgumentState::Minus,
            (ArgumentState::Nothing | ArgumentState::Minus, TokenKind::Number) => {
                ArgumentState::Inferred(number())
            }
            (ArgumentState::Nothing, TokenKind::Text(_)) => ArgumentState::Inferred(LiteralType::Text),
            (ArgumentState::Nothing, TokenKind::Symbol(b'[')) => ArgumentState::Inferred(LiteralType::List),
            // The default after a parameter's annotation is not evaluated.
            (ArgumentState::Name(_), TokenKind::Symbol(b'=')) if self.is_def => {
                self.finish_argument(parameters);
                ArgumentState::Inferred(LiteralType::Other)
            }
            (ArgumentState::Name(OPTIONAL), TokenKind::Symbol(b'[')) if self.is_def => {
                ArgumentState::Name(OPTIONAL)
            }
            (ArgumentState::Name(name), TokenKind::Symbol(b':')) if self.is_def => {
                self.keyword = Some(name);
                ArgumentState::Nothing
            }
            (ArgumentState::Name(name), TokenKind::Symbol(b'=')) if self.keyword.is_none() => {
                self.keyword = Some(name);
                ArgumentState::Nothing
            }
            _ => ArgumentState::Inferred(LiteralType::Other),
        };
    }

    /// Completes the current argument: stores its literal, or the parameter's type in a definition.
    fn finish_argument(&mut self, parameters: &mut HashMap<&'t str, LiteralType>) {
        let argument = std::mem::take(&mut self.argument);
        if self.is_def {
            if let (Some(name), ArgumentState::Name(annotation)) = (self.keyword.take(), argument) {
                parameters.insert(name, annotated_literal(annotation));
            }
            return;
        }
        let literal = match argument {
            ArgumentState::Nothing => return,
            ArgumentState::Name("None") => LiteralType::None,
            ArgumentState::Name("True" | "False") => LiteralType::Bool,
            ArgumentState::Name(name) => parameters.get(name).copied().unwrap_or(LiteralType::Other),
            ArgumentState::Minus => LiteralType::Other,
            ArgumentState::Inferred(literal) => literal,
        };
        if self.callee.is_none() {
            return;
        }
        let OperatorCall { positional, keywords } = &mut self.call;
        if positional.len().saturating_add(keywords.len()) >= ARGUMENTS_MAX {
            // A call with more arguments than the limit is not checked: such an operator takes any number of arguments.
            self.callee = None;
        } else {
            match self.keyword.take() {
                Some(keyword) => keywords.push((keyword, literal)),
                None => positional.push(literal),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        scan_names(text, |used| {
            if let NameUse::Call(path, call) = used {
                found.push(format!("{} {:?} {:?}", path.join("."), call.positional, call.keywords));
            }
        });
        found
    }

    #[test]
    fn calls_of_operators_have_their_arguments() {
        for (text, found) in [
            ("torch.f()", "torch.f [] []"),
            ("torch.f(x, -1.5, 2, 1e3, 1j, -y)", "torch.f [Other, Float, Int, Float, Other, Other] []"),
            (
                "torch.f(None, True, \"a,)\", [a, (b)], [a][0], {}, ())",
                "torch.f [None, Bool, Text, List, Other, Other, Other] []",
            ),
            (
                "torch.f(x, dtype=None, a=[1],\n    b=self.c)",
                "torch.f [Other] [(\"dtype\", None), (\"a\", List), (\"b\", Other)]",
            ),
            ("ops.quantized.g((x).y, annotate(List[int], []), )", "ops.quantized.g [Other, Other] []"),
        ] {
            assert_eq!(calls(text), [found], "{text}");
        }
        assert_eq!(
            calls("torch.f(torch.g(x, 1), [torch.h()])"),
            ["torch.g [Other, Int] []", "torch.h [] []", "torch.f [Other, List] []"]
        );
        assert!(calls("torch.f torch.f.g(x) self.torch.f(x) torch.(x) ops.f(x) torch.f(x").is_empty());
        let deep = "[".repeat(1000) + "torch.f(" + &"]".repeat(1000) + ") torch.g()";
        assert_eq!(calls(&deep), ["torch.g [] []"]);
        assert!(calls(&format!("torch.f({})", "x, ".repeat(101))).is_empty());
        assert_eq!(calls(")]} torch.f(x])"), ["torch.f [Other] []"]);
        let typed = "  def g(self: __torch__.N,\n    a: Tensor,\n    b: bool=False,\n    c: List[int]=[1, 2],\n    d: Optional[str]=None) -> T:\n    \
            torch.f(a, b, c, d, e)\ndef h(b: float=1.) -> int:\n  torch.f(a, b, (b), b.c)";
        assert_eq!(
            calls(typed),
            ["torch.f [Tensor, Bool, Other, Text, Other] []", "torch.f [Other, Float, Other, Other] []"]
        );
    }
}
