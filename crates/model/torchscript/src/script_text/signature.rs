//! Parser of method signatures, from the source text of TorchScript classes.
//!
//! Facts: the class `__torch__.a.B` is in `code/__torch__/a.py`, and a class without a module in `code/__torch__.py`. A
//! class starts in the first column, its methods and fields in the third; the arguments of a method have annotations, and
//! their defaults follow as literals. The first argument is the object.

use std::collections::HashMap;
use std::iter::Peekable;
use std::ops::Range;

use super::{Error, Result};
use crate::script_text::lexer::{Lexer, Token, TokenKind};
use crate::script_text::types::{EnumMember, ScriptType, ScriptTypeId, ScriptTypes, TupleField};

/// Limits on a signature: the nesting depth of one type, and the number of types.
const DEPTH_MAX: usize = 32;
const TYPES_MAX: usize = 2000;
const ARGUMENTS_MAX: usize = 2000;
const MEMBERS_MAX: usize = 1000;

/// Prefix and suffix of the names of source records.
const FOLDER: &str = "code/";
const EXTENSION: &str = ".py";

/// Signature of a method: its arguments and its return type.
#[derive(Clone, Debug)]
pub struct Signature {
    /// Arguments of the method, without `self`.
    pub arguments: Vec<Argument>,
    pub returns: ScriptTypeId,
    /// Table that resolves the type ids of the signature.
    pub types: ScriptTypes,
}

impl std::fmt::Display for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(")?;
        for (number, Argument { name, kind, default }) in self.arguments.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{name}: {}", self.types.annotation_text(*kind))?;
            if let Some(default) = default {
                write!(f, "={default}")?;
            }
        }
        write!(f, ") -> {}", self.types.annotation_text(self.returns))
    }
}

/// Argument of a method, with its type and its default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    pub name: String,
    pub kind: ScriptTypeId,
    /// Source text of the default value.
    pub default: Option<String>,
}

/// Source text of all modules of an archive.
#[derive(Clone, Debug, Default)]
pub struct ScriptSources {
    /// Modules by qualified name, such as `__torch__.net`.
    modules: HashMap<String, SourceModule>,
}

#[derive(Clone, Debug)]
struct SourceModule {
    record: String,
    text: String,
    /// Base class and byte range of the body, by class name.
    classes: HashMap<String, (String, Range<usize>)>,
}

/// Returns true if a record is source code. `record` is its name below the archive's root folder.
pub fn is_code(record: &str) -> bool {
    source_module_path(record).is_some()
}

fn source_module_path(record: &str) -> Option<&str> {
    record.strip_prefix(FOLDER)?.strip_suffix(EXTENSION)
}

impl ScriptSources {
    /// Adds a record of an archive if it is source code. `record` is its name below the root folder.
    ///
    /// # Errors
    /// Returns [`Error::NotText`] if the record is source code but not UTF-8.
    pub fn add(&mut self, record: &str, bytes: &[u8]) -> Result<()> {
        let Some(name) = source_module_path(record) else { return Ok(()) };
        let text = std::str::from_utf8(bytes).map_err(|_| Error::NotText { record: record.to_owned() })?;
        let module =
            SourceModule { record: record.to_owned(), classes: find_classes(text), text: text.to_owned() };
        self.modules.insert(name.replace('/', "."), module);
        Ok(())
    }

