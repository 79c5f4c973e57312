//! Folders of Megatron-LM's ranks: `mp_rank_01_002/model_optim_rng.pt` has the tensors of tensor parallel rank 1 and
//! pipeline stage 2, and a third number is that of the ranks of experts.
//!
//! Facts: `get_checkpoint_name` in `megatron/training/checkpointing.py` and the loaders in `tools/checkpoint` of Megatron-LM,
//! whose result is the same; the modules of megatron-core 0.16.1. A stage numbers its layers from 0. With
//! virtual stages, `model0` and `model1` are the pieces of a rank, and the first piece of all stages comes before the second.

mod rank;
mod rank_folder;
mod sizes;
mod split;

use std::path::Path;

use byte_source::{Folder, Observer};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use tensor::{Tensor, Tile};
use torch_import::{CheckpointAssembly, CheckpointNote, Container, ItemPath};

use self::rank::MegatronRank;
use self::sizes::Sizes;
use self::split::{Split, expert_number, layer_number, with_number};
use crate::trainers::join::join_tiles;
use crate::trainers::trainer_layout::{JoinedCheckpoint, TrainerLayout};
use crate::trainers::{Error, Problem, Result, TrainerSummary};

/// Key under which the optimizer's tensors are listed.
const OPTIMIZER: &str = "optimizer";

/// Layout of Megatron-LM's folders of ranks.
#[derive(Debug)]
pub(crate) struct MegatronRanks;

impl TrainerLayout for MegatronRanks {
    fn trainer(&self) -> &'static str {
        "Megatron-LM"
    }

    fn files(&self, folder: &Folder) -> Result<Option<Vec<String>>> {
        rank_folder::files(folder)
    }

    fn file_name(&self, path: &Path) -> String {
        rank_folder::file_of(path)
    }

    fn join(&self, containers: &[Container], observer: &dyn Observer) -> Result<JoinedCheckpoint> {
        let mut ranks = Vec::with_capacity(containers.len());
        for container in containers {
            observer.check()?;
            ranks.push(MegatronRank::read(container)?);
        }
        let grid = Grid::new(&ranks)?;
        let mut summary = TrainerSummary::new(self.trainer(), ranks.len());
        let mut joined = Vec::new();
        let mut names = HashSet::new();
        let mut layers: HashMap<String, u64> = HashMap::new();
        for piece in 0..grid.pieces()? {
            for stage in 0..grid.sizes.stages {
                observer.check()?;
                grid.join_stage(piece, stage, &mut layers, &mut names, &mut summary, &mut joined)?;
            }
        }
        let key = ranks.first().map_or("", |rank| rank.key);
        let tied = grid.sizes.tied;
        let mut assembly = CheckpointAssembly::new();
        for (name, tensor) in joined {
            // The last stage has a copy of the embeddings if they are also the output matrix.
            if tied && name.ends_with("output_layer.weight") || name.contains("word_embeddings_for_head.") {
                continue;
            }
            let path = if key.is_empty() { ItemPath::new(name) } else { ItemPath::from_keys(&[key, &name]) };
            assembly.push_tensor(&path, tensor);
        }
        let (mut files, mut count) = (Vec::new(), 0_usize);
        for (number, rank) in ranks.into_iter().enumerate() {
            let (optimizer, mut rest) = rank.into_rest(OPTIMIZER);
            if number > 0 {
                let values = rest.notable_values().count();
                if values > 0 {
                    files.push(optimizer.0.clone());
                    count = count.saturating_add(values);
                }
                rest.items.clear();
            }
            assembly.push_checkpoint(&ItemPath::default(), rest);
            assembly.push_checkpoint(&ItemPath::from_keys(&[OPTIMIZER, &optimizer.0]), optimizer.1);
        }
        assembly.set_optimizer_keys(vec![OPTIMIZER.to_owned()]);
        let mut checkpoint = assembly.finish()?;
        if count > 0 {
            checkpoint.notes.push(CheckpointNote::ValuesLeftOut { files, count });
        }
        Ok(JoinedCheckpoint { checkpoint, summary })
    }
}

/// Returns true for names such as `mp_rank_00`.
pub(crate) fn is_rank_folder(name: &str) -> bool {
    rank_folder::RankFolder::parse(name).is_some()
}

/// The ranks by their places in the grid of tensors, stages and experts.
struct Grid<'r> {
    ranks: &'r [MegatronRank],
    sizes: Sizes,
}

