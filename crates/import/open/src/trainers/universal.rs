//! Universal checkpoints of `DeepSpeed`: `zero/NAME/fp32.pt` has a whole parameter in float32, and `exp_avg.pt` and
//! `exp_avg_sq.pt` next to it have its moments.
//!
//! Facts: `checkpoint/ds_to_universal.py` of `DeepSpeed` 0.19.8. After ZeRO-1 and 2, a file is a dict whose `param` is the
//! tensor; after ZeRO-3 it is the flat tensor, and `*_model_states.pt` has its shape. The folder `tmp` exists while the
//! script runs. What was not trained may be in `*_model_states.pt` alone: buffers, frozen parameters, and the names
//! of shared ones.

use std::path::Path;

use byte_source::{Folder, Observer};
use foldhash::{HashMap, HashSet};
use tensor::Tensor;
use torch_import::{Checkpoint, CheckpointAssembly, Container, ItemPath};

use crate::trainers::attributes::Objects;
use crate::trainers::listing::list;
use crate::trainers::trainer_layout::{JoinedCheckpoint, TrainerLayout};
use crate::trainers::zero::{ModelStates, ZeroFile, join_frozen};
use crate::trainers::{Problem, Result, TrainerSummary};

/// Folder of the parameters.
const ZERO: &str = "zero";
const WEIGHT: &str = "fp32.pt";
const MOMENTS: [&str; 2] = ["exp_avg.pt", "exp_avg_sq.pt"];
const MODEL: &str = "_model_states.pt";
/// Key under which the moments are listed.
const OPTIMIZER: &str = "optimizer";
/// Folder of the script's intermediate files.
const TEMPORARY: &str = "tmp";

/// Layout of universal checkpoints.
#[derive(Debug)]
pub(crate) struct Universal;

impl TrainerLayout for Universal {
    fn trainer(&self) -> &'static str {
        "DeepSpeed universal checkpoint"
    }

    fn files(&self, folder: &Folder) -> Result<Option<Vec<String>>> {
        let has = |name: &str| folder.listing.has_folder(name);
        if !has(ZERO) {
            return Ok(None);
        }
        let parameters = list(&folder.location.join(ZERO))?;
        let (mut files, mut without) = (Vec::new(), None);
        let mut weights = 0_usize;
        for name in parameters.listing.folders.clone() {
            let names = list(&parameters.location.join(&name))?.listing;
            let found = std::iter::once(WEIGHT).chain(MOMENTS).filter(|file| names.has_file(file));
            files.extend(found.map(|file| format!("{ZERO}/{name}/{file}")));
            if names.has_file(WEIGHT) {
                weights = weights.saturating_add(1);
            } else {
                without.get_or_insert(name);
            }
        }
        if weights == 0 {
            return Ok(None);
        }
        if let Some(tensor) = without {
            let (metadata, file) = (ZERO.to_owned(), WEIGHT.to_owned());
            return Err(Problem::MissingFile { tensor, metadata, file }.into());
        }
        if has(TEMPORARY) {
            let reason = format!("the folder {TEMPORARY} shows that its conversion has not ended");
            return Err(Problem::Unfinished { folder: folder.path().to_owned(), reason }.into());
        }
        files.extend(folder.listing.files.iter().filter(|name| name.ends_with(MODEL)).cloned());
        Ok(Some(files))
    }

    fn file_name(&self, path: &Path) -> String {
        file_of(path).0
    }

    fn join(&self, containers: &[Container], observer: &dyn Observer) -> Result<JoinedCheckpoint> {
        let mut assembly = CheckpointAssembly::new();
        let mut shapes: HashMap<String, (Vec<u64>, String)> = HashMap::default();
        let (mut parts, mut models) = (Vec::new(), Vec::new());
        for container in containers {
            observer.check()?;
            let (file, parameter) = file_of(container.path());
            let read = Checkpoint::read(container).map_err(|error| error.in_file(file.as_ref()))?;
            if let Some(parameter) = parameter {
                parts.push((file, parameter, read));
                continue;
            }
            for (name, shape) in read_shapes(&read, &file)? {
                shapes.entry(name).or_insert_with(|| (shape, file.clone()));
            }
            models.push(ZeroFile { file, checkpoint: read });
        }
        let mut summary = TrainerSummary::new(self.trainer(), 1);
        let mut missing: HashMap<&str, &str> =
            shapes.iter().map(|(name, (_, file))| (name.as_str(), file.as_str())).collect();
        let mut weights: Vec<(String, Tensor)> = Vec::new();
        for (file, parameter, read) in &parts {
            let tensor = read_tensor(file, parameter, read, &shapes)?;
            match file.rsplit('/').next() {
                Some(WEIGHT) => {
                    missing.remove(parameter.as_str());
                    summary.count(tensor.dtype(), 1);
                    weights.push((parameter.clone(), tensor));
                }
                moment => {
                    let moment = moment.and_then(|name| name.strip_suffix(".pt")).unwrap_or_default();
                    assembly.push_tensor(&ItemPath::from_keys(&[OPTIMIZER, parameter, moment]), tensor);
                }
            }
        }
        if let Some((tensor, metadata)) = missing.into_iter().min() {
            let (tensor, metadata) = (tensor.to_owned(), metadata.to_owned());
            let file = format!("{ZERO}/{tensor}/{WEIGHT}");
            return Err(Problem::MissingFile { tensor, metadata, file }.into());
        }
        add_untrained(&models, &mut summary, &mut weights)?;
        for (name, tensor) in weights {
            assembly.push_tensor(&ItemPath::new(name), tensor);
        }
        assembly.set_optimizer_keys(vec![OPTIMIZER.to_owned()]);
        let checkpoint = assembly.finish()?;
        Ok(JoinedCheckpoint { checkpoint, summary })
    }
}

