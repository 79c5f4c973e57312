//! Cartons as models.
//!
//! | in the carton | inputs | outputs |
//! |---|---|---|
//! | a decoder | `tokens`, and optional ones | `logits`; keys and values if they are asked for |
//! | weights | none | its tensors by name |
//!
//! Facts: the inputs and outputs of a [`Runnable`]; KServe's datatypes.

mod decoder;
mod weights;

use std::error::Error as StdError;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use kserve::Datatype;
use mapped::Blob;
use runtime::{Kind, Runnable};
use tensor::{Dtype, Tensor};

use crate::model::{Cancel, Model, ModelError};

/// A carton as a model that can be served. A request may need at most `memory` bytes for its outputs and, in a decoder, for
/// keys and values.
///
/// # Errors
/// When a tensor of the carton has a dtype that has no form in KServe.
pub fn carton(runnable: Runnable, memory: usize) -> Result<Arc<dyn Model>, runtime::Error> {
    let memory = memory as u64;
    Ok(match runnable.kind() {
        Kind::Decoder(_) => Arc::new(decoder::Decoder::new(runnable, memory)),
        _ => Arc::new(weights::Weights::new(&runnable, memory)?),
    })
}

/// The datatype of KServe with the elements of `dtype`; none if it lacks them.
fn datatype(dtype: Dtype) -> Option<Datatype> {
    Some(match dtype {
        Dtype::Bool => Datatype::Bool,
        Dtype::UInt8 => Datatype::Uint8,
        Dtype::UInt16 => Datatype::Uint16,
        Dtype::UInt32 => Datatype::Uint32,
        Dtype::UInt64 => Datatype::Uint64,
        Dtype::Int8 => Datatype::Int8,
        Dtype::Int16 => Datatype::Int16,
        Dtype::Int32 => Datatype::Int32,
        Dtype::Int64 => Datatype::Int64,
        Dtype::Float16 => Datatype::Fp16,
        Dtype::Float32 => Datatype::Fp32,
        Dtype::Float64 => Datatype::Fp64,
        Dtype::BFloat16 => Datatype::Bf16,
        _ => return None,
    })
}

/// The elements of a tensor where they are, if a file holds them in C order.
fn mapped(tensor: &Tensor) -> Option<Bytes> {
    tensor.mapped_bytes()?;
    Some(Bytes::from_owner(Mapped(tensor.clone())))
}

/// The elements of a tensor in memory.
fn gathered(tensor: &Tensor) -> Result<Bytes, ModelError> {
    let mut bytes = Vec::new();
    let len = usize::try_from(tensor.nbytes()).map_err(failed)?;
    bytes.try_reserve_exact(len).map_err(failed)?;
    tensor.gathered().write_to(&mut bytes).map_err(failed)?;
    Ok(Bytes::from(bytes))
}

/// A tensor of which [`Tensor::mapped_bytes`] are known to be there.
struct Mapped(Tensor);

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        self.0.mapped_bytes().unwrap_or_default()
    }
}

fn failed(error: impl StdError + Send + Sync + 'static) -> ModelError {
    ModelError::Failed(Box::new(error))
}

/// Whose fault an error is.
fn blamed(error: runtime::Error) -> ModelError {
    use runtime::Error;
    match error {
        Error::Cancelled => ModelError::Cancelled,
        error @ (Error::Input(_) | Error::NoOutput { .. }) => ModelError::Input(Box::new(error)),
        Error::Model(
            error @ (forward::Error::Tokens { .. }
            | forward::Error::TokenIds { .. }
            | forward::Error::Past { .. }
            | forward::Error::Memory { .. }),
        ) => ModelError::Input(Box::new(error)),
        error => failed(error),
    }
}

fn go_on(cancel: &Cancel<'_>) -> ControlFlow<()> {
    if cancel.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// A request that needs more memory than it may have.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the request needs {needed} bytes of memory, and {allowed} are allowed")]
struct TooMuch {
    needed: u64,
    allowed: u64,
}

fn allow(needed: u64, allowed: u64) -> Result<(), ModelError> {
    if needed > allowed {
        return Err(ModelError::Input(Box::new(TooMuch { needed, allowed })));
    }
    Ok(())
}
