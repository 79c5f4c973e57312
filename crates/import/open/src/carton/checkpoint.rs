//! A carton as the checkpoint that it was made from: its tensors under their own names, compound tensors and values.
//!
//! Facts: `misc/checkpoint.json`, which conversions write (`values.rs`), has the values, and the
//! parts of quantized, sparse and nested tensors, which the model stores as plain tensors.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::sync::Arc;

use byte_source::format_bytes;
use carton_format::Carton;
use gguf_format::GgmlType;
use serde::Deserialize;
use serde_json::Value as Json;
use tensor::Dtype;
use torch_import::{Checkpoint, CheckpointItem, CompoundItem, CompoundKind, Container, ItemContent};

use super::own_tensors::own_tensors;
use super::read_model;
use crate::values::VALUES_PATH;
use crate::{Note, Result, ValueRow};

/// Largest length of that file in bytes. Conversions write at most 16 MiB of values.
const VALUES_MAX: u64 = 256 << 20;

/// Tensors and values that a conversion wrote into a carton.
pub(crate) struct CartonCheckpoint {
    /// Tensors of the model under their own names, and compound tensors of them.
    pub(crate) checkpoint: Checkpoint,
    /// Values that are not tensors.
    pub(crate) values: Vec<ValueRow>,
    pub(crate) note: Option<Note>,
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

/// Reads the checkpoint in a carton, whose archive with the model is `container`.
///
/// # Errors
/// When the model is damaged.
pub(crate) fn read_checkpoint(carton: &Carton, container: &Container) -> Result<CartonCheckpoint> {
    let mut checkpoint = read_model(carton, container)?;
    let own: HashSet<String> =
        own_tensors(&checkpoint).into_iter().map(|(name, _)| name.into_owned()).collect();
    checkpoint.items.retain(|item| item.tensors().any(|(name, _)| own.contains(name.as_ref())));
    let mut note = None;
    let document = if carton.has_file(VALUES_PATH) {
        read_values(carton).unwrap_or_else(|reason| {
            note = Some(Note::ValuesUnread { reason });
            ValuesDocument::default()
        })
    } else {
        ValuesDocument::default()
    };
    // What is not a tensor belongs to the module that was made of them.
    (checkpoint.left_out, checkpoint.notes) = Default::default();
    restore_compounds(&mut checkpoint.items, document.compounds);
    // Another program may have written other rows.
    let values = document.values.into_iter().filter_map(|row| serde_json::from_value(row).ok()).collect();
    Ok(CartonCheckpoint { checkpoint, values, note })
}

/// Reads the document; the error says why it cannot be read. Another program may have written a file of this name.
fn read_values(carton: &Carton) -> Result<ValuesDocument, String> {
    let reader = carton.read(VALUES_PATH).map_err(|error| error.to_string())?;
    let mut text = Vec::new();
    reader.take(VALUES_MAX.saturating_add(1)).read_to_end(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > VALUES_MAX {
        return Err(format!("it has more than {}", format_bytes(VALUES_MAX)));
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
            blocks if GgmlType::from_name(blocks).is_some() => {
                CompoundKind::Blocks { scheme: blocks.to_owned() }
            }
            layout => CompoundKind::Sparse { layout: layout.to_owned() },
        })
    }
}