impl<'r> Grid<'r> {
    /// Compares the numbers in the names of the folders with the arguments in their files.
    fn new(ranks: &'r [MegatronRank]) -> Result<Self> {
        let Some(first) = ranks.first() else {
            return Err(Problem::Unsupported("there is no folder of a rank").into());
        };
        let sizes = first.sizes(ranks)?;
        let grid = Self { ranks, sizes };
        for other in ranks {
            if other.sizes(ranks)? != sizes {
                return Err(
                    Problem::WorldSizes { first: first.file.clone(), second: other.file.clone() }.into()
                );
            }
            let [tensor, stage, expert] = other.place(&sizes);
            if tensor >= sizes.tensor || stage >= sizes.stages || expert >= sizes.experts {
                let (file, found) = (first.file.clone(), ranks.len() as u64);
                return Err(Problem::ExtraRanks { file, ranks: sizes.ranks(), found }.into());
            }
        }
        for stage in 0..sizes.stages {
            for tensor in 0..sizes.tensor {
                grid.dense(tensor, stage)?;
            }
            for expert in 0..sizes.experts {
                for tensor in 0..sizes.expert_tensor {
                    grid.expert(tensor, stage, expert)?;
                }
            }
        }
        Ok(grid)
    }

    /// Returns the number of pieces of each rank's model, which is greater than 1 with virtual stages.
    fn pieces(&self) -> Result<usize> {
        let Some(first) = self.ranks.first() else { return Ok(0) };
        for other in self.ranks {
            if (other.pieces.len(), other.key) != (first.pieces.len(), first.key) {
                return Err(
                    Problem::WorldSizes { first: first.file.clone(), second: other.file.clone() }.into()
                );
            }
        }
        Ok(first.pieces.len())
    }

    fn missing(&self, place: [u64; 3]) -> Error {
        let first = self.ranks.first();
        let (other, folder) = first.map(|rank| (rank.file.clone(), rank.folder.clone())).unwrap_or_default();
        let file = other.replacen(&folder.to_string(), &folder.with_place(&self.sizes, place).to_string(), 1);
        Problem::MissingRank { file, other, ranks: self.sizes.ranks() }.into()
    }

    /// Returns the rank with the tensors of a stage that are not of experts.
    fn dense(&self, tensor: u64, stage: u64) -> Result<&'r MegatronRank> {
        let is_it = |rank: &&MegatronRank| {
            let [own, own_stage, _] = rank.place(&self.sizes);
            (own, own_stage) == (tensor, stage)
        };
        self.ranks.iter().find(is_it).ok_or_else(|| self.missing([tensor, stage, 0]))
    }

    /// Returns the rank with part `tensor` of the experts of a stage.
    fn expert(&self, tensor: u64, stage: u64, expert: u64) -> Result<&'r MegatronRank> {
        let whole = self.sizes.expert_tensor == 1;
        let is_it = |rank: &&MegatronRank| {
            let [own, own_stage, own_expert] = rank.place(&self.sizes);
            (own_stage, own_expert) == (stage, expert) && (whole || own == tensor)
        };
        self.ranks.iter().find(is_it).ok_or_else(|| self.missing([tensor, stage, expert]))
    }

    /// Joins the tensors of a piece of a stage. `layers` has the numbers of the layers before it.
    fn join_stage(
        &self,
        piece: usize,
        stage: u64,
        layers: &mut HashMap<String, u64>,
        names: &mut HashSet<String>,
        summary: &mut TrainerSummary,
        joined: &mut Vec<(String, Tensor)>,
    ) -> Result<()> {
        let before = layers.clone();
        for expert in 0..self.sizes.experts {
            let (dense, expert_ranks): (Vec<_>, Vec<_>) = (
                (0..self.sizes.tensor).map(|it| self.dense(it, stage)).collect::<Result<_>>()?,
                (0..self.sizes.expert_tensor)
                    .map(|it| self.expert(it, stage, expert))
                    .collect::<Result<_>>()?,
            );
            let experts = |rank: Option<&&MegatronRank>| {
                let numbers = rank.into_iter().flat_map(|rank| rank.names(piece));
                let numbers = numbers.filter_map(|name| Some(expert_number(name)?.1));
                numbers.max().map_or(0, |last| last.saturating_add(1))
            };
            let own_experts = experts(expert_ranks.first());
            for (ranks, of_experts) in [(&dense, false), (&expert_ranks, true)] {
                let Some((first, others)) = ranks.split_first() else { continue };
                if expert > 0 && !of_experts {
                    continue;
                }
                refuse_extra(first, others, piece, of_experts)?;
                for name in first.names(piece).filter(|name| split::is_of_expert(name) == of_experts) {
                    let mut new = name.to_owned();
                    if let Some((place, number)) = layer_number(&new) {
                        let prefix = new.get(..place.start).unwrap_or_default().to_owned();
                        let start = before.get(&prefix).copied().unwrap_or(0);
                        let number = number.saturating_add(start);
                        let next = layers.entry(prefix).or_default();
                        *next = (*next).max(number.saturating_add(1));
                        new = with_number(&new, place, number);
                    }
                    if let Some((place, number)) = expert_number(&new) {
                        let start = expert.saturating_mul(own_experts);
                        new = with_number(&new, place, number.saturating_add(start));
                    }
                    // Several stages may have the embeddings, of which the first is read.
                    if names.insert(new.clone()) {
                        let tensor = join_parts(name, &new, piece, ranks, summary)?;
                        joined.push((new, tensor));
                    } else if layer_number(&new).is_some() {
                        return Err(torch_import::Problem::DuplicateInParts { name: new }.into());
                    }
                }
            }
        }
        Ok(())
    }
}

