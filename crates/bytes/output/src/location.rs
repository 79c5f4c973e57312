//! Path helpers, and the check that a path is local.

use std::path::{Path, PathBuf};

use crate::{Problem, RemoteAddress, Result, UrlScheme};

/// Checks that `path` is local and not a remote address.
///
/// # Errors
/// [`Problem::Remote`] when the path is an address.
pub fn refuse_remote(path: &Path) -> Result<()> {
    match RemoteAddress::from_path(path) {
        Some(address) => Err(Problem::Remote { path: PathBuf::from(path), address }.into()),
        None => Ok(()),
    }
}

/// Checks that the path of an output is local.
///
/// # Errors
/// [`Problem::RemoteOutput`] when the path is an address.
pub fn refuse_remote_output(path: &Path) -> Result<()> {
    match RemoteAddress::from_path(path) {
        Some(_) => Err(Problem::RemoteOutput { path: path.to_owned() }.into()),
        None => Ok(()),
    }
}

/// Returns a path as messages show it: of a web address, without user, password, query and fragment, which may be secret.
pub fn shown_path(path: &Path) -> PathBuf {
    let Some(address) = RemoteAddress::from_path(path) else { return path.to_owned() };
    if !matches!(address.scheme, UrlScheme::Http | UrlScheme::Https) {
        return path.to_owned();
    }
    let rest = address.rest.split(['?', '#']).next().unwrap_or_default();
    let (host, file) = rest.split_once('/').map_or((rest, None), |(host, file)| (host, Some(file)));
    let host = host.rsplit('@').next().unwrap_or_default();
    let file = file.map_or_else(String::new, |file| format!("/{file}"));
    PathBuf::from(format!("{}://{host}{file}", address.scheme.name()))
}

/// Returns the parent folder of a path, as typed; `.` for a bare name. Symbolic links are not resolved: the files next
/// to a link in a model hub's cache are links too, and their targets have other names.
pub fn parent_folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Returns the last component of a path; the whole path if it has none, such as `..`.
pub fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Returns true for the path of an output that is a folder: it ends with a slash, or is a folder of this machine.
pub fn is_given_as_folder(path: &Path) -> bool {
    path.to_string_lossy().ends_with(std::path::is_separator) || path.is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_refused_as_it_was_typed() {
        let error = refuse_remote(Path::new("gs:/bucket/c.pth")).expect_err("an address");
        assert_eq!(error.to_string(), "gs:/bucket/c.pth is not a local path");
        assert!(refuse_remote(Path::new("c.pth")).is_ok());
    }

    #[test]
    fn messages_have_no_secrets() {
        let shown = |path: &str| shown_path(Path::new(path)).display().to_string();
        assert_eq!(shown("https://u:secret@a.b:1/c/d.pth?sig=secret#x"), "https://a.b:1/c/d.pth");
        assert_eq!(shown("https:/a.b?sig=secret"), "https://a.b");
        for path in ["https://a.b/x@y/c.pth", "hf://a/b@c/d?e", "s3://a/b#c", "a?b@c", "-"] {
            assert_eq!(shown(path), path);
        }
        let error = refuse_remote(Path::new("https://a.b/c?sig=secret")).expect_err("an address");
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn a_bare_name_is_in_the_current_folder() {
        assert_eq!(parent_folder(Path::new("c.pth")), Path::new("."));
        assert_eq!(parent_folder(Path::new("a/c.pth")), Path::new("a"));
        assert_eq!(file_name(Path::new("a/c.pth")), "c.pth");
        assert_eq!(file_name(Path::new("..")), "..");
    }
}
