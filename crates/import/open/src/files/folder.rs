//! Selects the files in a folder that hold its checkpoint.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use byte_source::{Folder, Location};
use output::file_name;

use crate::files::deepspeed::ZeroCheckpoint;
use crate::files::diagnosis::FolderDiagnosis;
use crate::files::folder_names::{
    DOCUMENTS, PICKLE, STORAGES, checkpoints, dangling_checkpoint_link, indexes, is_unpacked,
};
use crate::files::links::link_target_outside;
use crate::files::numbering::NumberedFileName;
use crate::files::rank_part::RANK_OF_MEGATRON;
use crate::files::shard_set::{check_numbered_set, read_indexed_set};
use crate::files::sources::SourcesKind;
use crate::files::{CheckpointSources, DOCUMENT_MAX, FilesNote, Problem, Result, read_document};
use crate::trainers::{RankFile, RankFiles, TrainerFolder, all_ranks, list};

/// Checkpoint that was found in a folder.
struct FolderCandidate {
    /// Names of its files.
    members: Vec<String>,
    /// Name that the checkpoint has, or would have, as a single file.
    whole: String,
    kind: CandidateKind,
}

enum CandidateKind {
    Index(PathBuf, Box<CheckpointSources>),
    File,
    /// Numbered files without an index.
    Set,
    /// A file of each rank.
    Ranks,
}

/// Stems of the names that `transformers`, `diffusers`, `peft` and Mistral give the single file of a model.
const MODELS: &[&str] =
    &["model", "pytorch_model", "diffusion_pytorch_model", "adapter_model", "consolidated"];

impl FolderCandidate {
    fn file(name: &str) -> Self {
        Self { members: vec![name.to_owned()], whole: name.to_owned(), kind: CandidateKind::File }
    }

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
            CandidateKind::Index(..) | CandidateKind::Set | CandidateKind::Ranks => true,
            CandidateKind::File => self.whole.ends_with(".safetensors") || self.whole == "pytorch_model.bin",
        }
    }

    /// Returns true if the names say that the folder is this checkpoint: an index, numbers, or next to the documents of a model
    /// the name that its weights have.
    fn names_folder(&self, folder: &Folder) -> bool {
        let stem = self.whole.split_once('.').map_or("", |(stem, _)| stem);
        let documents = || DOCUMENTS.iter().any(|name| folder.listing.has_file(name));
        !matches!(self.kind, CandidateKind::File) || MODELS.contains(&stem) && documents()
    }

    /// Returns true if the names say that `other` has the weights of this candidate in another form. Safetensors files are
    /// preferred to `.bin` files, their older form, and the names of Hugging Face to `consolidated*`, as Meta and Mistral name
    /// their own files, also in their repositories at Hugging Face.
    fn replaces(&self, other: &Self) -> bool {
        let is_older = other.all_have_extension(".bin");
        self.all_have_extension(".safetensors")
            && self.model() == other.model()
            && (is_older || !self.is_consolidated() && other.is_consolidated())
    }

    /// Returns true if `other` has the name of the file that this index stands for: it may have other tensors.
    fn hides(&self, other: &Self) -> bool {
        let is_index = |it: &Self| matches!(it.kind, CandidateKind::Index(..));
        is_index(self) && !is_index(other) && self.whole == other.whole
    }

    /// Returns true if files of the same numbered set are in this candidate and in `other`.
    fn is_half_of(&self, other: &Self) -> bool {
        let set = |names: &[String]| {
            names.first().and_then(|name| NumberedFileName::parse_file_name(name)).map(|name| name.set_key())
        };
        set(&self.members).is_some_and(|own| set(&other.members) == Some(own))
    }

    /// Returns the name of the model without the form of its files.
    fn model(&self) -> &str {
        let stem = self.whole.rsplit_once('.').map_or("", |(stem, _)| stem);
        if self.is_consolidated() { "model" } else { stem.strip_prefix("pytorch_").unwrap_or(stem) }
    }

    fn is_consolidated(&self) -> bool {
        self.whole.starts_with("consolidated")
    }

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
    if let Some(found) = find_unpacked(&folder)? {
        return Ok(found);
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
    let mut notes = Vec::new();
    if TrainerFolder::is_one_of_several_ranks(&folder.location) {
        notes.push(FilesNote::RankPart { what: RANK_OF_MEGATRON });
    }
    if candidates.is_empty() {
        let step = TrainerFolder::newest_step(folder);
        let mut contents = FolderDiagnosis::find(folder);
        if let Some(found) = step.map_err(|error| error.in_folder(folder.path()))? {
            let is_step = |below: &PathBuf| {
                let step = found.folder.path().strip_prefix(folder.path()).unwrap_or(Path::new(""));
                let first = below.iter().next();
                first == step.iter().next()
                    || found.other_steps.iter().any(|other| first == Some(other.as_ref()))
            };
            // Other checkpoints next to the steps are not those of this training.
            match &mut contents {
                FolderDiagnosis::Folders { folders } if !folders.iter().all(is_step) => {
                    folders.extend(found.folder.path().strip_prefix(folder.path()).map(Path::to_owned));
                    folders.sort();
                    folders.dedup();
                }
                _ => return Ok(trainer_sources(found, folder)),
            }
        }
        return Err(Problem::NoCheckpoint { folder: folder.path().to_owned(), contents }.into());
    }
    let Some(chosen) = preferred_candidate(folder, &candidates) else {
        let candidates =
            candidates.iter().map(|candidate| to_checkpoint_candidate(folder, candidate)).collect();
        return Err(Problem::SeveralCheckpoints { folder: folder.path().to_owned(), candidates }.into());
    };
    let chosen = candidates.swap_remove(chosen);
    let (other_forms, unused): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|other| chosen.replaces(other));
    if !other_forms.is_empty() {
        notes.push(FilesNote::CandidateChosen {
            used: chosen.message_name(),
            unused_candidates: other_forms.iter().map(FolderCandidate::message_name).collect(),
        });
    }
    if let CandidateKind::Index(index, _) = &chosen.kind
        && let Some(file) =
            unused.iter().find(|other| chosen.is_half_of(other)).and_then(|it| it.members.first())
    {
        return Err(Problem::NotInIndex { index: index.clone(), file: file.clone() }.into());
    }
    let mut unused: Vec<String> = unused.into_iter().flat_map(|other| other.members).collect();
    unused.sort();
    let files = || chosen.members.iter().map(|name| folder.location.join(name));
    let mut sources = match chosen.kind {
        CandidateKind::Index(_, sources) => *sources,
        CandidateKind::File => {
            CheckpointSources::file(&files().next().unwrap_or_else(|| folder.location.clone()))
        }
        CandidateKind::Ranks => {
            let names = chosen.members.iter().cloned();
            rank_sources(names.collect(), &folder.location).map_err(|error| error.in_folder(folder.path()))?
        }
        CandidateKind::Set => {
            let members = chosen.members.iter().zip(files());
            let members =
                members.filter_map(|(name, file)| Some((NumberedFileName::parse_file_name(name)?, file)));
            check_numbered_set(members.collect())?
        }
    };
    notes.extend((!unused.is_empty()).then_some(FilesNote::CheckpointFilesUnused { files: unused }));
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

