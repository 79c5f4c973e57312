//! What to do about an error of the store: which option or command helps.
//!
//! Libraries say what is wrong. Only the command line knows what can be typed.

use std::error::Error as StdError;
use std::path::{Path, PathBuf};

use sources::{Candidate, Contents};
use store::{Error, Remote, Scheme, folder};

use super::shell::{quoted, quoted_text};
use crate::cli::Usage;
use crate::terminal::bytes;

/// The text of one cause of an error, with advice where there is some.
pub(crate) fn cause(cause: &(dyn StdError + 'static)) -> String {
    if let Some(error) = cause.downcast_ref::<Error>() {
        return text(error);
    }
    cause.downcast_ref().map_or_else(|| cause.to_string(), sources_text)
}

/// What the store reports, with advice where there is some.
pub(crate) fn text(error: &Error) -> String {
    let advice = match error {
        // A person reads sizes in units.
        Error::NoSpace { needed, free, folder } => {
            return format!("needs {} in {}, {} free", bytes(*needed), folder.display(), bytes(*free));
        }
        Error::Remote { address, .. } => format!("; first: `{}`", fetch_command(address)),
        Error::IsFolder { .. } => "; name a file in it".to_owned(),
        Error::NotAFile { .. } => ", and a carton is a file".to_owned(),
        Error::SameFile { .. } => "; choose another path with -o".to_owned(),
        Error::Exists { .. } => {
            "; leave out --no-clobber to replace it, or choose another path with -o".to_owned()
        }
        Error::CreateIn { .. } => "; choose another place with -o".to_owned(),
        Error::Insecure { .. } => "; --allow-http fetches it anyway".to_owned(),
        Error::PrivateAddress { .. } => "; --allow-http does where LINKS itself names one".to_owned(),
        Error::TooLarge { .. } => "; --max-size allows them".to_owned(),
        _ => String::new(),
    };
    format!("{error}{advice}")
}

/// What the search for a checkpoint reports, with advice where there is some.
fn sources_text(error: &sources::Error) -> String {
    use sources::Error;
    let advice = match error {
        Error::LoneShard { path, .. } => {
            format!(": run `torch2carton {}`, or --single for this file alone", quoted(folder(path)))
        }
        Error::NotASet { paths } => {
            format!("; convert each: for f in {}; do torch2carton \"$f\"; done", pattern(paths))
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
            None => String::new(),
        },
        _ => String::new(),
    };
    format!("{error}{advice}")
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

/// Whether what was typed is wrong, rather than a file.
pub(crate) fn is_usage(error: &anyhow::Error) -> bool {
    error.is::<Usage>()
        || matches!(error.downcast_ref(), Some(Error::Remote { .. }))
        || matches!(error.downcast_ref(), Some(sources::Error::NotASet { .. }))
}

/// The command that brings a file here.
fn fetch_command(address: &Remote) -> String {
    let url = quoted_text(&address.to_string());
    match address.scheme {
        Scheme::S3 => format!("aws s3 cp {url} ."),
        Scheme::Gs => format!("gcloud storage cp {url} ."),
        Scheme::Hf => match address.rest.splitn(3, '/').collect::<Vec<_>>().as_slice() {
            [owner, model, file] if !file.is_empty() => {
                format!("hf download {} {}", quoted_text(&format!("{owner}/{model}")), quoted_text(file))
            }
            _ => format!("hf download {}", quoted_text(&address.rest)),
        },
        _ => format!("curl -fLO {url}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_comes_with_its_command() {
        let command = |path: &str| Remote::from_path(Path::new(path)).as_ref().map(fetch_command);
        let command = |path| command(path).expect("an address");
        assert_eq!(command("https://a.b/c.pth"), "curl -fLO https://a.b/c.pth");
        assert_eq!(command("https://a.b/c.pth?x&y"), "curl -fLO 'https://a.b/c.pth?x&y'");
        assert_eq!(command("s3://bucket/a/c.pth"), "aws s3 cp s3://bucket/a/c.pth .");
        assert_eq!(command("hf://owner/model/x/c.pth"), "hf download owner/model x/c.pth");
        assert_eq!(command("hf://owner/model"), "hf download owner/model");
    }

    #[test]
    fn advice_follows_the_error_through_its_context() {
        let error = store::refuse_remote(Path::new("gs:/b/c")).expect_err("an address");
        let error = anyhow::Error::new(error).context("while reading");
        assert!(is_usage(&error));
        let texts: Vec<String> = error.chain().map(cause).collect();
        assert_eq!(
            texts,
            ["while reading", "gs:/b/c is not a local path; first: `gcloud storage cp gs://b/c .`"]
        );
    }

    fn not_a_set(names: &[&str]) -> String {
        let paths = names.iter().map(PathBuf::from).collect();
        sources_text(&sources::Error::NotASet { paths })
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
