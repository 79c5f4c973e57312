//! Lexer of TorchScript source text: splits it into names, numbers, strings and symbols.
//!
//! Facts: `torch/csrc/jit/frontend/lexer.h`.

use std::ops::Range;

/// Kind of a token, with its text where a caller needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind<'t> {
    Name(&'t str),
    Number,
    /// String literal: the text between the quotes, with its escapes undecoded.
    Text(&'t str),
    Arrow,
    Symbol(u8),
}

#[derive(Clone, Debug)]
pub(crate) struct Token<'t> {
    pub(crate) kind: TokenKind<'t>,
    /// Byte range of the token in the source text.
    pub(crate) range: Range<usize>,
    /// Number of bytes before the token on its line; `None` unless it is the first token of the line.
    pub(crate) indent: Option<usize>,
}

impl Token<'_> {
    pub(crate) fn is(&self, symbol: u8) -> bool {
        self.kind == TokenKind::Symbol(symbol)
    }
}

pub(crate) struct Lexer<'t> {
    text: &'t str,
    at: usize,
    /// Byte offset of the line's start, until the line's first token was returned.
    line: Option<usize>,
}

impl<'t> Lexer<'t> {
    pub(crate) fn new(text: &'t str, range: &Range<usize>) -> Self {
        let text = text.get(..range.end).unwrap_or_default();
        Self { text, at: range.start, line: Some(range.start) }
    }
}

impl<'t> Iterator for Lexer<'t> {
    type Item = Token<'t>;

    fn next(&mut self) -> Option<Token<'t>> {
        let bytes = self.text.as_bytes();
        loop {
            let start = self.at;
            let rest = bytes.get(start..)?;
            let (&first, after) = rest.split_first()?;
            let span = |is: fn(u8) -> bool| rest.iter().position(|byte| !is(*byte)).unwrap_or(rest.len());
            let (len, kind) = match first {
                b'\n' => {
                    self.line = Some(start.saturating_add(1));
                    (1, None)
                }
                b' ' | b'\t' | b'\r' | b'\\' => (1, None),
                b'#' => (rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()), None),
                b'\'' | b'"' => {
                    let (len, inner) = scan_string(rest, first);
                    let at = start.saturating_add(inner.start)..start.saturating_add(inner.end);
                    (len, Some(TokenKind::Text(self.text.get(at).unwrap_or_default())))
                }
                b'-' if after.first() == Some(&b'>') => (2, Some(TokenKind::Arrow)),
                b'0'..=b'9' => (span(is_number), Some(TokenKind::Number)),
                b'.' if after.first().is_some_and(u8::is_ascii_digit) => {
                    (span(is_number), Some(TokenKind::Number))
                }
                byte if is_word(byte) => {
                    let len = span(is_word);
                    let name = self.text.get(start..start.saturating_add(len));
                    (len, Some(TokenKind::Name(name.unwrap_or_default())))
                }
                other => (1, Some(TokenKind::Symbol(other))),
            };
            self.at = start.saturating_add(len.max(1));
            if let Some(kind) = kind {
                let indent = self.line.take().map(|line| start.saturating_sub(line));
                return Some(Token { kind, range: start..self.at, indent });
            }
        }
    }
}

/// Returns true if a byte is part of a name; all non-ASCII bytes are, so that non-Latin identifiers are names.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

fn is_number(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'.'
}

/// Returns the length of a string literal with its quotes, and the range between the quotes.
fn scan_string(text: &[u8], quote: u8) -> (usize, Range<usize>) {
    let triple = text.starts_with(&[quote; 3]);
    let width: usize = if triple { 3 } else { 1 };
    let end: &[u8] = if triple { &[quote; 3] } else { &[quote] };
    let mut at = width;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with(end) {
            return (at.saturating_add(width), width..at);
        }
        // An unterminated string on one line is not TorchScript: it ends at the line break, and lexing continues there.
        if !triple && rest.starts_with(b"\n") {
            return (at, width..at);
        }
        at = at.saturating_add(if rest.starts_with(b"\\") { 2 } else { 1 });
    }
    (text.len(), width..text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<TokenKind<'_>> {
        Lexer::new(text, &(0..text.len())).map(|token| token.kind).collect()
    }

    #[test]
    fn text_is_split() {
        use TokenKind::{Arrow, Name, Number, Symbol, Text};
        assert_eq!(
            kinds("f(x: T=-1.5e-05) -> \"a\\\"b\" # c\n.5 é"),
            [
                Name("f"),
                Symbol(b'('),
                Name("x"),
                Symbol(b':'),
                Name("T"),
                Symbol(b'='),
                Symbol(b'-'),
                Number,
                Symbol(b'-'),
                Number,
                Symbol(b')'),
                Arrow,
                Text("a\\\"b"),
                Number,
                Name("é"),
            ]
        );
        assert_eq!(kinds("'''a'\nb''' c"), [Text("a'\nb"), Name("c")]);
        assert_eq!(kinds("\"a\nb"), [Text("a"), Name("b")]);
        for hostile in ["\"", "'''", "\\", "\"\\", "\"é\\", "-", "."] {
            assert!(kinds(hostile).len() <= 1, "{hostile}");
        }
    }

    #[test]
    fn the_first_token_of_a_line_has_its_indent() {
        let text = "class A:\n\n  def f(\n    x)";
        let indents: Vec<_> = Lexer::new(text, &(0..text.len())).filter_map(|token| token.indent).collect();
        assert_eq!(indents, [0, 2, 4]);
    }
}
