//! Scans tensors of bytes that are unpickled: the states that Transformer Engine adds to those of modules.
//!
//! Facts: `set_extra_state` in `transformer_engine/pytorch/module/base.py` of Transformer Engine 2.

use std::sync::Arc;

use byte_source::{Blob, Source};

use super::budget::truncate_name;
use super::documents::pickled::EXTRA_STATE;
use super::scanner::Scanner;
use super::{PicklePlace, PlaceStep};
use crate::{Checkpoint, Container};

impl Scanner<'_, '_> {
    /// Scans the tensors of bytes that Transformer Engine unpickles.
    pub(super) fn scan_extra_states(&mut self, file: &Arc<dyn Source>) {
        let observer = self.budget.observer();
        let read = Container::from_source_with_observer(Arc::clone(file), observer)
            .and_then(|container| Checkpoint::read_readable(&container, observer));
        let checkpoint = match read {
            Ok(checkpoint) => checkpoint,
            Err(error) => return self.add_missed(|| format!("the tensors `…{EXTRA_STATE}`: {error}")),
        };
        for (name, tensor) in checkpoint.tensors().filter(|(name, _)| name.ends_with(EXTRA_STATE)) {
            let record = PicklePlace(vec![PlaceStep::Record(truncate_name(name.into_owned()))]);
            let mut bytes = Vec::new();
            let is_read =
                self.budget.spend(tensor.nbytes()) && tensor.gathered().write_to(&mut bytes).is_ok();
            if !is_read {
                self.add_missed(|| format!("{record} cannot be read"));
            }
            self.scan_temporary(&record, &bytes, 1, false);
        }
    }
}
