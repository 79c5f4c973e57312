//! `torch.distributed.checkpoint` (DCP): a file `.metadata`, and files `__RANK_NUMBER.distcp` of parts.
//!
//! Facts: `torch/distributed/checkpoint/filesystem.py`, `metadata.py`, `default_planner.py` and `_nested_dict.py` of
//! PyTorch 2.0 to 2.15; folders that PyTorch 2.0.1 and 2.15 wrote. `dcp_to_torch_save` of `format_utils.py` is the tool
//! whose result is the same.

mod metadata;
mod parts;
mod zstd;

use std::path::Path;
use std::sync::Arc;

use byte_source::{Folder, Observer, Source};
use tensor::Tile;
use torch_import::{Checkpoint, CheckpointAssembly, Container, ItemPath, PickledObjects};

use self::metadata::{DcpEntry, DcpMetadata, TensorEntry};
use self::parts::PartFiles;
use crate::trainers::attributes::Objects;
use crate::trainers::join::join_tiles;
use crate::trainers::trainer_layout::{JoinedCheckpoint, TrainerLayout};
use crate::trainers::{Error, Problem, Result, TrainerSummary};
use crate::weights::optimizers::is_optimizer;

/// File that a save writes last; `__RANK.metadata` if each rank saves on its own.
const METADATA: &str = ".metadata";
const PARTS: &str = ".distcp";
/// Files with values that Megatron and Lightning keep next to the tensors, and the names of their layouts.
const COMMON: [(&str, &str); 2] =
    [("common.pt", "Megatron-LM torch_dist"), ("meta.pt", "Lightning, torch.distributed.checkpoint")];

/// Layout of `torch.distributed.checkpoint`.
#[derive(Debug)]
pub(crate) struct Dcp;

impl TrainerLayout for Dcp {
    fn trainer(&self) -> &'static str {
        "torch.distributed.checkpoint"
    }

    fn files(&self, folder: &Folder) -> Result<Option<Vec<String>>> {
        let names = || folder.listing.files.iter().map(String::as_str);
        let is_parts =
            |name: &str| Path::new(name).extension().is_some_and(|extension| extension == "distcp");
        let parts: Vec<&str> = names().filter(|name| is_parts(name)).collect();
        let metadata: Vec<&str> = names().filter(|name| is_metadata(name)).collect();
        let unfinished =
            |reason: String| Error::from(Problem::Unfinished { folder: folder.path().to_owned(), reason });
        if let Some(name) = names().find(|name| name.strip_suffix(".tmp").is_some_and(is_metadata)) {
            return Err(unfinished(format!("{name} shows that a save is not finished")));
        }
        if metadata.is_empty() {
            return match parts.first() {
                Some(first) => {
                    Err(unfinished(format!("it has {first}, but no {METADATA}, which a save writes last")))
                }
                None => Ok(None),
            };
        }
        // The metadata of all ranks are the newer save's only if there are no others.
        let metadata = if folder.listing.has_file(METADATA) { vec![METADATA] } else { metadata };
        let common = COMMON.into_iter().map(|(name, _)| name).find(|name| folder.listing.has_file(name));
        Ok(Some(parts.into_iter().chain(metadata).chain(common).map(str::to_owned).collect()))
    }

    fn open(&self, source: Arc<dyn Source>) -> Result<Container> {
        let file = self.file_name(source.path());
        if file.ends_with(PARTS) {
            return Ok(Container::parts_from_source(source));
        }
        Container::from_source(source).map_err(|error| error.in_file(file.as_ref()))
    }

    fn join(&self, containers: &[Container], observer: &dyn Observer) -> Result<JoinedCheckpoint> {
        let mut assembly = CheckpointAssembly::new();
        let mut metadata = Vec::new();
        let (parts, described): (Vec<&Container>, Vec<&Container>) =
            containers.iter().partition(|container| file_name(container).ends_with(PARTS));
        let mut common = None;
        for container in described {
            let file = file_name(container);
            if let Some((name, trainer)) = COMMON.into_iter().find(|(name, _)| *name == file) {
                let read = Checkpoint::read(container).map_err(|error| error.in_file(name.as_ref()));
                common = Some((trainer, read?));
            } else {
                metadata.push(read_objects(container)?);
            }
        }
        metadata.sort_by_key(|(file, _)| rank_of(file));
        let mut merged = DcpMetadata::default();
        for (file, objects) in &metadata {
            observer.check()?;
            assembly.add_globals_of(objects);
            let pickle = Objects { heap: objects.heap(), file };
            merged.add(pickle, objects.root(), objects.container().len())?;
        }
        let mut files = PartFiles::new(parts);
        files.decompress(&merged, observer)?;
        let ranks = merged.ranks();
        let trainer = common.as_ref().map_or(self.trainer(), |(trainer, _)| trainer);
        let mut summary = TrainerSummary::new(trainer, ranks);
        let entries = std::mem::take(&mut merged.entries);
        for (name, entry) in &entries {
            observer.check()?;
            let path = merged.path_of(name);
            match entry {
                DcpEntry::Bytes => {
                    let place = merged.place(name, None)?;
                    assembly.push_checkpoint(&path, files.value(name, place)?);
                }
                DcpEntry::Tensor(tensor) => {
                    let tiles = tiles(&merged, &mut files, name, tensor)?;
                    summary.count(tensor.dtype, tiles.len());
                    assembly.push_tensor(&path, join_tiles(name, tensor.dtype, &tensor.shape, tiles)?);
                }
            }
        }
        if let Some((_, common)) = common {
            assembly.push_checkpoint(&ItemPath::default(), common);
        }
        assembly.set_optimizer_keys(optimizer_keys(entries.iter().map(|(name, _)| merged.path_of(name))));
        let checkpoint = assembly.finish()?;
        Ok(JoinedCheckpoint { checkpoint, summary })
    }
}

