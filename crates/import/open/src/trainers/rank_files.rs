//! A file for each rank, `model_world_size_4_rank_0.pt` to `model_world_size_4_rank_3.pt` or `pytorch_model_fsdp_0_rank0.bin`
//! and so on: the rank's state dict, whose tensors are shards of the class `DTensor` or `ShardedTensor`, or whole.
//!
//! Facts: the names that verl, `SkyRL` and slime give these files, and `save_fsdp_model` of Accelerate 1.15 with `use_dcp=False`;
//! the classes in `torch/distributed/tensor` and
//! `torch/distributed/_shard/sharded_tensor` of PyTorch 2.15; files that PyTorch 2.15 wrote with 1 to 8 ranks.

use byte_source::{Folder, Observer};
use foldhash::{HashMap, HashSet, HashSetExt};
use tensor::{Dtype, Tensor, Tile};
use torch_import::{
    Checkpoint, CheckpointAssembly, CheckpointNote, CompoundItem, Container, ItemContent, ItemPath,
    ShardPosition,
};

use crate::trainers::join::join_tiles;
use crate::trainers::trainer_layout::{JoinedCheckpoint, TrainerLayout};
use crate::trainers::{Error, Problem, Result, TrainerSummary, mesh};

/// Start of the names of the files with weights, not optimizers.
const MODEL: &str = "model_";
/// The same in Accelerate, before the number of the model.
const ACCELERATE: &str = "pytorch_model_fsdp_";

#[derive(Debug)]
pub(crate) struct RankFiles;

/// Parsed name of one rank's file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RankFile {
    /// Name before the numbers: `model_` or `pytorch_model_fsdp_0_` for weights, `optim_` for the state of an optimizer.
    pub prefix: String,
    /// Number of ranks, if the name has it. Accelerate's have not.
    pub ranks: Option<u64>,
    /// Number of the rank, from 0.
    pub rank: u64,
}

impl RankFile {
    /// Parses a name such as `model_world_size_8_rank_3.pt` or `pytorch_model_fsdp_0_rank3.bin`; returns `None` for any other
    /// name.
    pub fn parse(name: &str) -> Option<Self> {
        let number =
            |digits: &str| digits.parse().ok().filter(|_| digits.bytes().all(|it| it.is_ascii_digit()));
        if let Some((prefix, rank)) = name.strip_suffix(".bin").and_then(|name| name.rsplit_once("rank")) {
            let model = prefix.strip_prefix(ACCELERATE)?.strip_suffix('_');
            model.map_or(prefix == ACCELERATE, |model| number(model).is_some()).then_some(())?;
            return Some(Self { prefix: prefix.to_owned(), ranks: None, rank: number(rank)? });
        }
        let (prefix, rest) = name.strip_suffix(".pt")?.split_once("world_size_")?;
        let (ranks, rank) = rest.split_once("_rank_")?;
        Some(Self { prefix: prefix.to_owned(), ranks: Some(number(ranks)?), rank: number(rank)? })
    }

    fn is_of_weights(&self) -> bool {
        self.prefix == MODEL || self.ranks.is_none()
    }

    fn name_of(&self, rank: u64) -> String {
        match self.ranks {
            Some(ranks) => format!("{}world_size_{ranks}_rank_{rank}.pt", self.prefix),
            None => format!("{}rank{rank}.bin", self.prefix),
        }
    }
}

/// One rank's file, read.
struct RankState {
    file: String,
    checkpoint: Checkpoint,
    /// Positions of the tensors in the list of items, by name.
    positions: HashMap<String, usize>,
}

enum RankTensor<'c> {
    Whole(&'c Tensor),
    Shard(&'c CompoundItem, &'c ShardPosition),
}

