//! A file for each rank, `model_world_size_4_rank_0.pt` to `model_world_size_4_rank_3.pt`, `pytorch_model_fsdp_0_rank0.bin` or
//! `model_0000124.rank_0.pth` and so on: the rank's state dict, whose tensors are shards of the class `DTensor` or `ShardedTensor`, or
//! whole.
//!
//! Facts: the names of flat parameters in `torch/distributed/fsdp/_flat_param.py` and fairscale;
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
use crate::trainers::rank_file::{RankFile, all_ranks};
use crate::trainers::trainer_layout::{JoinedCheckpoint, TrainerLayout};
use crate::trainers::{Error, Problem, Result, TrainerSummary, mesh};

#[derive(Debug)]
pub(crate) struct RankFiles;

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
        let files = folder.listing.files.iter();
        let parsed = files.filter_map(|name| Some((name.clone(), RankFile::parse(name)?)));
        all_ranks(parsed.filter(|(_, file)| file.is_of_weights()).collect())
    }

    fn join(&self, containers: &[Container], observer: &dyn Observer) -> Result<JoinedCheckpoint> {
        let mut states = Vec::with_capacity(containers.len());
        for container in containers {
            observer.check()?;
            states.push(RankState::read(container)?);
        }
        refuse_missing_ranks(&states)?;
        let mut summary = TrainerSummary::new(self.trainer(), states.len());
        let mut joined = Vec::new();
        for (position, name) in states.first().map(RankState::names).unwrap_or_default() {
            observer.check()?;
            joined.push((position, join_tensor(&name, &states, &mut summary)?));
        }
        refuse_extra_tensors(&states)?;
        let is_named = |state: &RankState| RankFile::parse(&state.file).is_some();
        if states.len() > 1
            && !joined.is_empty()
            && !states.iter().any(|state| is_named(state) || state.has_shards())
        {
            return Err(Problem::Unsupported(
                "the files of the ranks have plain tensors, and do not say how the parts of a tensor are joined",
            )
            .into());
        }
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

    fn shards(&self) -> impl Iterator<Item = &ShardPosition> {
        self.checkpoint.compounds().filter_map(|(_, compound)| compound.shard.as_deref())
    }

    fn has_shards(&self) -> bool {
        self.shards().next().is_some()
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
        if is_flat_parameter(name) {
            let (tensor, file) = (name.to_owned(), file.to_owned());
            let reason =
                "it has the flat parameters of FSDP, and no file has the shapes of the weights in them"
                    .to_owned();
            return Err(Problem::Shard { tensor, file, reason }.into());
        }
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
        ShardPosition::Boxes { boxes, .. } => {
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

/// Refuses files of fewer ranks than their tensors were split over, if the names do not say how many these were.
fn refuse_missing_ranks(states: &[RankState]) -> Result<()> {
    let Some((state, file)) = states.first().and_then(|it| Some((it, RankFile::parse_any(&it.file)?))) else {
        return Ok(());
    };
    let of = |position: &ShardPosition| match position {
        ShardPosition::Mesh(dimensions) => {
            dimensions.iter().fold(1_u64, |product, dimension| product.saturating_mul(dimension.ranks))
        }
        ShardPosition::Boxes { ranks, .. } => ranks.unwrap_or(0),
        _ => 0,
    };
    let (ranks, found) = (states.iter().flat_map(RankState::shards).map(of).max(), states.len() as u64);
    match ranks.filter(|ranks| *ranks > found) {
        Some(ranks) => {
            Err(Problem::MissingRank { file: file.name_of(found), other: state.file.clone(), ranks }.into())
        }
        None => Ok(()),
    }
}

/// Returns true for the name of the flat parameters of FSDP, a tensor of one rank's parts of the weights of a module.
pub fn is_flat_parameter(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    last == "_flat_param"
        || last.strip_prefix("flat_param").is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
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
