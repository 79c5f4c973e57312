//! Serves cartons as models.
//!
//! | in the carton | inputs | outputs |
//! |---|---|---|
//! | a decoder | `tokens`, and optional ones | `logits`; keys and values on request |
//! | weights | none | the tensors by name |
//!
//! Facts: the inputs and outputs of a [`Runnable`].

mod decoder;
mod elements;
mod request_error;
mod weights;

use std::sync::Arc;

use runtime::{Runnable, RunnableKind};

use crate::model::InferModel;
use crate::options::RequestLimits;

/// Wraps a carton as a model that can be served, whose requests stay within `limits`.
///
/// # Errors
/// Returns an error if a tensor of the carton has a dtype that KServe cannot express.
pub fn carton_model(
    runnable: Runnable,
    limits: &RequestLimits,
) -> Result<Arc<dyn InferModel>, runtime::Error> {
    let memory = limits.memory as u64;
    Ok(match runnable.kind() {
        RunnableKind::Decoder(model) => {
            let sizes = model.port_sizes();
            Arc::new(decoder::DecoderModel::new(runnable, sizes, limits))
        }
        _ => Arc::new(weights::WeightsModel::new(&runnable, memory)?),
    })
}
