//! Compares what a model runs with what a conversion writes: equal tensors say nothing about what is computed with them.
//!
//! Facts: `torch.jit.load` compiles the records below `code/` and runs the `__setstate__` of a class that has one
//! (`torch/csrc/jit/serialization/import.cpp`). The attributes of modules are in `data.pkl`, the constants of the code in
//! `constants.pkl`, and `version` chooses the meaning of operators.

use pipeline::{Observer, check, usual_modules};
use serde::Serialize;
use sources::Sources;
use tensor::Tensor;
use torch_import::Container;

use crate::{Error, Note, Result};

/// What is known about the code and the objects of a model whose tensors are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Code {
    /// They are what this version writes for the tensors.
    Equal,
    /// They are not, as in a carton of another version or of another program. What they compute was not compared.
    Other,
    /// Some of it runs when the model is loaded, and may change the tensors.
    RunsWhenLoaded,
    /// It cannot be read.
    Unreadable,
}

impl Code {
    /// What is wrong with it: a finding, since the tensors that a user gets may be others.
    pub(crate) fn finding(self) -> Option<&'static str> {
        match self {
            Self::Equal | Self::Other => None,
            Self::RunsWhenLoaded => Some(
                "the code has a `__setstate__`, which runs when the model is loaded and may change the tensors; no \
                 conversion writes one",
            ),
            Self::Unreadable => {
                Some("the code cannot be read, so it may change the tensors when the model is loaded")
            }
        }
    }
}

/// Compares the model with the modules that conversions of `tensors`, which are the model's own, write. The note names a
/// record that differs.
pub(crate) fn compared(
    model: &Container,
    sources: &Sources,
    single: bool,
    tensors: &[(String, Tensor)],
    observer: &dyn Observer,
) -> Result<(Code, Option<Note>)> {
    match model.runs_code_when_loaded() {
        Some(false) => {}
        Some(true) => return Ok((Code::RunsWhenLoaded, None)),
        None => return Ok((Code::Unreadable, None)),
    }
    let found = model.records_besides_storages();
    // The more records are equal, the more likely is it that the module was meant.
    let mut closest = None;
    for module in usual_modules(single, sources, tensors) {
        check(observer).map_err(|_| Error::Cancelled)?;
        let Some(difference) = module.archive.first_difference(&found) else {
            return Ok((Code::Equal, None));
        };
        closest = closest.max(Some(difference));
    }
    let record = closest.map_or_else(|| "data.pkl".to_owned(), |difference| difference.record);
    Ok((Code::Other, Some(Note::OtherCode { record })))
}
