//! Folders that `DeepSpeed` wrote with `ZeRO`: the weights are part of the optimizer state, which is split over files.
//!
//! Facts: `runtime/engine.py` and `utils/zero_to_fp32.py` of `DeepSpeed`. Each save creates a step folder, such as
//! `global_step1000`. Its parent folder has a file `latest` with the name of the last step folder, and the script
//! `zero_to_fp32.py`, whose first argument is that parent folder; `--tag` selects a step other than `latest`.

use std::path::PathBuf;

use byte_source::{Folder, Location};

use crate::files::folder_names::folder_above;

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
    pub(crate) fn find(folder: &Folder) -> Option<Self> {
        let (here, listing) = (&folder.location, &folder.listing);
        if is_step(folder) {
            let above = here.at(folder_above(here.path()));
            // A link to a step has the name of its target.
            let resolved = here.path().canonicalize().unwrap_or_else(|_| here.path().to_owned());
            let step = resolved.file_name()?.to_str()?.to_owned();
            let tag = (read_latest(&above).as_ref() != Some(&step)).then_some(step);
            return Some(Self::new(&above, tag));
        }
        let latest = if listing.has_file(LATEST) { read_latest(here) } else { None };
        if let Some(latest) = latest
            && (listing.has_file(SCRIPT) || listing.has_folder(&latest) && has_step(folder, &latest))
        {
            return Some(Self::new(here, None));
        }
        let steps = listing.folders.iter().filter(|name| name.starts_with("global_step"));
        let last = steps.filter(|name| has_step(folder, name)).max_by_key(|name| (name.len(), *name));
        (listing.has_file(SCRIPT) || last.is_some()).then(|| Self::new(here, last.cloned()))
    }

    /// Returns the step folder, in the store of `folder`.
    pub(crate) fn step(&self, folder: &Location) -> Option<Location> {
        let above = folder.at(&self.folder);
        let step = self.tag.clone().or_else(|| read_latest(&above))?;
        Some(above.join(step))
    }

    fn new(folder: &Location, tag: Option<String>) -> Self {
        let script = folder.join(SCRIPT);
        let script = script.is_file().then(|| script.path().to_owned());
        Self { script, folder: folder.path().to_owned(), tag }
    }
}

/// Returns true if the folder holds the optimizer state of one step.
fn is_step(folder: &Folder) -> bool {
    let zero = |name: &String| name.contains("zero_pp_rank_") && name.ends_with("_optim_states.pt");
    folder.listing.files.iter().any(zero)
}

fn has_step(folder: &Folder, name: &str) -> bool {
    folder.below(name).is_ok_and(|below| is_step(&below))
}

/// Reads the name of the step folder from the file `latest` in `folder`.
fn read_latest(folder: &Location) -> Option<String> {
    let latest = folder.join(LATEST);
    if !latest.is_file() {
        return None;
    }
    let latest = latest.open().ok()?;
    let text = latest.read_range(0..latest.len().min(LATEST_MAX)).ok()?;
    let name = str::from_utf8(&text).ok()?.trim();
    (!name.is_empty() && !name.contains(['/', '\\', '\0'])).then(|| name.to_owned())
}
