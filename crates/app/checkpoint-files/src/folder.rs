//! Selects the files in a folder that hold its checkpoint.

use std::path::{Path, PathBuf};

use output::file_name;

use crate::contents::Contents;
use crate::deepspeed::DeepSpeed;
use crate::joined::{indexed, numbered};
use crate::links::leads_out;
use crate::listing::Listing;
use crate::numbering::Numbering;
use crate::{Error, Note, Result, Sources};

/// Checkpoint that was found in a folder.
struct Candidate {
    /// Names of its files.
    members: Vec<String>,
    kind: Kind,
}

enum Kind {
    /// Files listed by the index at this path.
    Index(PathBuf, Box<Sources>),
    File,
    /// Numbered files without an index.
    Set,
}

impl Candidate {
    /// Returns the name of the candidate for messages.
    fn name(&self) -> String {
        match (self.members.as_slice(), &self.kind) {
            (_, Kind::Index(index, _)) => file_name(index),
            ([first, .., last], _) => format!("{first} to {last}"),
            (members, _) => members.join(", "),
        }
    }

    /// Returns true if the candidate is a model by its file names, whatever else the folder contains.
    fn is_whole_model(&self) -> bool {
        match self.kind {
            Kind::Index(..) | Kind::Set => true,
            Kind::File => self.members.iter().all(|name| is_whole_model(name)),
        }
    }

    /// Returns true if all files are named `consolidated*`, as Meta and Mistral name their own files, also in their
    /// repositories at Hugging Face.
    fn is_consolidated(&self) -> bool {
        self.members.iter().all(|name| name.starts_with("consolidated"))
    }

    /// Returns true if all files have this extension.
    fn is_of(&self, extension: &str) -> bool {
        self.members.iter().all(|name| name.ends_with(extension))
    }
}

/// Finds the checkpoint at the top level of `folder`.
pub(crate) fn find(folder: &Path) -> Result<Sources> {
    let listing = Listing::read(folder).map_err(|reason| Error::Io { path: folder.to_owned(), reason })?;
    listing.refuse_others()?;
    if let Some(path) = listing.lost_link() {
        let target = path.read_link().unwrap_or_default();
        return Err(Error::LostLink { path, target });
    }
    let mut candidates = listing.candidates()?;
    let left_alone = listing.left_alone(&candidates);
    let mut notes = Vec::new();
    let chosen = match candidates.as_slice() {
        [] => {
            let contents = Contents::find(&listing);
            return Err(Error::NoCheckpoint { folder: listing.folder, contents });
        }
        [_] => 0,
        several => {
            let Some(chosen) = preferred(several) else {
                let candidates = several.iter().map(|candidate| listing.public(candidate)).collect();
                return Err(Error::Several { folder: listing.folder, candidates });
            };
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
    let outside = sources.files.iter().filter(|path| leads_out(path, &listing.folder).is_some());
    let outside: Vec<String> = outside.map(|path| file_name(path)).collect();
    if !outside.is_empty() {
        notes.push(Note::LinksFollowed { files: outside });
    }
    sources.notes = notes;
    Ok(sources)
}

/// Returns the position of the preferred candidate. Safetensors files are preferred to `.bin` files, their older form;
/// safetensors files with the names of Hugging Face are preferred to `.bin` and `consolidated` files. Returns `None` if
/// there are any other candidates.
fn preferred(candidates: &[Candidate]) -> Option<usize> {
    let safe = |candidate: &Candidate| candidate.is_of(".safetensors");
    let hugging_face = |candidate: &Candidate| safe(candidate) && !candidate.is_consolidated();
    let older = |candidate: &Candidate| candidate.is_of(".bin");
    let only = |chosen: &dyn Fn(&Candidate) -> bool, rest: &dyn Fn(&Candidate) -> bool| {
        let index = candidates.iter().position(chosen)?;
        let mut others = candidates.iter().enumerate().filter(|(other, _)| *other != index);
        others.all(|(_, other)| rest(other)).then_some(index)
    };
    only(&safe, &older).or_else(|| only(&hugging_face, &|other| older(other) || other.is_consolidated()))
}

impl Listing {
    /// Rejects folders of `torch.distributed.checkpoint` and `DeepSpeed`, which those programs convert into one file.
    fn refuse_others(&self) -> Result<()> {
        if self.files.iter().any(|name| name == ".metadata" || name.ends_with(".distcp")) {
            return Err(Error::Distributed { folder: self.folder.clone() });
        }
        let Some(found) = DeepSpeed::find(self) else { return Ok(()) };
        // Older versions of `transformers` save empty tensors next to the `ZeRO` state, so the user has to decide.
        let candidates = self.candidates().unwrap_or_default();
        let candidates = candidates.iter().filter(|candidate| candidate.is_whole_model());
        let candidates = candidates.map(|candidate| self.public(candidate)).collect();
        Err(Error::DeepSpeed { folder: self.folder.clone(), found, candidates })
    }

    /// Returns all checkpoints in the folder. A single file whose name is not that of a whole model counts only if there is
    /// nothing else.
    fn candidates(&self) -> Result<Vec<Candidate>> {
        let mut candidates = Vec::new();
        let mut listed: Vec<String> = Vec::new();
        for index in self.indexes() {
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
        candidates.extend(alone().filter(|name| is_whole_model(name)).map(|name| file(name)));
        if candidates.is_empty() {
            candidates.extend(alone().map(|name| file(name)));
        }
        Ok(candidates)
    }

    /// Returns a note on the checkpoint files that belong to no candidate.
    fn left_alone(&self, candidates: &[Candidate]) -> Option<Note> {
        let taken = |name: &str| candidates.iter().any(|c| c.members.iter().any(|member| member == name));
        let files: Vec<String> = self.checkpoints().filter(|name| !taken(name)).map(str::to_owned).collect();
        (!files.is_empty()).then_some(Note::LeftAlone { files })
    }

    /// Converts a candidate to its public form, with full paths.
    fn public(&self, candidate: &Candidate) -> crate::Candidate {
        crate::Candidate {
            paths: match &candidate.kind {
                Kind::Index(path, _) => vec![path.clone()],
                Kind::File | Kind::Set => {
                    candidate.members.iter().map(|name| self.folder.join(name)).collect()
                }
            },
        }
    }
}

/// Returns true if the file name stands for a whole model, whatever else the folder contains.
fn is_whole_model(name: &str) -> bool {
    name.ends_with(".safetensors") || name == "pytorch_model.bin"
}
