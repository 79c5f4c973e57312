//! Functions of Python's `str`.
//!
//! Facts: white space is what `str.isspace` says: that of Unicode and the separators U+001C to U+001F. `title` starts a word after
//! each character without case, and titlecase differs from upper case for ligatures and digraphs. `splitlines` splits at ten
//! characters.

/// Returns true for what Python's `str.strip` strips.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

/// Strips white space, or the characters of `chars`, from the sides that are named.
pub(super) fn strip<'t>(text: &'t str, chars: Option<&str>, (left, right): (bool, bool)) -> &'t str {
    let strips = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if left { text.trim_start_matches(strips) } else { text };
    if right { text.trim_end_matches(strips) } else { text }
}

/// Appends the titlecase of a character.
fn push_title(out: &mut String, c: char) {
    match c {
        'Ǆ' | 'ǅ' | 'ǆ' => out.push('ǅ'),
        'Ǉ' | 'ǈ' | 'ǉ' => out.push('ǈ'),
        'Ǌ' | 'ǋ' | 'ǌ' => out.push('ǋ'),
        'Ǳ' | 'ǲ' | 'ǳ' => out.push('ǲ'),
        // Georgian letters have no title case.
        'ა'..='ჺ' | 'ჽ'..='ჿ' => out.push(c),
        // Greek letters with iota keep it below.
        '\u{1f80}'..='\u{1faf}' => out.push(char::from_u32(u32::from(c) | 8).unwrap_or(c)),
        '\u{1fb3}' | '\u{1fbc}' => out.push('\u{1fbc}'),
        '\u{1fc3}' | '\u{1fcc}' => out.push('\u{1fcc}'),
        '\u{1ff3}' | '\u{1ffc}' => out.push('\u{1ffc}'),
        '\u{1fb2}' => out.push_str("\u{1fba}\u{345}"),
        '\u{1fb4}' => out.push_str("\u{386}\u{345}"),
        '\u{1fc2}' => out.push_str("\u{1fca}\u{345}"),
        '\u{1fc4}' => out.push_str("\u{389}\u{345}"),
        '\u{1ff2}' => out.push_str("\u{1ffa}\u{345}"),
        '\u{1ff4}' => out.push_str("\u{38f}\u{345}"),
        '\u{1fb7}' => out.push_str("\u{391}\u{342}\u{345}"),
        '\u{1fc7}' => out.push_str("\u{397}\u{342}\u{345}"),
        '\u{1ff7}' => out.push_str("\u{3a9}\u{342}\u{345}"),
        'ŉ' => out.push_str("ʼN"),
        c => {
            let mut upper = c.to_uppercase();
            out.extend(upper.next());
            out.extend(upper.flat_map(char::to_lowercase));
        }
    }
}

fn is_cased(c: char) -> bool {
    c.is_lowercase()
        || c.is_uppercase()
        || matches!(c, 'ǅ' | 'ǈ' | 'ǋ' | 'ǲ' | '\u{1f88}'..='\u{1faf}' | '\u{1fbc}' | '\u{1fcc}' | '\u{1ffc}')
}

/// Returns the text with its first character in title case and the rest in lower case.
pub(super) fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    let mut out = String::with_capacity(text.len());
    if let Some(first) = chars.next() {
        push_title(&mut out, first);
        out.push_str(lower_tail(text, first.len_utf8()).as_str());
    }
    out
}

/// Returns the lower case of the text from `start`, where the text before counts for the last sigma of a word.
fn lower_tail(text: &str, start: usize) -> String {
    let lower = text.to_lowercase();
    let before = text.get(..start).unwrap_or_default().to_lowercase().len();
    lower.get(before..).unwrap_or_default().to_owned()
}

/// Returns the text with each word in title case, as `str.title` does.
pub(super) fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| !is_cased(c)).unwrap_or(rest.len());
        let end = if end == 0 { first.len_utf8() } else { end };
        let (word, tail) = rest.split_at_checked(end).unwrap_or((rest, ""));
        if is_cased(first) {
            out.push_str(&capitalize(word));
        } else {
            out.push(first);
        }
        rest = tail;
    }
    out
}

/// Splits a text into lines, as `str.splitlines` does.
pub(super) fn lines(text: &str, keeps_ends: bool) -> Vec<&str> {
    let is_end = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let (mut found, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let at = rest.find(is_end).unwrap_or(rest.len());
        let (line, tail) = rest.split_at_checked(at).unwrap_or((rest, ""));
        let after = tail.strip_prefix("\r\n").or_else(|| tail.strip_prefix(is_end)).unwrap_or(tail);
        let with_end = rest.get(..rest.len().saturating_sub(after.len())).unwrap_or(rest);
        found.push(if keeps_ends { with_end } else { line });
        rest = after;
    }
    found
}

/// Splits at white space or at a separator, at most `limit` times, from the left or from the right.
pub(super) fn split<'t>(
    text: &'t str,
    separator: Option<&str>,
    limit: Option<usize>,
    from_right: bool,
) -> Vec<&'t str> {
    let pieces = limit.map_or(usize::MAX, |limit| limit.saturating_add(1));
    let Some(separator) = separator else { return split_spaces(text, pieces, from_right) };
    if from_right {
        let mut found: Vec<&str> = text.rsplitn(pieces, separator).collect();
        found.reverse();
        return found;
    }
    text.splitn(pieces, separator).collect()
}

fn split_spaces(text: &str, pieces: usize, from_right: bool) -> Vec<&str> {
    let mut found = Vec::new();
    let sides = (!from_right, from_right);
    let mut rest = strip(text, None, sides);
    while !rest.is_empty() {
        if found.len().saturating_add(1) >= pieces {
            found.push(rest);
            break;
        }
        let (piece, tail) = if from_right {
            let at = rest.char_indices().rev().find(|(_, c)| is_space(*c));
            let at = at.map_or(0, |(at, c)| at.saturating_add(c.len_utf8()));
            (rest.get(at..), rest.get(..at))
        } else {
            let at = rest.find(is_space).unwrap_or(rest.len());
            (rest.get(..at), rest.get(at..))
        };
        found.extend(piece);
        rest = strip(tail.unwrap_or_default(), None, sides);
    }
    if from_right {
        found.reverse();
    }
    found
}
