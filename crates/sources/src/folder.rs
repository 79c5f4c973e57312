//! Which files of a folder hold its checkpoint.

use std::path::{Path, PathBuf};

use crate::find::{INDEX, indexed, numbered};
use store::file_name;
use crate::numbering::Numbering;
use crate::{Error, Note, Result, Sources};

/// The ends of checkpoints' names.
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
/// Files next to a checkpoint that belong to its training.
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

/// One checkpoint that the folder may mean.
struct Candidate {
    /// The names of its files.
    members: Vec<String>,
    kind: Kind,
}

enum Kind {
    /// Found through the index at this path.
    Index(PathBuf, Box<Sources>),
    File,
    /// Numbered files without an index.
    Set,
}

impl Candidate {
    /// Its name in messages.
    fn name(&self) -> String {
        match (self.members.as_slice(), &self.kind) {
            (_, Kind::Index(index, _)) => file_name(index),
            ([first, .., last], _) => format!("{first} to {last}"),
            (members, _) => members.join(", "),
        }
    }

    /// Whether all of its files are of this extension.
    fn is_of(&self, extension: &str) -> bool {
        self.members.iter().all(|name| name.ends_with(extension))
    }
}

/// The checkpoint at the top level of `folder`.
pub(crate) fn find(folder: &Path) -> Result<Sources> {
    let listing = Listing::read(folder)?;
    listing.refuse_others()?;
    let mut candidates = listing.candidates()?;
    let left_alone = listing.left_alone(&candidates);
    let mut notes = Vec::new();
    let chosen = match candidates.as_slice() {
        [] => return Err(listing.nothing()),
        [_] => 0,
        several => {
            let Some(chosen) = preferred(several) else { return Err(listing.tie(several)) };
            let names = several.iter().enumerate().map(|(index, candidate)| (index, candidate.name()));
            let (used, others): (Vec<_>, Vec<_>) = names.partition(|(index, _)| *index == chosen);
            let used = used.into_iter().map(|(_, name)| name).collect();
            notes.push(Note::Chosen { used, others: others.into_iter().map(|(_, name)| name).collect() });
            chosen
        }
    };
    let chosen = candidates.swap_remove(chosen);
    let paths = || chosen.members.iter().map(|name| listing.folder.join(name));
    let mut sources = match chosen.kind {
        Kind::Index(_, sources) => *sources,
        Kind::File => Sources::file(&paths().collect::<PathBuf>()),
        Kind::Set => {
            let members = chosen.members.iter().zip(paths());
            let members = members.filter_map(|(name, path)| Some((Numbering::from_name(name)?, path)));
            numbered(members.collect())?
        }
    };
    notes.extend(left_alone);
    sources.notes = notes;
    Ok(sources)
}

/// Which of several candidates is read: one in safetensors files, where all others are older forms of it.
fn preferred(candidates: &[Candidate]) -> Option<usize> {
    let mut safe = candidates.iter().enumerate().filter(|(_, candidate)| candidate.is_of(".safetensors"));
    let (chosen, _) = safe.next()?;
    let mut others = candidates.iter().enumerate().filter(|(index, _)| *index != chosen);
    others.all(|(_, other)| other.is_of(".bin")).then_some(chosen)
}

impl Listing {
    fn read(folder: &Path) -> Result<Self> {
        let io = |reason| Error::Io { path: folder.to_owned(), reason };
        let mut names = Vec::new();
        for entry in folder.read_dir().map_err(io)? {
            let path = entry.map_err(io)?.path();
            // A name that is not UTF-8 is not one of those below.
            if let Some(name) = path.file_name().and_then(|name| name.to_str())
                && path.is_file()
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(Self { folder: folder.to_owned(), names })
    }

    /// Refuses folders that other programs turn into one file.
    fn refuse_others(&self) -> Result<()> {
        if self.names.iter().any(|name| name == ".metadata" || name.ends_with(".distcp")) {
            return Err(Error::Distributed { folder: self.folder.clone() });
        }
        let zero = |name: &String| name.contains("zero_pp_rank_") && name.ends_with("_optim_states.pt");
        let script = self.names.iter().any(|name| name == "zero_to_fp32.py");
        if script || self.names.iter().any(zero) {
            let script = script.then(|| self.folder.join("zero_to_fp32.py"));
            return Err(Error::DeepSpeed { folder: self.folder.clone(), script });
        }
        Ok(())
    }

    fn checkpoints(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str).filter(|name| is_checkpoint(name))
    }