/// Adds the buffers, the frozen parameters and the shared names that have no folder of their own.
fn add_untrained(
    models: &[ZeroFile],
    summary: &mut TrainerSummary,
    weights: &mut Vec<(String, Tensor)>,
) -> Result<()> {
    // The files of pipeline stages do not describe a whole model.
    let Some((main, states)) = models.first().and_then(|main| Some((main, ModelStates::read(main).ok()?)))
    else {
        return Ok(());
    };
    let known: HashSet<String> = weights.iter().map(|(name, _)| name.clone()).collect();
    let stage = if main.file.starts_with("zero_pp_rank_") { 3 } else { 2 };
    let mut untrained = states.buffers_of(main);
    join_frozen(&states, stage, models, summary, &mut untrained)?;
    weights.extend(untrained.into_iter().filter(|(name, _)| !known.contains(name)));
    let mut by_name: HashMap<&str, &Tensor> = HashMap::default();
    for (name, tensor) in &*weights {
        by_name.entry(name).or_insert(tensor);
    }
    let tied = states.shared.iter().filter(|(dropped, _)| !known.contains(dropped));
    let tied =
        tied.filter_map(|(dropped, kept)| Some((dropped.clone(), (*by_name.get(kept.as_str())?).clone())));
    let tied: Vec<(String, Tensor)> = tied.collect();
    weights.extend(tied);
    Ok(())
}

/// Returns the path of a file in the checkpoint's folder, and the name of the parameter that the file belongs to.
fn file_of(path: &Path) -> (String, Option<String>) {
    let text =
        |path: &Path| path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let file = text(path);
    if file != WEIGHT && !MOMENTS.contains(&file.as_str()) {
        return (file, None);
    }
    let parameter = path.parent().map(text).unwrap_or_default();
    (format!("{ZERO}/{parameter}/{file}"), Some(parameter))
}

fn read_tensor(
    file: &str,
    parameter: &str,
    read: &Checkpoint,
    shapes: &HashMap<String, (Vec<u64>, String)>,
) -> Result<Tensor> {
    let shard =
        |reason: String| Problem::Shard { tensor: parameter.to_owned(), file: file.to_owned(), reason };
    let found = read.items.iter().find(|item| item.name.is_empty() || item.name == "param");
    let Some((item, tensor)) = found.and_then(|item| Some((item, item.tensor()?))) else {
        return Err(shard("the file has no tensor `param`".to_owned()).into());
    };
    if !item.name.is_empty() {
        return Ok(tensor.clone());
    }
    let Some((shape, states)) = shapes.get(parameter) else {
        return Err(shard("it is flat, and no *_model_states.pt has its shape".to_owned()).into());
    };
    let other = |_| {
        shard(format!("it has {} elements, and {states} says that its shape is {shape:?}", tensor.numel()))
    };
    Ok(tensor.reshaped(shape).map_err(other)?)
}

/// Reads the shapes of the trained parameters from a state of the model.
fn read_shapes(read: &Checkpoint, file: &str) -> Result<Vec<(String, Vec<u64>)>> {
    let Some((heap, root)) = read.heap_of(0).zip(read.root()) else { return Ok(Vec::new()) };
    let objects = Objects { heap, file };
    let is_shapes = |key| heap.text(key).is_some_and(|text| text == "param_shapes");
    let entry = heap.entries(root).unwrap_or_default().iter().find(|(key, _)| is_shapes(*key));
    let Some((_, groups)) = entry.filter(|(_, groups)| !heap.is_none(*groups)) else { return Ok(Vec::new()) };
    let groups = heap.items(*groups).unwrap_or(std::slice::from_ref(groups));
    let mut shapes = Vec::new();
    for group in groups {
        shapes.extend(objects.shapes(*group, "param_shapes")?);
    }
    Ok(shapes)
}