impl TrainerLayout for RankFiles {
    fn trainer(&self) -> &'static str {
        "one file a rank (FSDP)"
    }

    fn files(&self, folder: &Folder) -> Result<Option<Vec<String>>> {
        let parsed = folder.listing.files.iter().filter_map(|name| Some((name, RankFile::parse(name)?)));
        let mut found: Vec<(&String, RankFile)> = parsed.filter(|(_, file)| file.is_of_weights()).collect();
        found.sort_by_key(|(_, file)| file.rank);
        let Some((name, first)) = found.first().cloned() else { return Ok(None) };
        if found.iter().any(|(_, file)| file.prefix != first.prefix) {
            // The files of several models.
            return Ok(None);
        }
        if let Some((second, _)) = found.iter().find(|(_, file)| file.ranks != first.ranks) {
            return Err(Problem::WorldSizes { first: name.clone(), second: (*second).clone() }.into());
        }
        let mut rank = 0;
        for (_, file) in &found {
            if file.rank != rank {
                break;
            }
            rank = rank.saturating_add(1);
        }
        // Where the names do not say how many ranks there were, a missing last one leaves a hole in the tensors.
        let last = found.last().map_or(0, |(_, file)| file.rank.saturating_add(1));
        let ranks = first.ranks.unwrap_or(last);
        if rank < ranks {
            return Err(Problem::MissingRank { file: first.name_of(rank), other: name.clone(), ranks }.into());
        }
        if let Some((extra, _)) = found.iter().find(|(_, file)| file.rank >= ranks) {
            return Err(Problem::WorldSizes { first: name.clone(), second: (*extra).clone() }.into());
        }
        Ok(Some(found.into_iter().map(|(name, _)| name.clone()).collect()))
    }

    fn join(&self, containers: &[Container], observer: &dyn Observer) -> Result<JoinedCheckpoint> {
        let mut states = Vec::with_capacity(containers.len());
        for container in containers {
            observer.check()?;
            states.push(RankState::read(container)?);
        }
        let mut summary = TrainerSummary::new(self.trainer(), states.len());
        let mut joined = Vec::new();
        for (position, name) in states.first().map(RankState::names).unwrap_or_default() {
            observer.check()?;
            joined.push((position, join_tensor(&name, &states, &mut summary)?));
        }
        refuse_extra_tensors(&states)?;
        let mut assembly = CheckpointAssembly::new();
        let mut states = states.into_iter();
        if let Some(RankState { mut checkpoint, .. }) = states.next() {
            for (position, tensor) in joined {
                if let Some(item) = checkpoint.items.get_mut(position) {
                    item.content = ItemContent::Tensor(tensor);
                }
            }
            assembly.push_checkpoint(&ItemPath::default(), checkpoint);
        }
        let (mut files, mut count) = (Vec::new(), 0_usize);
        for RankState { file, mut checkpoint, .. } in states {
            let values = checkpoint.notable_values().count();
            if values > 0 {
                files.push(file);
                count = count.saturating_add(values);
            }
            checkpoint.items.clear();
            assembly.push_checkpoint(&ItemPath::default(), checkpoint);
        }
        let mut checkpoint = assembly.finish()?;
        if count > 0 {
            checkpoint.notes.push(CheckpointNote::ValuesLeftOut { files, count });
        }
        Ok(JoinedCheckpoint { checkpoint, summary })
    }
}

impl RankState {
    fn read(container: &Container) -> Result<Self> {
        let file =
            container.path().file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let mut checkpoint = Checkpoint::read(container).map_err(|error| error.in_file(file.as_ref()))?;
        // The attributes of a shard are its mesh and its placements.
        checkpoint.left_out.remove_tensor_attributes();
        checkpoint.left_out.name_file(&file);
        let is_tensor = |content: &ItemContent| match content {
            ItemContent::Tensor(_) => true,
            ItemContent::Compound(compound) => compound.shard.is_some(),
            ItemContent::Value(_) => false,
        };
        let tensors = checkpoint.items.iter().enumerate().filter(|(_, item)| is_tensor(&item.content));
        let positions = tensors.map(|(position, item)| (item.name.clone(), position)).collect();
        Ok(Self { file, checkpoint, positions })
    }

    /// Returns the positions and the names of the tensors, in the order of the file.
    fn names(&self) -> Vec<(usize, String)> {
        let items = self.checkpoint.items.iter().enumerate();
        let tensors = items.filter(|(_, item)| self.positions.contains_key(&item.name));
        tensors.map(|(position, item)| (position, item.name.clone())).collect()
    }

    fn tensor(&self, name: &str) -> Option<RankTensor<'_>> {
        match &self.checkpoint.items.get(*self.positions.get(name)?)?.content {
            ItemContent::Tensor(tensor) => Some(RankTensor::Whole(tensor)),
            ItemContent::Compound(compound) => Some(RankTensor::Shard(compound, compound.shard.as_deref()?)),
            ItemContent::Value(_) => None,
        }
    }
}

impl RankTensor<'_> {
    fn facts(&self) -> (Dtype, &[u64]) {
        match self {
            Self::Whole(tensor) => (tensor.dtype(), tensor.shape()),
            Self::Shard(compound, _) => (compound.dtype, &compound.shape),
        }
    }
}

