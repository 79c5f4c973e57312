//! The parts of paths, and the refusal of paths that are addresses.

use std::path::{Path, PathBuf};

use crate::{Error, Remote, Result};

/// Refuses a path that is an address.
///
/// # Errors
/// [`Error::Remote`] when it is one.
pub fn refuse_remote(path: &Path) -> Result<()> {
    match Remote::from_path(path) {
        Some(address) => Err(Error::Remote { path: PathBuf::from(path), address }),
        None => Ok(()),
    }
}

/// The folder of a path, as typed; `.` for a bare name. Links are not resolved: the files next to a link in a
/// model hub's cache are links too, and their targets have other names.
pub fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// The name of a path's last part.
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
        assert_eq!(folder(Path::new("c.pth")), Path::new("."));
        assert_eq!(folder(Path::new("a/c.pth")), Path::new("a"));
        assert_eq!(file_name(Path::new("a/c.pth")), "c.pth");
        assert_eq!(file_name(Path::new("..")), "..");
    }
}
