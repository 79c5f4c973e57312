//! What a person can type to get past an error of a library crate, which names no flags and no commands.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use sources::location::folder;
use sources::{Candidate, Contents};

use super::shell::{quoted, quoted_text};
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
            "; first run `python -m torch.distributed.checkpoint.format_utils dcp_to_torch {} out.pt`",
            quoted(folder)
        ),
        Error::DeepSpeed { found, candidates, .. } => {
            let script = match &found.script {
                Some(script) => quoted(script),
                None => "-m deepspeed.utils.zero_to_fp32".to_owned(),
            };
            let tag = found.tag.as_ref().map_or_else(String::new, |tag| format!(" -t {}", quoted_text(tag)));
            let instead = match candidates.as_slice() {
                [] => String::new(),
                candidates => format!("; if the training wrote them whole too, {}", one_of(candidates)),
            };
            format!("; first run `python {script} {} out{tag}`{instead}", quoted(&found.folder))
        }
        Error::Several { candidates, .. } => format!("; {}", one_of(candidates)),
        Error::NoCheckpoint { folder, contents } => match contents_advice(folder, contents) {
            Some(advice) => format!("; {advice}"),
            None => return error.into(),
        },
        _ => return error.into(),
    };
    anyhow!("{error}{advice}")
}

/// What to do about a folder that holds something else.
fn contents_advice(folder: &Path, contents: &Contents) -> Option<String> {
    match contents {
        Contents::Pipeline { folders } | Contents::Folders { folders } => {
            let paths = folders.iter().map(|name| vec![folder.join(name)]);
            let candidates: Vec<Candidate> = paths.map(|paths| Candidate { paths }).collect();
            Some(one_of(&candidates))
        }
        Contents::Other { .. } => Some("pass the checkpoint that it was made from".to_owned()),
        Contents::TrainingState { files } => {
            let mut models = files.iter().filter(|name| name.ends_with("model_states.pt"));
            match (models.next(), models.next()) {
                (Some(model), None) => {
                    let model = quoted(&folder.join(model));
                    Some(format!("run `torch2carton {model}` to convert the model's part of it"))
                }
                _ => None,
            }
        }
        Contents::Documents { git: true, .. } => Some("fetch them with `git lfs pull`".to_owned()),
        Contents::Documents { git: false, .. } => {
            Some("download them too, such as with `hf download OWNER/MODEL`".to_owned())
        }
        _ => None,
    }
}

/// The commands that convert one of the checkpoints.
fn one_of(candidates: &[Candidate]) -> String {
    const SHOWN: usize = 4;
    let command = |candidate: &Candidate| format!("`torch2carton {}`", arguments(&candidate.paths));
    let commands: Vec<String> = candidates.iter().take(SHOWN).map(command).collect();
    match commands.as_slice() {
        [one] => format!("run {one}"),
        several => format!("run one of {}", several.join(", ")),
    }
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
