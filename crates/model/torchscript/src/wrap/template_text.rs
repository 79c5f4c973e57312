//! Escapes strings from a file so that a template of a wrapper's code does not treat them as placeholders.

use crate::source_names::string_literal;

/// Formats a text as a string literal without placeholders.
pub(super) fn template_literal(text: &str) -> String {
    escape_placeholders(&string_literal(text))
}

pub(super) fn escape_placeholders(literal: &str) -> String {
    literal.replace('{', "\\173").replace("_EMPTY_", "\\137EMPTY_")
}
