//! A carton as the checkpoint that it was made from: its tensors under their own names, compound tensors and values.
//!
//! Facts: `misc/checkpoint.json`, which conversions write (`values.rs` of the crate `pipeline`), has the values, and the
//! parts of quantized, sparse and nested tensors, which the model stores as plain tensors.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::sync::Arc;

use byte_source::Observer;
use carton_format::MODEL_PT;
use carton_reader::Carton;
use serde::Deserialize;
use serde_json::Value as Json;
use tensor::Dtype;
use torch_import::{Checkpoint, CheckpointItem, CompoundItem, CompoundKind, Container, ItemContent};

use crate::open::open_model;
use crate::own_tensors::own_tensors;
use crate::{CartonNote, Error, Result};

/// Path in a carton of the values and the compound tensors.
const VALUES_PATH: &str = "misc/checkpoint.json";
/// Largest length of that file in bytes. Conversions write at most 16 MiB of values.
const VALUES_MAX: u64 = 256 << 20;

/// Tensors and values that a conversion wrote into a carton, and the archive that holds them.
#[derive(Debug)]
#[non_exhaustive]
pub struct CartonCheckpoint {
    /// Tensors of the model under their own names, and compound tensors of them.
    pub checkpoint: Checkpoint,
    /// Archive with the model.
    pub container: Container,
    /// Values that are not tensors, each with the members `path`, `type` and `value`.
    pub values: Vec<Json>,
    pub notes: Vec<CartonNote>,
}

/// Contents of `misc/checkpoint.json`.
#[derive(Default, Deserialize)]
struct ValuesDocument {
    #[serde(default)]
    values: Vec<Json>,
    #[serde(default)]
    compounds: Vec<CompoundRow>,
}

#[derive(Deserialize)]
struct CompoundRow {
    name: String,
    dtype: String,
    shape: Vec<u64>,
    /// Full names of the parts.
    parts: Vec<String>,
    quantized: Option<String>,
    axis: Option<u64>,
    layout: Option<String>,
}

/// Reads the checkpoint in a carton. A compressed model is decompressed into a temporary file first, which takes long.
///
/// # Errors
/// Returns an error if the model is not in the carton or is damaged, and if `observer` stops the work.
pub fn read_checkpoint(carton: &Carton, observer: &dyn Observer) -> Result<CartonCheckpoint> {
    let container = open_model(carton, observer)?;
    let mut checkpoint = Checkpoint::read(&container).map_err(|reason| {
        let reason = carton_reader::Error::Model { path: MODEL_PT.to_owned(), reason: Box::new(reason) };
        Error::from_reader(carton.path())(reason)
    })?;
    let own: HashSet<String> =
        own_tensors(&checkpoint).into_iter().map(|(name, _)| name.into_owned()).collect();
    checkpoint.items.retain(|item| item.tensors().any(|(name, _)| own.contains(name.as_ref())));
    let mut notes = Vec::new();
    let document = if carton.has_file(VALUES_PATH) {
        read_values(carton).unwrap_or_else(|reason| {
            notes.push(CartonNote::ValuesUnread { reason });
            ValuesDocument::default()
        })
    } else {
        ValuesDocument::default()
    };
    restore_compounds(&mut checkpoint.items, document.compounds);
    Ok(CartonCheckpoint { checkpoint, container, values: document.values, notes })
}

/// Reads the document; the error says why it cannot be read. Another program may have written a file of this name.
fn read_values(carton: &Carton) -> Result<ValuesDocument, String> {
    let reader = carton.read(VALUES_PATH).map_err(|error| error.to_string())?;
    let mut text = Vec::new();
    reader.take(VALUES_MAX.saturating_add(1)).read_to_end(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > VALUES_MAX {
        return Err(format!("it has more than {}", pipeline::format_bytes(VALUES_MAX)));
    }
    serde_json::from_slice(&text).map_err(|error| error.to_string())
}

/// Replaces the parts of each compound tensor by the compound, at the place of the first part.
fn restore_compounds(items: &mut Vec<CheckpointItem>, rows: Vec<CompoundRow>) {
    if rows.is_empty() {
        return;
    }
    let places: HashMap<String, usize> =
        items.iter().enumerate().map(|(place, item)| (item.name.clone(), place)).collect();
    let mut is_part = vec![false; items.len()];
    for row in rows {
        let Some(places) = row.parts.iter().map(|part| places.get(part).copied()).collect::<Option<Vec<_>>>()
        else {
            continue;
        };
        let Some((kind, dtype)) = row.kind().zip(Dtype::from_name(&row.dtype)) else { continue };
        let prefix = format!("{}.", row.name);
        let part = |(name, place): (&String, &usize)| {
            let tensor = items.get(*place)?.tensor()?.clone();
            let part = name.strip_prefix(&prefix).unwrap_or(name);
            Some((Cow::Owned(part.to_owned()), tensor))
        };
        let Some(parts) = row.parts.iter().zip(&places).map(part).collect::<Option<Vec<_>>>() else {
            continue;
        };
        let Some((first, others)) = places.split_first() else { continue };
        for place in others {
            if let Some(is_part) = is_part.get_mut(*place) {
                *is_part = true;
            }
        }
        if let Some(item) = items.get_mut(*first) {
            item.name = row.name;
            item.content = ItemContent::Compound(Arc::new(CompoundItem {
                kind,
                dtype,
                shape: row.shape,
                parts,
                shard: None,
            }));
        }
    }
    let mut is_part = is_part.into_iter();
    items.retain(|_| !is_part.next().unwrap_or(false));
}

impl CompoundRow {
    /// Returns the kind; `None` for a class whose parts are plain tensors.
    fn kind(&self) -> Option<CompoundKind> {
        if let Some(scheme) = &self.quantized {
            return Some(CompoundKind::Quantized { scheme: scheme.clone(), axis: self.axis });
        }
        Some(match self.layout.as_deref()? {
            "nested" => CompoundKind::Nested,
            "jagged" => CompoundKind::Jagged,
            layout => CompoundKind::Sparse { layout: layout.to_owned() },
        })
    }
}