    /// Returns the source texts of all modules, in arbitrary order.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.modules.values().map(|module| module.text.as_str())
    }

    /// Returns true if a class, a source record or the parent of a source record has the qualified name.
    pub fn defines_name(&self, qualified: &str) -> bool {
        let is_below = |name: &String| name.strip_prefix(qualified).is_some_and(|rest| rest.starts_with('.'));
        let is_class =
            |(module, name)| self.modules.get(module).is_some_and(|source| source.classes.contains_key(name));
        self.modules.contains_key(qualified)
            || self.modules.keys().any(is_below)
            || qualified.rsplit_once('.').is_some_and(is_class)
    }

    /// Parses the signature of `method` of the class `name` in `module`.
    ///
    /// # Errors
    /// Returns an error if the class or the method does not exist, or if its text does not follow the syntax that PyTorch
    /// writes.
    pub fn signature(&self, module: &str, name: &str, method: &str) -> Result<Signature> {
        let class = || format!("{module}.{name}");
        let source = self.modules.get(module).ok_or_else(|| Error::NoClass { class: class() })?;
        let (_, body) = source.classes.get(name).ok_or_else(|| Error::NoClass { class: class() })?;
        let mut tokens = Lexer::new(&source.text, body).peekable();
        while let Some(token) = tokens.next() {
            if token.kind == TokenKind::Name("def")
                && token.indent.is_some()
                && tokens.next_if(|next| next.kind == TokenKind::Name(method)).is_some()
            {
                let mut parser = Parser { source, tokens, types: ScriptTypes::default() };
                let (arguments, returns) = parser.parse_signature()?;
                let mut types = parser.types;
                self.define_classes(&mut types)?;
                return Ok(Signature { arguments, returns, types });
            }
        }
        Err(Error::NoMethod { class: class(), method: method.to_owned() })
    }

    /// Returns the names of the hooks that run before or after `forward` when an object of the class `name` in `module` is
    /// called.
    pub fn hooks(&self, module: &str, name: &str) -> Vec<&str> {
        const LISTS: [&str; 2] = ["__forward_pre_hooks__", "__forward_hooks__"];
        let class = self.modules.get(module).and_then(|source| Some((source, source.classes.get(name)?)));
        let Some((source, (_, body))) = class else { return Vec::new() };
        let mut tokens = Lexer::new(&source.text, body);
        let mut hooks = Vec::new();
        while let Some(token) = tokens.next() {
            if token.indent.is_some() && LISTS.iter().any(|list| token.kind == TokenKind::Name(list)) {
                let list = tokens.by_ref().take_while(|token| !token.is(b']'));
                hooks.extend(list.filter_map(|token| match token.kind {
                    TokenKind::Text(hook) => Some(hook),
                    _ => None,
                }));
            }
        }
        hooks
    }

    /// Defines the named tuples and enumerations among `types`: parses their fields and values, and the classes that occur
    /// in their fields.
    fn define_classes(&self, types: &mut ScriptTypes) -> Result<()> {
        let mut next = 0;
        while let Some(id) = types.ids().nth(next) {
            next = next.saturating_add(1);
            let Some((module, name)) = types.annotation_text(id).rsplit_once('.') else { continue };
            let Some(source) = self.modules.get(module) else { continue };
            let Some((base, body)) = source.classes.get(name) else { continue };
            let tokens = Lexer::new(&source.text, body).peekable();
            let mut parser = Parser { source, tokens, types: std::mem::take(types) };
            let class = match base.as_str() {
                "NamedTuple" => parser.parse_tuple_fields().map(ScriptType::NamedTuple),
                "Enum" => parser.parse_enum_members().map(ScriptType::Enum),
                _ => Ok(ScriptType::Other),
            };
            *types = parser.types;
            types.define(id, class?);
        }
        Ok(())
    }
}

fn find_classes(text: &str) -> HashMap<String, (String, Range<usize>)> {
    let mut found: HashMap<String, (String, Range<usize>)> = HashMap::new();
    let mut open: Option<String> = None;
    let mut tokens = Lexer::new(text, &(0..text.len())).peekable();
    while let Some(token) = tokens.next() {
        if token.indent != Some(0) {
            continue;
        }
        if let Some((_, body)) = open.take().and_then(|name| found.get_mut(&name)) {
            body.end = token.range.start;
        }
        if token.kind == TokenKind::Name("class")
            && let Some(TokenKind::Name(name)) = tokens.next().map(|token| token.kind)
        {
            let base = match (tokens.next_if(|token| token.is(b'(')), tokens.peek()) {
                (Some(_), Some(Token { kind: TokenKind::Name(base), .. })) => (*base).to_owned(),
                _ => String::new(),
            };
            let line = text.get(token.range.end..).and_then(|rest| rest.find('\n')).unwrap_or(text.len());
            let start = token.range.end.saturating_add(line).saturating_add(1).min(text.len());
            found.insert(name.to_owned(), (base, start..text.len()));
            open = Some(name.to_owned());
        }
    }
    found
}

