//! Checks of carton paths and of URLs.
//!
//! The Carton v1 specification says only "relative path"; these rules combine those of Windows, macOS and Linux.

/// Returns true if `path` names a file inside a carton on every system: relative, its parts separated by `/`, no part empty,
/// `.` or `..`, and without backslashes, colons or control characters.
pub fn is_valid_carton_path(path: &str) -> bool {
    !path.contains(['\\', ':', '\0'])
        && !path.contains(char::is_control)
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Returns true if `text` is a whole http or https URL.
pub(crate) fn is_url(text: &str) -> bool {
    url::Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}