    /// All checkpoints that the folder may mean. A file of any name is one when there is nothing else.
    fn candidates(&self) -> Result<Vec<Candidate>> {
        let mut candidates = Vec::new();
        let mut listed: Vec<String> = Vec::new();
        for index in self.names.iter().filter(|name| name.ends_with(INDEX)) {
            if !is_checkpoint(index.strip_suffix(INDEX).unwrap_or_default()) {
                continue;
            }
            let path = self.folder.join(index);
            let sources = indexed(&path)?;
            let members: Vec<String> = sources.files.iter().map(|path| file_name(path)).collect();
            listed.extend(members.iter().cloned());
            candidates.push(Candidate { members, kind: Kind::Index(path, Box::new(sources)) });
        }
        let rest: Vec<&str> =
            self.checkpoints().filter(|name| !listed.iter().any(|file| file == name)).collect();
        let mut sets: Vec<(String, Vec<String>)> = Vec::new();
        for name in &rest {
            let Some(set) = Numbering::from_name(name).map(|numbering| numbering.set()) else { continue };
            match sets.iter_mut().find(|(other, _)| *other == set) {
                Some((_, members)) => members.push((*name).to_owned()),
                None => sets.push((set, vec![(*name).to_owned()])),
            }
        }
        candidates.extend(sets.into_iter().map(|(_, members)| Candidate { members, kind: Kind::Set }));
        let file = |name: &str| Candidate { members: vec![name.to_owned()], kind: Kind::File };
        let alone = || rest.iter().filter(|name| Numbering::from_name(name).is_none());
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

    /// A note on the checkpoint files that are not part of any candidate.
    fn left_alone(&self, candidates: &[Candidate]) -> Option<Note> {
        let taken = |name: &str| candidates.iter().any(|c| c.members.iter().any(|member| member == name));
        let files: Vec<String> = self.checkpoints().filter(|name| !taken(name)).map(str::to_owned).collect();
        (!files.is_empty()).then_some(Note::LeftAlone { files })
    }

    fn tie(&self, candidates: &[Candidate]) -> Error {
        let paths = |candidate: &Candidate| match &candidate.kind {
            Kind::Index(path, _) => vec![path.clone()],
            Kind::File | Kind::Set => candidate.members.iter().map(|name| self.folder.join(name)).collect(),
        };
        let candidates = candidates.iter().map(|candidate| crate::Candidate { paths: paths(candidate) });
        Error::Several { folder: self.folder.clone(), candidates: candidates.collect() }
    }

    fn nothing(&self) -> Error {
        let folder = self.folder.clone();
        let original = folder.join(ORIGINAL);
        if original.is_dir() {
            return Error::Original { folder, original };
        }
        match self.names.iter().filter(|name| is_training(name)).count() {
            0 => Error::NoCheckpoint { folder },
            files => Error::TrainingState { folder, files },
        }
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
    fn the_state_of_a_training_is_not_a_checkpoint() {
        for name in ["optimizer.pt", "optimizer.bin", "scheduler.pt", "scaler.pt", "rng_state_0.pth"] {
            assert!(!is_checkpoint(name), "{name}");
        }
        assert!(!is_checkpoint("mp_rank_00_model_states.pt"));
        assert!(!is_checkpoint("training_args.bin"));
        assert!(is_checkpoint("net.pth.tar"));
        assert!(!is_checkpoint("tokenizer.model"));
    }
}