/// Joins the shards of all ranks. A tensor that a rank has as a whole is read from that rank.
fn join_tensor(name: &str, states: &[RankState], summary: &mut TrainerSummary) -> Result<Tensor> {
    let mut tiles: Vec<Tile> = Vec::new();
    let mut boxes = HashSet::new();
    let mut first: Option<(Dtype, Vec<u64>, &str)> = None;
    let mut whole: Option<Tensor> = None;
    for state in states {
        let file = state.file.as_str();
        let known = first.as_ref().map_or("", |(_, _, file)| *file);
        let missing = || Problem::MissingInRank {
            tensor: name.to_owned(),
            first: known.to_owned(),
            second: file.to_owned(),
        };
        let found = state.tensor(name).ok_or_else(missing)?;
        let (dtype, shape) = found.facts();
        let (known_dtype, known_shape, known_file) =
            first.get_or_insert_with(|| (dtype, shape.to_vec(), file));
        if (*known_dtype, known_shape.as_slice()) != (dtype, shape) {
            return Err(Problem::RanksDisagree {
                tensor: name.to_owned(),
                first: (*known_file).into(),
                first_found: format!("{known_dtype} {known_shape:?}").into(),
                second: file.into(),
                second_found: format!("{dtype} {shape:?}").into(),
            }
            .into());
        }
        match found {
            RankTensor::Whole(tensor) => {
                whole.get_or_insert_with(|| tensor.clone());
            }
            RankTensor::Shard(compound, position) => {
                for tile in rank_tiles(name, file, compound, position)? {
                    // The ranks of a replicated dimension have equal shards.
                    if tile.tensor.numel() > 0
                        && boxes.insert((tile.start.clone(), tile.tensor.shape().to_vec()))
                    {
                        tiles.push(tile);
                    }
                }
            }
        }
    }
    let (dtype, shape, _) = first.unwrap_or((Dtype::UInt8, Vec::new(), ""));
    if let Some(tensor) = whole {
        summary.count(dtype, 1);
        return Ok(tensor);
    }
    summary.count(dtype, tiles.len());
    join_tiles(name, dtype, &shape, tiles)
}

fn rank_tiles(
    name: &str,
    file: &str,
    compound: &CompoundItem,
    position: &ShardPosition,
) -> Result<Vec<Tile>> {
    let fail = |reason: &str| {
        let (tensor, file, reason) = (name.to_owned(), file.to_owned(), reason.to_owned());
        Error::from(Problem::Shard { tensor, file, reason })
    };
    let part = |wanted: &str| {
        let found = compound.parts.iter().find(|(part, _)| part == wanted);
        found.map(|(_, tensor)| tensor).ok_or_else(|| fail("its data are not a plain tensor"))
    };
    match position {
        ShardPosition::Mesh(dimensions) => {
            let segments = mesh::segments(&compound.shape, dimensions).map_err(fail)?;
            let local = part("_local_tensor")?;
            mesh::tiles(local, &segments).ok_or_else(|| {
                fail(&format!("its shape is {:?}, which is not what its position asks for", local.shape()))
            })
        }
        ShardPosition::Boxes(boxes) => {
            let mut tiles = Vec::with_capacity(boxes.len());
            for (number, (start, sizes)) in boxes.iter().enumerate() {
                let local = part(&format!("_local_shards.{number}"))?;
                if local.shape() != sizes {
                    return Err(fail(&format!("its shape is {:?}, expected {sizes:?}", local.shape())));
                }
                tiles.push(Tile { tensor: local.clone(), start: start.clone() });
            }
            Ok(tiles)
        }
        _ => Err(fail("its kind is not supported")),
    }
}

/// Refuses a tensor that the first rank does not have.
fn refuse_extra_tensors(states: &[RankState]) -> Result<()> {
    let Some((first, others)) = states.split_first() else { return Ok(()) };
    for other in others {
        if let Some((_, tensor)) =
            other.names().into_iter().find(|(_, name)| !first.positions.contains_key(name))
        {
            return Err(Problem::MissingInRank {
                tensor,
                first: other.file.clone(),
                second: first.file.clone(),
            }
            .into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ranks_are_parsed() {
        let parse = |name: &str| RankFile::parse(name).map(|file| (file.prefix, file.ranks, file.rank));
        assert_eq!(parse("model_world_size_8_rank_3.pt"), Some(("model_".to_owned(), Some(8), 3)));
        assert_eq!(parse("optim_world_size_2_rank_0.pt"), Some(("optim_".to_owned(), Some(2), 0)));
        let accelerate = |prefix: &str, rank| Some((prefix.to_owned(), None, rank));
        assert_eq!(parse("pytorch_model_fsdp_0_rank11.bin"), accelerate("pytorch_model_fsdp_0_", 11));
        assert_eq!(parse("pytorch_model_fsdp_rank0.bin"), accelerate("pytorch_model_fsdp_", 0));
        for other in [
            "pytorch_model_fsdp_rank.bin",
            "pytorch_model_fsdp_x_rank0.bin",
            "pytorch_model_fsdp_0rank0.bin",
            "rank0.bin",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
        assert_eq!(parse("model_world_size_x_rank_0.pt"), None);
        assert_eq!(parse("model_world_size_2_rank_+1.pt"), None);
    }
}
