//! Translates a model between the layouts of Meta and Hugging Face: tensor names, row order and documents.
//!
//! Both directions read the table of families, so that one undoes the other. The rows of query and key matrices are
//! permuted too: Meta's code rotates adjacent dimensions of a head, Hugging Face's rotates its two halves.
//!
//! Facts: `permute` in `convert_llama_weights_to_hf.py` of Hugging Face's `transformers` 4, `apply_rotary_emb` in Meta's
//! `llama-models` 0.3.0 and in `modeling_llama.py` of `transformers` 5.23.

use std::collections::HashMap;
use std::num::NonZeroU64;

use tensor::{Dtype, Tensor, Tensors, ViewId};

use crate::assign::AssignedWeight;
use crate::detect::{DecoderOptions, Detected, detect};
use crate::documents::config::{ConfigJson, FREQUENCIES_KEY};
use crate::documents::layout_document::LayoutDocument;
use crate::documents::token_ids::TokenIds;
use crate::layout::LayoutOwner;
use crate::megatron::{FromMegatron, is_megatron, translate_megatron};
use crate::sizes::Decoder;
use crate::weight::{LayerPart, Weight};
use crate::{DecoderNote, Error, Problem, Result};

/// A model in the requested layout.
#[derive(Clone, Debug)]
pub struct TranslatedModel {
    /// Tensors with their new names, in the order of the old ones.
    pub tensors: Tensors,
    /// Position of each tensor in the old list; `None` for a tensor that was generated.
    pub origins: Vec<Option<usize>>,
    pub notes: Vec<DecoderNote>,
    /// Document of the new layout; `None` if the model already had that layout, so that its document is still valid.
    pub document: Option<LayoutDocument>,
    /// For each tensor, the grid whose transposition undoes the permutation of its rows; `None` if they were not permuted.
    grids: Vec<Option<RowGrid>>,
}

/// Rows of a matrix as a grid for each head: the number of heads, and of rows in each grid.
type RowGrid = (u64, NonZeroU64);

impl TranslatedModel {
    /// Returns `tensor` with its rows in the order of the old layout. It has the shape of the tensor at `position`.
    ///
    /// # Errors
    /// When the shape is another one.
    pub fn with_old_rows(&self, position: usize, tensor: &Tensor) -> Result<Tensor, tensor::Error> {
        match self.grids.get(position) {
            Some(Some((heads, rows))) => tensor.with_grid_transposed(*heads, *rows),
            _ => Ok(tensor.clone()),
        }
    }
}

/// Translates the model that the names and documents describe into the layout `to`. Tensors that are the same view of a
/// storage stay the same view.
///
/// # Errors
/// Returns an error if the tensors are plain weights, if the architecture does not support the layout, if the documents
/// contradict the tensors, if a tensor has no name in the layout, if rotary frequencies differ from those that the model
/// computes, or if the layout's document cannot express the model.
pub fn translate(tensors: Tensors, options: &DecoderOptions, to: LayoutOwner) -> Result<TranslatedModel> {
    if is_megatron(&tensors) {
        return translate_from_megatron(&tensors, options, to);
    }
    let decoder = match detect(&tensors, options)? {
        Detected::Model(decoder) => *decoder,
        Detected::Weights { no_model_reason: why, .. } => return Err(Problem::NoLayout { why }.into()),
    };
    let architecture = decoder.architecture();
    if decoder.names().owner == to {
        return Ok(TranslatedModel {
            origins: (0..tensors.len()).map(Some).collect(),
            tensors,
            notes: vec![DecoderNote::SameLayout { owner: to.name() }],
            document: None,
            grids: Vec::new(),
        });
    }
    if !architecture.has_layout(to) {
        return Err(Problem::OtherLayout { architecture: architecture.name, owner: to.name() }.into());
    }
    let assignment = decoder.assign(&tensors, false).map_err(|error| match error.downcast() {
        Ok(Problem::UnexpectedTensors { names }) => Problem::NoName { owner: to.name(), names }.into(),
        Ok(problem) => problem.into(),
        Err(error) => error,
    })?;
    let mut notes = assignment.notes;
    notes.retain(|note| matches!(note, DecoderNote::UnusedKeys { .. }));
    let tied = is_tied(&assignment.weights, &tensors);
    let mut weights: HashMap<usize, Vec<Weight>> = HashMap::with_capacity(tensors.len());
    for assigned in assignment.weights {
        weights.entry(assigned.index).or_default().push(assigned.weight);
    }

    let new_names = match to {
        LayoutOwner::Meta => Some(to.llama_names().clone()),
        LayoutOwner::HuggingFace => architecture.forms().into_iter().next(),
    };
    let mut rows = RowPermuter { decoder: &decoder, permuted_tensors: HashMap::new() };
    let mut renamed = Tensors::with_capacity(tensors.len());
    let (mut origins, mut grids) = (Vec::with_capacity(tensors.len()), Vec::with_capacity(tensors.len()));
    let (mut frequencies, mut exact) = (Vec::new(), true);
    for (index, (name, tensor)) in tensors.iter().enumerate() {
        let Some(weights) = weights.get(&index) else {
            // `assign` accepts no other tensor that is not a weight.
            exact &= decoder.frequencies().compare(name, tensor)?;
            frequencies.push((name.clone(), tensor.dtype()));
            continue;
        };
        // Meta's files have tied embeddings twice.
        let needed = if to == LayoutOwner::Meta { weights.len() } else { 1 };
        for weight in weights.iter().take(needed) {
            let Some(new) = new_names.as_ref().and_then(|names| names.name(*weight)) else {
                return Err(Problem::NoBias { owner: to.name(), tensor: name.clone() }.into());
            };
            renamed.push(new, rows.permute_rows(*weight, name, tensor)?);
            origins.push(Some(index));
            grids.push(rows.grid(*weight).and_then(|(heads, rows)| {
                let columns = decoder.head_dim().checked_div(rows.get())?;
                Some((heads, NonZeroU64::new(columns)?))
            }));
        }
    }
    let names = |named: &[(String, Dtype)]| named.iter().map(|(name, _)| name.clone()).collect();
    if !frequencies.is_empty() {
        notes.push(DecoderNote::Frequencies { names: names(&frequencies), exact });
    }
    let recorded = match &options.documents.config {
        Some(text) if to == LayoutOwner::Meta => ConfigJson::from_json(text)?.frequencies()?,
        _ => Vec::new(),
    };
    if !recorded.is_empty() {
        notes.push(DecoderNote::FrequenciesRestored { names: names(&recorded) });
        renamed.extend(restore_frequencies(&decoder, recorded)?);
    }
    origins.resize(renamed.len(), None);
    let document = if to == LayoutOwner::Meta {
        notes.extend(LayoutDocument::params_notes(&decoder));
        LayoutDocument::params(&decoder)?
    } else {
        let ids = TokenIds::from_documents(&options.documents.tokens, decoder.vocab())?;
        notes.extend(LayoutDocument::config_notes(&decoder, &ids));
        LayoutDocument::config(&decoder, tied, &frequencies, &ids)
    };
    Ok(TranslatedModel { tensors: renamed, origins, notes, document: Some(document), grids })
}

