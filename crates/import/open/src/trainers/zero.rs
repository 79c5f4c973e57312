//! `DeepSpeed` ZeRO 1, 2 and 3: each rank's `*_optim_states.pt` has a partition of the weights in float32, flat; the
//! shapes and the buffers are in `*_model_states.pt`.
//!
//! Facts: `utils/zero_to_fp32.py` of `DeepSpeed` 0.19.8, whose result is the same. ZeRO-1 and 2 cut the flat weights of a
//! group, which are padded at the end; ZeRO-3 cuts each parameter, and pads it. Buffers of floating-point numbers become float32. Frozen parameters
//! keep their dtype: rank 0 has them whole, and after ZeRO-3 each rank has a part.

use byte_source::{Folder, Observer};
use foldhash::{HashMap, HashSet, HashSetExt};
use tensor::{Dtype, Tensor, Tile, contiguous_strides};
use torch_import::{Checkpoint, CheckpointAssembly, CheckpointNote, Container, ItemContent, ItemPath};

use crate::trainers::attributes::Objects;
use crate::trainers::flat_parts::FlatParts;
use crate::trainers::join::join_tiles;
use crate::trainers::trainer_layout::{JoinedCheckpoint, TrainerLayout};
use crate::trainers::zero_names::ZeroFiles;
use crate::trainers::{Error, Problem, Result, TrainerSummary};

/// Key of the 16-bit weights.
const MODULE: &str = "module";
/// Key under which the optimizer's tensors are listed.
const OPTIMIZER: &str = "optimizer";
const FROZEN: &str = "frozen_param_fragments";

/// Layout of ZeRO's folders.
#[derive(Debug)]
pub(crate) struct Zero;

/// What the model states of a rank say.
pub(crate) struct ModelStates {
    /// Parameters of each group with their shapes.
    groups: Vec<Vec<(String, Vec<u64>)>>,
    frozen: Vec<(String, Vec<u64>)>,
    /// Names that were dropped, and those that were kept.
    pub(crate) shared: Vec<(String, String)>,
    buffers: HashSet<String>,
}

pub(crate) struct ZeroFile {
    pub(crate) file: String,
    pub(crate) checkpoint: Checkpoint,
}

struct Partition {
    file: String,
    stage: u64,
    /// Flat tensors, one for each group.
    groups: Vec<Tensor>,
    checkpoint: Checkpoint,
}