/// Returns the checkpoint of which each rank wrote one of the files in a folder.
///
/// # Errors
/// When the file of a rank is missing, or they are not those of one checkpoint.
pub(crate) fn rank_sources(names: Vec<String>, folder: &Location) -> Result<CheckpointSources> {
    let parsed = names.into_iter().filter_map(|name| Some((name.clone(), RankFile::parse_any(&name)?)));
    let names = all_ranks(parsed.collect())?.unwrap_or_default();
    let files = names.iter().map(|name| folder.path().join(name)).collect();
    Ok(CheckpointSources::trainer(files, folder, &RankFiles))
}

/// Returns the files of a zip archive of PyTorch that was unpacked into the folder. One with code is that of a script.
fn find_unpacked(folder: &Folder) -> Result<Option<CheckpointSources>> {
    let listing = &folder.listing;
    if !is_unpacked(listing) || listing.has_folder("code") {
        return Ok(None);
    }
    let storages = list(&folder.location.join(STORAGES))?.listing.files;
    let own = [PICKLE, "byteorder"].into_iter().filter(|name| listing.has_file(name)).map(PathBuf::from);
    let all = own.chain(storages.iter().map(|name| Path::new(STORAGES).join(name)));
    let files = all.map(|name| folder.path().join(name)).collect();
    Ok(Some(CheckpointSources::new(files, &folder.location.join(PICKLE), SourcesKind::Unpacked)))
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

/// Returns the position of the candidate that is the folder's checkpoint: of those that the names say the folder is, or else of
/// all, the only one, or the one that has the weights of all others in a better form.
fn preferred_candidate(folder: &Folder, candidates: &[FolderCandidate]) -> Option<usize> {
    let mut contenders: Vec<(usize, &FolderCandidate)> = candidates.iter().enumerate().collect();
    // A GGUF file is made from the other files, and often next to them.
    let is_gguf = |candidate: &FolderCandidate| candidate.all_have_extension(".gguf");
    let is_named = |candidate: &FolderCandidate| candidate.names_folder(folder);
    for is_preferred in
        [&|candidate: &FolderCandidate| !is_gguf(candidate), &is_named as &dyn Fn(&FolderCandidate) -> bool]
    {
        if contenders.iter().any(|(_, candidate)| is_preferred(candidate)) {
            contenders.retain(|(_, candidate)| is_preferred(candidate));
        }
    }
    contenders.retain(|(_, candidate)| !candidates.iter().any(|other| other.hides(candidate)));
    let is_preferred = |(position, chosen): &&(usize, &FolderCandidate)| {
        contenders.iter().all(|(other, candidate)| other == position || chosen.replaces(candidate))
    };
    contenders.iter().find(is_preferred).map(|(position, _)| *position)
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

/// Returns true if the weights of a folder are those of MLX, which copies the index of the model that they were made from.
fn is_of_mlx(folder: &Folder) -> bool {
    let config = read_document(&folder.location.join("config.json"), DOCUMENT_MAX);
    config.is_ok_and(|text| quantization::is_mlx_config(&text))
}

/// Returns true for an index in a folder of MLX that lists no scales. At an address, no request is made for that.
fn is_stale_in_mlx(folder: &Folder, sources: &CheckpointSources) -> bool {
    !sources.index_lists_end(".scales") && folder.location.is_local() && is_of_mlx(folder)
}

/// Returns all checkpoints in the folder.
fn candidates(folder: &Folder) -> Result<Vec<FolderCandidate>> {
    let mut candidates = Vec::new();
    for index in indexes(&folder.listing) {
        let index = folder.location.join(index);
        let sources = match read_indexed_set(&index) {
            Ok(sources) if is_stale_in_mlx(folder, &sources) => continue,
            Err(_) if is_of_mlx(folder) => continue,
            sources => sources?,
        };
        let members = sources.files.iter().map(|path| file_name(path)).collect();
        let whole = file_name(&sources.path);
        let kind = CandidateKind::Index(index.path().to_owned(), Box::new(sources));
        candidates.push(FolderCandidate { members, whole, kind });
    }
    let listed: HashSet<String> = candidates.iter().flat_map(|index| index.members.clone()).collect();
    let rest = checkpoints(&folder.listing).filter(|name| !listed.contains(*name));
    let mut sets: Vec<(String, FolderCandidate)> = Vec::new();
    let mut files = Vec::new();
    let mut ranks: Vec<(RankFile, FolderCandidate)> = Vec::new();
    for name in rest {
        let Some(numbering) = NumberedFileName::parse_file_name(name) else {
            let Some(rank) = RankFile::parse_any(name) else {
                files.push(FolderCandidate::file(name));
                continue;
            };
            if let Some((_, known)) = ranks.iter_mut().find(|(other, _)| other.is_next_to(&rank)) {
                known.members.push(name.to_owned());
                known.kind = CandidateKind::Ranks;
            } else {
                let whole = rank.whole();
                ranks.push((rank, FolderCandidate { whole, ..FolderCandidate::file(name) }));
            }
            continue;
        };
        let key = numbering.set_key();
        if let Some((_, set)) = sets.iter_mut().find(|(other, _)| *other == key) {
            set.members.push(name.to_owned());
        } else {
            let (members, whole) = (vec![name.to_owned()], numbering.single_file_name());
            sets.push((key, FolderCandidate { members, whole, kind: CandidateKind::Set }));
        }
    }
    candidates.extend(sets.into_iter().map(|(_, set)| set));
    candidates.extend(ranks.into_iter().map(|(_, files)| files).chain(files));
    Ok(candidates)
}

/// Converts a candidate to its public form, with full paths.
fn to_checkpoint_candidate(
    folder: &Folder,
    candidate: &FolderCandidate,
) -> crate::files::CheckpointCandidate {
    crate::files::CheckpointCandidate {
        paths: match &candidate.kind {
            CandidateKind::Index(path, _) => vec![path.clone()],
            CandidateKind::File | CandidateKind::Set | CandidateKind::Ranks => {
                candidate.members.iter().map(|name| folder.path().join(name)).collect()
            }
        },
    }
}
