//! Finds dotted names in source text, and the arguments of operator calls.
//!
//! Facts: `printNode` in `torch/csrc/jit/serialization/python_print.cpp` names the keyword-only arguments of an operator,
//! and omits trailing arguments that equal their defaults.

use std::collections::HashMap;

use crate::lexer::{Kind, Lexer, Token};

/// Limits of the scan: the bracket depth in which calls are read, the arguments of a call, and the parts of a dotted name.
const DEPTH_MAX: usize = 200;
const ARGUMENTS_MAX: usize = 100;
const PARTS_MAX: usize = 8;
/// Annotation that is looked through: the literal type of the parameter is that of its argument.
const OPTIONAL: &str = "Optional";

/// Literal type of an argument, inferred from its text or from the annotation of the parameter that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Literal {
    None,
    Tensor,
    Bool,
    Int,
    Float,
    Text,
    List,
    /// Any other expression, such as a variable or a call.
    Other,
}

/// Arguments of an operator call, by their literal types.
#[derive(Clone, Debug, Default)]
pub(crate) struct Call<'t> {
    pub(crate) positional: Vec<Literal>,
    pub(crate) keywords: Vec<(&'t str, Literal)>,
}

/// Name or call that was found in source text.
pub(crate) enum Use<'u, 't> {
    /// Dotted name, split at the dots.
    Name(&'u [&'t str]),
    /// Call of an operator, whose name was reported before as a `Name`.
    Call(&'u [&'t str], &'u Call<'t>),
}

/// Passes each dotted name of a text, and each operator call, to `each`.
pub(crate) fn uses<'t>(text: &'t str, mut each: impl FnMut(Use<'_, 't>)) {
    let mut walk = Walk {
        text,
        path: Vec::new(),
        expects_part: false,
        after_dot: false,
        frames: Vec::new(),
        deeper: 0,
        parameters: HashMap::new(),
        def: Def::Elsewhere,
    };
    for token in Lexer::new(text, &(0..text.len())) {
        walk.step(&token, &mut each);
    }
    each(Use::Name(&walk.path));
}

struct Walk<'t> {
    text: &'t str,
    /// Parts of the dotted name that is being read.
    path: Vec<&'t str>,
    /// True if the last token was the dot after `path`.
    expects_part: bool,
    after_dot: bool,
    /// Stack of the open brackets, up to the depth limit.
    frames: Vec<Frame<'t>>,
    /// Number of open brackets beyond the depth limit.
    deeper: usize,
    /// Literal types of the current function's parameters whose annotation is one word, or one word in `Optional`.
    parameters: HashMap<&'t str, Literal>,
    def: Def,
}

/// Position of the last token in `def NAME(`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Def {
    Elsewhere,
    Keyword,
    Name,
}

#[derive(Default)]
struct Frame<'t> {
    /// Name of the called operator; `None` for other brackets.
    callee: Option<Vec<&'t str>>,
    /// True if the bracket holds the parameters of a function definition.
    is_def: bool,
    call: Call<'t>,
    /// Keyword of the argument; in a definition, the parameter whose annotation is being read.
    keyword: Option<&'t str>,
    argument: Argument<'t>,
}

/// State of an argument after the tokens read so far.
#[derive(Clone, Copy, Default)]
enum Argument<'t> {
    #[default]
    Nothing,
    Minus,
    Name(&'t str),
    Is(Literal),
}

impl<'t> Walk<'t> {
    fn step(&mut self, token: &Token<'t>, each: &mut impl FnMut(Use<'_, 't>)) {
        let callee = self.name(token, each);
        self.after_dot = token.is(b'.');
        let is_def = self.def == Def::Name && token.is(b'(');
        self.def = match (self.def, token.kind) {
            (_, Kind::Name("def")) if token.indent.is_some() => Def::Keyword,
            (Def::Keyword, Kind::Name(_)) => Def::Name,
            _ => Def::Elsewhere,
        };
        match token.kind {
            Kind::Symbol(b')' | b']' | b'}') if self.deeper > 0 => {
                self.deeper = self.deeper.saturating_sub(1);
            }
            Kind::Symbol(b')' | b']' | b'}') => {
                if let Some(mut frame) = self.frames.pop() {
                    let inside = frame.argument;
                    frame.finish(&mut self.parameters);
                    if let Some(outer) = self.frames.last_mut().filter(|outer| outer.is_def)
                        && matches!(outer.argument, Argument::Name(OPTIONAL))
                    {
                        outer.argument = inside;
                    }
                    if let Some(callee) = frame.callee {
                        each(Use::Call(&callee, &frame.call));
                    }
                }
            }
            _ if self.deeper > 0 => {
                if is_opening(token) {
                    self.deeper = self.deeper.saturating_add(1);
                }
            }
            Kind::Symbol(b',') => {
                if let Some(frame) = self.frames.last_mut() {
                    frame.finish(&mut self.parameters);
                }
            }
            _ => {
                if let Some(frame) = self.frames.last_mut() {
                    frame.add(token, self.text, &mut self.parameters);
                }
                if is_opening(token) {
                    if self.frames.len() < DEPTH_MAX {
                        if is_def {
                            self.parameters.clear();
                        }
                        self.frames.push(Frame { callee, is_def, ..Frame::default() });
                    } else {
                        self.deeper = 1;
                    }
                }
            }
        }
    }

