//! Path helpers, and the check that a path is local.

use std::path::{Path, PathBuf};

use crate::{Error, RemoteAddress, Result};

/// Checks that `path` is local and not a remote address.
///
/// # Errors
/// [`Error::Remote`] when the path is an address.
pub fn refuse_remote(path: &Path) -> Result<()> {
    match RemoteAddress::from_path(path) {
        Some(address) => Err(Error::Remote { path: PathBuf::from(path), address }),
        None => Ok(()),
    }
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
    fn a_bare_name_is_in_the_current_folder() {
        assert_eq!(parent_folder(Path::new("c.pth")), Path::new("."));
        assert_eq!(parent_folder(Path::new("a/c.pth")), Path::new("a"));
        assert_eq!(file_name(Path::new("a/c.pth")), "c.pth");
        assert_eq!(file_name(Path::new("..")), "..");
    }
}
