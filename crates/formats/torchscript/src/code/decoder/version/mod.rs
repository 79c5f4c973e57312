//! Versions of the code of decoders: templates of the text, and the attributes that it reads.
//!
//! The record of a module holds its version number, so that a later program makes the same code again.

use decoder::Decoder;

use super::flag::{Flag, TextVariant};
use super::positions::RotaryPositions;
use crate::module_tree::AttributeValue;
use crate::{Error, Result};

/// Class of the object that Python calls, in the attribute `forward` of the module.
pub(super) const ENTRY_CLASS: &str = "Entry";
/// Parameters of `forward` of the module, which C++ calls, and of that object.
const ANY_INPUTS: &str = "inputs: Any)";
const NAMED_INPUTS: &str = "inputs: Dict[str, Any])";

pub(super) type NamedValues = Vec<(String, AttributeValue)>;

/// Templates, each with the flag that selects it.
type Templates = &'static [(Option<Flag>, &'static str)];

/// Function that expands a marker: returns the text for a list and its operand.
type MarkerExpansion = fn(TextVariant<'_>, &str, &str) -> String;

pub(super) struct CodeVersion {
    /// Version number in the records of modules.
    pub(super) number: u32,
    /// Templates of the module's methods. A line that begins with flags in brackets is in the text if all of them hold.
    pub(super) methods: Templates,
    /// Templates of the functions that the methods call.
    pub(super) functions: Templates,
    /// True if the module has an object of the class [`ENTRY_CLASS`], which Python calls.
    pub(super) has_entry: bool,
    /// Start of each marker, which ends with `}`, and the function that expands it.
    pub(super) markers: [(&'static str, MarkerExpansion); 3],
    /// Returns the attributes that the methods read, besides the lists of weights.
    pub(super) attributes: fn(&Decoder, &RotaryPositions) -> Result<NamedValues>,
}

/// Template line, with the flags that select it.
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
        let flags = names.split(", ").map(|name| match name.strip_prefix("not ") {
            Some(name) => Some((Flag::from_name(name)?, false)),
            None => Some((Flag::from_name(name)?, true)),
        });
        Some((flags.collect::<Option<_>>()?, text))
    }

    pub(super) fn is_selected(&self, variant: TextVariant<'_>) -> bool {
        self.flags.iter().all(|(flag, holds)| flag.holds(variant) == *holds)
    }
}

impl CodeVersion {
    /// Returns the text of the module's methods.
    pub(super) fn methods(&self, variant: TextVariant<'_>) -> String {
        self.expand_templates(self.methods, variant)
    }

    /// Returns the text of the methods of the object that Python calls: those of the module, with a `forward` that can be
    /// called with an empty dict.
    pub(super) fn entry_methods(&self, variant: TextVariant<'_>) -> Option<String> {
        let has_entry = self.has_entry && Flag::Dict.holds(variant);
        has_entry.then(|| self.methods(variant).replacen(ANY_INPUTS, NAMED_INPUTS, 1))
    }

    /// Returns the text of the functions that the methods call.
    pub(super) fn functions(&self, variant: TextVariant<'_>) -> String {
        self.expand_templates(self.functions, variant)
    }

    /// Returns the template lines of this variant, with all markers but `{_}` and `{ns}` expanded.
    fn expand_templates(&self, templates: Templates, variant: TextVariant<'_>) -> String {
        let (split, dim) =
            if variant.decoder.layout().rotates_halves { ("2, -1", "-2") } else { ("-1, 2", "-1") };
        let mut out = String::new();
        let needed = templates.iter().filter(|(flag, _)| flag.is_none_or(|flag| flag.holds(variant)));
        for line in needed.flat_map(|(_, template)| template.lines()).map(TemplateLine::parse) {
            if line.is_selected(variant) {
                out.extend(std::iter::repeat_n(' ', line.indent));
                self.expand_markers(&mut out, line.text, variant);
                out.push('\n');
            }
        }
        out.replace("{split}", split).replace("{dim}", dim)
    }

    /// Appends a line, with its markers expanded to products and norms.
    fn expand_markers(&self, out: &mut String, line: &str, variant: TextVariant<'_>) {
        let mut rest = line;
        loop {
            let next = self.markers.iter().filter_map(|(start, text)| Some((rest.find(start)?, start, text)));
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
}

/// Returns an integer attribute that holds a size.
pub(super) fn size_attribute(name: &str, value: u64) -> Result<(String, AttributeValue)> {
    let value =
        i64::try_from(value).map_err(|_| Error::TooLarge { tensor: name.to_owned(), number: value })?;
    Ok((name.to_owned(), AttributeValue::Int(value)))
}

#[cfg(test)]
mod tests;
