//! Replaces the codes of quantized weights with the numbers that they stand for, and removes the quantization from the documents.

use foldhash::HashSet;
use quantization::{COMFY_KEY, MODELOPT_KEY, QuantizationDocuments, QuantizedTensor};
use serde::Serialize;
use serde_json::Value as Json;
use tensor::{Dtype, Storage, Tensor, contiguous_strides};
use torch_import::{Checkpoint, CheckpointValue, ItemContent};

use super::cast_options;
use crate::files::CheckpointSources;
use crate::{Cast, Context, Model, Result, Selection, Step, StepReport, values};

/// Quantized tensors of one scheme whose numbers are computed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DequantizedReport {
    /// Description of the scheme, such as `FP8, blocks of 128 × 128`.
    pub scheme: String,
    /// PyTorch's name of the dtype of the numbers, before the casts of the options.
    pub to: &'static str,
    /// Number of tensors.
    pub tensors: usize,
}

/// Reads the documents that may describe the quantization of the weights.
///
/// # Errors
/// When a document cannot be read.
pub fn read_documents(sources: &CheckpointSources) -> Result<QuantizationDocuments> {
    let documents = &sources.documents;
    Ok(QuantizationDocuments {
        config: documents.config()?.map(str::to_owned),
        modelopt: documents.read("hf_quant_config.json")?,
        quanto: documents.read("quanto_qmap.json")?,
        gptq: documents.read("quantize_config.json")?,
        awq: documents.read("quant_config.json")?,
        ..QuantizationDocuments::default()
    })
}

/// Returns the method by which the weights of a model are quantized, if it is known and nothing undoes it.
pub fn quantized_method(model: &Model) -> Option<String> {
    let documents = read_documents(&model.sources).ok().filter(|_| model.quantization.is_none())?;
    quantization::method(&documents, model.tensors())
}

/// Adds what the header of a file says about the quantization: the values of the checkpoint, by their names.
pub fn add_header<'v>(
    documents: &mut QuantizationDocuments,
    values: impl Iterator<Item = (&'v str, &'v CheckpointValue)>,
) {
    for (name, value) in values {
        match (name.strip_prefix("__metadata__."), value) {
            (Some(COMFY_KEY), CheckpointValue::Text(text)) => documents.comfy = Some(text.to_string()),
            (Some(MODELOPT_KEY), _) => documents.has_modelopt_header = true,
            _ => {}
        }
    }
}

/// Reads the documents that describe the quantization, and removes the description from the documents of the sources.
///
/// # Errors
/// When a document cannot be read.
pub fn take_documents(sources: &mut CheckpointSources) -> Result<QuantizationDocuments> {
    let documents = read_documents(sources)?;
    if let Some(text) = documents.config_without_quantization()? {
        sources.documents.replace_config(text);
    }
    Ok(documents)
}

/// Replaces values that describe quantized tensors by small tensors, as files of safetensors have them, if their numbers are
/// wanted.
pub fn encode_descriptions(is_wanted: bool, checkpoint: &mut Checkpoint) {
    if !is_wanted {
        return;
    }
    let items = &checkpoint.items;
    let values = items.iter().enumerate().filter_map(|(place, item)| match &item.content {
        ItemContent::Value(value) => Some((place, value, quantization::described_layer(&item.name)?)),
        _ => None,
    });
    let mut described: Vec<_> = values.collect();
    if described.is_empty() {
        return;
    }
    let names: HashSet<&str> = items.iter().map(|item| item.name.as_str()).collect();
    described.retain(|(_, _, layer)| names.contains(layer.as_str()));
    let values = described.into_iter().map(|(place, value, _)| (place, value));
    let encoded: Vec<(usize, Tensor)> = values::render(checkpoint, values)
        .filter_map(|(place, value)| Some((place, encode_description(&value)?)))
        .collect();
    for (place, tensor) in encoded {
        if let Some(item) = checkpoint.items.get_mut(place) {
            item.content = ItemContent::Tensor(tensor);
        }
    }
}

