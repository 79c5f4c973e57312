//! Selects the files in a folder that hold its checkpoint.

use std::path::PathBuf;

use byte_source::{Folder, Location};
use output::file_name;

use crate::files::deepspeed::ZeroCheckpoint;
use crate::files::diagnosis::FolderDiagnosis;
use crate::files::folder_names::{checkpoints, dangling_checkpoint_link, indexes};
use crate::files::links::link_target_outside;
use crate::files::numbering::NumberedFileName;
use crate::files::rank_part::RANK_OF_MEGATRON;
use crate::files::shard_set::{check_numbered_set, read_indexed_set};
use crate::files::{CheckpointSources, FilesNote, Problem, Result};
use crate::trainers::{TrainerFolder, list};

/// Checkpoint that was found in a folder.
struct FolderCandidate {
    /// Names of its files.
    members: Vec<String>,
    kind: CandidateKind,
}

enum CandidateKind {
    Index(PathBuf, Box<CheckpointSources>),
    File,
    /// Numbered files without an index.
    Set,
}

impl FolderCandidate {
    fn message_name(&self) -> String {
        match (self.members.as_slice(), &self.kind) {
            (_, CandidateKind::Index(index, _)) => file_name(index),
            ([first, .., last], _) => format!("{first} to {last}"),
            (members, _) => members.join(", "),
        }
    }

    /// Returns true if the candidate is a model by its file names, whatever else the folder contains.
    fn is_whole_model(&self) -> bool {
        match self.kind {
            CandidateKind::Index(..) | CandidateKind::Set => true,
            CandidateKind::File => self.members.iter().all(|name| is_whole_model(name)),
        }
    }

    /// Returns true if all files are named `consolidated*`, as Meta and Mistral name their own files, also in their
    /// repositories at Hugging Face.
    fn is_consolidated(&self) -> bool {
        self.members.iter().all(|name| name.starts_with("consolidated"))
    }

    /// Returns true if all files have this extension.
    fn all_have_extension(&self, extension: &str) -> bool {
        self.members.iter().all(|name| name.ends_with(extension))
    }
}

/// Finds the checkpoint at the top level of `folder`.
pub(crate) fn find(folder: &Location) -> Result<CheckpointSources> {
    let folder = list(folder)?;
    if let Some(found) = TrainerFolder::at(&folder).map_err(|error| error.in_folder(folder.path()))? {
        return Ok(trainer_sources(found, &folder));
    }
    if let Some(found) = find_deepspeed(&folder)? {
        return Ok(trainer_sources(found, &folder));
    }
    if let Some(name) = dangling_checkpoint_link(&folder.listing) {
        let path = folder.path().join(name);
        let target = path.read_link().unwrap_or_default();
        return Err(Problem::DanglingLink { path, target }.into());
    }
    choose(&folder)
}

/// Chooses the checkpoint of a folder that no trainer wrote, or else the newest step of a trainer below it.
fn choose(folder: &Folder) -> Result<CheckpointSources> {
    let mut candidates = candidates(folder)?;
    let left_alone = unused_files_note(folder, &candidates);
    let mut notes = Vec::new();
    if TrainerFolder::is_one_of_several_ranks(&folder.location) {
        notes.push(FilesNote::RankPart { what: RANK_OF_MEGATRON });
    }
    let chosen = match candidates.as_slice() {
        [] => {
            let step = TrainerFolder::newest_step(folder);
            if let Some(found) = step.map_err(|error| error.in_folder(folder.path()))? {
                return Ok(trainer_sources(found, folder));
            }
            let contents = FolderDiagnosis::find(folder);
            return Err(Problem::NoCheckpoint { folder: folder.path().to_owned(), contents }.into());
        }
        [_] => 0,
        several => {
            let Some(chosen) = preferred_candidate(several) else {
                let candidates =
                    several.iter().map(|candidate| to_checkpoint_candidate(folder, candidate)).collect();
                return Err(
                    Problem::SeveralCheckpoints { folder: folder.path().to_owned(), candidates }.into()
                );
            };
            let names =
                several.iter().enumerate().map(|(index, candidate)| (index, candidate.message_name()));
            let (used, others): (Vec<_>, Vec<_>) = names.partition(|(index, _)| *index == chosen);
            let used = used.into_iter().map(|(_, name)| name).collect();
            notes.push(FilesNote::CandidateChosen {
                used,
                unused_candidates: others.into_iter().map(|(_, name)| name).collect(),
            });
            chosen
        }
    };
    let chosen = candidates.swap_remove(chosen);
    let files = || chosen.members.iter().map(|name| folder.location.join(name));
    let mut sources = match chosen.kind {
        CandidateKind::Index(_, sources) => *sources,
        CandidateKind::File => {
            CheckpointSources::file(&files().next().unwrap_or_else(|| folder.location.clone()))
        }
        CandidateKind::Set => {
            let members = chosen.members.iter().zip(files());
            let members =
                members.filter_map(|(name, file)| Some((NumberedFileName::parse_file_name(name)?, file)));
            check_numbered_set(members.collect())?
        }
    };
    notes.extend(left_alone);
    let is_outside = |path: &&PathBuf| {
        folder.listing.links.contains(&file_name(path)) && link_target_outside(path, folder.path()).is_some()
    };
    let outside: Vec<String> = sources.files.iter().filter(is_outside).map(|path| file_name(path)).collect();
    if !outside.is_empty() {
        notes.push(FilesNote::LinksFollowed { files: outside });
    }
    sources.notes = notes;
    Ok(sources)
}

