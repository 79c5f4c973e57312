//! The tensors that a conversion writes: selected, renamed, translated and cast, but not written.

use std::path::Path;

use adapter::{MergeReports, SumReport};
use checkpoint_files::CheckpointSources;
use decoder::LayoutDocument;
use quantization::QuantizationDocuments;
use tensor::Tensors;
use torch_import::{Checkpoint, Container};

use crate::cast::{self, Casts};
use crate::conversion::check_options;
use crate::global_check::check_globals;
use crate::note_collector::NoteCollector;
use crate::target_layout::{self, TranslatedTensors};
use crate::write::allowed_nbytes;
use crate::{
    ConvertOptions, DequantizedReport, Error, Note, Observer, Result, checkpoint_sum, dequantize, input,
    merge,
};

/// Tensors that a conversion of a checkpoint writes, for callers that read them and write no output.
#[derive(Debug)]
#[non_exhaustive]
pub struct ConvertedTensors {
    pub tensors: Tensors,
    /// Checkpoint from which the tensors are, with its values.
    pub checkpoint: Checkpoint,
    pub sources: CheckpointSources,
    /// Open files of the checkpoint.
    pub containers: Vec<Container>,
    pub notes: Vec<Note>,
}

impl ConvertedTensors {
    /// Opens the inputs of `options` as a conversion does, and selects, renames and casts their tensors. Reads no elements,
    /// except to compare the copies that shards have of a tensor. The globals of pickles are not judged, because nothing is
    /// written.
    ///
    /// # Errors
    /// When the inputs cannot be read, are not one checkpoint, or are damaged; when an option does not fit them; or when
    /// `observer` stops the work.
    pub fn read(options: &ConvertOptions, observer: &dyn Observer) -> Result<Self> {
        check_options(options)?;
        let mut sources = input::find_sources(options)?;
        let quantization =
            options.dequantize.then(|| dequantize::take_documents(&mut sources)).transpose()?;
        let containers = sources.open_with_observer(observer)?;
        let accept = |_: &Path, _: &Checkpoint| Ok(());
        let (mut checkpoint, notes) = sources.read_with_observer::<Error>(&containers, &accept, observer)?;
        dequantize::encode_descriptions(options.dequantize, &mut checkpoint);
        let mut all_notes: Vec<Note> = notes.into_iter().map(Note::Sources).collect();
        all_notes.extend(Note::omission_notes(&checkpoint.left_out));
        let mut notes = NoteCollector::new(&());
        let prepared = PreparedTensors::new(
            (options, quantization.as_ref()),
            &sources,
            &checkpoint,
            &mut notes,
            observer,
        )?;
        all_notes.extend(notes.into_vec());
        let tensors = prepared.tensors;
        Ok(Self { tensors, checkpoint, sources, containers, notes: all_notes })
    }

    /// Returns the total length of the files in bytes.
    pub fn input_nbytes(&self) -> u64 {
        self.containers.iter().map(Container::len).fold(0, u64::saturating_add)
    }

    /// Returns the largest number of bytes that views of the files may have together, which is that of a conversion's output.
    pub fn allowed_nbytes(&self, options: &ConvertOptions) -> u64 {
        allowed_nbytes(self.input_nbytes(), options.max_expansion)
    }

    /// Checks that no file changed since it was opened.
    ///
    /// # Errors
    /// When a file changed, or its metadata cannot be read.
    pub fn check_unchanged(&self) -> Result<()> {
        let check = self.containers.iter().try_for_each(Container::check_unchanged);
        let root = self.sources.root();
        check.map_err(|reason| {
            Error::from_read_error(reason, |reason| Error::Io { path: root.to_owned(), reason })
        })
    }
}

/// Selects the tensors of a checkpoint that is read already, and renames and casts them as a conversion does.
///
/// # Errors
/// When an option does not fit the checkpoint.
pub fn converted_tensors(
    options: &ConvertOptions,
    sources: &CheckpointSources,
    checkpoint: &Checkpoint,
) -> Result<(Tensors, Vec<Note>)> {
    let mut notes = NoteCollector::new(&());
    let prepared = PreparedTensors::new((options, None), sources, checkpoint, &mut notes, &())?;
    Ok((prepared.tensors, notes.into_vec()))
}

/// Tensors selected from a checkpoint, renamed and cast.
pub(crate) struct PreparedTensors {
    pub(crate) tensors: Tensors,
    /// Names in the checkpoint, for a dry run; `None` for tensors that were generated.
    pub(crate) origins: Vec<Option<String>>,
    pub(crate) document: Option<LayoutDocument>,
    pub(crate) dequantized: Vec<DequantizedReport>,
    pub(crate) casts: Casts,
    pub(crate) sum: Option<SumReport>,
    pub(crate) adapters: Option<MergeReports>,
    /// Files of the summed checkpoints and the merged adapters.
    pub(crate) other_containers: Vec<Container>,
}

impl PreparedTensors {
    /// Takes all tensors unchanged, for a module that keeps its code.
    pub(crate) fn all(checkpoint: &Checkpoint) -> Self {
        let tensors = checkpoint.to_tensors();
        let origins = tensors.names().map(|name| Some(name.to_owned())).collect();
        let (casts, dequantized, other_containers) = Default::default();
        let (document, sum, adapters) = (None, None, None);
        Self { tensors, origins, document, dequantized, casts, sum, adapters, other_containers }
    }

    /// Takes the tensors that the options select, with the names and dtypes that they ask for. The documents describe the
    /// quantization of the weights, if it is undone.
    pub(crate) fn new(
        (options, quantization): (&ConvertOptions, Option<&QuantizationDocuments>),
        sources: &CheckpointSources,
        checkpoint: &Checkpoint,
        notes: &mut NoteCollector<'_>,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let (selected, dequantized) = checkpoint_sum::select_renamed(options, quantization, checkpoint)
            .map_err(Error::at(sources.root()))?;
        notes.extend(selected.notes);
        let selected_origins = selected.origins;
        let judge = |file: &Path, checkpoint: &Checkpoint| check_globals(options.globals(), file, checkpoint);
        let (mut tensors, mut other_containers, mut sum, mut adapters) =
            (selected.tensors, Vec::new(), None, None);
        if !options.sum.is_empty() {
            let summed = options.sum.apply(&tensors, options, &judge, observer)?;
            (tensors, sum) = (summed.tensors, Some(summed.report));
            other_containers.extend(summed.containers);
        }
        if !options.adapters.is_empty() {
            let adapted = (options.adapters.as_slice(), &options.given, options.overrides);
            let merged = merge::merge_adapters(tensors, adapted, sources, &judge, observer)?;
            (tensors, adapters) = (merged.tensors, Some(merged.reports));
            other_containers.extend(merged.containers);
        }
        let format = options.target.format();
        let translated = if let Some(names) = format.requested_layout() {
            let is_folder = format.is_folder(options.output.as_deref(), false);
            target_layout::translate_layout(names, options.overrides, sources, tensors, is_folder, notes)?
        } else {
            let origins = (0..selected_origins.len()).map(Some).collect();
            TranslatedTensors { tensors, origins, document: None }
        };
        let TranslatedTensors { tensors, origins, document } = translated;
        let (tensors, casts) =
            cast::apply_casts(&options.casts.all(), tensors, notes).map_err(Error::at(sources.root()))?;
        let origins = if options.dry_run {
            origins.into_iter().map(|place| selected_origins.get(place?).cloned()).collect()
        } else {
            Vec::new()
        };
        Ok(Self { tensors, origins, document, dequantized, casts, sum, adapters, other_containers })
    }
}
