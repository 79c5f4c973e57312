//! Tokens of a tag.

/// Maximum number of tokens in a tag; real ones have less than a hundred.
pub(crate) const TOKENS_MAX: usize = 1000;

/// Words that are not operands.
pub(crate) const WORDS: &[&str] = &["and", "or", "not", "in", "if", "else", "recursive"];
/// Operators of two characters.
const LONG_OPERATORS: &[&str] = &["//", "**", "==", "!=", "<=", ">="];

/// Word, number, text or sign of a tag.
#[derive(Clone, Copy)]
pub(crate) struct TagToken<'s> {
    /// White space before the token.
    pub(crate) space: &'s str,
    pub(crate) text: &'s str,
    start: usize,
}

impl TagToken<'_> {
    pub(crate) fn end(&self) -> usize {
        self.start.saturating_add(self.text.len())
    }

    /// Returns true if an operator may follow, so that a sign here does not belong to a number.
    pub(crate) fn ends_operand(&self) -> bool {
        self.text.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ')' | ']' | '}' | '\'' | '"'))
            && !WORDS.contains(&self.text)
    }
}

/// Splits a tag with its marks; the marks are tokens with their `-` or `+`. `None` if there are too many. A tag without an end
/// ends with the text, and the compiler refuses it.
pub(crate) fn tokens(tag: &str) -> Option<Vec<TagToken<'_>>> {
    let end = if tag.starts_with("{%") { "%}" } else { "}}" };
    let (mut found, mut at, mut depth) = (Vec::new(), 0_usize, 0_usize);
    let mut len =
        2_usize.saturating_add(usize::from(tag.get(2..).is_some_and(|t| t.starts_with(['-', '+']))));
    let mut space = "";
    loop {
        found.push(TagToken { space, text: tag.get(at..at.saturating_add(len))?, start: at });
        if found.len() > TOKENS_MAX {
            return None;
        }
        at = at.saturating_add(len);
        let rest = tag.get(at..).unwrap_or_default();
        let inner = rest.trim_start();
        space = rest.get(..rest.len().saturating_sub(inner.len())).unwrap_or_default();
        at = at.saturating_add(space.len());
        let last = ["", "-", "+"]
            .iter()
            .find(|sign| depth == 0 && inner.strip_prefix(**sign).is_some_and(|rest| rest.starts_with(end)));
        if let Some(sign) = last {
            let text = inner.get(..sign.len().saturating_add(2))?;
            found.push(TagToken { space, text, start: at });
            return Some(found);
        }
        let Some(first) = inner.chars().next() else { return Some(found) };
        len = token_length(inner, first);
        match first {
            '(' | '[' | '{' => depth = depth.saturating_add(1),
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
}

fn token_length(text: &str, first: char) -> usize {
    if matches!(first, '\'' | '"') {
        let mut escaped = false;
        for (at, c) in text.char_indices().skip(1) {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                c if c == first => return at.saturating_add(1),
                _ => {}
            }
        }
        return text.len();
    }
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    if is_word(first) {
        return text.find(|c| !is_word(c)).unwrap_or(text.len());
    }
    LONG_OPERATORS.iter().find(|sign| text.starts_with(**sign)).map_or(first.len_utf8(), |sign| sign.len())
}
