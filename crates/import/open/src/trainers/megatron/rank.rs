//! The file of one of Megatron's ranks: its model in pieces, and the arguments of the training.

use std::path::Path;

use foldhash::HashMap;
use pickle_vm::ObjectId;
use tensor::Tensor;
use torch_import::{Checkpoint, Container, ItemContent};

use super::rank_folder::{RankFolder, file_of};
use super::sizes::Sizes;
use crate::trainers::attributes::Objects;
use crate::trainers::{Error, Problem, Result};

/// Largest number of pieces that a rank's model can have.
const PIECES_MAX: usize = 1 << 10;

/// File of a rank, read.
pub(super) struct MegatronRank {
    pub(super) file: String,
    pub(super) folder: RankFolder,
    /// Key under which the model is; empty if the file is a state dict.
    pub(super) key: &'static str,
    /// Tensors of each piece of the model.
    pub(super) pieces: Vec<Piece>,
    arguments: Option<Arguments>,
    rest: Checkpoint,
}

/// Tensors of a piece of a rank's model, in the order of the file.
#[derive(Default)]
pub(super) struct Piece {
    tensors: Vec<(String, Tensor)>,
    positions: HashMap<String, usize>,
}

/// Numbers of ranks in the arguments of a training.
#[derive(Clone, Copy)]
struct Arguments {
    tensor: Option<u64>,
    stages: Option<u64>,
    experts: Option<u64>,
    expert_tensor: Option<u64>,
    tied: bool,
}

impl MegatronRank {
    pub(super) fn read(container: &Container) -> Result<Self> {
        let file = file_of(container.path());
        let mut rest = Checkpoint::read(container).map_err(|error| error.in_file(file.as_ref()))?;
        let folder = Path::new(&file).parent().and_then(Path::to_str).and_then(RankFolder::parse);
        let arguments = Arguments::read(&rest, &file)?;
        let is_model = |key: &str| key == "model";
        let is_piece = |key: &str| piece_number(key).is_some();
        let has = |is_it: &dyn Fn(&str) -> bool| {
            rest.items.iter().any(|item| {
                item.tensor().is_some() && item.root_key().is_some_and(is_it) && !item.is_at_root()
            })
        };
        let (whole, several) = (has(&is_model), has(&is_piece));
        let mut pieces = Vec::new();
        let mut kept = Vec::with_capacity(rest.items.len());
        for item in std::mem::take(&mut rest.items) {
            let key = item.root_key();
            let piece = match key {
                Some(key) if several && is_piece(key) => piece_number(key),
                Some("model") if whole => Some(0),
                _ if whole || several => None,
                _ => Some(0),
            };
            let prefix = if whole || several { key.map_or(0, |key| key.len().saturating_add(1)) } else { 0 };
            match (piece, item.tensor(), item.name.get(prefix..)) {
                (Some(piece), Some(tensor), Some(name)) if piece < PIECES_MAX => {
                    if pieces.len() <= piece {
                        pieces.resize_with(piece.saturating_add(1), Piece::default);
                    }
                    if let Some(piece) = pieces.get_mut(piece) {
                        piece.push(name.to_owned(), tensor.clone());
                    }
                }
                _ => kept.push(item),
            }
        }
        rest.items = kept;
        let key = if whole || several { "model" } else { "" };
        Ok(Self { folder: folder.unwrap_or_default(), file, key, pieces, arguments, rest })
    }

    /// Returns the sizes in the arguments of this rank, or else those that the names of all folders show.
    pub(super) fn sizes(&self, ranks: &[Self]) -> Result<Sizes> {
        let count = |number: fn(&RankFolder) -> Option<u64>| {
            let last = ranks.iter().filter_map(|rank| number(&rank.folder)).max();
            last.map_or(1, |last| last.saturating_add(1))
        };
        let named = count(|folder| Some(folder.tensor()));
        let (second, third) = (count(RankFolder::second), count(RankFolder::third));
        let given = self.arguments;
        let tensor = given.and_then(|it| it.tensor).unwrap_or(named);
        let stages = given.and_then(|it| it.stages).unwrap_or(second);
        let experts = given.and_then(|it| it.experts).unwrap_or(third);
        let expert_tensor = given.and_then(|it| it.expert_tensor).unwrap_or(tensor);
        let sizes =
            Sizes { tensor, stages, experts, expert_tensor, tied: given.is_some_and(|given| given.tied) };
        let all = [tensor, stages, experts, expert_tensor];
        // A missing rank is noticed before a list of this length is made.
        if all.contains(&0) || all.iter().any(|size| *size > 1 << 16) {
            let reason = format!("its numbers of ranks are {all:?}");
            let problem = Problem::Metadata { offset: 0, reason };
            return Err(Error::from(problem).in_file(self.file.as_ref()));
        }
        if expert_tensor != 1 && expert_tensor != tensor {
            let reason = "its experts are divided among another number of ranks than its other tensors";
            return Err(Error::from(Problem::Unsupported(reason)).in_file(self.file.as_ref()));
        }
        Ok(sizes)
    }

