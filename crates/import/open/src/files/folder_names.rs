//! Names of files in a folder, and their classification.
//!
//! Facts: the names that Hugging Face's `transformers` and `accelerate`, Lightning and `DeepSpeed` give their files.

use std::path::{Path, PathBuf};

use byte_source::Listing;
use output::parent_folder;
use torch_import::is_checkpoint_extension;

/// Returns the name that the files of an index would have as a single file: `model.safetensors` for
/// `model.safetensors.index.json`, and `model.fp16.safetensors` for `model.safetensors.index.fp16.json` of `diffusers`. Returns
/// `None` for other names.
pub(crate) fn whole_of_index(name: &str) -> Option<String> {
    let (whole, variant) = name.strip_suffix(".json")?.rsplit_once(".index")?;
    match variant.strip_prefix('.') {
        None => variant.is_empty().then(|| whole.to_owned()),
        Some(variant) => {
            let (stem, extension) = whole.rsplit_once('.')?;
            Some(format!("{stem}.{variant}.{extension}"))
        }
    }
}

/// Documents next to a checkpoint that describe the model.
pub(crate) const DOCUMENTS: &[&str] = &["config.json", "params.json", "adapter_config.json"];
/// Document of `diffusers` that names the parts of a pipeline.
pub(crate) const PIPELINE_INDEX: &str = "model_index.json";
/// File name prefixes of training state next to a checkpoint.
const TRAINING_STARTS: &[&str] = &["optimizer.", "scheduler.", "sampler.", "rng_state", "random_states"];
const TRAINING_NAMES: &[&str] = &["scaler.pt", "training_args.bin"];
const TRAINING_ENDS: &[&str] = &["_states.pt"];

/// Names in a zip archive of PyTorch: its pickle, and the folder of its storages.
pub(crate) const PICKLE: &str = "data.pkl";
pub(crate) const STORAGES: &str = "data";

/// Returns true if a zip archive of PyTorch was unpacked into the folder.
pub(crate) fn is_unpacked(listing: &Listing) -> bool {
    listing.has_file(PICKLE) && listing.has_folder(STORAGES)
}

/// Returns the files with names of checkpoints.
pub(crate) fn checkpoints(listing: &Listing) -> impl Iterator<Item = &str> {
    listing.files.iter().map(String::as_str).filter(|name| is_checkpoint(name))
}

/// Returns the index files, which list the tensors of a set.
pub(crate) fn indexes(listing: &Listing) -> impl Iterator<Item = &str> {
    listing.files.iter().map(String::as_str).filter(|name| is_index(name))
}

/// Returns the first dangling link with the name of a checkpoint, an index or a model document. Ignoring it could select
/// another model.
pub(crate) fn dangling_checkpoint_link(listing: &Listing) -> Option<&str> {
    let counts = |name: &&str| is_checkpoint(name) || is_index(name) || DOCUMENTS.contains(name);
    listing.dangling_links.iter().map(String::as_str).find(counts)
}

/// Returns the path of the folder that contains `folder`, also for a path that ends with dots instead of a name.
pub(crate) fn folder_above(folder: &Path) -> PathBuf {
    match folder.file_name() {
        Some(_) => parent_folder(folder).to_owned(),
        None if folder == Path::new(".") => PathBuf::from(".."),
        None => folder.join(".."),
    }
}

fn is_index(name: &str) -> bool {
    whole_of_index(name).is_some_and(|whole| is_checkpoint(&whole))
}

/// Returns true for the name of a checkpoint, of which a folder may have several. The state of a training is none.
pub fn is_checkpoint(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let mut ends = name.match_indices('.').filter_map(|(dot, _)| name.get(dot..)?.strip_prefix('.'));
    !name.starts_with('.') && ends.any(is_checkpoint_extension) && !is_training_state(&name)
}

/// Returns true if the file name is that of training state.
pub(crate) fn is_training_state(name: &str) -> bool {
    TRAINING_NAMES.contains(&name)
        || TRAINING_STARTS.iter().any(|start| name.starts_with(start))
        || TRAINING_ENDS.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_ends_with_dots_has_a_folder_above() {
        for (folder, above) in [("a/b", "a"), ("a", "."), (".", ".."), ("..", "../.."), ("a/..", "a/../..")] {
            assert_eq!(folder_above(Path::new(folder)), Path::new(above), "{folder}");
        }
    }

    #[test]
    fn an_index_stands_for_a_file() {
        for (index, whole) in [
            ("model.safetensors.index.json", Some("model.safetensors")),
            ("model.safetensors.index.fp16.json", Some("model.fp16.safetensors")),
            ("model.fp16.safetensors.index.json", Some("model.fp16.safetensors")),
            ("model.indexed.json", None),
            ("config.json", None),
        ] {
            assert_eq!(whole_of_index(index).as_deref(), whole, "{index}");
        }
    }

    #[test]
    fn the_state_of_a_training_is_not_a_checkpoint() {
        for name in [
            "optimizer.pt",
            "optimizer.bin",
            "scheduler.pt",
            "scaler.pt",
            "rng_state_0.pth",
            "random_states_0.pkl",
            "sampler.bin",
        ] {
            assert!(!is_checkpoint(name), "{name}");
        }
        assert!(!is_checkpoint("mp_rank_00_model_states.pt"));
        assert!(!is_checkpoint("training_args.bin"));
        assert!(is_checkpoint("net.pth.tar") && is_checkpoint("NET.PTH"));
        assert!(!is_checkpoint("tokenizer.model"));
    }
}
