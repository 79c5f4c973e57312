//! Compares the code of a model with the code that a conversion writes, since equal tensors do not imply equal computation.
//!
//! Facts: `torch.jit.load` compiles the records below `code/` and runs the `__setstate__` of a class that has one
//! (`torch/csrc/jit/serialization/import.cpp`). The attributes of modules are in `data.pkl`, the constants of the code in
//! `constants.pkl`, and `version` chooses the meaning of operators.

use std::collections::HashMap;

use byte_source::{Observer, sha256};
use serde::Serialize;
use tensor::Storage;
use torch_import::{Checkpoint, Container};
use torchscript::{Module, Recognised};

use crate::{CartonNote, Result};

/// Result of comparing the code and the objects of a model with those that a conversion writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CodeStatus {
    /// Code and objects are those that this version writes for the tensors.
    Equal,
    /// Code or objects differ, as in a carton of another version or of another program. Their computation was not compared.
    Other,
    /// Some code runs when the model is loaded, and may change the tensors.
    RunsWhenLoaded,
    Unreadable,
}

impl CodeStatus {
    /// Returns the text of a finding if the code may change the tensors when the model is loaded.
    pub(crate) fn finding(self) -> Option<&'static str> {
        match self {
            Self::Equal | Self::Other => None,
            Self::RunsWhenLoaded => Some(
                "the code has a `__setstate__`, which runs when the model is loaded and may change the tensors; no \
                 conversion of these tensors writes this one",
            ),
            Self::Unreadable => {
                Some("the code cannot be read, so it may change the tensors when the model is loaded")
            }
        }
    }
}

/// Returns the TorchScript archive in `containers` of which the model keeps every record except the pickle and the records
/// for mobile devices.
pub(crate) fn find_original<'c>(
    model: &Container,
    containers: &'c [Container],
    observer: &dyn Observer,
) -> Result<Option<&'c Container>> {
    let [original] = containers else { return Ok(None) };
    if !original.is_torchscript() || !model.is_torchscript() {
        return Ok(None);
    }
    let (Ok(kept), Ok(found)) = (original.script_records(), model.script_records()) else { return Ok(None) };
    let found: HashMap<&str, &Storage> =
        found.iter().map(|(name, storage)| (name.as_str(), storage)).collect();
    for (name, storage) in kept.iter().filter(|(name, _)| torchscript::is_kept_record(name)) {
        observer.check()?;
        let same = found.get(name.as_str()).filter(|other| other.len() == storage.len());
        let hash = |storage: &Storage| sha256(storage, &());
        // Records that cannot be read are reported when the tensors are compared.
        if !same.is_some_and(|other| hash(other).is_ok_and(|other| hash(storage).ok() == Some(other))) {
            return Ok(None);
        }
    }
    Ok(Some(original))
}

/// Compares the model's records with the modules that conversions of its own tensors write, which are `expected`. The note names a
/// record that differs. `checkpoint` holds the tensors under the model's names. With `is_original`, the model keeps the code of its
/// checkpoint.
pub(crate) fn compare_code(
    (model, checkpoint): (&Container, &Checkpoint),
    is_original: bool,
    expected: impl Iterator<Item = Module>,
    observer: &dyn Observer,
) -> Result<(CodeStatus, Option<CartonNote>)> {
    // A `__setstate__` of the original archive runs in the original too.
    let runs = match model.runs_code_when_loaded() {
        _ if is_original => false,
        Some(runs) => runs,
        None => return Ok((CodeStatus::Unreadable, None)),
    };
    let found = model.records_besides_storages();
    // The module with the most equal records is most likely the intended one.
    let mut closest = None;
    for module in expected {
        observer.check()?;
        let Some(difference) = module.archive.first_difference(&found) else {
            return Ok((CodeStatus::Equal, None));
        };
        closest = closest.max(Some(difference));
    }
    // The module of a model with float16 weights also runs code when it is loaded, but it is accepted only if a conversion
    // writes this code.
    if runs && matches!(torchscript::recognise(&found, checkpoint.to_tensors()), Recognised::Other { .. }) {
        return Ok((CodeStatus::RunsWhenLoaded, None));
    }
    let record = closest.map_or_else(|| "data.pkl".to_owned(), |difference| difference.record);
    Ok((CodeStatus::Other, Some(CartonNote::CodeDiffers { record })))
}
