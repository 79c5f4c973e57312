//! Templates of a decoder's text: lines that flags select, and markers that stand for products and norms.

use super::super::flag::{Condition, Flag, TextVariant};
use super::{flags, markers};

/// Templates, each with the condition that selects it.
pub(super) type Templates = &'static [(Option<Condition>, &'static str)];

/// Function that expands a marker: returns the text for a list and its operand.
type MarkerExpansion = fn(TextVariant<'_>, &str, &str) -> String;

/// Start of each marker, which ends with `}`, and the function that expands it.
const MARKERS: [(&str, MarkerExpansion); 3] =
    [("{linear ", markers::linear), ("{norm ", markers::norm), ("{head norm ", markers::head_norm)];

#[derive(Debug, PartialEq, Eq)]
pub(super) struct TemplateLine<'t> {
    /// Number of leading spaces.
    indent: usize,
    /// Flags that must hold or, with `false`, must not hold for the line to be in the text.
    pub(super) flags: Vec<(Flag, bool)>,
    pub(super) text: &'t str,
}

impl<'t> TemplateLine<'t> {
    /// Parses a line; without leading flags in brackets, the line is in every variant.
    pub(super) fn parse(line: &'t str) -> Self {
        let text = line.trim_start();
        let indent = line.len().saturating_sub(text.len());
        let (flags, text) = Self::split(text).unwrap_or((Vec::new(), text));
        Self { indent, flags, text }
    }

    fn split(text: &'t str) -> Option<(Vec<(Flag, bool)>, &'t str)> {
        let (names, text) = text.strip_prefix('[')?.split_once("] ")?;
        let found = names.split(", ").map(|name| match name.strip_prefix("not ") {
            Some(name) => Some((flags::named(name)?, false)),
            None => Some((flags::named(name)?, true)),
        });
        Some((found.collect::<Option<_>>()?, text))
    }

    pub(super) fn is_selected(&self, variant: TextVariant<'_>) -> bool {
        self.flags.iter().all(|(flag, holds)| flag.holds(variant) == *holds)
    }
}

/// Returns the template lines of this variant, with all markers but `{_}` and `{ns}` expanded.
pub(super) fn expand(templates: Templates, variant: TextVariant<'_>) -> String {
    let (split, dim) = if variant.decoder.rotates_halves() { ("2, -1", "-2") } else { ("-1, 2", "-1") };
    let mut out = String::new();
    let needed = templates.iter().filter(|(condition, _)| condition.is_none_or(|holds| holds(variant)));
    for line in needed.flat_map(|(_, template)| template.lines()).map(TemplateLine::parse) {
        if line.is_selected(variant) {
            out.extend(std::iter::repeat_n(' ', line.indent));
            expand_markers(&mut out, line.text, variant);
            out.push('\n');
        }
    }
    let each = if variant.decoder.block().fused_heads { "wqkv" } else { "wq" };
    let every = if variant.decoder.block().delta_net.is_some() { "attention_norm" } else { each };
    let out = out.replace("{split}", split).replace("{dim}", dim);
    out.replace("{each}", each).replace("{every}", every)
}

/// Appends a line, with its markers expanded to products and norms.
fn expand_markers(out: &mut String, line: &str, variant: TextVariant<'_>) {
    let mut rest = line;
    loop {
        let next = MARKERS.iter().filter_map(|(start, text)| Some((rest.find(start)?, start, text)));
        let Some((at, start, text)) = next.min_by_key(|(at, ..)| *at) else { break };
        let (before, marker) = rest.split_at_checked(at).unwrap_or((rest, ""));
        let (marker, after) = marker.split_once('}').unwrap_or((marker, ""));
        let marker = marker.strip_prefix(start).unwrap_or(marker);
        let (list, operand) = marker.split_once(' ').unwrap_or((marker, ""));
        out.push_str(before);
        out.push_str(&text(variant, list, operand));
        rest = after;
    }
    out.push_str(rest);
}