/// Returns the files of a trainer's checkpoint, which was found in `folder` or in a step below it.
fn trainer_sources(found: TrainerFolder, folder: &Folder) -> CheckpointSources {
    let mut notes = Vec::new();
    let step = found.folder.path();
    let is_step = step != folder.path();
    if is_step && !found.other_steps.is_empty() {
        let below = step.strip_prefix(folder.path()).unwrap_or(step);
        let used = below.to_string_lossy().into_owned();
        notes.push(FilesNote::CandidateChosen { used, unused_candidates: found.other_steps });
    }
    let is_read = |name: &str| !is_step && found.files.iter().any(|path| file_name(path) == name);
    let unused: Vec<String> =
        checkpoints(&folder.listing).filter(|name| !is_read(name)).map(str::to_owned).collect();
    notes.extend((!unused.is_empty()).then_some(FilesNote::CheckpointFilesUnused { files: unused }));
    let is_outside = |path: &&PathBuf| found.folder.is_local() && link_target_outside(path, step).is_some();
    let outside: Vec<String> = found.files.iter().filter(is_outside).map(|path| file_name(path)).collect();
    if !outside.is_empty() {
        notes.push(FilesNote::LinksFollowed { files: outside });
    }
    let mut sources = CheckpointSources::trainer(found.files, &found.folder, found.layout);
    sources.notes = notes;
    sources
}

/// Returns the position of the preferred candidate. Safetensors files are preferred to `.bin` files, their older form;
/// safetensors files with the names of Hugging Face are preferred to `.bin` and `consolidated` files. Returns `None` if
/// there are any other candidates.
fn preferred_candidate(candidates: &[FolderCandidate]) -> Option<usize> {
    let safe = |candidate: &FolderCandidate| candidate.all_have_extension(".safetensors");
    let hugging_face = |candidate: &FolderCandidate| safe(candidate) && !candidate.is_consolidated();
    let older = |candidate: &FolderCandidate| candidate.all_have_extension(".bin");
    let only = |chosen: &dyn Fn(&FolderCandidate) -> bool, rest: &dyn Fn(&FolderCandidate) -> bool| {
        let index = candidates.iter().position(chosen)?;
        let mut others = candidates.iter().enumerate().filter(|(other, _)| *other != index);
        others.all(|(_, other)| rest(other)).then_some(index)
    };
    only(&safe, &older).or_else(|| only(&hugging_face, &|other| older(other) || other.is_consolidated()))
}