impl TrainerLayout for Zero {
    fn trainer(&self) -> &'static str {
        "DeepSpeed ZeRO"
    }

    fn files(&self, folder: &Folder) -> Result<Option<Vec<String>>> {
        ZeroFiles::find(&folder.listing.files)
    }

    fn join(&self, containers: &[Container], observer: &dyn Observer) -> Result<JoinedCheckpoint> {
        let (mut partitions, mut models) = (Vec::new(), Vec::new());
        for container in containers {
            observer.check()?;
            let read = ZeroFile::read(container)?;
            if read.file.ends_with("_optim_states.pt") {
                partitions.push(Partition::new(read, containers)?);
            } else {
                models.push(read);
            }
        }
        let (Some(first), Some(main)) = (partitions.first(), models.first()) else {
            return Err(Problem::Unsupported("a state of the model is missing").into());
        };
        let states = ModelStates::read(main)?;
        let stage = first.stage;
        for other in &partitions {
            if (other.stage, other.groups.len()) != (stage, first.groups.len()) {
                return Err(
                    Problem::WorldSizes { first: first.file.clone(), second: other.file.clone() }.into()
                );
            }
        }
        let ranks = partitions.len();
        if stage == 3 && models.len() != ranks {
            return Err(Problem::WorldSizes { first: first.file.clone(), second: main.file.clone() }.into());
        }
        let mut summary = TrainerSummary::new(stage_name(stage), ranks);
        let mut joined: Vec<(String, Tensor)> = Vec::new();
        for (name, float) in states.buffers_of(main) {
            summary.count(float.dtype(), 1);
            joined.push((name, float));
        }
        join_frozen(&states, stage, &models, &mut summary, &mut joined)?;
        let flat: Vec<(&str, &[Tensor])> =
            partitions.iter().map(|it| (it.file.as_str(), it.groups.as_slice())).collect();
        let mut parts = FlatParts::new(flat);
        let mut add = |name: &String, shape: &Vec<u64>, tiles: Vec<Tile>| -> Result<()> {
            observer.check()?;
            let tensor = whole(name, shape, tiles, &mut summary)?;
            joined.push((name.clone(), tensor));
            Ok(())
        };
        if stage == 3 {
            let mut offset = 0_u64;
            for (name, shape) in states.groups.iter().flatten() {
                let numel = numel(name, shape, &main.file)?;
                let each = numel.div_ceil(ranks as u64);
                add(name, shape, parts.of_each_rank(name, offset, each, numel)?)?;
                offset = offset.saturating_add(each);
            }
            parts.check_end(offset)?;
        } else {
            if states.groups.len() != first.groups.len() {
                return Err(main.malformed(&format!(
                    "it has {} groups of parameters, and {} has {}",
                    states.groups.len(),
                    first.file,
                    first.groups.len()
                )));
            }
            for (group, parameters) in states.groups.iter().enumerate() {
                let mut offset = 0_u64;
                for (name, shape) in parameters {
                    let numel = numel(name, shape, &main.file)?;
                    add(name, shape, parts.of_group(name, group, offset, numel)?)?;
                    offset = offset.saturating_add(numel);
                }
                parts.check_group(group, offset)?;
            }
        }
        let places: HashMap<&str, usize> =
            joined.iter().enumerate().map(|(place, (name, _))| (name.as_str(), place)).collect();
        let kept = |(dropped, kept): &(String, String)| Some((dropped.clone(), *places.get(kept.as_str())?));
        let shared: Vec<(String, usize)> = states.shared.iter().filter_map(kept).collect();
        for (dropped, place) in shared {
            if let Some((_, tensor)) = joined.get(place) {
                let tensor = tensor.clone();
                joined.push((dropped, tensor));
            }
        }
        let checkpoint = assemble(joined, partitions, models, &states)?;
        Ok(JoinedCheckpoint { checkpoint, summary })
    }
}

fn stage_name(stage: u64) -> &'static str {
    match stage {
        1 => "DeepSpeed ZeRO-1",
        2 => "DeepSpeed ZeRO-2",
        _ => "DeepSpeed ZeRO-3",
    }
}

/// Adds the parameters that were not trained.
pub(crate) fn join_frozen(
    states: &ModelStates,
    stage: u64,
    models: &[ZeroFile],
    summary: &mut TrainerSummary,
    joined: &mut Vec<(String, Tensor)>,
) -> Result<()> {
    let used = if stage == 3 { models } else { models.get(..1).unwrap_or_default() };
    let fragments: Vec<HashMap<&str, &Tensor>> =
        used.iter().map(|model| model.tensors_under(FROZEN).collect()).collect();
    for (name, shape) in &states.frozen {
        let mut tiles = Vec::with_capacity(used.len());
        let mut start = 0_u64;
        let mut whole_numel = 0;
        for (model, fragments) in used.iter().zip(&fragments) {
            whole_numel = numel(name, shape, &model.file)?;
            let missing = || Problem::Shard {
                tensor: name.clone(),
                file: model.file.clone(),
                reason: "its fragment is missing".to_owned(),
            };
            let fragment = fragments.get(name.as_str()).ok_or_else(missing)?;
            let take = fragment.numel().min(whole_numel.saturating_sub(start));
            let failed = |reason| Problem::Join { tensor: name.clone(), reason: Box::new(reason) };
            let flat = fragment.reshaped(&[fragment.numel()]).map_err(failed)?;
            if take > 0 {
                let storage = flat.storage().clone();
                let part = Tensor::new(flat.dtype(), vec![take], vec![1], flat.storage_offset(), storage);
                tiles.push(Tile { tensor: part.map_err(failed)?, start: vec![start] });
            }
            start = start.saturating_add(take);
        }
        let dtype = tiles.first().map_or(Dtype::Float32, |tile| tile.tensor.dtype());
        summary.count(dtype, tiles.len());
        joined.push((name.clone(), reshaped(name, dtype, whole_numel, shape, tiles)?));
    }
    Ok(())
}

