//! A version of the code of decoders: templates of its text, and the attributes that it reads.
//!
//! The number of its version is in the record of a module, so that a later program makes the same code again.

use decoder::Decoder;

use super::flag::{Flag, Variant};
use super::positions::Positions;
use crate::module::Value;
use crate::{Error, Result};

/// Attributes, each with its name.
pub(super) type Attributes = Vec<(String, Value)>;

/// Templates, each with the flag that it needs.
type Templates = &'static [(Option<Flag>, &'static str)];

/// Returns what takes the place of a marker: the text for a list and what it is applied to.
type Marker = fn(Variant<'_>, &str, &str) -> String;

/// A version of the code.
pub(super) struct Version {
    /// Its number in the records of modules.
    pub(super) number: u32,
    /// The methods of the module. A line that begins with flags in brackets is in the text if all of them hold.
    pub(super) methods: Templates,
    /// The functions that the methods call.
    pub(super) functions: Templates,
    /// What the markers begin with, which end with `}`, and their text.
    pub(super) markers: [(&'static str, Marker); 3],
    /// The attributes that the methods read, besides the lists of weights.
    pub(super) attributes: fn(&Decoder, &Positions) -> Result<Attributes>,
}

/// A line of a template.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'t> {
    /// The spaces that it begins with.
    indent: usize,
    /// It is in the text if each of these flags holds or, with `false`, does not hold.
    pub(super) flags: Vec<(Flag, bool)>,
    pub(super) text: &'t str,
}

impl<'t> Line<'t> {
    /// Reads a line. One that does not begin with flags has none.
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

    /// Returns whether this variant of the text has the line.
    pub(super) fn is_in(&self, variant: Variant<'_>) -> bool {
        self.flags.iter().all(|(flag, holds)| flag.holds(variant) == *holds)
    }
}

impl Version {
    /// The methods of the module.
    pub(super) fn methods(&self, variant: Variant<'_>) -> String {
        self.filled(self.methods, variant)
    }

    /// The functions that the methods call.
    pub(super) fn functions(&self, variant: Variant<'_>) -> String {
        self.filled(self.functions, variant)
    }

    /// The lines of templates that are in this variant, with all markers but `{_}` and `{ns}` filled.
    fn filled(&self, templates: Templates, variant: Variant<'_>) -> String {
        let (split, dim) =
            if variant.decoder.layout().rotates_halves { ("2, -1", "-2") } else { ("-1, 2", "-1") };
        let mut out = String::new();
        let needed = templates.iter().filter(|(flag, _)| flag.is_none_or(|flag| flag.holds(variant)));
        for line in needed.flat_map(|(_, template)| template.lines()).map(Line::parse) {
            if line.is_in(variant) {
                out.extend(std::iter::repeat_n(' ', line.indent));
                self.fill(&mut out, line.text, variant);
                out.push('\n');
            }
        }
        out.replace("{split}", split).replace("{dim}", dim)
    }

    /// Adds a line, with the products and norms in the places of their markers.
    fn fill(&self, out: &mut String, line: &str, variant: Variant<'_>) {
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

/// An attribute that is a size.
pub(super) fn size(name: &str, value: u64) -> Result<(String, Value)> {
    let value =
        i64::try_from(value).map_err(|_| Error::TooLarge { tensor: name.to_owned(), number: value })?;
    Ok((name.to_owned(), Value::Int(value)))
}

#[cfg(test)]
mod tests;