    /// Extends or ends the dotted name. Returns the name of an operator if the token opens its argument list.
    fn name(&mut self, token: &Token<'t>, each: &mut impl FnMut(Use<'_, 't>)) -> Option<Vec<&'t str>> {
        let mut callee = None;
        match token.kind {
            Kind::Name(part) if self.expects_part => {
                if self.path.len() < PARTS_MAX {
                    self.path.push(part);
                }
                self.expects_part = false;
            }
            Kind::Symbol(b'.') if !self.path.is_empty() => self.expects_part = true,
            kind => {
                each(Use::Name(&self.path));
                if token.is(b'(') && !self.expects_part && matches!(*self.path, ["torch", _] | ["ops", _, _])
                {
                    callee = Some(self.path.clone());
                }
                self.path.clear();
                self.expects_part = false;
                if let Kind::Name(part) = kind
                    && !self.after_dot
                {
                    self.path.push(part);
                }
            }
        }
        callee
    }
}

/// Returns the literal type for a one-word annotation.
fn of_annotation(annotation: &str) -> Literal {
    match annotation {
        "Tensor" => Literal::Tensor,
        "bool" => Literal::Bool,
        "int" => Literal::Int,
        "float" => Literal::Float,
        "str" => Literal::Text,
        _ => Literal::Other,
    }
}

fn is_opening(token: &Token<'_>) -> bool {
    matches!(token.kind, Kind::Symbol(b'(' | b'[' | b'{'))
}

impl<'t> Frame<'t> {
    /// Updates the state of the current argument with a token.
    fn add(&mut self, token: &Token<'t>, text: &str, parameters: &mut HashMap<&'t str, Literal>) {
        let number = || {
            let number = text.get(token.range.clone()).unwrap_or_default();
            match number {
                _ if number.ends_with('j') => Literal::Other,
                _ if number.contains(['.', 'e']) => Literal::Float,
                _ => Literal::Int,
            }
        };
        self.argument = match (self.argument, token.kind) {
            (Argument::Nothing, Kind::Name(name)) => Argument::Name(name),
            (Argument::Nothing, Kind::Symbol(b'-')) => Argument::Minus,
            (Argument::Nothing | Argument::Minus, Kind::Number) => Argument::Is(number()),
            (Argument::Nothing, Kind::Text(_)) => Argument::Is(Literal::Text),
            (Argument::Nothing, Kind::Symbol(b'[')) => Argument::Is(Literal::List),
            // The default after a parameter's annotation is not evaluated.
            (Argument::Name(_), Kind::Symbol(b'=')) if self.is_def => {
                self.finish(parameters);
                Argument::Is(Literal::Other)
            }
            (Argument::Name(OPTIONAL), Kind::Symbol(b'[')) if self.is_def => Argument::Name(OPTIONAL),
            (Argument::Name(name), Kind::Symbol(b':')) if self.is_def => {
                self.keyword = Some(name);
                Argument::Nothing
            }
            (Argument::Name(name), Kind::Symbol(b'=')) if self.keyword.is_none() => {
                self.keyword = Some(name);
                Argument::Nothing
            }
            _ => Argument::Is(Literal::Other),
        };
    }

    /// Completes the current argument: stores its literal, or the parameter's type in a definition.
    fn finish(&mut self, parameters: &mut HashMap<&'t str, Literal>) {
        let argument = std::mem::take(&mut self.argument);
        if self.is_def {
            if let (Some(name), Argument::Name(annotation)) = (self.keyword.take(), argument) {
                parameters.insert(name, of_annotation(annotation));
            }
            return;
        }
        let literal = match argument {
            Argument::Nothing => return,
            Argument::Name("None") => Literal::None,
            Argument::Name("True" | "False") => Literal::Bool,
            Argument::Name(name) => parameters.get(name).copied().unwrap_or(Literal::Other),
            Argument::Minus => Literal::Other,
            Argument::Is(literal) => literal,
        };
        if self.callee.is_none() {
            return;
        }
        let Call { positional, keywords } = &mut self.call;
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
        uses(text, |used| {
            if let Use::Call(path, call) = used {
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