/// Encodes a text as its bytes, and integers as int64, of which `None` has none; `None` for other values.
fn encode_description(value: &Json) -> Option<Tensor> {
    let integers = |values: &[Json]| -> Option<Vec<u8>> {
        let integers: Option<Vec<i64>> = values.iter().map(Json::as_i64).collect();
        Some(integers?.into_iter().flat_map(i64::to_le_bytes).collect())
    };
    let (dtype, bytes) = match value {
        Json::String(text) => (Dtype::UInt8, text.clone().into_bytes()),
        Json::Bool(is_set) => (Dtype::Bool, vec![u8::from(*is_set)]),
        Json::Null => (Dtype::Int64, Vec::new()),
        Json::Array(values) => (Dtype::Int64, integers(values)?),
        value => (Dtype::Int64, integers(std::slice::from_ref(value))?),
    };
    let shape = vec![(bytes.len() as u64).checked_div(dtype.size())?];
    Tensor::new(dtype, shape.clone(), contiguous_strides(&shape), 0, Storage::owned(bytes)).ok()
}

/// Puts the numbers of quantized weights in place of their codes. The model must be opened for this step; see
/// [`OpenOptions::dequantize`](crate::OpenOptions::dequantize).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dequantize {
    /// Casts of a later step. Numbers that are the same after it are computed in the new dtype at once.
    pub casts: Vec<Cast>,
    /// True to leave weights that are not quantized as they are, instead of refusing them.
    pub if_quantized: bool,
}

impl Dequantize {
    /// Creates the step, with the casts of a later one; with `if_quantized`, for weights that may be quantized.
    pub fn new(casts: Vec<Cast>, if_quantized: bool) -> Self {
        Self { casts, if_quantized }
    }

    /// Returns this step with the selection around it. Patterns select by the names of the numbers.
    pub fn with_selection(self, selection: Selection) -> Vec<Box<dyn Step>> {
        let whole = Selection { include: Vec::new(), exclude: Vec::new(), ..selection.clone() };
        let patterns = Selection { key: None, strip_prefix: None, ..selection };
        vec![Box::new(whole), Box::new(self), Box::new(patterns)]
    }

    fn replace_codes(&self, model: &mut Model) -> Result<Vec<DequantizedReport>> {
        let tensors = model.take_tensors();
        let mut documents = model.quantization.clone().unwrap_or_default();
        add_header(&mut documents, model.checkpoint.values());
        let documents = &documents;
        let quantized = match quantization::recognise(documents, &tensors)? {
            Some(quantized) => quantized,
            None if self.if_quantized => {
                *model.tensors_mut() = tensors;
                return Ok(Vec::new());
            }
            None => return Err(quantization::not_quantized(&tensors).into()),
        };
        let configured = documents.dtype();
        let dtype = |tensor: &QuantizedTensor| result_dtype(&self.casts, tensor, configured);
        let mut reports: Vec<DequantizedReport> = Vec::new();
        for tensor in &quantized.tensors {
            let to = dtype(tensor).name();
            match reports.iter_mut().find(|report| report.scheme == tensor.scheme && report.to == to) {
                Some(report) => report.tensors = report.tensors.saturating_add(1),
                None => reports.push(DequantizedReport { scheme: tensor.scheme.clone(), to, tensors: 1 }),
            }
        }
        let (tensors, places) = quantized.dequantize(&tensors, dtype)?;
        let origins = model.origins.take();
        let origins =
            origins.map(|old| places.iter().map(|place| old.get(*place).cloned().flatten()).collect());
        model.set_tensors(tensors, origins);
        Ok(reports)
    }
}

impl Step for Dequantize {
    fn apply(&self, model: &mut Model, _: &Context<'_>) -> Result<StepReport> {
        let reports = self.replace_codes(model).map_err(|error| error.in_file(model.root()))?;
        Ok(StepReport::Dequantized(reports))
    }
}

/// Returns the dtype in which the numbers of a tensor are computed. Numbers that the options cast are computed in the new
/// dtype where that is the same as casting them: in one pass, unless numbers may be out of its range, which are counted.
fn result_dtype(casts: &[Cast], tensor: &QuantizedTensor, configured: Option<Dtype>) -> Dtype {
    let library = tensor.library_dtype;
    match cast_options::target_dtype(casts, library) {
        Some(to)
            if to == Dtype::BFloat16
                && matches!(cast_options::target_dtype(casts, to), None | Some(Dtype::BFloat16)) =>
        {
            to
        }
        Some(_) => library,
        None => configured.unwrap_or(tensor.default_dtype),
    }
}