fn translate_from_megatron(
    tensors: &Tensors,
    options: &DecoderOptions,
    to: LayoutOwner,
) -> Result<TranslatedModel> {
    let FromMegatron { tensors, origins, mut notes } = translate_megatron(tensors, options)?;
    if let Detected::Model(decoder) = detect(&tensors, options)? {
        decoder.assign(&tensors, false)?;
    }
    let TranslatedModel { tensors, origins: next, notes: more, document, grids } =
        translate(tensors, options, to)?;
    notes.extend(more.into_iter().filter(|note| !matches!(note, DecoderNote::SameLayout { .. })));
    let origins = next.into_iter().map(|at| origins.get(at?).copied().flatten()).collect();
    Ok(TranslatedModel { tensors, origins, notes, document, grids })
}

/// Returns true if the output matrix is the embeddings: the same tensor, or another view of the same elements.
fn is_tied(weights: &[AssignedWeight], tensors: &Tensors) -> bool {
    let tensor = |wanted| {
        let assigned = weights.iter().find(|assigned| assigned.weight == wanted)?;
        assigned.tensor(tensors).map(Tensor::view_id)
    };
    tensor(Weight::Embedding) == tensor(Weight::Output)
}

/// Maximum number of restored rotary frequencies: a hundred times that of any model.
const FREQUENCIES_MAX: u64 = 1 << 20;

/// Restores rotary frequency tensors that were dropped when the checkpoint got Hugging Face's names.
fn restore_frequencies(decoder: &Decoder, recorded: Vec<(String, Dtype)>) -> Result<Tensors> {
    let (count, frequencies) = (recorded.len() as u64, decoder.frequencies());
    if frequencies.count().checked_mul(count).is_none_or(|all| all > FREQUENCIES_MAX) {
        return Err(Problem::InvalidParam {
            file: Some(LayoutOwner::HuggingFace.file()),
            key: FREQUENCIES_KEY.to_owned(),
            found: format!("{count} tensors of {} numbers", frequencies.count()),
            expected: format!("at most {FREQUENCIES_MAX} numbers"),
        }
        .into());
    }
    // `ConfigJson::frequencies` accepts only floating-point dtypes.
    let made = recorded.into_iter().filter_map(|(name, dtype)| Some((name, frequencies.tensor(dtype)?)));
    Ok(made.collect())
}

/// Permutes the rows of query and key matrices for the other layout.
struct RowPermuter<'d> {
    decoder: &'d Decoder,
    /// Permuted tensors by view and number of heads, so that tied tensors stay tied.
    permuted_tensors: HashMap<(ViewId, u64), Tensor>,
}

impl RowPermuter<'_> {
    /// Returns the grid whose transposition permutes the rows of a weight; `None` if they are not permuted.
    fn grid(&self, weight: Weight) -> Option<RowGrid> {
        let heads = match weight {
            Weight::Layer { part: LayerPart::Wq, .. } => self.decoder.n_heads(),
            Weight::Layer { part: LayerPart::Wk, .. } => self.decoder.n_kv_heads(),
            _ => return None,
        };
        // A head is pairs of adjacent rows, a grid with two columns, or two halves, a grid with two rows.
        let halves = self.decoder.rotates_halves();
        let rows = if halves { Some(2) } else { self.decoder.head_dim().checked_div(2) };
        Some((heads, rows.and_then(NonZeroU64::new).unwrap_or(NonZeroU64::MIN)))
    }

    fn permute_rows(&mut self, weight: Weight, name: &str, tensor: &Tensor) -> Result<Tensor> {
        let Some((heads, rows)) = self.grid(weight) else { return Ok(tensor.clone()) };
        let key = (tensor.view_id(), heads);
        if let Some(made) = self.permuted_tensors.get(&key) {
            return Ok(made.clone());
        }
        let ordered = tensor.with_grid_transposed(heads, rows);
        let ordered = ordered.map_err(|reason| Error::from(reason).in_tensor(name))?;
        self.permuted_tensors.insert(key, ordered.clone());
        Ok(ordered)
    }
}