struct Parser<'t> {
    source: &'t SourceModule,
    tokens: Peekable<Lexer<'t>>,
    types: ScriptTypes,
}

/// Parameterised type whose arguments are still being parsed.
struct OpenType<'t> {
    head: &'t str,
    arguments: Vec<ScriptTypeId>,
}

impl<'t> Parser<'t> {
    fn parse_signature(&mut self) -> Result<(Vec<Argument>, ScriptTypeId)> {
        self.expect(b'(', "`(`")?;
        let mut arguments = Vec::new();
        loop {
            if self.eat(b')') {
                break;
            }
            if arguments.len() > ARGUMENTS_MAX {
                return Err(self.too_large("arguments", ARGUMENTS_MAX));
            }
            let name = self.expect_identifier("the name of an argument")?;
            let kind = if self.eat(b':') { self.parse_annotation()? } else { self.types.add("Tensor", None) };
            let default = if self.eat(b'=') { Some(self.parse_default_text()?) } else { None };
            arguments.push(Argument { name: name.to_owned(), kind, default });
            if !self.eat(b',') {
                self.expect(b')', "`,` or `)`")?;
                break;
            }
        }
        if arguments.is_empty() {
            return Err(self.syntax("an argument for the object"));
        }
        arguments.remove(0);
        let arrow = self.tokens.next_if(|token| token.kind == TokenKind::Arrow);
        let returns =
            if arrow.is_some() { self.parse_annotation()? } else { self.types.add("NoneType", None) };
        self.expect(b':', "`:`")?;
        Ok((arguments, returns))
    }

    fn parse_tuple_fields(&mut self) -> Result<Vec<TupleField>> {
        let mut fields = Vec::new();
        while self.tokens.peek().is_some() {
            let name = self.expect_identifier("the name of a field")?;
            self.expect(b':', "`:`")?;
            let kind = self.parse_annotation()?;
            if self.eat(b'=') {
                self.parse_default_text()?;
            }
            fields.push(TupleField { name: name.to_owned(), kind });
        }
        Ok(fields)
    }

    fn parse_enum_members(&mut self) -> Result<Vec<EnumMember>> {
        let mut members = Vec::new();
        while self.tokens.peek().is_some() {
            let name = self.expect_identifier("the name of a value")?;
            self.expect(b'=', "`=`")?;
            let start = self.tokens.peek().map_or(0, |token| token.range.start);
            self.eat(b'-');
            let is_value = |token: &Token<'_>| matches!(token.kind, TokenKind::Number | TokenKind::Text(_));
            let last = self.tokens.next_if(is_value).ok_or_else(|| self.syntax("a number or a text"))?;
            let value = self.source.text.get(start..last.range.end).unwrap_or_default();
            if members.len() >= MEMBERS_MAX {
                return Err(self.too_large("values of an enumeration", MEMBERS_MAX));
            }
            members.push(EnumMember { name: name.to_owned(), value: value.to_owned() });
        }
        Ok(members)
    }

    /// Parses a type annotation, with an explicit stack instead of recursion.
    fn parse_annotation(&mut self) -> Result<ScriptTypeId> {
        let mut open: Vec<OpenType<'t>> = Vec::new();
        loop {
            let head = self.parse_qualified_name()?;
            let mut done = if self.eat(b'[') {
                if open.len() >= DEPTH_MAX {
                    return Err(self.too_large("levels of types", DEPTH_MAX));
                }
                open.push(OpenType { head, arguments: Vec::new() });
                // `Tuple[()]` is the empty tuple.
                if !self.eat(b'(') {
                    continue;
                }
                self.expect(b')', "`)`")?;
                None
            } else {
                Some(self.types.add(head, None))
            };
            // A complete type becomes an argument of the innermost open type.
            loop {
                if self.types.len() > TYPES_MAX {
                    return Err(self.too_large("types", TYPES_MAX));
                }
                let Some(mut outer) = open.pop() else {
                    return done.ok_or_else(|| self.syntax("a type"));
                };
                outer.arguments.extend(done);
                if self.eat(b',') {
                    open.push(outer);
                    break;
                }
                self.expect(b']', "`,` or `]`")?;
                done = Some(self.types.add(outer.head, Some(&outer.arguments)));
            }
        }
    }

