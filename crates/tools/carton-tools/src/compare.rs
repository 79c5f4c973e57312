//! Compares the tensors of an output with the tensors that a conversion selects from a checkpoint.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use byte_source::{Blob, Observer, Sink, Source, Window, format_bytes};
use carton_format::{Carton, EntryTap, MODEL_PT};
use open::files::ShardPolicy;
use open::{Context, Model, Note, OpenOptions, Selection, open_model, own_tensors, read_model};
use pickle_vm::PickleLimits;
use tensor::{Budget, RecordChecks, Tensor, Tensors, ViewId};

use crate::code::{self, CodeStatus};
use crate::error::at;
use crate::model_stream::{ModelStream, StreamedPair};
use crate::{CartonNote, ModulesOf, Result, VerifyOptions};

/// Largest number of windows that wait for the comparison.
const QUEUE: usize = 4;

/// Difference of two tensors of the same dtype and shape.
const OTHER_ELEMENTS: &str = "differs from the checkpoint in its elements";

/// Result of comparing a model with a checkpoint.
pub(crate) struct ModelComparison {
    pub(crate) compared: usize,
    pub(crate) differences: Vec<String>,
    pub(crate) code: CodeStatus,
    pub(crate) notes: Vec<CartonNote>,
}

/// Compares the model of `carton` with the checkpoint of `options`, while `hash` reads the carton and sends the bytes of its
/// model to the tap. Elements that are not one range of the model are read again.
pub(crate) fn compare_model(
    carton: &Carton,
    (options, modules): (&VerifyOptions, &ModulesOf<'_>),
    observer: &dyn Observer,
    hash: &mut dyn FnMut(&EntryTap<'_>) -> Result<()>,
) -> Result<ModelComparison> {
    let mut checkpoint = Model::open(&options.open_options(), observer)?;
    let model = open_model(carton, observer)?;
    let model_entry = carton.file(MODEL_PT).map_err(at(carton.path()))?;
    let is_original = code::find_original(&model, &checkpoint.containers, observer)?.is_some();
    // A module that keeps its code also keeps all tensors.
    let keeps_all = is_original && !options.has_changes();
    checkpoint.apply(&if keeps_all { Vec::new() } else { options.steps() }, &Context::new(observer))?;
    let mut notes: Vec<CartonNote> =
        std::mem::take(&mut checkpoint.notes).into_iter().map(CartonNote::Checkpoint).collect();
    let found = read_model(carton, &model)?;
    let mut by_name: HashMap<Cow<'_, str>, &Tensor> = own_tensors(&found).into_iter().collect();
    let files = carton.len().saturating_add(checkpoint.input_nbytes());
    let budget = Budget::new(PickleLimits::default().repeat_budget(files));
    let mut comparer = TensorPairs { budget, known: HashMap::new(), observer };
    comparer.compare_streamed(
        model.source(),
        checkpoint.root(),
        checkpoint.tensors(),
        &by_name,
        |receive| hash(&EntryTap::new(model_entry.path.as_str(), receive)),
    )?;
    let mut differences = Vec::new();
    for (name, tensor) in checkpoint.tensors_mut().tensors_mut() {
        let difference = match by_name.remove(name) {
            None => Some("is missing".to_owned()),
            Some(other) => {
                let difference = comparer.difference(tensor, other);
                // The code comparison needs the model's own tensors.
                *tensor = other.clone();
                difference.map_err(|reason| reason.in_tensor(name))?
            }
        };
        differences.extend(difference.map(|what| format!("tensor `{}` {what}", name.escape_debug())));
    }
    let mut more: Vec<Cow<'_, str>> = by_name.into_keys().collect();
    more.sort_unstable();
    differences
        .extend(more.iter().map(|name| format!("tensor `{}` is not in the checkpoint", name.escape_debug())));
    let expected = modules(&checkpoint, options.shards(), is_original);
    notes.extend(as_stored(&checkpoint, &differences));
    let (code, note) = code::compare_code((&model, &found), is_original, expected, observer)?;
    notes.extend(note);
    Ok(ModelComparison { compared: checkpoint.tensors().len(), differences, code, notes })
}

/// Result of comparing an output that is not a carton.
pub(crate) struct OutputComparison {
    pub(crate) compared: usize,
    pub(crate) differences: Vec<String>,
    /// Number of files of the output, and their total length in bytes.
    pub(crate) files: (usize, u64),
    pub(crate) notes: Vec<CartonNote>,
}

/// Compares the tensors of the safetensors file, checkpoint or folder of `options` with its checkpoint. Each byte is read once.
pub(crate) fn compare_output(options: &VerifyOptions, observer: &dyn Observer) -> Result<OutputComparison> {
    let context = Context::new(observer);
    let file = vec![options.file.clone()];
    let mut found = Model::open(&OpenOptions::reading(file, ShardPolicy::default()), observer)?;
    // An output has all of its tensors under their own names.
    found.apply(&[Box::new(Selection::default().key(""))], &context)?;
    let mut expected = Model::open(&options.open_options(), observer)?;
    expected.note_omissions();
    expected.apply(&options.steps(), &context)?;
    let nbytes = found.input_nbytes();
    let budget = PickleLimits::default().repeat_budget(nbytes.saturating_add(expected.input_nbytes()));
    let mut comparer = TensorPairs { budget: Budget::new(budget), known: HashMap::new(), observer };
    let mut differences = Vec::new();
    for (name, tensor) in expected.tensors() {
        let difference = match found.tensors().get(name) {
            None => Some("is missing".to_owned()),
            Some(other) => comparer.difference(tensor, other).map_err(|reason| reason.in_tensor(name))?,
        };
        differences.extend(difference.map(|what| format!("tensor `{}` {what}", name.escape_debug())));
    }
    let others = found.tensors().names().filter(|name| !expected.tensors().contains(name));
    differences
        .extend(others.map(|name| format!("tensor `{}` is not in the checkpoint", name.escape_debug())));
    found.check_unchanged()?;
    expected.check_unchanged()?;
    let count = expected.tensors().len();
    let as_stored = as_stored(&expected, &differences);
    let notes = expected.notes.into_iter().map(CartonNote::Checkpoint).chain(as_stored).collect();
    Ok(OutputComparison { compared: count, differences, files: (found.containers.len(), nbytes), notes })
}

/// Returns the note that the weights of a checkpoint are quantized, which explains why a conversion of them differs.
fn as_stored(checkpoint: &Model, differences: &[String]) -> Option<CartonNote> {
    let method = open::quantized_method(checkpoint).filter(|_| !differences.is_empty())?;
    Some(CartonNote::Checkpoint(Note::ComparedAsStored { method }))
}

/// Compares pairs of tensors, and remembers the result for each pair of views.
struct TensorPairs<'o> {
    /// Bounds the bytes of expanded views: a scalar can be expanded to terabytes.
    budget: Budget,
    known: HashMap<(ViewId, ViewId), Option<String>>,
    observer: &'o dyn Observer,
}

impl TensorPairs<'_> {
    /// Compares the pairs that need no more than the bytes of the model in order, which `read` sends to its argument.
    fn compare_streamed(
        &mut self,
        model: &Arc<dyn Source>,
        checkpoint: &Path,
        expected: &Tensors,
        found: &HashMap<Cow<'_, str>, &Tensor>,
        read: impl FnOnce(&mut (dyn FnMut(&[u8]) + Send)) -> Result<()>,
    ) -> Result<()> {
        let pairs = expected.iter().filter_map(|(name, ours)| Some((ours, *found.get(name.as_str())?)));
        let alike =
            pairs.filter(|(ours, theirs)| ours.dtype() == theirs.dtype() && ours.shape() == theirs.shape());
        let mut streamed: HashMap<(ViewId, ViewId), StreamedPair> = HashMap::new();
        for (ours, theirs) in alike {
            let key = (ours.view_id(), theirs.view_id());
            if !streamed.contains_key(&key)
                && let Some(pair) = StreamedPair::new(model, ours, theirs)
                && self.budget.spend(&pair.expected)
            {
                streamed.insert(key, pair);
            }
        }
        let streamed: Vec<StreamedPair> = streamed.into_values().collect();
        let checks = RecordChecks::new(streamed.iter().map(|pair| &pair.expected));
        let mut stream = ModelStream::new(streamed, &checks);
        read(&mut |bytes| stream.take(bytes))?;
        for (views, result) in stream.finish() {
            // An error is found once more, with the name of its tensor.
            if let Ok(equal) = result {
                self.known.insert(views, (!equal).then(|| OTHER_ELEMENTS.to_owned()));
            }
        }
        let damaged =
            |reason: byte_source::Error| open::name_damaged_tensor(reason.in_file(checkpoint), expected);
        checks.verify(self.observer).map_err(damaged)
    }

    /// Describes the difference of two tensors; `None` if every bit is equal.
    fn difference(
        &mut self,
        expected: &Tensor,
        found: &Tensor,
    ) -> Result<Option<String>, byte_source::Error> {
        if expected.dtype() != found.dtype() {
            return Ok(Some(format!("is {}, in the checkpoint {}", found.dtype(), expected.dtype())));
        }
        if expected.shape() != found.shape() {
            let (expected, found) = (expected.shape(), found.shape());
            return Ok(Some(format!("has shape {found:?}, in the checkpoint {expected:?}")));
        }
        let key = (expected.view_id(), found.view_id());
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let difference = self.element_difference(expected, found)?;
        self.known.insert(key, difference.clone());
        Ok(difference)
    }

    fn element_difference(
        &mut self,
        expected: &Tensor,
        found: &Tensor,
    ) -> Result<Option<String>, byte_source::Error> {
        // A conversion keeps strides, so the elements that a view repeats are compared once.
        let once = (expected.without_repeats(), found.without_repeats());
        let (expected, found) =
            if once.0.shape() == once.1.shape() { (&once.0, &once.1) } else { (expected, found) };
        for tensor in [expected, found] {
            if !self.budget.spend(tensor) {
                let (view, storage) = (format_bytes(tensor.nbytes()), format_bytes(tensor.storage().len()));
                return Ok(Some(format!(
                    "is not compared: an expanded view of {view} over a storage of {storage}"
                )));
            }
        }
        let equal = have_equal_elements(expected, found, self.observer)?;
        Ok((!equal).then(|| OTHER_ELEMENTS.to_owned()))
    }
}

