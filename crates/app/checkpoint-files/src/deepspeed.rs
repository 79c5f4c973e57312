//! Folders that `DeepSpeed` wrote with `ZeRO`: the weights are part of the optimizer state, which is split over files.
//!
//! Facts: `runtime/engine.py` and `utils/zero_to_fp32.py` of `DeepSpeed`. Each save creates a step folder, such as
//! `global_step1000`. Its parent folder has a file `latest` with the name of the last step folder, and the script
//! `zero_to_fp32.py`, whose first argument is that parent folder; `--tag` selects a step other than `latest`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::folder_listing::{FolderListing, folder_above};

const SCRIPT: &str = "zero_to_fp32.py";
const LATEST: &str = "latest";
/// Maximum number of bytes read from `latest`, which holds one file name.
const LATEST_MAX: u64 = 256;

/// `DeepSpeed` checkpoint whose weights only its own script `zero_to_fp32.py` joins, and the arguments for the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZeroCheckpoint {
    /// Parent of the step folders, the first argument of the script.
    pub folder: PathBuf,
    /// Name of the step folder, if `latest` does not have it.
    pub tag: Option<String>,
    /// Path of `zero_to_fp32.py`, if `folder` has it.
    pub script: Option<PathBuf>,
}

impl ZeroCheckpoint {
    /// Returns the `DeepSpeed` checkpoint that the folder is part of: the folder is a step folder, or the parent of step
    /// folders.
    pub(crate) fn find(listing: &FolderListing) -> Option<Self> {
        let folder = &listing.folder;
        if is_step(listing) {
            let above = folder_above(folder);
            let step = folder.canonicalize().ok()?.file_name()?.to_str()?.to_owned();
            let tag = (read_latest(&above).as_ref() != Some(&step)).then_some(step);
            return Some(Self::new(above, tag));
        }
        let latest = if listing.contains_file(LATEST) { read_latest(folder) } else { None };
        if let Some(latest) = latest
            && (listing.contains_file(SCRIPT)
                || listing.folders.contains(&latest) && has_step(folder, &latest))
        {
            return Some(Self::new(folder.clone(), None));
        }
        let steps = listing.folders.iter().filter(|name| name.starts_with("global_step"));
        let last = steps.filter(|name| has_step(folder, name)).max_by_key(|name| (name.len(), *name));
        (listing.contains_file(SCRIPT) || last.is_some()).then(|| Self::new(folder.clone(), last.cloned()))
    }

    /// Returns the name of the step folder.
    pub(crate) fn step(&self) -> Option<String> {
        self.tag.clone().or_else(|| read_latest(&self.folder))
    }

    fn new(folder: PathBuf, tag: Option<String>) -> Self {
        let script = folder.join(SCRIPT);
        Self { script: script.is_file().then_some(script), folder, tag }
    }
}

/// Returns true if the folder holds the optimizer state of one step.
fn is_step(listing: &FolderListing) -> bool {
    let zero = |name: &String| name.contains("zero_pp_rank_") && name.ends_with("_optim_states.pt");
    listing.files.iter().any(zero)
}

fn has_step(folder: &Path, name: &str) -> bool {
    FolderListing::read(&folder.join(name)).is_ok_and(|listing| is_step(&listing))
}

/// Reads the name of the step folder from the file `latest` in `folder`.
fn read_latest(folder: &Path) -> Option<String> {
    let path = folder.join(LATEST);
    let mut text = String::new();
    if !path.is_file() {
        return None;
    }
    File::open(path).ok()?.take(LATEST_MAX).read_to_string(&mut text).ok()?;
    let name = text.trim();
    (!name.is_empty() && !name.contains(['/', '\\', '\0'])).then(|| name.to_owned())
}
