//! Quantizes the matrices of a decoder to blocks of `Q8_0`, after its tensors are cast to float32.
//!
//! Facts: llama.cpp's converter, for which matrices are quantized. A matrix that is stored as its transpose gets blocks along its rows, which
//! are columns of the tensor then.

use std::collections::{BTreeMap, HashMap};

use decoder::{Assignment, Decoder, Detected};
use tensor::{Tensor, Tensors, ViewId};

use super::cast::apply_casts;
use crate::{CastOptions, Context, Model, Note, Problem, Result, Step, StepReport};

/// Casts tensors to float32, and quantizes the matrices of a decoder. Numbers that are blocks already stay as they are. Tensors that no
/// decoder is found for are cast only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CastToBlocks {
    /// Casts before the quantization.
    pub casts: CastOptions,
    /// Name of the architecture; `None` to detect it.
    pub architecture: Option<String>,
}

impl CastToBlocks {
    /// Creates the step from options whose dtype is `q8_0`.
    pub fn new(options: &CastOptions, architecture: Option<String>) -> Self {
        Self { casts: options.before_blocks(), architecture }
    }

    fn decoder(&self, model: &Model, context: &Context<'_>) -> Option<Decoder> {
        if model.decoder.is_some() {
            return model.decoder.clone();
        }
        let options = model.decoder_options(context.overrides, true).ok()?;
        let Some(name) = &self.architecture else {
            return match decoder::detect(model.tensors(), &options).ok()? {
                Detected::Model(decoder) => Some(*decoder),
                Detected::Weights { .. } => None,
            };
        };
        decoder::build_decoder(name, model.tensors(), &options).ok()
    }
}

impl Step for CastToBlocks {
    fn apply(&self, model: &mut Model, context: &Context<'_>) -> Result<StepReport> {
        let mut notes = std::mem::take(&mut model.notes);
        let casts = apply_casts(&self.casts.all(), model.tensors_mut(), &mut notes, true);
        model.notes = notes;
        let mut casts = casts.map_err(|error| error.in_file(model.root()))?;
        let decoder = self.decoder(model, context);
        // The error about missing tensors is that of the output.
        let Some(assignment) = decoder.and_then(|decoder| decoder.assign(model.tensors(), true).ok()) else {
            return Ok(StepReport::Cast(casts));
        };
        let quantized = quantize(&assignment, model.tensors_mut());
        if let Some((first, columns)) = quantized.others.first() {
            let (first, columns) = (first.clone(), *columns);
            if quantized.tensors == 0 && !quantized.has_blocks {
                let error = crate::Error::from(Problem::NoWholeBlocks { columns });
                return Err(error.in_tensor(&first).in_file(model.root()));
            }
            model.notes.push(Note::NotQuantized { count: quantized.others.len(), first, columns });
        }
        casts.set_quantized(quantized.tensors);
        Ok(StepReport::Cast(casts))
    }
}

#[derive(Default)]
struct Quantized {
    tensors: usize,
    /// True if some tensors were blocks before.
    has_blocks: bool,
    /// Name and columns of each matrix whose rows are not whole blocks.
    others: Vec<(String, u64)>,
}

/// Quantizes the tensors of matrices. Equal views become equal views.
fn quantize(assignment: &Assignment, tensors: &mut Tensors) -> Quantized {
    let turned = tensors_of_matrices(assignment, tensors);
    let mut quantized = Quantized::default();
    let mut known: HashMap<ViewId, Option<Tensor>> = HashMap::new();
    for (index, (name, tensor)) in tensors.tensors_mut().enumerate() {
        let Some(Some(is_turned)) = turned.get(&index) else { continue };
        if tensor.kept_q8_0_blocks().is_some() {
            quantized.has_blocks = true;
            continue;
        }
        let blocks =
            known.entry(tensor.view_id()).or_insert_with(|| quantize_tensor(name, tensor, *is_turned));
        if let Some(blocks) = blocks {
            *tensor = blocks.clone();
            quantized.tensors = quantized.tensors.saturating_add(1);
        } else {
            let columns = rows_last(tensor, *is_turned).and_then(|rows| rows.shape().last().copied());
            quantized.others.push((name.to_owned(), columns.unwrap_or(0)));
        }
    }
    quantized
}

/// Returns the tensors of matrices, each with whether it is the transpose of its matrices; `None` for one that has other weights, too.
fn tensors_of_matrices(assignment: &Assignment, tensors: &Tensors) -> BTreeMap<usize, Option<bool>> {
    let mut found = BTreeMap::new();
    for assigned in &assignment.weights {
        let is_turned = assigned.weight.is_quantized().then(|| assigned.is_transposed(tensors));
        let known = found.entry(assigned.index).or_insert(is_turned);
        if *known != is_turned {
            *known = None;
        }
    }
    found
}

fn quantize_tensor(name: &str, tensor: &Tensor, is_turned: bool) -> Option<Tensor> {
    let blocks = gguf_model::encode_finite_q8_0(name, &rows_last(tensor, is_turned)?)?;
    rows_last(&Tensor::from_q8_0_blocks(&blocks)?, is_turned)
}

/// Exchanges the last two dimensions of a tensor that is turned.
fn rows_last(tensor: &Tensor, is_turned: bool) -> Option<Tensor> {
    if !is_turned {
        return Some(tensor.clone());
    }
    let last = tensor.shape().len().checked_sub(1)?;
    tensor.transpose(last.checked_sub(1)?, last)
}
