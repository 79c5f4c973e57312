//! Finds the folder of a trainer's checkpoint: the given folder, or the newest step in it.

use std::path::PathBuf;

use byte_source::{ErrorKind, Folder, Location};

use crate::trainers::layouts::LAYOUTS;
use crate::trainers::listing::list;
use crate::trainers::megatron::is_rank_folder;
use crate::trainers::{Result, TrainerLayout};

/// Largest number of sub-folders that are searched for steps.
const STEPS_MAX: usize = 10_000;
/// File in which Megatron-LM writes the number of the last finished step, and the largest part of it that is read.
const TRACKER: &str = "latest_checkpointed_iteration.txt";
const TRACKER_MAX: u64 = 64;

/// Files of a trainer's checkpoint, found but not opened.
#[derive(Debug)]
pub struct TrainerFolder {
    pub layout: &'static dyn TrainerLayout,
    /// Folder that has the files: the given one, or a step in it.
    pub folder: Location,
    /// Paths of the files to read.
    pub files: Vec<PathBuf>,
    /// Other steps in the given folder, which are not read.
    pub other_steps: Vec<String>,
}

impl TrainerFolder {
    /// Finds the checkpoint of a trainer in `folder`. Returns `None` if no trainer's layout fits.
    ///
    /// # Errors
    /// When a folder below it cannot be read, or the trainer has not finished it.
    pub fn at(folder: &Folder) -> Result<Option<Self>> {
        for layout in LAYOUTS {
            if let Some(files) = layout.files(folder)? {
                let files = files.iter().map(|name| folder.path().join(name)).collect();
                let folder = folder.location.clone();
                return Ok(Some(Self { layout: *layout, folder, files, other_steps: Vec::new() }));
            }
        }
        Ok(None)
    }

    /// Finds the newest checkpoint of a trainer in the sub-folders of `folder`, or in theirs: `checkpoint-100/` or
    /// `checkpoint-100/pytorch_model_fsdp_0/`. Returns `None` if there is none.
    ///
    /// # Errors
    /// When the trainer has not finished the newest step.
    pub fn newest_step(folder: &Folder) -> Result<Option<Self>> {
        if let Some(found) = Self::newest_of(folder, |below| Self::at(&list(below)?))? {
            return Ok(Some(found));
        }
        Self::newest_of(folder, |below| Self::newest_of(&list(below)?, |below| Self::at(&list(below)?)))
    }

    /// Returns true if `folder` is that of one of several ranks of Megatron-LM, such as `mp_rank_00`.
    pub fn is_one_of_several_ranks(folder: &Location) -> bool {
        let name = folder.path().file_name().and_then(|name| name.to_str());
        let Some(name) = name.filter(|name| is_rank_folder(name)) else { return false };
        let others = list(&folder.parent()).map(|parent| parent.listing.folders).unwrap_or_default();
        others.iter().any(|other| other != name && is_rank_folder(other))
    }

    /// Finds the newest step among the sub-folders of a folder: the one that the trainer recorded as finished, or the one
    /// with the highest number.
    fn newest_of(folder: &Folder, find: impl Fn(&Location) -> Result<Option<Self>>) -> Result<Option<Self>> {
        let mut below = folder.listing.folders.clone();
        below.truncate(STEPS_MAX);
        let mut steps = Vec::new();
        let recorded = recorded_step(folder);
        below.sort_by_cached_key(|name| (recorded.as_ref() == Some(name), step_order(name)));
        for name in below.iter().rev() {
            match find(&folder.location.join(name)) {
                Ok(Some(found)) => steps.push((name.clone(), Ok(found))),
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::Io => {}
                Err(error) => steps.push((name.clone(), Err(error))),
            }
        }
        if steps.is_empty() {
            return Ok(None);
        }
        // Accelerate and Transformers write the optimizer into a folder of its own.
        let is_model = |name: &str| !name.starts_with("optim");
        let chosen = steps.iter().position(|(name, _)| is_model(name)).unwrap_or(0);
        let (_, found) = steps.remove(chosen);
        let mut found = found?;
        found.other_steps.extend(steps.into_iter().map(|(name, _)| name));
        Ok(Some(found))
    }
}

/// Returns the name of the step that Megatron-LM finished last, if the folder has it.
fn recorded_step(folder: &Folder) -> Option<String> {
    if !folder.listing.has_file(TRACKER) {
        return None;
    }
    let tracker = folder.location.join(TRACKER).open().ok()?;
    let text = tracker.read_range(0..tracker.len().min(TRACKER_MAX)).ok()?;
    let step = match str::from_utf8(&text).ok()?.trim() {
        "release" => "release".to_owned(),
        number => format!("iter_{:07}", number.parse::<u64>().ok()?),
    };
    folder.listing.has_folder(&step).then_some(step)
}

/// Returns a key that orders the names of steps: the last number in the name, then the name.
fn step_order(name: &str) -> (Option<u64>, String) {
    let digits = name.trim_end_matches(|c: char| !c.is_ascii_digit());
    let start = digits.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    (digits.get(start..).and_then(|digits| digits.parse().ok()), name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_ordered_by_number() {
        let mut names = ["step-9", "step-10", "iter_0000005", "last", "global_step100"];
        names.sort_by_cached_key(|name| step_order(name));
        assert_eq!(names, ["last", "iter_0000005", "step-9", "step-10", "global_step100"]);
    }
}
