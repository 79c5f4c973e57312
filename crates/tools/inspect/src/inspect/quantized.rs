//! Quantized tensors in a listing: the numbers that they stand for in place of their stored parts.

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use open::files::CheckpointSources;
use open::{Note, add_header, read_documents};
use serde::Serialize;
use tensor::{CompoundKind, Tensors};
use torch_import::{CheckpointItem, CompoundItem, ItemContent};

/// Scheme of a quantized tensor in a listing.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RowQuantization {
    /// Method, in the names of `transformers`.
    pub method: String,
    /// Description of the scheme, such as `FP8, blocks of 128 × 128`.
    pub scheme: String,
    /// Stored bits for each element, scales and zero points included.
    pub bits: f64,
    /// Size of the stored tensors in bytes.
    pub nbytes: u64,
    /// Names of the stored tensors; the first one has the codes.
    pub stored: Vec<String>,
}

/// Replaces the stored parts of quantized tensors by the numbers that they stand for. Returns the scheme of each such tensor
/// by its name: none if the weights are not quantized. If something is missing or not supported, the stored tensors stay, and
/// a note tells the reason.
pub(crate) fn replace_stored_parts(
    items: &mut Vec<CheckpointItem>,
    sources: &CheckpointSources,
    notes: &mut Vec<Note>,
) -> HashMap<String, RowQuantization> {
    let mut schemes = HashMap::new();
    let mut documents = match read_documents(sources) {
        Ok(documents) => documents,
        Err(error) => {
            notes.push(Note::ListedAsStored { why: error.to_string() });
            return schemes;
        }
    };
    add_header(
        &mut documents,
        items.iter().filter_map(|item| match &item.content {
            ItemContent::Value(value) => Some((item.name.as_str(), value)),
            _ => None,
        }),
    );
    let has_compounds = items.iter().any(|item| matches!(item.content, ItemContent::Compound(_)));
    // Of most models, the names tell that the list need not be made.
    if !has_compounds && !quantization::is_possible(&documents, items.iter().map(|item| item.name.as_str())) {
        return schemes;
    }
    let (mut tensors, mut places) = (Tensors::default(), Vec::new());
    for (place, item) in items.iter().enumerate() {
        let parts = item.tensors().map(|(name, tensor)| (name.into_owned(), tensor.clone()));
        match &item.content {
            ItemContent::Compound(compound) => {
                let CompoundItem { kind, dtype, shape, .. } = compound.as_ref();
                tensors.push_compound(item.name.clone(), (kind.clone(), *dtype, shape.clone()), parts);
            }
            _ => tensors.extend(parts),
        }
        places.resize(tensors.len(), place);
    }
    let model = match quantization::recognise(&documents, &tensors) {
        Ok(Some(model)) => model,
        Ok(None) => return schemes,
        Err(error) => {
            notes.push(Note::ListedAsStored { why: error.to_string() });
            return schemes;
        }
    };
    let configured = documents.dtype();
    let mut replaced = HashMap::new();
    let mut dropped = HashSet::new();
    for quantized in &model.tensors {
        let Ok(numbers) = quantized.tensor(configured.unwrap_or(quantized.default_dtype)) else { continue };
        let stored = || quantized.stored.iter().filter_map(|position| tensors.get_index(*position));
        let scheme = RowQuantization {
            method: model.method.clone(),
            scheme: quantized.scheme.clone(),
            bits: quantized.bits(),
            nbytes: stored().fold(0, |sum: u64, (_, part)| sum.saturating_add(part.nbytes())),
            stored: stored().map(|(name, _)| name.to_owned()).collect(),
        };
        schemes.insert(quantized.name.clone(), scheme);
        let mut parts = quantized.stored.iter().filter_map(|position| places.get(*position).copied());
        if let Some(first) = parts.next() {
            replaced.entry(first).or_insert_with(Vec::new).push((quantized.name.clone(), numbers));
        }
        dropped.extend(parts);
    }
    // PyTorch itself calls these tensors int8.
    let is_of_pytorch = |place: &usize| {
        let content = items.get(*place).map(|item| &item.content);
        matches!(content, Some(ItemContent::Compound(it)) if matches!(it.kind, CompoundKind::Quantized { .. }))
    };
    replaced.retain(|place, _| !is_of_pytorch(place));
    dropped.retain(|place| !is_of_pytorch(place));
    let mut kept = Vec::with_capacity(items.len());
    for (place, item) in items.drain(..).enumerate() {
        match replaced.remove(&place) {
            Some(numbers) => kept.extend(numbers.into_iter().map(|(name, numbers)| {
                let mut item = item.clone();
                (item.name, item.content) = (name, ItemContent::Tensor(numbers));
                item
            })),
            None if dropped.contains(&place) => {}
            None => kept.push(item),
        }
    }
    *items = kept;
    schemes
}