/// Joins flat tiles into a tensor of a shape, and counts it.
fn whole(name: &str, shape: &[u64], tiles: Vec<Tile>, summary: &mut TrainerSummary) -> Result<Tensor> {
    let dtype = tiles.first().map_or(Dtype::Float32, |tile| tile.tensor.dtype());
    summary.count(dtype, tiles.len());
    reshaped(name, dtype, numel(name, shape, "")?, shape, tiles)
}

fn reshaped(name: &str, dtype: Dtype, numel: u64, shape: &[u64], tiles: Vec<Tile>) -> Result<Tensor> {
    let flat = join_tiles(name, dtype, &[numel], tiles)?;
    let view = Tensor::new(
        dtype,
        shape.to_vec(),
        contiguous_strides(shape),
        flat.storage_offset(),
        flat.storage().clone(),
    );
    Ok(view.map_err(|reason| Problem::Join { tensor: name.to_owned(), reason: Box::new(reason) })?)
}

/// Returns the number of elements of a shape.
fn numel(name: &str, shape: &[u64], file: &str) -> Result<u64> {
    let product = shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
    let too_large = || Problem::Shard {
        tensor: name.to_owned(),
        file: file.to_owned(),
        reason: format!("its shape is {shape:?}"),
    };
    Ok(product.filter(|numel| *numel <= u64::from(u32::MAX) << 24).ok_or_else(too_large)?)
}

/// Puts the weights, the 16-bit copies and the optimizer's tensors together.
fn assemble(
    joined: Vec<(String, Tensor)>,
    partitions: Vec<Partition>,
    models: Vec<ZeroFile>,
    states: &ModelStates,
) -> Result<Checkpoint> {
    let mut assembly = CheckpointAssembly::new();
    let weights: HashSet<String> = joined.iter().map(|(name, _)| name.clone()).collect();
    let is_taken = |key: &str| weights.iter().any(|name| name.split('.').next() == Some(key));
    for (name, tensor) in joined {
        assembly.push_tensor(&ItemPath::new(name), tensor);
    }
    let (mut files, mut count) = (Vec::new(), 0_usize);
    for (number, model) in models.into_iter().enumerate() {
        let ZeroFile { file, mut checkpoint } = model;
        if number > 0 {
            let values = checkpoint.notable_values().count();
            if values > 0 {
                files.push(file);
                count = count.saturating_add(values);
            }
            checkpoint.items.clear();
            assembly.push_checkpoint(&ItemPath::default(), checkpoint);
            continue;
        }
        let mut copies: Vec<(String, Tensor)> = (checkpoint.items.iter())
            .filter(|item| item.root_key() == Some(MODULE))
            .filter_map(|item| {
                Some((item.name.get(MODULE.len().saturating_add(1)..)?.to_owned(), item.tensor()?.clone()))
            })
            .collect();
        // ZeRO-3 stores an empty placeholder for each parameter that it has cut, and only buffers are whole.
        if !copies.iter().any(|(name, tensor)| !states.buffers.contains(name) && tensor.numel() > 0) {
            copies.clear();
        }
        let key = if is_taken(MODULE) { "model_states.module" } else { MODULE };
        let keys: Vec<&str> = key.split('.').take(1).collect();
        for (name, tensor) in copies {
            let path: Vec<&str> =
                if keys == [MODULE] { vec![MODULE, &name] } else { vec!["model_states", MODULE, &name] };
            assembly.push_tensor(&ItemPath::from_keys(&path), tensor);
        }
        assembly.set_copy_key(keys.first().copied().unwrap_or(MODULE).to_owned());
        checkpoint
            .items
            .retain(|item| matches!(item.content, ItemContent::Value(_)) && !weights.contains(&item.name));
        assembly.push_checkpoint(&ItemPath::default(), checkpoint);
    }
    for (rank, partition) in partitions.into_iter().enumerate() {
        let Partition { mut checkpoint, .. } = partition;
        checkpoint
            .items
            .retain(|item| !matches!(item.content, ItemContent::Value(_)) && !is_fp32(&item.name));
        let rank = format!("rank_{rank}");
        assembly.push_checkpoint(&ItemPath::from_keys(&[OPTIMIZER, &rank]), checkpoint);
    }
    assembly.set_optimizer_keys(vec![OPTIMIZER.to_owned()]);
    let mut checkpoint = assembly.finish()?;
    if count > 0 {
        checkpoint.notes.push(CheckpointNote::ValuesLeftOut { files, count });
    }
    Ok(checkpoint)
}

