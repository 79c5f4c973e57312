//! Filters that are put around the parts of an expression.

use crate::tag::{TagToken, WORDS};

/// Filter that refuses what has too many parts or levels.
pub(crate) const GUARD: &str = "__guard";
/// Filter that refuses what a namespace may not keep, too: another namespace.
pub(crate) const STORE: &str = "__store";
/// Filter for Python's `str`.
pub(crate) const STRING: &str = "string";

const COMPARISONS: &[&str] = &["==", "!=", "<", "<=", ">", ">="];

/// Signs and words between the parts of an expression, from the loosest.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Separator {
    /// Sign that ends every operand.
    Loose,
    Comparison,
    /// `in` and `not in`.
    Containment,
    /// `+` or `-` between two operands.
    Sum,
    /// The operator `~`, which joins texts.
    Join,
}

/// Brackets that are open, with the parts that are being read.
#[derive(Clone, Copy)]
struct Level {
    bracket: Bracket,
    /// Index of the first token of the operand of a comparison, and whether it follows `in`.
    compared: (usize, bool),
    /// Index of the first token of the operand of `~`, and whether it follows one.
    joined: (usize, bool),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Bracket {
    Subscript {
        start: usize,
    },
    /// Curly brackets, with the start of the key that is being read.
    Map {
        key: Option<usize>,
    },
    Other,
}

/// Filters that open and close at the tokens of a tag.
struct Filters<'t> {
    tokens: &'t [TagToken<'t>],
    /// Number of parentheses in front of each token.
    opened: Vec<usize>,
    /// Filters of the operands that end before each token.
    closed: Vec<Vec<&'static str>>,
}

impl Filters<'_> {
    /// Puts a filter around the tokens, unless they are a literal.
    fn add(&mut self, filter: &'static str, start: usize, end: usize) {
        let is_literal =
            |text: &str| text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '\'' | '"'));
        match self.tokens.get(start..end) {
            None | Some([]) => return,
            Some([token]) if filter == GUARD && is_literal(token.text) => return,
            Some(_) => {}
        }
        if let (Some(opened), Some(closed)) = (self.opened.get_mut(start), self.closed.get_mut(end)) {
            *opened = opened.saturating_add(1);
            closed.push(filter);
        }
    }
}

/// Writes a tag with the filters.
pub(crate) fn write_tag(out: &mut String, tokens: &[TagToken<'_>], is_block: bool) {
    let count = tokens.len();
    let mut filters = Filters { tokens, opened: vec![0; count], closed: vec![Vec::new(); count] };
    let first = if is_block { 2 } else { 1 };
    let word = tokens.get(1).map_or("", |token| token.text);
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let fresh = |bracket, start| Level { bracket, compared: (start, false), joined: (start, false) };
    let (mut level, mut outer) = (fresh(Bracket::Other, first), Vec::new());
    let mut has_loop_in = is_block && word == "for";
    let mut stored = None;
    for (at, token) in tokens.iter().enumerate().skip(first) {
        let next = at.saturating_add(1);
        let before = at.checked_sub(1).and_then(|before| tokens.get(before)).filter(|_| at > first);
        match token.text {
            "(" | "[" | "{" => {
                let follows = before.is_some_and(TagToken::ends_operand);
                let bracket = match token.text {
                    "[" if follows => Bracket::Subscript { start: next },
                    "{" => Bracket::Map { key: Some(next) },
                    _ => Bracket::Other,
                };
                outer.push(level);
                level = fresh(bracket, next);
                continue;
            }
            ")" | "]" | "}" => {
                end_operands(&mut filters, level, at, Separator::Loose);
                if let Bracket::Subscript { start } = level.bracket {
                    filters.add(GUARD, start, at);
                }
                level = outer.pop().unwrap_or(level);
                continue;
            }
            _ => {}
        }
        let found = if next == count { Some(Separator::Loose) } else { separator(tokens, at, before) };
        let Some(mut found) = found else { continue };
        if token.text == "in" && outer.is_empty() && std::mem::take(&mut has_loop_in) {
            found = Separator::Loose;
        }
        end_operands(&mut filters, level, at, found);
        match (token.text, level.bracket) {
            (":", Bracket::Map { key: Some(start) }) => {
                filters.add(GUARD, start, at);
                level.bracket = Bracket::Map { key: None };
            }
            (",", Bracket::Map { .. }) => level.bracket = Bracket::Map { key: Some(next) },
            // A slice has numbers.
            (":", Bracket::Subscript { .. }) => level.bracket = Bracket::Other,
            ("=", _) if word == "set" && is_block && outer.is_empty() && text(3) == "." => {
                stored = Some(next);
            }
            _ => {}
        }
        level.joined = (next, found == Separator::Join);
        if !matches!(found, Separator::Join | Separator::Sum) {
            level.compared = (next, found == Separator::Containment);
        }
    }
    if let Some(start) = stored {
        filters.add(STORE, start, count.saturating_sub(1));
    }
    write_tokens(out, &filters, is_block);
}

/// Ends the operands in front of a separator.
fn end_operands(filters: &mut Filters<'_>, level: Level, at: usize, separator: Separator) {
    let ((compared, follows_in), (joined, follows_join)) = (level.compared, level.joined);
    if follows_join || separator == Separator::Join {
        filters.add(STRING, joined, at);
    }
    let is_compared = matches!(separator, Separator::Comparison | Separator::Containment);
    if is_compared || (follows_in && separator == Separator::Loose) {
        filters.add(GUARD, compared, at);
    }
}

/// Returns the kind of the separator at `at`; `None` if the token belongs to an operand.
fn separator(tokens: &[TagToken<'_>], at: usize, before: Option<&TagToken<'_>>) -> Option<Separator> {
    let text = |at: Option<usize>| at.and_then(|at| tokens.get(at)).map_or("", |token| token.text);
    let (own, last, next) = (text(Some(at)), before.map_or("", |token| token.text), text(at.checked_add(1)));
    // The names of tests, filters and members.
    let is_name = matches!(last, "is" | "." | "|") || (last == "not" && text(at.checked_sub(2)) == "is");
    Some(match own {
        "~" => Separator::Join,
        "+" | "-" if before.is_some_and(TagToken::ends_operand) => Separator::Sum,
        "," | ":" | "=" => Separator::Loose,
        _ if COMPARISONS.contains(&own) => Separator::Comparison,
        _ if is_name || !WORDS.contains(&own) => return None,
        "in" => Separator::Containment,
        "not" if next == "in" => Separator::Containment,
        _ => Separator::Loose,
    })
}

fn write_tokens(out: &mut String, filters: &Filters<'_>, is_block: bool) {
    let marks = filters.tokens.iter().zip(&filters.opened).zip(&filters.closed).enumerate();
    for (at, ((token, opened), closed)) in marks {
        for filter in closed {
            out.extend([")|", filter]);
        }
        out.push_str(token.space);
        out.extend(std::iter::repeat_n('(', *opened));
        out.push_str(match token.text {
            "generation" if is_block && at == 1 => "with",
            "endgeneration" if is_block && at == 1 => "endwith",
            text => text,
        });
    }
}
