//! Shell quoting of paths and addresses in suggested commands.
//!
//! On Windows, a command is quoted so that both shells take it, `cmd` and PowerShell.

use std::path::Path;

pub(crate) fn shell_quoted_path(path: &Path) -> String {
    shell_quoted(&path.display().to_string())
}

/// Quotes a text for a shell; a text without special characters stays unquoted.
pub(crate) fn shell_quoted(text: &str) -> String {
    if cfg!(windows) { quoted_on_windows(text) } else { quoted_on_unix(text) }
}

fn quoted_on_unix(text: &str) -> String {
    if is_plain(text, "/._-+=:@%,") { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// In double quotes, PowerShell replaces what follows `$` and a backtick, and `cmd` takes no other quotes: such a text is quoted
/// for PowerShell alone.
fn quoted_on_windows(text: &str) -> String {
    if is_plain(text, r"/\._-+:") {
        return text.to_owned();
    }
    if text.contains(['$', '`']) {
        return format!("'{}'", text.replace('\'', "''"));
    }
    // The program takes \" for a quote, so the backslashes before the last quote are doubled.
    let end = text.len().saturating_sub(text.trim_end_matches('\\').len());
    format!("\"{}{}\"", text.replace('"', "\\\""), "\\".repeat(end))
}

fn is_plain(text: &str, signs: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || signs.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_text_is_one_argument() {
        for (text, unix, windows) in [
            ("a/b.pth", "a/b.pth", "a/b.pth"),
            (r"C:\a\b.pth", r"'C:\a\b.pth'", r"C:\a\b.pth"),
            (r"C:\my models\", r"'C:\my models\'", r#""C:\my models\\""#),
            ("it's", r"'it'\''s'", r#""it's""#),
            ("a&b", "'a&b'", r#""a&b""#),
            ("$x 'y'", r"'$x '\''y'\'''", "'$x ''y'''"),
            ("a=b,c", "a=b,c", r#""a=b,c""#),
            ("", "''", r#""""#),
        ] {
            assert_eq!((quoted_on_unix(text).as_str(), quoted_on_windows(text).as_str()), (unix, windows));
        }
    }
}