/// Returns true for the names of the flat weights.
fn is_fp32(name: &str) -> bool {
    let rest = name.strip_prefix("optimizer_state_dict.").unwrap_or_default();
    rest.starts_with("single_partition_of_fp32_groups.") || rest.starts_with("fp32_flat_groups.")
}

impl ZeroFile {
    fn read(container: &Container) -> Result<Self> {
        let file =
            container.path().file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let checkpoint = Checkpoint::read(container).map_err(|error| error.in_file(file.as_ref()))?;
        Ok(Self { file, checkpoint })
    }

    /// Returns the tensors under a key of the root, by their names below it.
    fn tensors_under<'z>(&'z self, key: &'z str) -> impl Iterator<Item = (&'z str, &'z Tensor)> {
        self.checkpoint.items.iter().filter_map(move |item| {
            let name = item.name.strip_prefix(key)?.strip_prefix('.')?;
            Some((name, item.tensor()?)).filter(|_| item.root_key() == Some(key))
        })
    }

    fn malformed(&self, reason: &str) -> Error {
        let problem = Problem::Metadata { offset: 0, reason: reason.to_owned() };
        Error::from(problem).in_file(self.file.as_ref())
    }
}

impl ModelStates {
    /// Returns the buffers in a state of the model, of which those of floating-point numbers become float32.
    pub(crate) fn buffers_of(&self, main: &ZeroFile) -> Vec<(String, Tensor)> {
        let found = main.tensors_under(MODULE).filter(|(name, _)| self.buffers.contains(*name));
        let buffer = |(name, tensor): (&str, &Tensor)| {
            let is_float = matches!(tensor.dtype(), Dtype::Float16 | Dtype::BFloat16 | Dtype::Float64);
            let float = tensor.cast(Dtype::Float32).filter(|_| is_float);
            (name.to_owned(), float.unwrap_or_else(|| tensor.clone()))
        };
        found.map(buffer).collect()
    }

