//! What a person can type to get past an error of a library crate, which names no flags and no commands.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use sources::location::folder;

use super::shell::quoted;
use crate::cli::Usage;

/// The error with what to do about it.
pub(crate) fn sources(error: sources::Error) -> anyhow::Error {
    use sources::Error;
    let advice = match &error {
        Error::LoneShard { path, .. } => {
            format!(": run `torch2carton {}`, or --single for this file alone", quoted(folder(path)))
        }
        Error::NotASet { paths } => {
            let each = format!("for f in {}; do torch2carton \"$f\"; done", pattern(paths));
            return anyhow!(Usage(format!("{error}; convert each: {each}")));
        }
        Error::Distributed { folder } => format!(
            "; first: python -m torch.distributed.checkpoint.format_utils dcp_to_torch {} out.pt",
            quoted(folder)
        ),
        Error::DeepSpeed { folder, script } => {
            let script = script.as_deref().unwrap_or(Path::new("zero_to_fp32.py"));
            format!("; first: python {} {} out", quoted(script), quoted(folder))
        }
        Error::Several { candidates, .. } => {
            let command =
                |candidate: &sources::Candidate| format!("`torch2carton {}`", arguments(&candidate.paths));
            format!("; run one of {}", candidates.iter().map(command).collect::<Vec<_>>().join(", "))
        }
        Error::Original { original, .. } => format!(": run `torch2carton {}`", quoted(original)),
        _ => return error.into(),
    };
    anyhow!("{error}{advice}")
}

/// Paths as a shell reads them back.
fn arguments(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| quoted(path)).collect::<Vec<_>>().join(" ")
}

/// The paths as a shell's pattern, where they are alike.
fn pattern(paths: &[PathBuf]) -> String {
    let first = paths.first().map_or(Path::new(""), PathBuf::as_path);
    let alike = |path: &PathBuf| path.extension() == first.extension() && folder(path) == folder(first);
    match first.extension() {
        Some(extension) if paths.iter().all(alike) => {
            let pattern = format!("*.{}", extension.to_string_lossy());
            let folder = folder(first);
            if folder == Path::new(".") { pattern } else { format!("{}/{pattern}", quoted(folder)) }
        }
        _ => arguments(paths),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn not_a_set(names: &[&str]) -> String {
        let paths = names.iter().map(PathBuf::from).collect();
        sources(sources::Error::NotASet { paths }).to_string()
    }

    #[test]
    fn files_that_are_not_a_set_are_converted_one_by_one() {
        assert_eq!(
            not_a_set(&["a.pth", "b.pth"]),
            "a.pth and b.pth are not shards of one checkpoint; convert each: \
             for f in *.pth; do torch2carton \"$f\"; done"
        );
        let text = not_a_set(&["x y/a.pth", "x y/b.pth", "x y/c.pth", "x y/d.pth"]);
        assert!(text.starts_with("x y/a.pth, x y/b.pth, x y/c.pth and 1 more are not"), "{text}");
        assert!(text.contains("for f in 'x y'/*.pth;"), "{text}");
        let text = not_a_set(&["a.pth", "b c.bin"]);
        assert!(text.contains("for f in a.pth 'b c.bin';"), "{text}");
    }
}
