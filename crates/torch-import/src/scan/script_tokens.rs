//! Tokens of TorchScript code, as PyTorch's lexer reads them.
//!
//! Facts: `torch/csrc/jit/frontend/lexer.h`.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodeToken<'t> {
    Name(&'t [u8]),
    Dot,
    /// Text between quotes, with its escapes.
    Text(&'t [u8]),
    Number,
    Other(u8),
    /// Text that `torch.jit.save` does not write, or that PyTorch may read otherwise than it looks.
    Odd,
    /// A space of a kind that it does not write.
    OddBlank,
}

/// Splits code into the tokens of PyTorch's lexer; skips comments, spaces and line ends. Where one token ends may depend on what
/// PyTorch accepts in a number or a keyword of two words: that is odd.
pub(super) struct CodeTokens<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> CodeTokens<'t> {
    pub(super) fn new(text: &'t [u8]) -> Self {
        Self { text, at: 0 }
    }
}

impl<'t> Iterator for CodeTokens<'t> {
    type Item = (u64, CodeToken<'t>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let start = self.at;
            let rest = self.text.get(start..)?;
            let (&first, after) = rest.split_first()?;
            let (len, token) = match first {
                b' ' | b'\n' => (1, None),
                b'\t' | b'\r' | 0x0b | 0x0c => (1, Some(CodeToken::OddBlank)),
                b'\\' if after.starts_with(b"\n") => (2, Some(CodeToken::OddBlank)),
                // PyTorch reads the types in such a comment.
                b'#' if rest.starts_with(TYPE_COMMENT) => (TYPE_COMMENT.len(), Some(CodeToken::Odd)),
                b'#' => (rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()), None),
                b'\'' | b'"' => match quoted(rest, first) {
                    Some((len, text)) => (len, Some(CodeToken::Text(text))),
                    None => (1, Some(CodeToken::Odd)),
                },
                b'0'..=b'9' => number(rest),
                b'.' if after.first().is_some_and(u8::is_ascii_digit) => number(rest),
                b'.' => (1, Some(CodeToken::Dot)),
                byte if is_word(byte) => {
                    let len = rest.iter().position(|byte| !is_word(*byte)).unwrap_or(rest.len());
                    let (word, after) = rest.split_at_checked(len).unwrap_or_default();
                    // `is notx` is `is not` and `x`.
                    let hides_name = |second: &[u8]| after.strip_prefix(second).is_some_and(starts_with_word);
                    if word == b"is" && hides_name(b" not") || word == b"not" && hides_name(b" in") {
                        (len, Some(CodeToken::Odd))
                    } else {
                        (len, Some(CodeToken::Name(word)))
                    }
                }
                byte if OPERATORS.contains(&byte) => (1, Some(CodeToken::Other(byte))),
                _ => (1, Some(CodeToken::Odd)),
            };
            self.at = start.saturating_add(len);
            if let Some(token) = token {
                return Some((start as u64, token));
            }
        }
    }
}

const TYPE_COMMENT: &[u8] = b"# type:";
/// Characters of operators and brackets.
const OPERATORS: &[u8] = b"+-*/%@()[]:,={}><?!&^|~";

/// Returns the length of a number, which is odd if PyTorch may read more or less than a decimal.
fn number(text: &[u8]) -> (usize, Option<CodeToken<'static>>) {
    let digits = |from: usize| {
        let rest = text.get(from..).unwrap_or_default();
        from.saturating_add(rest.iter().take_while(|byte| byte.is_ascii_digit()).count())
    };
    let mut end = digits(0);
    if text.get(end) == Some(&b'.') {
        end = digits(end.saturating_add(1));
    }
    if matches!(text.get(end), Some(b'e' | b'E')) {
        let sign = matches!(text.get(end.saturating_add(1)), Some(b'+' | b'-'));
        let from = end.saturating_add(if sign { 2 } else { 1 });
        if digits(from) > from {
            end = digits(from);
        }
    }
    if text.get(end) == Some(&b'j') {
        end = end.saturating_add(1);
    }
    let is_odd = text.get(end..).is_some_and(starts_with_word);
    (end, Some(if is_odd { CodeToken::Odd } else { CodeToken::Number }))
}

fn starts_with_word(text: &[u8]) -> bool {
    text.first().is_some_and(|byte| is_word(*byte))
}

/// Returns the length of a string with its quotes, and the text between them; `None` if PyTorch reads none.
fn quoted(text: &[u8], quote: u8) -> Option<(usize, &[u8])> {
    let triple = text.starts_with(&[quote; 3]);
    let width = if triple { 3 } else { 1 };
    let end: &[u8] = if triple { &[quote; 3] } else { &[quote] };
    let mut at = width;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with(end) {
            return Some((at.saturating_add(width), text.get(width..at)?));
        }
        if !triple && rest.starts_with(b"\n") {
            return None;
        }
        at = at.saturating_add(if rest.starts_with(b"\\") { 2 } else { 1 });
    }
    None
}

pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}