    pub(crate) fn read(main: &ZeroFile) -> Result<Self> {
        let not_a_state = || main.malformed("it is not the state of a model that ZeRO trains");
        let (heap, root) = main.checkpoint.heap_of(0).zip(main.checkpoint.root()).ok_or_else(not_a_state)?;
        let objects = Objects { heap, file: &main.file };
        let entries = heap.entries(root).ok_or_else(not_a_state)?;
        let find = |wanted: &str| {
            let is_wanted = |key| heap.text(key).is_some_and(|text| text == wanted);
            entries.iter().find(|(key, _)| is_wanted(*key)).map(|(_, value)| *value)
        };
        if find("ds_autoep_layers").or_else(|| find("autoep_layers")).is_some() {
            let problem = Problem::Unsupported("its experts are partitioned (AutoEP)");
            return Err(Error::from(problem).in_file(main.file.as_ref()));
        }
        let shapes = |dict| objects.shapes(dict, "a dict of shapes");
        let groups = objects.items(find("param_shapes").ok_or_else(not_a_state)?, "param_shapes")?;
        let groups = groups.iter().map(|group| shapes(*group)).collect::<Result<_>>()?;
        let present = |name: &str| find(name).filter(|id| !heap.is_none(*id));
        let frozen = present("frozen_param_shapes").map_or_else(|| Ok(Vec::new()), shapes)?;
        let mut shared = Vec::new();
        for (dropped, kept) in present("shared_params")
            .map_or(Ok([].as_slice()), |dict| objects.entries(dict, "shared_params"))?
        {
            let text = |id| objects.text(id, "the name of a shared parameter");
            shared.push((text(*dropped)?.into_owned(), text(*kept)?.into_owned()));
        }
        let mut buffers = HashSet::new();
        for name in objects.items(find("buffer_names").ok_or_else(not_a_state)?, "buffer_names")? {
            buffers.insert(objects.text(*name, "the name of a buffer")?.into_owned());
        }
        Ok(Self { groups, frozen, shared, buffers })
    }
}

impl Partition {
    fn new(read: ZeroFile, containers: &[Container]) -> Result<Self> {
        let ZeroFile { file, checkpoint } = &read;
        let not_zero = || read.malformed("it is not the state of an optimizer of ZeRO");
        let (heap, root) = checkpoint.heap_of(0).zip(checkpoint.root()).ok_or_else(not_zero)?;
        let objects = Objects { heap, file };
        let find = |dict, wanted: &str| {
            let is_wanted = |key| heap.text(key).is_some_and(|text| text == wanted);
            heap.entries(dict)?.iter().find(|(key, _)| is_wanted(*key)).map(|(_, value)| *value)
        };
        let saved = find(root, "optimizer_state_dict").ok_or_else(not_zero)?;
        let stage = find(saved, "zero_stage").ok_or_else(not_zero)?;
        // The stage is a number, or an enum that is called with it.
        let stage = match heap.instance(stage).and_then(|instance| heap.items(instance.args)) {
            Some([number]) => objects.number(*number, "zero_stage")?,
            _ => objects.number(stage, "zero_stage")?,
        };
        if !(1..=3).contains(&stage) {
            return Err(read.malformed(&format!("its ZeRO stage is {stage}")));
        }
        let ranks = find(saved, "partition_count").ok_or_else(not_zero)?;
        let ranks = match heap.items(ranks) {
            Some(list) => {
                let counts: Vec<u64> =
                    list.iter().map(|it| objects.number(*it, "partition_count")).collect::<Result<_>>()?;
                if counts.windows(2).any(|pair| pair.first() != pair.last()) {
                    let reason = "its groups have different numbers of ranks, as experts have";
                    return Err(Error::from(Problem::Unsupported(reason)).in_file(file.as_ref()));
                }
                counts.first().copied().unwrap_or(0)
            }
            None => objects.number(ranks, "partition_count")?,
        };
        ZeroFiles::check_ranks(containers, file, ranks)?;
        let key = if stage == 3 { "fp32_flat_groups" } else { "single_partition_of_fp32_groups" };
        let prefix = format!("optimizer_state_dict.{key}.");
        let count = find(saved, key).and_then(|list| heap.items(list)).ok_or_else(not_zero)?.len();
        let flat: HashMap<&str, &Tensor> = checkpoint
            .items
            .iter()
            .filter_map(|item| Some((item.name.strip_prefix(&prefix)?, item.tensor()?)))
            .collect();
        let mut groups = Vec::with_capacity(count);
        for number in 0..count {
            let group = flat.get(number.to_string().as_str());
            let group = group.filter(|group| group.shape().len() == 1 && group.is_contiguous());
            let missing = || read.malformed(&format!("group {number} of {key} is not a flat tensor"));
            groups.push((*group.ok_or_else(missing)?).clone());
        }
        let ZeroFile { file, checkpoint } = read;
        Ok(Self { file, stage, groups, checkpoint })
    }
}
