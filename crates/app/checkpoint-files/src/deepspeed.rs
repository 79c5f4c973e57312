//! Folders that `DeepSpeed` wrote with `ZeRO`: the weights are in the state of the optimizer, split over files.
//!
//! Facts: `runtime/engine.py` and `utils/zero_to_fp32.py` of `DeepSpeed`. A save makes a folder for each step, such as
//! `global_step1000`. The folder above it has a file `latest` with the step's name, and the script `zero_to_fp32.py`,
//! whose first argument is that upper folder; `--tag` names another step than `latest` does.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::listing::Listing;

const SCRIPT: &str = "zero_to_fp32.py";
const LATEST: &str = "latest";
/// The most bytes of `latest` that are read: a file name's.
const LATEST_MAX: u64 = 256;

/// A checkpoint that `DeepSpeed` wrote, as its script takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeepSpeed {
    /// The folder that the script takes: the one above the steps' folders.
    pub folder: PathBuf,
    /// The name of the step's folder, where `latest` does not say it.
    pub tag: Option<String>,
    /// `zero_to_fp32.py`, where it is in that folder.
    pub script: Option<PathBuf>,
}

impl DeepSpeed {
    /// The checkpoint of which a folder is a part: a step's folder, or the one above.
    pub(crate) fn find(listing: &Listing) -> Option<Self> {
        let folder = &listing.folder;
        if is_step(listing) {
            let above = match folder.file_name() {
                Some(_) => output::folder(folder).to_owned(),
                // `.` has a folder above it too.
                None if folder == Path::new(".") => PathBuf::from(".."),
                None => folder.join(".."),
            };
            let step = folder.canonicalize().ok()?.file_name()?.to_str()?.to_owned();
            let tag = (latest(&above).as_ref() != Some(&step)).then_some(step);
            return Some(Self::new(above, tag));
        }
        let latest = if listing.has(LATEST) { latest(folder) } else { None };
        if let Some(latest) = latest
            && (listing.has(SCRIPT) || listing.folders.contains(&latest) && has_step(folder, &latest))
        {
            return Some(Self::new(folder.clone(), None));
        }
        let steps = listing.folders.iter().filter(|name| name.starts_with("global_step"));
        let last = steps.filter(|name| has_step(folder, name)).max_by_key(|name| (name.len(), *name));
        (listing.has(SCRIPT) || last.is_some()).then(|| Self::new(folder.clone(), last.cloned()))
    }

    fn new(folder: PathBuf, tag: Option<String>) -> Self {
        let script = folder.join(SCRIPT);
        Self { script: script.is_file().then_some(script), folder, tag }
    }
}

/// Whether a folder holds the state of one step.
fn is_step(listing: &Listing) -> bool {
    let zero = |name: &String| name.contains("zero_pp_rank_") && name.ends_with("_optim_states.pt");
    listing.files.iter().any(zero)
}

fn has_step(folder: &Path, name: &str) -> bool {
    Listing::read(&folder.join(name)).is_ok_and(|listing| is_step(&listing))
}

/// The step that `latest` names.
fn latest(folder: &Path) -> Option<String> {
    let path = folder.join(LATEST);
    let mut text = String::new();
    if !path.is_file() {
        return None;
    }
    File::open(path).ok()?.take(LATEST_MAX).read_to_string(&mut text).ok()?;
    let name = text.trim();
    (!name.is_empty() && !name.contains(['/', '\\', '\0'])).then(|| name.to_owned())
}
