//! Paths and addresses in commands that a person can paste into a shell.

use std::path::Path;

/// A path as a shell reads it back.
pub(crate) fn quoted(path: &Path) -> String {
    quoted_text(&path.display().to_string())
}

/// A text as a shell reads it back; one that needs no quotes stays as it is.
pub(crate) fn quoted_text(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:@%,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