    fn parse_qualified_name(&mut self) -> Result<&'t str> {
        let first = self.tokens.peek().map(|token| token.range.clone());
        self.expect_identifier("a type")?;
        let mut end = first.as_ref().map_or(0, |range| range.end);
        while self.eat(b'.') {
            end = self.tokens.peek().map_or(end, |token| token.range.end);
            self.expect_identifier("a name")?;
        }
        let start = first.map_or(0, |range| range.start);
        Ok(self.source.text.get(start..end).unwrap_or_default())
    }

    /// Returns the source text of a default value, up to the `,` or `)` that ends it.
    fn parse_default_text(&mut self) -> Result<String> {
        let mut depth = 0_usize;
        let (mut start, mut end) = (None, 0);
        while let Some(token) = self.tokens.peek() {
            match token.kind {
                TokenKind::Symbol(b'(' | b'[' | b'{') => depth = depth.saturating_add(1),
                TokenKind::Symbol(b',' | b')') if depth == 0 => break,
                TokenKind::Symbol(b')' | b']' | b'}') => depth = depth.saturating_sub(1),
                _ => {}
            }
            start = start.or(Some(token.range.start));
            end = token.range.end;
            self.tokens.next();
        }
        let text = start.and_then(|start| self.source.text.get(start..end));
        text.map(str::to_owned).ok_or_else(|| self.syntax("a default"))
    }

    fn expect_identifier(&mut self, expected: &'static str) -> Result<&'t str> {
        match self.tokens.peek() {
            Some(Token { kind: TokenKind::Name(name), .. }) => {
                let name = *name;
                self.tokens.next();
                Ok(name)
            }
            _ => Err(self.syntax(expected)),
        }
    }

    fn eat(&mut self, symbol: u8) -> bool {
        self.tokens.next_if(|token| token.is(symbol)).is_some()
    }

    fn expect(&mut self, symbol: u8, expected: &'static str) -> Result<()> {
        if self.eat(symbol) { Ok(()) } else { Err(self.syntax(expected)) }
    }

    fn syntax(&mut self, expected: &'static str) -> Error {
        let text = &self.source.text;
        let at = self.tokens.peek().map_or(text.len(), |token| token.range.start);
        let line = text.get(..at).unwrap_or_default().matches('\n').count().saturating_add(1);
        Error::Syntax { record: self.source.record.clone(), line, expected }
    }

    fn too_large(&self, what: &'static str, limit: usize) -> Error {
        Error::TooLarge { record: self.source.record.clone(), what, limit }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NET: &str = r#"class Net(Module):
  __parameters__ = ["w", ]
  w : Tensor
  text : Final[str] = "def forward(self) -> int:"
  def other(self: __torch__.net.Net) -> NoneType:
    return None
  def forward(self: __torch__.net.Net,
    x: Tensor,
    k: int=3,
    t: Tuple[int, Dict[str, Optional[Tensor]]]=(1, {"a,b)": None}),
    # a comment
    e: Tuple[()]=(),
    f: float=-inf) -> __torch__.net.Out:
    return __torch__.net.Out(x, [x])
class Out(NamedTuple):
  a : Tensor
  rest : List[__torch__.net.Out]
def free(x: Tensor) -> Tensor:
  return x
"#;

    fn signature(code: &str, method: &str) -> Result<Signature> {
        let mut sources = ScriptSources::default();
        sources.add("code/__torch__/net.py", code.as_bytes())?;
        sources.signature("__torch__.net", "Net", method)
    }

    #[test]
    fn a_signature_is_read() {
        let found = signature(NET, "forward").expect("it is there");
        assert_eq!(
            found.to_string(),
            "(x: Tensor, k: int=3, t: Tuple[int, Dict[str, Optional[Tensor]]]=(1, {\"a,b)\": None}), e: Tuple[()]=(), \
             f: float=-inf) -> __torch__.net.Out"
        );
        let ScriptType::NamedTuple(fields) = found.types.kind(found.returns) else { panic!("it is one") };
        assert_eq!(fields.iter().map(|field| field.name.as_str()).collect::<Vec<_>>(), ["a", "rest"]);
        assert_eq!(signature(NET, "other").expect("it is there").to_string(), "() -> NoneType");
        let mut sources = ScriptSources::default();
        let hooked =
            "class A(Module):\n  __forward_pre_hooks__ = [\"a\", ]\n  __forward_hooks__ = [\"b\", \"c\", ]\n";
        sources.add("code/__torch__.py", [hooked, NET].concat().as_bytes()).expect("text");
        assert_eq!(sources.hooks("__torch__", "A"), ["a", "b", "c"]);
        assert!(sources.hooks("__torch__", "Net").is_empty());
    }

    #[test]
    fn the_values_of_an_enumeration_are_read() {
        let code = "class Net(Module):\n  def forward(self: T, c: Optional[__torch__.net.C]) -> Union[int, NoneType]:\n\
            class C(Enum):\n  RED = -1\n  BLUE = 2\nclass D(Enum):\n  BAD = [1]\n";
        let found = signature(code, "forward").expect("it is there");
        let classes: Vec<&ScriptType> = found.types.ids().map(|id| found.types.kind(id)).collect();
        let member = |name: &str, value: &str| EnumMember { name: name.to_owned(), value: value.to_owned() };
        assert!(classes.contains(&&ScriptType::Enum(vec![member("RED", "-1"), member("BLUE", "2")])));
        assert!(matches!(found.types.kind(found.returns), ScriptType::Union(members) if members.len() == 2));
        let error = signature(&code.replace(".C]", ".D]"), "forward").expect_err("no value").to_string();
        assert_eq!(error, "line 7 of code/__torch__/net.py: expected a number or a text");
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = |code: &str, method: &str| signature(code, method).expect_err("wrong").to_string();
        assert_eq!(error(NET, "free"), "the class __torch__.net.Net has no free");
        assert_eq!(
            error("class Other(Module):\n", "forward"),
            "there is no code of the class __torch__.net.Net"
        );
        let cut = "class Net(Module):\n  def forward(self: T,\n    x: List[";
        assert_eq!(error(cut, "forward"), "line 3 of code/__torch__/net.py: expected a type");
        let deep = format!("class Net(Module):\n  def forward(self: T, x: {}\n", "List[".repeat(1000));
        assert_eq!(
            error(&deep, "forward"),
            "a signature in code/__torch__/net.py has more than 32 levels of types"
        );
        let many: String = (0..3000).map(|i| ["T", &i.to_string(), ", "].concat()).collect();
        let many = format!("class Net(Module):\n  def forward(self: T, x: Tuple[{many}T]):\n");
        assert_eq!(error(&many, "forward"), "a signature in code/__torch__/net.py has more than 2000 types");
        let many = format!("class Net(Module):\n  def forward(self: T{}):\n", ", x: int".repeat(2001));
        assert_eq!(
            error(&many, "forward"),
            "a signature in code/__torch__/net.py has more than 2000 arguments"
        );
        let mut sources = ScriptSources::default();
        let error = sources.add("code/__torch__.py", b"\xff").expect_err("not UTF-8").to_string();
        assert_eq!(error, "the code in code/__torch__.py is not text");
        assert!(!is_code("data/0") && !is_code("code/__torch__.py.debug_pkl"));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(start in 0..NET.len(), end in 0..NET.len(), other in "[ \n(),:=\\[\\]\"'a-c-]{0,40}") {
            let text = [NET.get(..start).unwrap_or_default(), &other, NET.get(end..).unwrap_or_default()].concat();
            let _ = signature(&text, "forward");
            let _ = crate::script_text::unsupported_operators(std::iter::once(text.as_str()));
        }
    }
}