/// Refuses a tensor that the first rank does not have.
fn refuse_extra(
    first: &MegatronRank,
    others: &[&MegatronRank],
    piece: usize,
    of_experts: bool,
) -> Result<()> {
    for other in others {
        let mut names = other.names(piece).filter(|name| split::is_of_expert(name) == of_experts);
        if let Some(name) = names.find(|name| first.tensor(piece, name).is_none()) {
            return Err(Problem::MissingInRank {
                tensor: name.to_owned(),
                first: other.file.clone(),
                second: first.file.clone(),
            }
            .into());
        }
    }
    Ok(())
}

fn join_parts(
    name: &str,
    new: &str,
    piece: usize,
    ranks: &[&MegatronRank],
    summary: &mut TrainerSummary,
) -> Result<Tensor> {
    let mut parts = Vec::with_capacity(ranks.len());
    for rank in ranks {
        let missing = || Problem::MissingInRank {
            tensor: new.to_owned(),
            first: ranks.first().map_or_else(String::new, |first| first.file.clone()),
            second: rank.file.clone(),
        };
        parts.push((rank.file.as_str(), rank.tensor(piece, name).ok_or_else(missing)?));
    }
    let [(first_file, first), ..] = parts.as_slice() else { return Err(unknown_split(new, "")) };
    let split = if let [_] = parts.as_slice() {
        Split::Copies
    } else {
        let gated = |partner: &str| {
            let columns = *ranks.first()?.tensor(piece, partner)?.shape().get(1)?;
            Some(Some(*first.shape().first()?) == columns.checked_mul(2))
        };
        Split::of(name, gated).ok_or_else(|| unknown_split(new, first_file))?
    };
    for (file, part) in &parts {
        // Megatron divides a dimension only if its size is a multiple of the number of ranks.
        if (part.dtype(), part.shape()) != (first.dtype(), first.shape()) {
            return Err(Problem::RanksDisagree {
                tensor: new.to_owned(),
                first: (*first_file).into(),
                first_found: describe(first).into(),
                second: (*file).into(),
                second_found: describe(part).into(),
            }
            .into());
        }
    }
    let (dim, halves) = match split {
        Split::Along(dim) => (dim, 1),
        Split::Gated => (0, 2),
        Split::Copies => {
            summary.count(first.dtype(), 1);
            return Ok((*first).clone());
        }
    };
    if dim >= first.shape().len() {
        return Err(unknown_split(new, first_file));
    }
    summary.count(first.dtype(), parts.len());
    let (mut tiles, mut shape, mut at) = (Vec::new(), first.shape().to_vec(), 0_u64);
    for half in 0..halves {
        for (file, part) in &parts {
            let odd = || unknown_split(new, file);
            let rows = part.shape().get(dim).copied().unwrap_or(0);
            let rows =
                rows.checked_div(halves).filter(|it| it.checked_mul(halves) == Some(rows)).ok_or_else(odd)?;
            let mut sizes = part.shape().to_vec();
            let stride = part.stride().get(dim).copied().unwrap_or(0);
            let skipped = rows.checked_mul(half).and_then(|rows| rows.checked_mul(stride));
            let offset = skipped.and_then(|it| it.checked_add(part.storage_offset())).ok_or_else(odd)?;
            if let Some(size) = sizes.get_mut(dim) {
                *size = rows;
            }
            let storage = part.storage().clone();
            let tensor = Tensor::new(part.dtype(), sizes, part.stride().to_vec(), offset, storage);
            let tensor = tensor.map_err(|_| odd())?;
            let mut start = vec![0; shape.len()];
            if let Some(start) = start.get_mut(dim) {
                *start = at;
            }
            tiles.push(Tile { tensor, start });
            at = at.saturating_add(rows);
        }
    }
    if let Some(size) = shape.get_mut(dim) {
        *size = at;
    }
    join_tiles(new, first.dtype(), &shape, tiles)
}

fn describe(part: &Tensor) -> String {
    format!("{} {:?}", part.dtype(), part.shape())
}

fn unknown_split(tensor: &str, file: &str) -> Error {
    let reason = "it is not known how Megatron divides it among its ranks".to_owned();
    Problem::Shard { tensor: tensor.to_owned(), file: file.to_owned(), reason }.into()
}
