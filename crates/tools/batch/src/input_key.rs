//! Recognises the same path in two spellings.

use std::path::{Component, Path, PathBuf};

use output::RemoteAddress;

/// Returns the text that stands for an input or an output: of a path, the absolute one without `.` and `..`. Links are not
/// followed, because two links to one file are two inputs. An address is returned unchanged.
pub(crate) fn input_key(path: &str) -> String {
    let path = Path::new(path);
    if RemoteAddress::from_path(path).is_some() {
        return path.display().to_string();
    }
    clean_absolute(path).display().to_string()
}

/// Returns the absolute path without `.` and `..`. Links are not followed.
pub fn clean_absolute(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut clean = PathBuf::new();
    for part in absolute.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(clean.pop()),
            part => clean.push(part),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_a_path_are_equal() {
        assert_eq!(input_key("a/b"), input_key("./a//c/../b/"));
        assert_ne!(input_key("a/b"), input_key("/a/b"));
        assert_eq!(input_key("/../a"), "/a");
        assert_eq!(input_key("s3://bucket/./a"), "s3://bucket/./a");
    }
}
