//! A model in the layout of Meta or Hugging Face becomes the same model in the other one: names, rows and documents.
//!
//! What the layouts call each weight is in the tables of [`Layout`]. Both directions read the same tables, so one undoes
//! the other. The rows of queries and keys differ too: Meta's code rotates neighbouring numbers of a head, Hugging
//! Face's rotates its two halves.
//!
//! Facts: `permute` in `convert_llama_weights_to_hf.py` of Hugging Face's `transformers` 4, `apply_rotary_emb` in Meta's
//! `llama-models` 0.3.0 and in `modeling_llama.py` of `transformers` 5.23.

use std::collections::HashMap;
use std::num::NonZeroU64;

use tensor::{Dtype, Tensor, Tensors, ViewId};

use crate::assign::Assigned;
use crate::choose::{Detected, Options, detect};
use crate::documents::config::{Config, FREQUENCIES};
use crate::documents::written::Document;
use crate::layout::{HUGGING_FACE, Layout, META};
use crate::sizes::Decoder;
use crate::weight::{Part, Weight};
use crate::{Error, Note, Result};

/// A model in the layout that was asked for.
#[derive(Clone, Debug)]
pub struct Translated {
    /// The tensors with their new names, in the order of the old ones.
    pub tensors: Tensors,
    /// What a user should know.
    pub notes: Vec<Note>,
    /// The document of the new layout; `None` if the model had that layout before, so that its document is still right.
    pub document: Option<Document>,
}

/// The model that the names and documents describe, in the layout `to`. Tensors that are the same view of a storage
/// stay so.
///
/// # Errors
/// When these are only weights, the architecture does not have that layout, the documents and the tensors disagree, a
/// tensor has no name in the layout, frequencies are not those that the model computes, or the layout's document cannot
/// express the model.
pub fn translate(tensors: Tensors, options: &Options, to: &'static Layout) -> Result<Translated> {
    let decoder = match detect(&tensors, options)? {
        Detected::Model(decoder) => *decoder,
        Detected::Weights { why, .. } => return Err(Error::NoLayout { why }),
    };
    let architecture = decoder.architecture();
    if decoder.layout().is(to) {
        return Ok(Translated { tensors, notes: vec![Note::SameLayout { owner: to.owner }], document: None });
    }
    if !architecture.has_layout(to) {
        return Err(Error::OtherLayout { architecture: architecture.name, owner: to.owner });
    }
    let assignment = decoder.assign(&tensors, false).map_err(|error| match error {
        Error::UnexpectedTensors { names } => Error::NoName { owner: to.owner, names },
        error => error,
    })?;
    let mut notes = assignment.notes;
    notes.retain(|note| matches!(note, Note::UnusedKeys { .. }));
    let tied = is_tied(&assignment.weights, &tensors);
    let mut weights: HashMap<usize, Vec<Weight>> = HashMap::with_capacity(tensors.len());
    for assigned in assignment.weights {
        weights.entry(assigned.index).or_default().push(assigned.weight);
    }

    let mut rows = Rows { decoder: &decoder, made: HashMap::new() };
    let mut renamed = Tensors::with_capacity(tensors.len());
    let (mut frequencies, mut exact) = (Vec::new(), true);
    for (index, (name, tensor)) in tensors.iter().enumerate() {
        let Some(weights) = weights.get(&index) else {
            // `assign` refused all other tensors that are not weights.
            exact &= decoder.frequencies().compare(name, tensor)?;
            frequencies.push((name.clone(), tensor.dtype()));
            continue;
        };
        let needed = if to.repeats_ties { weights.len() } else { 1 };
        for weight in weights.iter().take(needed) {
            let Some(new) = to.name(*weight) else {
                return Err(Error::NoBias { owner: to.owner, tensor: name.clone() });
            };
            renamed.push(new, rows.ordered(*weight, name, tensor)?);
        }
    }
    let names = |named: &[(String, Dtype)]| named.iter().map(|(name, _)| name.clone()).collect();
    if !frequencies.is_empty() {
        notes.push(Note::Frequencies { names: names(&frequencies), exact });
    }
    let recorded = match &options.documents.config {
        Some(text) if to.is(&META) => Config::from_json(text)?.frequencies()?,
        _ => Vec::new(),
    };
    if !recorded.is_empty() {
        notes.push(Note::FrequenciesMade { names: names(&recorded) });
        renamed.extend(made(&decoder, recorded)?);
    }
    notes.extend(Document::notes(&decoder, to));
    let document = if to.is(&META) {
        Document::params(&decoder)?
    } else {
        Document::config(&decoder, tied, &frequencies)
    };
    Ok(Translated { tensors: renamed, notes, document: Some(document) })
}

/// Whether the output matrix is the embeddings: their tensor, or another view of the same elements.
fn is_tied(weights: &[Assigned], tensors: &Tensors) -> bool {
    let tensor = |wanted| {
        let assigned = weights.iter().find(|assigned| assigned.weight == wanted)?;
        assigned.tensor(tensors).map(Tensor::view_id)
    };
    tensor(Weight::Embedding) == tensor(Weight::Output)
}

/// The most frequencies that are made: a hundred times those of any model.
const MOST_FREQUENCIES: u64 = 1 << 20;

/// Frequencies that were left out when the checkpoint got Hugging Face's names.
fn made(decoder: &Decoder, recorded: Vec<(String, Dtype)>) -> Result<Tensors> {
    let (count, frequencies) = (recorded.len() as u64, decoder.frequencies());
    if frequencies.count().checked_mul(count).is_none_or(|all| all > MOST_FREQUENCIES) {
        return Err(Error::Param {
            file: Some(HUGGING_FACE.file),
            key: FREQUENCIES.to_owned(),
            found: format!("{count} tensors of {} numbers", frequencies.count()),
            expected: format!("at most {MOST_FREQUENCIES} numbers"),
        });
    }
    // A dtype in the record is a floating-point number.
    let made = recorded.into_iter().filter_map(|(name, dtype)| Some((name, frequencies.tensor(dtype)?)));
    Ok(made.collect())
}

/// Orders the rows of queries and keys as another layout has them.
struct Rows<'d> {
    decoder: &'d Decoder,
    /// Tensors that were ordered, by view and number of heads, so that ties stay ties.
    made: HashMap<(ViewId, u64), Tensor>,
}

impl Rows<'_> {
    fn ordered(&mut self, weight: Weight, name: &str, tensor: &Tensor) -> Result<Tensor> {
        let heads = match weight {
            Weight::Layer { part: Part::Wq, .. } => self.decoder.n_heads(),
            Weight::Layer { part: Part::Wk, .. } => self.decoder.n_kv_heads(),
            _ => return Ok(tensor.clone()),
        };
        let key = (tensor.view_id(), heads);
        if let Some(made) = self.made.get(&key) {
            return Ok(made.clone());
        }
        // A head is pairs of neighbours, each a row of two, or two halves, each a row.
        let halves = self.decoder.layout().rotates_halves;
        let rows = if halves { Some(2) } else { self.decoder.head_dim().checked_div(2) };
        let rows = rows.and_then(NonZeroU64::new).unwrap_or(NonZeroU64::MIN);
        let ordered = tensor.with_grid_transposed(heads, rows);
        let ordered = ordered.map_err(|reason| Error::Rows { tensor: name.to_owned(), reason })?;
        self.made.insert(key, ordered.clone());
        Ok(ordered)
    }
}
