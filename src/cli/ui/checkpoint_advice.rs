//! Advice about errors in the search for a checkpoint: the command that converts what is there.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use open::files::{CheckpointCandidate, FolderDiagnosis, Problem, TENSOR_DICT};
use output::{file_name, parent_folder};
use torch_import::is_checkpoint_extension;

use super::invocation::{PROGRAM, typed_command};
use super::shell::{shell_quoted, shell_quoted_path};

/// Returns the text of the error that a file does not exist, with advice.
pub(crate) fn missing_file_text(path: &Path) -> String {
    with_advice(&Problem::NotFound { path: path.to_owned() })
}

fn with_advice(problem: &Problem) -> String {
    format!("{problem}{}", files_advice(problem))
}

/// Returns advice on a problem in the search for a checkpoint; empty if there is none.
pub(crate) fn files_advice(problem: &Problem) -> String {
    match problem {
        Problem::NotFound { path } if parent_folder(path).is_dir() => match similar_file(path) {
            _ if without_slash(path).is_file() => {
                let file = shell_quoted_path(&without_slash(path));
                format!("; {file} is a file: leave out the slash")
            }
            Some(similar) => format!("; did you mean {}?", shell_quoted_path(&similar)),
            None => format!("; `ls {}` shows what is there", shell_quoted_path(parent_folder(path))),
        },
        Problem::NotFound { path } => model_advice(path)
            .unwrap_or_else(|| format!(": the folder {} does not exist", parent_folder(path).display())),
        Problem::LoneShard { path, .. } => {
            format!(
                ": run `{} {}`, or --single for this file alone",
                typed_command(),
                shell_quoted_path(parent_folder(path))
            )
        }
        Problem::RankPart { path, .. } => format!(
            "; pass its folder {}, or --single for this file's own tensors",
            shell_quoted_path(parent_folder(path))
        ),
        Problem::NotASet { paths } => {
            format!(
                "; --each converts each of them on its own: `torch2carton --each {}`",
                paths_or_glob(paths)
            )
        }
        Problem::NotInFolder { .. } => "; download or copy it, too".to_owned(),
        Problem::NotInIndex { index, .. } => format!(
            "; pass the files of the set instead of the folder, or {} to go by it alone",
            shell_quoted_path(index)
        ),
        Problem::SameFileTwice { second, .. } => {
            format!("; put the file that {} should be in its place", file_name(second))
        }
        Problem::DeepSpeed { found, candidates, .. } => {
            let script = match &found.script {
                Some(script) => shell_quoted_path(script),
                None => "-m deepspeed.utils.zero_to_fp32".to_owned(),
            };
            let tag = found.tag.as_ref().map_or_else(String::new, |tag| format!(" -t {}", shell_quoted(tag)));
            let instead = match candidates.as_slice() {
                [] => String::new(),
                candidates => {
                    format!("; if the training wrote them whole too, {}", conversion_commands(candidates))
                }
            };
            format!("; first run `python {script} {} out{tag}`{instead}", shell_quoted_path(&found.folder))
        }
        Problem::SeveralCheckpoints { folder, candidates } => {
            let all = if is_conversion() {
                format!(", or `{} --each {}` for all of them", typed_command(), shell_quoted_path(folder))
            } else {
                String::new()
            };
            format!("; {}{all}", conversion_commands(candidates))
        }
        Problem::NoCheckpoint { folder, contents } => match contents_advice(folder, contents) {
            Some(advice) => format!("; {advice}"),
            None => String::new(),
        },
        _ => String::new(),
    }
}

/// Returns the path without slashes at its end.
fn without_slash(path: &Path) -> PathBuf {
    path.components().collect()
}

/// Returns the file or folder next to a missing one whose name differs by a typing mistake.
fn similar_file(path: &Path) -> Option<PathBuf> {
    /// Most names that are compared.
    const NAMES_MAX: usize = 10_000;
    let missing = file_name(path);
    let most = if missing.chars().count() < 5 { 1 } else { 2 };
    let names = parent_folder(path).read_dir().ok()?.flatten().take(NAMES_MAX);
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let distances = names.map(|name| (strsim::osa_distance(&missing, &name), name));
    let (_, nearest) = distances.filter(|(distance, _)| (1..=most).contains(distance)).min()?;
    Some(path.with_file_name(nearest))
}

/// Returns advice on a file that does not exist, if its path may be that of a model on the Hub.
pub(crate) fn model_advice(path: &Path) -> Option<String> {
    (!parent_folder(path).is_dir() && is_on_hub(path))
        .then(|| format!("; if it is a model of Hugging Face, pass hf://{}", path.display()))
}

/// Returns true for `OWNER/MODEL`, with or without a revision, and for the path of a file in it.
fn is_on_hub(path: &Path) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_name = |part: &str| part.chars().all(is_word) && !matches!(part, "." | "..");
    let extension = path.extension().and_then(OsStr::to_str);
    let is_checkpoint = extension.is_some_and(|it| it == "carton" || is_checkpoint_extension(it));
    let parts: Option<Vec<&str>> = path.iter().map(|part| part.to_str()).collect();
    match parts.as_deref() {
        Some([owner, model]) => {
            let model = model.split_once('@').map_or(*model, |(model, _)| model);
            is_name(owner) && is_name(model) && !is_checkpoint
        }
        Some([owner, model, file]) => is_checkpoint && [owner, model, file].iter().all(|part| is_name(part)),
        _ => false,
    }
}

