//! Texts in documents that programs run or open, under any key.

/// Returns true for a text that MONAI gives to `eval` or `exec`: `$` and an import, or a call of something that is not a number.
pub(super) fn is_python_text(text: &str) -> bool {
    let Some(code) = text.strip_prefix('$') else { return false };
    let is_called = |at: usize| {
        let before = code.get(..at).unwrap_or_default().trim_end();
        let name = before.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
        before.ends_with([')', ']']) || name.starts_with(|first: char| !first.is_numeric())
    };
    let is_import = ["import ", "from "].iter().any(|start| code.trim_start().starts_with(start));
    is_import || code.match_indices('(').any(|(at, _)| is_called(at))
}

/// Returns true for the address of a file on a web server. Python can't run such a text.
pub(super) fn is_address(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

/// Returns true for the name of a library, as ONNX Runtime loads those of `custom_ops_library`.
pub(super) fn names_native_code(text: &str) -> bool {
    let extension = text.rsplit_once('.').map_or("", |(_, extension)| extension);
    ["so", "dylib", "dll", "pyd"].iter().any(|it| extension.eq_ignore_ascii_case(it))
}

/// Returns true for the key of arguments that a program gives to another one.
pub(super) fn names_arguments(key: &str) -> bool {
    ["args", "config", "kwargs"].iter().any(|end| key.ends_with(end))
}

/// Returns true for the path of a shard that is not in the folder of its index or below it.
pub(in crate::scan) fn leads_out(path: &str) -> bool {
    path.starts_with(['/', '\\']) || path.contains(':') || path.split(['/', '\\']).any(|part| part == "..")
}