/// Reads the parts of a tensor that have elements.
fn tiles(
    metadata: &DcpMetadata<'_>,
    files: &mut PartFiles<'_>,
    name: &str,
    entry: &TensorEntry,
) -> Result<Vec<Tile>> {
    let mut tiles = Vec::with_capacity(entry.boxes.len());
    for (start, sizes) in &entry.boxes {
        if sizes.contains(&0) {
            continue;
        }
        let place = metadata.place(name, Some(start))?;
        let tensor = files.tensor(name, place)?;
        if tensor.shape() != sizes || tensor.dtype() != entry.dtype {
            return Err(Problem::PartMismatch {
                tensor: name.to_owned(),
                file: place.file.as_ref().into(),
                start: start.clone(),
                expected: format!("{} {sizes:?}", entry.dtype).into(),
                found: format!("{} {:?}", tensor.dtype(), tensor.shape()).into(),
            }
            .into());
        }
        tiles.push(Tile { tensor, start: start.clone() });
    }
    Ok(tiles)
}

/// Reads the objects of a metadata file; returns its name as well.
fn read_objects(container: &Container) -> Result<(String, PickledObjects)> {
    let file = file_name(container);
    let no_pickle = || Problem::Metadata { offset: 0, reason: "it is not a pickle".to_owned() }.into();
    let objects = PickledObjects::read(container).and_then(|objects| objects.ok_or_else(no_pickle));
    let objects = objects.map_err(|error| error.in_file(file.as_ref()))?;
    Ok((file, objects))
}

fn file_name(container: &Container) -> String {
    container.path().file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Returns true for `.metadata` and `__RANK.metadata`.
fn is_metadata(name: &str) -> bool {
    name == METADATA || name.ends_with(METADATA) && rank_of(name).is_some()
}

/// Returns the rank in a file name such as `__12_0.distcp` or `__12.metadata`.
pub(crate) fn rank_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("__")?.split(['_', '.']).next()?;
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

/// Returns the keys at the first two levels of a state dict that hold the state of an optimizer.
fn optimizer_keys(paths: impl Iterator<Item = ItemPath>) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for path in paths {
        let mut parts = path.name().split('.').take(2);
        let (first, second) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        for (part, key) in [(first, first.to_owned()), (second, format!("{first}.{second}"))] {
            if is_optimizer(part) {
                if !keys.contains(&key) {
                    keys.push(key);
                }
                break;
            }
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_read_from_names() {
        assert_eq!(rank_of("__12_3.distcp"), Some(12));
        assert_eq!(rank_of("__7.metadata"), Some(7));
        assert_eq!(rank_of(".metadata"), None);
        assert!(is_metadata("__0.metadata") && is_metadata(".metadata") && !is_metadata("x.metadata"));
    }

    #[test]
    fn optimizers_are_at_two_levels() {
        let paths = ["model.w", "optim.state.w", "app.optimizer.w", "w"].map(ItemPath::new);
        assert_eq!(optimizer_keys(paths.into_iter()), ["optim", "app.optimizer"]);
    }
}