    pub(super) fn place(&self, sizes: &Sizes) -> [u64; 3] {
        self.folder.place(sizes)
    }

    pub(super) fn names(&self, piece: usize) -> impl Iterator<Item = &str> {
        let tensors = self.pieces.get(piece).map_or([].as_slice(), |piece| piece.tensors.as_slice());
        tensors.iter().map(|(name, _)| name.as_str())
    }

    pub(super) fn tensor(&self, piece: usize, name: &str) -> Option<&Tensor> {
        let piece = self.pieces.get(piece)?;
        piece.tensors.get(*piece.positions.get(name)?).map(|(_, tensor)| tensor)
    }

    /// Returns what is not the model: the optimizer's tensors with the name of the rank, and everything else.
    pub(super) fn into_rest(self, optimizer: &str) -> ((String, Checkpoint), Checkpoint) {
        let mut rest = self.rest;
        let mut of_optimizer = Checkpoint::default();
        let mut others = Vec::new();
        for mut item in std::mem::take(&mut rest.items) {
            if item.root_key() == Some(optimizer) {
                let is_tensor = !matches!(item.content, ItemContent::Value(_));
                let name = item.name.get(optimizer.len().saturating_add(1)..).map(str::to_owned);
                if let (Some(name), true) = (name, is_tensor) {
                    item.name = name;
                    of_optimizer.items.push(item);
                }
            } else {
                others.push(item);
            }
        }
        rest.items = others;
        ((self.folder.to_string(), of_optimizer), rest)
    }
}

impl Piece {
    fn push(&mut self, name: String, tensor: Tensor) {
        self.positions.insert(name.clone(), self.tensors.len());
        self.tensors.push((name, tensor));
    }
}

impl Arguments {
    /// Reads the numbers of the `argparse.Namespace` at `args`.
    fn read(checkpoint: &Checkpoint, file: &str) -> Result<Option<Self>> {
        let Some((heap, root)) = checkpoint.heap_of(0).zip(checkpoint.root()) else { return Ok(None) };
        let objects = Objects { heap, file };
        let find = |wanted: &str| {
            let is_wanted = |key| heap.text(key).is_some_and(|text| text == wanted);
            let entries = heap.entries(root).unwrap_or_default();
            entries.iter().find(|(key, _)| is_wanted(*key)).map(|(_, value)| *value)
        };
        let version = find("checkpoint_version").and_then(|id| heap.float(id));
        if version.is_some_and(|version| version < 2.0) {
            let reason = "its queries, keys and values are in the order of an old version of Megatron-LM";
            return Err(Error::from(Problem::Unsupported(reason)).in_file(file.as_ref()));
        }
        let Some(arguments) = find("args").filter(|id| objects.class(*id).is_some()) else { return Ok(None) };
        let attribute = |name: &str| -> Result<Option<ObjectId>> {
            Ok(objects.attribute(arguments, name)?.filter(|id| !heap.is_none(*id)))
        };
        let number = |name: &str| attribute(name)?.map(|id| objects.number(id, name)).transpose();
        let untied = attribute("untie_embeddings_and_output_weights")?;
        Ok(Some(Self {
            tensor: number("tensor_model_parallel_size")?,
            stages: number("pipeline_model_parallel_size")?,
            experts: number("expert_model_parallel_size")?,
            expert_tensor: number("expert_tensor_parallel_size")?,
            tied: untied.and_then(|id| heap.bool(id)) == Some(false),
        }))
    }
}

/// Returns the number in `model0`, the key of a piece.
fn piece_number(key: &str) -> Option<usize> {
    let digits = key.strip_prefix("model")?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}
