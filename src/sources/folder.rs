//! Which files of a folder hold its checkpoint.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::{Sources, quoted};
use crate::beside::Numbering;

/// What the name of an index ends in.
pub(super) const INDEX: &str = ".index.json";
/// What the name of a checkpoint ends in.
const EXTENSIONS: &[&str] = &[
    ".safetensors",
    ".bin",
    ".pth",
    ".pt",
    ".ckpt",
    ".th",
    ".torch",
    ".pkl",
    ".pickle",
    ".pth.tar",
    ".pt.tar",
];
/// What lies beside a checkpoint and belongs to its training.
const TRAINING_STARTS: &[&str] = &["optimizer.", "scheduler.", "rng_state"];
const TRAINING: &[&str] = &["scaler.pt", "training_args.bin"];
const TRAINING_ENDS: &[&str] = &["_states.pt"];
/// Where Hugging Face's copies of Meta's models keep Meta's own files.
const ORIGINAL: &str = "original";

/// The names in a folder.
struct Listing {
    folder: PathBuf,
    /// Files, sorted.
    names: Vec<String>,
}

/// One thing that the folder may mean.
struct Candidate {
    /// What one types for it.
    path: PathBuf,
    members: Vec<String>,
    kind: CandidateKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CandidateKind {
    Index,
    File,
    Set,
}

impl Candidate {
    /// What a person sees of it.
    fn shown(&self) -> String {
        match (self.members.as_slice(), self.kind) {
            (_, CandidateKind::Index | CandidateKind::File) => store::file_name(&self.path),
            ([first, .., last], CandidateKind::Set) => format!("{first} to {last}"),
            (members, CandidateKind::Set) => members.join(", "),
        }
    }

    /// Whether all of its files are of this extension.
    fn is_of(&self, extension: &str) -> bool {
        self.members.iter().all(|name| name.ends_with(extension))
    }
}

/// The checkpoint at the top level of `folder`.
pub(super) fn find(folder: &Path) -> Result<Sources> {
    let listing = Listing::read(folder)?;
    listing.refuse_others()?;
    let candidates = listing.candidates()?;
    let mut notes = Vec::new();
    let chosen = match candidates.as_slice() {
        [] => bail!(listing.nothing()),
        [one] => one,
        several => {
            let (safe, others): (Vec<_>, Vec<_>) =
                several.iter().partition(|candidate| candidate.is_of(".safetensors"));
            match safe.as_slice() {
                [one] if others.iter().all(|other| other.is_of(".bin")) => {
                    let names: Vec<String> = others.iter().map(|other| other.shown()).collect();
                    notes.push(format!("using {}, not {}", one.shown(), names.join(" or ")));
                    *one
                }
                _ => bail!(listing.tie(several)),
            }
        }
    };
    let mut sources = match chosen.kind {
        CandidateKind::Index => Sources::indexed(&chosen.path)?,
        CandidateKind::File => Sources::file(&chosen.path),
        CandidateKind::Set => {
            let members = chosen.members.iter();
            let members = members.filter_map(|name| Some((Numbering::of(name)?, listing.folder.join(name))));
            Sources::numbered(members.collect())?
        }
    };
    notes.extend(listing.left_alone(&candidates));
    sources.notes = notes;
    Ok(sources)
}

impl Listing {
    fn read(folder: &Path) -> Result<Self> {
        let mut names = Vec::new();
        let entries = folder.read_dir().with_context(|| folder.display().to_string())?;
        for entry in entries {
            let path = entry.with_context(|| folder.display().to_string())?.path();
            // A name that is no UTF-8 is none of those below.
            if let Some(name) = path.file_name().and_then(|name| name.to_str())
                && path.is_file()
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(Self { folder: folder.to_owned(), names })
    }

    /// Folders that other programs turn into one file.
    fn refuse_others(&self) -> Result<()> {
        let folder = quoted(&self.folder);
        if self.names.iter().any(|name| name == ".metadata" || name.ends_with(".distcp")) {
            bail!(
                "{} is a distributed checkpoint; first: python -m \
                 torch.distributed.checkpoint.format_utils dcp_to_torch {folder} out.pt",
                self.folder.display()
            );
        }
        let zero = |name: &str| name.contains("zero_pp_rank_") && name.ends_with("_optim_states.pt");
        let script = self.names.iter().any(|name| name == "zero_to_fp32.py");
        if script || self.names.iter().any(|name| zero(name)) {
            let script = if script { self.folder.join("zero_to_fp32.py") } else { "zero_to_fp32.py".into() };
            bail!(
                "{} is a DeepSpeed ZeRO checkpoint; first: python {} {folder} out",
                self.folder.display(),
                quoted(&script)
            );
        }
        Ok(())
    }

    fn checkpoints(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str).filter(|name| is_checkpoint(name))
    }