/// Finds the newest step of `DeepSpeed` below the folder. Refuses one without the state of an optimizer, and one next to a whole
/// model.
fn find_deepspeed(folder: &Folder) -> Result<Option<TrainerFolder>> {
    let Some(found) = ZeroCheckpoint::find(folder) else { return Ok(None) };
    // Older versions of `transformers` save empty tensors next to the `ZeRO` state, so the user has to decide.
    let candidates = candidates(folder).unwrap_or_default();
    let candidates = candidates.iter().filter(|candidate| candidate.is_whole_model());
    let candidates: Vec<_> = candidates.map(|candidate| to_checkpoint_candidate(folder, candidate)).collect();
    if candidates.is_empty()
        && let Some(step) = found.step(&folder.location)
    {
        let found = TrainerFolder::at(&list(&step)?).map_err(|error| error.in_folder(step.path()));
        if let Some(mut trainer) = found? {
            let name = file_name(step.path());
            let is_step = |other: &&String| other.starts_with("global_step") && **other != name;
            trainer.other_steps = folder.listing.folders.iter().filter(is_step).cloned().collect();
            return Ok(Some(trainer));
        }
    }
    Err(Problem::DeepSpeed { folder: folder.path().to_owned(), found, candidates }.into())
}

/// Returns all checkpoints in the folder. A single file whose name is not that of a whole model counts only if there is
/// nothing else.
fn candidates(folder: &Folder) -> Result<Vec<FolderCandidate>> {
    let mut candidates = Vec::new();
    let mut listed: Vec<String> = Vec::new();
    for index in indexes(&folder.listing) {
        let index = folder.location.join(index);
        let sources = read_indexed_set(&index)?;
        let members: Vec<String> = sources.files.iter().map(|path| file_name(path)).collect();
        listed.extend(members.iter().cloned());
        let kind = CandidateKind::Index(index.path().to_owned(), Box::new(sources));
        candidates.push(FolderCandidate { members, kind });
    }
    let rest: Vec<&str> =
        checkpoints(&folder.listing).filter(|name| !listed.iter().any(|file| file == name)).collect();
    let mut sets: Vec<(String, Vec<String>)> = Vec::new();
    for name in &rest {
        let Some(set) = NumberedFileName::parse_file_name(name).map(|numbering| numbering.set_key()) else {
            continue;
        };
        match sets.iter_mut().find(|(other, _)| *other == set) {
            Some((_, members)) => members.push((*name).to_owned()),
            None => sets.push((set, vec![(*name).to_owned()])),
        }
    }
    candidates
        .extend(sets.into_iter().map(|(_, members)| FolderCandidate { members, kind: CandidateKind::Set }));
    let file = |name: &str| FolderCandidate { members: vec![name.to_owned()], kind: CandidateKind::File };
    let alone = || rest.iter().filter(|name| NumberedFileName::parse_file_name(name).is_none());
    candidates.extend(alone().filter(|name| is_whole_model(name)).map(|name| file(name)));
    if candidates.is_empty() {
        candidates.extend(alone().map(|name| file(name)));
    }
    // A GGUF file is made from the other files, and often next to them.
    let is_gguf = |candidate: &FolderCandidate| candidate.all_have_extension(".gguf");
    if !candidates.iter().all(is_gguf) {
        candidates.retain(|candidate| !is_gguf(candidate));
    }
    Ok(candidates)
}

/// Returns a note on the checkpoint files that belong to no candidate.
fn unused_files_note(folder: &Folder, candidates: &[FolderCandidate]) -> Option<FilesNote> {
    let taken = |name: &str| candidates.iter().any(|c| c.members.iter().any(|member| member == name));
    let files: Vec<String> =
        checkpoints(&folder.listing).filter(|name| !taken(name)).map(str::to_owned).collect();
    (!files.is_empty()).then_some(FilesNote::CheckpointFilesUnused { files })
}

/// Converts a candidate to its public form, with full paths.
fn to_checkpoint_candidate(
    folder: &Folder,
    candidate: &FolderCandidate,
) -> crate::files::CheckpointCandidate {
    crate::files::CheckpointCandidate {
        paths: match &candidate.kind {
            CandidateKind::Index(path, _) => vec![path.clone()],
            CandidateKind::File | CandidateKind::Set => {
                candidate.members.iter().map(|name| folder.path().join(name)).collect()
            }
        },
    }
}

/// Returns true if the file name stands for a whole model, whatever else the folder contains.
fn is_whole_model(name: &str) -> bool {
    name.ends_with(".safetensors") || name == "pytorch_model.bin"
}
