//! Safetensors files of `HuggingFaceStorageWriter`, one or more for each rank: `shard-00001-model-00001-of-00002.safetensors`.
//!
//! Facts: `torch/distributed/checkpoint/hf_storage.py` and `_hf_utils.py` of PyTorch 2.15. The metadata entry
//! `DCP_SHARDING_INFO` has the start of each part. The shape of the whole is where the last part ends; neither it nor the
//! number of ranks is in the files.

use byte_source::{Folder, Observer};
use foldhash::{HashMap, HashMapExt, HashSet};
use serde::Deserialize;
use tensor::{Dtype, Tile};
use torch_import::{Checkpoint, CheckpointAssembly, CheckpointValue, Container, ItemPath};

use crate::trainers::join::join_tiles;
use crate::trainers::trainer_layout::{JoinedCheckpoint, TrainerLayout};
use crate::trainers::{Error, Problem, Result, TrainerSummary};

/// Name of the value that has the starts of the parts.
const SHARDING: &str = "__metadata__.DCP_SHARDING_INFO";

/// Layout of safetensors files of ranks.
#[derive(Debug)]
pub(crate) struct HfShards;

#[derive(Debug, Deserialize)]
struct SavedPart {
    /// Index of the first element.
    saved_offsets: Vec<u64>,
}

struct Parts {
    dtype: Dtype,
    /// File of the first part.
    file: String,
    shape: Vec<u64>,
    tiles: Vec<Tile>,
    /// Starts and sizes of the parts.
    boxes: HashSet<(Vec<u64>, Vec<u64>)>,
}

impl TrainerLayout for HfShards {
    fn trainer(&self) -> &'static str {
        "torch.distributed.checkpoint (safetensors)"
    }

    fn files(&self, folder: &Folder) -> Result<Option<Vec<String>>> {
        let found: Vec<String> =
            folder.listing.files.iter().filter(|name| rank_of(name).is_some()).cloned().collect();
        Ok((!found.is_empty()).then_some(found))
    }

    fn join(&self, containers: &[Container], observer: &dyn Observer) -> Result<JoinedCheckpoint> {
        let mut order = Vec::new();
        let mut tensors: HashMap<String, Parts> = HashMap::new();
        let mut ranks = Vec::new();
        for container in containers {
            observer.check()?;
            let file = container
                .path()
                .file_name()
                .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            ranks.extend(rank_of(&file));
            let checkpoint = Checkpoint::read(container).map_err(|error| error.in_file(file.as_ref()))?;
            let starts = read_starts(&checkpoint, &file)?;
            for (name, tensor) in checkpoint.tensors() {
                let no_place = || Problem::NoPlace {
                    tensor: name.to_string(),
                    metadata: file.clone(),
                    start: Vec::new(),
                };
                let start = starts.get(name.as_ref()).ok_or_else(no_place)?.saved_offsets.clone();
                let end = |(start, size): (&u64, &u64)| start.checked_add(*size);
                let ends: Option<Vec<u64>> = start.iter().zip(tensor.shape()).map(end).collect();
                let ends = ends.filter(|_| start.len() == tensor.shape().len()).ok_or_else(no_place)?;
                let dtype = tensor.dtype();
                if !tensors.contains_key(name.as_ref()) {
                    order.push(name.to_string());
                }
                let parts = tensors.entry(name.to_string()).or_insert_with(|| Parts {
                    dtype,
                    file: file.clone(),
                    shape: vec![0; ends.len()],
                    tiles: Vec::new(),
                    boxes: HashSet::default(),
                });
                if (parts.dtype, parts.shape.len()) != (dtype, ends.len()) {
                    return Err(Problem::RanksDisagree {
                        tensor: name.to_string(),
                        first: parts.file.as_str().into(),
                        first_found: format!("{} of {} dimensions", parts.dtype, parts.shape.len()).into(),
                        second: file.into(),
                        second_found: format!("{dtype} of {} dimensions", ends.len()).into(),
                    }
                    .into());
                }
                for (whole, end) in parts.shape.iter_mut().zip(ends) {
                    *whole = (*whole).max(end);
                }
                if parts.boxes.insert((start.clone(), tensor.shape().to_vec())) && tensor.numel() > 0 {
                    parts.tiles.push(Tile { tensor: tensor.clone(), start });
                }
            }
        }
        ranks.sort_unstable();
        ranks.dedup();
        let mut summary = TrainerSummary::new(self.trainer(), ranks.len());
        summary.ranks_are_known = false;
        let mut assembly = CheckpointAssembly::new();
        for name in order {
            let Some(Parts { dtype, shape, tiles, .. }) = tensors.remove(&name) else { continue };
            summary.count(dtype, tiles.len());
            assembly.push_tensor(&ItemPath::new(name.as_str()), join_tiles(&name, dtype, &shape, tiles)?);
        }
        let checkpoint = assembly.finish()?;
        Ok(JoinedCheckpoint { checkpoint, summary })
    }
}

/// Returns the starts of the parts in a file, by the names of their tensors.
fn read_starts(checkpoint: &Checkpoint, file: &str) -> Result<HashMap<String, SavedPart>> {
    let malformed =
        |reason: String| Error::from(Problem::Metadata { offset: 0, reason }).in_file(file.as_ref());
    let found = checkpoint.values().find(|(name, _)| *name == SHARDING);
    let Some((_, CheckpointValue::Text(text))) = found else {
        return Err(malformed("its header does not say where the parts are (DCP_SHARDING_INFO)".to_owned()));
    };
    serde_json::from_str(text).map_err(|error| malformed(format!("DCP_SHARDING_INFO: {error}")))
}

/// Returns the number of the rank, from 1, in a name such as `shard-00001-model-00001-of-00002.safetensors`.
fn rank_of(name: &str) -> Option<u64> {
    let (rank, rest) = name.strip_prefix("shard-")?.strip_suffix(".safetensors")?.split_once("-model-")?;
    let (number, count) = rest.split_once("-of-")?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits(number) && digits(count) && digits(rank) { rank.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_shards_are_known() {
        assert_eq!(rank_of("shard-00002-model-00001-of-00003.safetensors"), Some(2));
        assert_eq!(rank_of("model-00001-of-00003.safetensors"), None);
        assert_eq!(rank_of("shard-x-model-1-of-3.safetensors"), None);
    }
}
