//! Finds the folder of a trainer's checkpoint: the given folder, or the newest step in it.

use std::path::{Path, PathBuf};

use crate::folder_names::FolderNames;
use crate::layouts::LAYOUTS;
use crate::{Result, TrainerLayout};

/// Largest number of sub-folders that are searched for steps.
const STEPS_MAX: usize = 10_000;

/// Files of a trainer's checkpoint, found but not opened.
#[derive(Debug)]
pub struct TrainerFolder {
    pub layout: &'static dyn TrainerLayout,
    /// Folder that has the files: the given one, or a step in it.
    pub folder: PathBuf,
    /// Paths of the files to read.
    pub files: Vec<PathBuf>,
    /// Other steps in the given folder, which are not read.
    pub other_steps: Vec<String>,
}

impl TrainerFolder {
    /// Finds the checkpoint of a trainer in `folder`. Returns `None` if no trainer's layout fits.
    ///
    /// # Errors
    /// When the folder cannot be read, or the trainer has not finished it.
    pub fn at(folder: &Path) -> Result<Option<Self>> {
        Self::compare(&FolderNames::read(folder)?)
    }

    /// Finds the newest checkpoint of a trainer in the sub-folders of `folder`. Returns `None` if there is none.
    ///
    /// # Errors
    /// When the folder cannot be read, or the trainer has not finished the newest step.
    pub fn newest_step(folder: &Path) -> Result<Option<Self>> {
        let mut below = FolderNames::read(folder)?.folders;
        below.truncate(STEPS_MAX);
        let mut steps = Vec::new();
        below.sort_by_cached_key(|name| step_order(name));
        for name in below.iter().rev() {
            let Ok(names) = FolderNames::read(&folder.join(name)) else { continue };
            match Self::compare(&names) {
                Ok(Some(found)) => steps.push((name.clone(), Ok(found))),
                Ok(None) => {}
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
        found.other_steps = steps.into_iter().map(|(name, _)| name).collect();
        Ok(Some(found))
    }

    /// Compares a folder with the layouts.
    fn compare(names: &FolderNames) -> Result<Option<Self>> {
        for layout in LAYOUTS {
            if let Some(files) = layout.files(names)? {
                let files = files.iter().map(|name| names.folder.join(name)).collect();
                let folder = names.folder.clone();
                return Ok(Some(Self { layout: *layout, folder, files, other_steps: Vec::new() }));
            }
        }
        Ok(None)
    }
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