/// Reads both tensors in parallel, one window at a time, up to the first difference.
fn have_equal_elements(
    expected: &Tensor,
    found: &Tensor,
    observer: &dyn Observer,
) -> Result<bool, byte_source::Error> {
    std::thread::scope(|scope| {
        let (windows, received) = sync_channel(QUEUE);
        let sent = scope.spawn(move || expected.gathered().write_to(&mut WindowSender { windows }));
        let mut comparer = WindowComparer { received, window: None, taken: 0, equal: true, observer };
        let read = found.gathered().write_to(&mut comparer);
        let equal = comparer.equal;
        // The sending thread ends once the receiver is dropped.
        drop(comparer);
        match sent.join() {
            Ok(Err(error)) if error.io_kind() == Some(io::ErrorKind::BrokenPipe) => {}
            Ok(sent) => sent?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
        if equal { read.map(|()| true) } else { Ok(false) }
    })
}

struct WindowSender {
    windows: SyncSender<Window>,
}

impl Sink for WindowSender {
    fn write(&mut self, window: Window) -> Result<(), byte_source::Error> {
        self.windows.send(window).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

struct WindowComparer<'o> {
    received: Receiver<Window>,
    window: Option<Window>,
    taken: usize,
    equal: bool,
    observer: &'o dyn Observer,
}

impl Sink for WindowComparer<'_> {
    fn write(&mut self, window: Window) -> Result<(), byte_source::Error> {
        self.observer.check()?;
        let mut bytes: &[u8] = &window;
        while !bytes.is_empty() {
            if self.window.as_ref().is_none_or(|window| self.taken >= window.len()) {
                self.taken = 0;
                self.window = self.received.recv().ok();
            }
            let other = self.window.as_ref().and_then(|window| window.get(self.taken..)).unwrap_or_default();
            let len = other.len().min(bytes.len());
            let (now, rest) = bytes.split_at(len);
            if len == 0 || other.get(..len) != Some(now) {
                self.equal = false;
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.taken = self.taken.saturating_add(len);
            bytes = rest;
        }
        Ok(())
    }
}
