//! Shell quoting of paths and addresses in suggested commands.

use std::path::Path;

pub(crate) fn shell_quoted_path(path: &Path) -> String {
    shell_quoted(&path.display().to_string())
}

/// Quotes a text for a shell; a text without special characters stays unquoted.
pub(crate) fn shell_quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:@%,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
