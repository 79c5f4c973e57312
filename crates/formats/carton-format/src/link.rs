//! Resolves links between the files of a carton.

use crate::is_valid_carton_path;

/// Path prefix of the model's files in a carton.
pub const MODEL_FOLDER: &str = "model/";

/// Returns the path that the link at `path` leads to, if it is inside `model/`.
pub(crate) fn resolve_link(path: &str, target: &str) -> Option<String> {
    if target.is_empty() || target.starts_with('/') || !path.starts_with(MODEL_FOLDER) {
        return None;
    }
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            // The root of the resolution is `model`, which `..` cannot leave.
            ".." if parts.len() > 1 => {
                parts.pop();
            }
            ".." => return None,
            other => parts.push(other),
        }
    }
    let resolved = parts.join("/");
    (is_valid_carton_path(&resolved) && resolved.starts_with(MODEL_FOLDER)).then_some(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_inside() {
        let resolve = |path, target| resolve_link(path, target);
        assert_eq!(resolve("model/a", "b").as_deref(), Some("model/b"));
        assert_eq!(resolve("model/sub/a", "../b/./c").as_deref(), Some("model/b/c"));
        for target in ["../b", "/etc/passwd", "", "../../etc/passwd", "sub/../../b", ".."] {
            assert_eq!(resolve("model/a", target), None, "{target}");
        }
        assert_eq!(resolve("misc/a", "b"), None);
    }
}