    /// All that the folder may mean. A single file of any name is one when there is nothing else.
    fn candidates(&self) -> Result<Vec<Candidate>> {
        let mut candidates = Vec::new();
        let mut listed: Vec<String> = Vec::new();
        for index in self.names.iter().filter(|name| name.ends_with(INDEX)) {
            if !is_checkpoint(index.strip_suffix(INDEX).unwrap_or_default()) {
                continue;
            }
            let sources = Sources::indexed(&self.folder.join(index))?;
            let members: Vec<String> = sources.files.iter().map(|path| store::file_name(path)).collect();
            listed.extend(members.iter().cloned());
            candidates.push(Candidate { path: self.folder.join(index), members, kind: CandidateKind::Index });
        }
        let rest: Vec<&str> =
            self.checkpoints().filter(|name| !listed.iter().any(|file| file == name)).collect();
        let mut sets: Vec<(String, Vec<String>)> = Vec::new();
        for name in &rest {
            let Some(set) = Numbering::of(name).map(|numbering| numbering.set()) else { continue };
            match sets.iter_mut().find(|(other, _)| *other == set) {
                Some((_, members)) => members.push((*name).to_owned()),
                None => sets.push((set, vec![(*name).to_owned()])),
            }
        }
        for (_, members) in sets {
            let path = members.first().map_or_else(PathBuf::new, |name| self.folder.join(name));
            candidates.push(Candidate { path, members, kind: CandidateKind::Set });
        }
        let file = |name: &str| Candidate {
            path: self.folder.join(name),
            members: vec![name.to_owned()],
            kind: CandidateKind::File,
        };
        let alone = || rest.iter().filter(|name| Numbering::of(name).is_none());
        candidates.extend(
            alone()
                .filter(|name| name.ends_with(".safetensors") || **name == "pytorch_model.bin")
                .map(|name| file(name)),
        );
        if candidates.is_empty() {
            candidates.extend(alone().map(|name| file(name)));
        }
        Ok(candidates)
    }

    /// A note for the checkpoints that are not part of what was found.
    fn left_alone(&self, candidates: &[Candidate]) -> Option<String> {
        let taken = |name: &str| candidates.iter().any(|c| c.members.iter().any(|member| member == name));
        let others: Vec<&str> = self.checkpoints().filter(|name| !taken(name)).collect();
        let verb = if others.len() == 1 { "is" } else { "are" };
        (!others.is_empty()).then(|| format!("{} {verb} left alone", others.join(", ")))
    }

    fn tie(&self, candidates: &[Candidate]) -> String {
        let command = |candidate: &Candidate| {
            let paths = match candidate.kind {
                CandidateKind::Index | CandidateKind::File => quoted(&candidate.path),
                CandidateKind::Set => {
                    let paths = candidate.members.iter().map(|name| quoted(&self.folder.join(name)));
                    paths.collect::<Vec<_>>().join(" ")
                }
            };
            format!("`torch2carton {paths}`")
        };
        let commands: Vec<String> = candidates.iter().map(command).collect();
        format!(
            "{} holds {} checkpoints; run one of {}",
            self.folder.display(),
            candidates.len(),
            commands.join(", ")
        )
    }

    fn nothing(&self) -> String {
        let original = self.folder.join(ORIGINAL);
        let shown = self.folder.display();
        if original.is_dir() {
            return format!(
                "{shown} holds no checkpoint at its top level, but {ORIGINAL}/ is there: run `torch2carton {}`",
                quoted(&original)
            );
        }
        let training = self.names.iter().filter(|name| is_training(name)).count();
        if training > 0 {
            return format!("{shown} holds no checkpoint, only {training} files of a training's state");
        }
        format!("{shown} holds no checkpoint")
    }
}

fn is_checkpoint(name: &str) -> bool {
    !name.starts_with('.')
        && EXTENSIONS.iter().any(|extension| name.ends_with(extension))
        && !is_training(name)
}

fn is_training(name: &str) -> bool {
    TRAINING.contains(&name)
        || TRAINING_STARTS.iter().any(|start| name.starts_with(start))
        || TRAINING_ENDS.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_training_is_no_checkpoint() {
        for name in ["optimizer.pt", "optimizer.bin", "scheduler.pt", "scaler.pt", "rng_state_0.pth"] {
            assert!(!is_checkpoint(name), "{name}");
        }
        assert!(!is_checkpoint("mp_rank_00_model_states.pt"));
        assert!(!is_checkpoint("training_args.bin"));
        assert!(is_checkpoint("net.pth.tar"));
        assert!(!is_checkpoint("tokenizer.model"));
    }
}