/// Returns advice on a folder in which no checkpoint was found.
fn contents_advice(folder: &Path, contents: &FolderDiagnosis) -> Option<String> {
    match contents {
        FolderDiagnosis::Pipeline { .. } if is_conversion() => {
            let mut output = folder.as_os_str().to_owned();
            output.push("-safetensors");
            let (command, folder) = (typed_command(), shell_quoted_path(folder));
            let output = shell_quoted_path(Path::new(&output));
            Some(format!("run `{command} --each {folder} --to safetensors -o {output}` for a pipeline"))
        }
        FolderDiagnosis::Pipeline { folders } | FolderDiagnosis::Folders { folders } => {
            let paths = folders.iter().map(|name| vec![folder.join(name)]);
            let candidates: Vec<CheckpointCandidate> =
                paths.map(|paths| CheckpointCandidate { paths }).collect();
            Some(conversion_commands(&candidates))
        }
        FolderDiagnosis::OtherFramework { what, .. } if *what == TENSOR_DICT => {
            let python = "import tensordict, torch; torch.save(tensordict.TensorDict.load_memmap(\".\").to_dict(), \"../weights.pt\")";
            Some(format!("in it, `python -c {}` saves its tensors", shell_quoted(python)))
        }
        FolderDiagnosis::OtherFramework { .. } => {
            Some("pass the checkpoint that it was made from".to_owned())
        }
        FolderDiagnosis::TrainingState { files } => {
            let mut models = files.iter().filter(|name| name.ends_with("model_states.pt"));
            match (models.next(), models.next()) {
                (Some(model), None) => {
                    let model = shell_quoted_path(&folder.join(model));
                    Some(format!("run `torch2carton {model}` to convert the model's part of it"))
                }
                _ => None,
            }
        }
        FolderDiagnosis::Documents { git: true, .. } => Some("fetch them with `git lfs pull`".to_owned()),
        FolderDiagnosis::Documents { git: false, .. } => {
            Some("download them too, such as with `hf download OWNER/MODEL`".to_owned())
        }
        _ => None,
    }
}

/// Returns true if the command is a conversion: only they take all checkpoints of a folder.
fn is_conversion() -> bool {
    let typed = typed_command();
    typed == PROGRAM || typed.ends_with(" convert")
}

/// Returns the commands that convert the candidate checkpoints, at most four.
fn conversion_commands(candidates: &[CheckpointCandidate]) -> String {
    const SHOWN: usize = 4;
    let typed = typed_command();
    // Of two inputs, the other one is as it was given.
    let takes_two = typed.ends_with(" diff");
    let command = |candidate: &CheckpointCandidate| match shell_arguments(&candidate.paths) {
        paths if takes_two => paths,
        paths => format!("`{typed} {paths}`"),
    };
    let commands: Vec<String> = candidates.iter().take(SHOWN).map(command).collect();
    let verb = if takes_two { "pass" } else { "run" };
    match commands.as_slice() {
        [one] => format!("{verb} {one}"),
        several => format!("{verb} one of {}", several.join(", ")),
    }
}

fn shell_arguments(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| shell_quoted_path(path)).collect::<Vec<_>>().join(" ")
}

/// Returns the paths as shell arguments, or one glob if there are many with the same folder and extension.
fn paths_or_glob(paths: &[PathBuf]) -> String {
    /// Maximum number of paths listed by name. A glob may match more files than were given.
    const TYPED: usize = 4;
    let first = paths.first().map_or(Path::new(""), PathBuf::as_path);
    let alike =
        |path: &PathBuf| path.extension() == first.extension() && parent_folder(path) == parent_folder(first);
    match first.extension() {
        Some(extension) if paths.len() > TYPED && paths.iter().all(alike) => {
            let pattern = format!("*.{}", extension.to_string_lossy());
            let folder = parent_folder(first);
            if folder == Path::new(".") {
                pattern
            } else {
                format!("{}/{pattern}", shell_quoted_path(folder))
            }
        }
        _ => shell_arguments(paths),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn not_a_set(names: &[&str]) -> String {
        let paths = names.iter().map(PathBuf::from).collect();
        with_advice(&Problem::NotASet { paths })
    }

    #[test]
    fn files_that_are_not_a_set_are_converted_one_by_one() {
        assert_eq!(
            not_a_set(&["a.pth", "b.pth"]),
            "a.pth and b.pth are not shards of one checkpoint; --each converts each of them on its own: \
             `torch2carton --each a.pth b.pth`"
        );
        let text = not_a_set(&["x y/a.pth", "x y/b.pth", "x y/c.pth", "x y/d.pth", "x y/e.pth"]);
        assert!(text.starts_with("x y/a.pth, x y/b.pth, x y/c.pth and 2 more are not"), "{text}");
        assert!(text.contains("--each 'x y'/*.pth`"), "{text}");
        let text = not_a_set(&["a.pth", "b c.bin"]);
        assert!(text.contains("--each a.pth 'b c.bin'`"), "{text}");
    }
}
