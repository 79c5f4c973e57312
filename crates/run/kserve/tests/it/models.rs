//! Models that the tests ask.

use kserve::{Datatype, InferRequest, ModelConfig, TensorConfig};

/// An input or an output; a size of −1 is any.
pub(crate) fn tensor(name: &str, datatype: Datatype, dims: &[i64]) -> TensorConfig {
    let dims = dims.iter().map(|&size| u64::try_from(size).ok()).collect();
    TensorConfig { name: name.to_owned(), datatype, dims, optional: false }
}

/// A model with these inputs, whose outputs are `out` in FP32 and `other` in BYTES.
pub(crate) fn model(max_batch_size: u32, input: Vec<TensorConfig>) -> ModelConfig {
    ModelConfig {
        name: "m".to_owned(),
        platform: String::new(),
        backend: "test".to_owned(),
        max_batch_size,
        input,
        output: vec![tensor("out", Datatype::Fp32, &[-1]), tensor("other", Datatype::Bytes, &[-1])],
    }
}

pub(crate) fn json(model: &ModelConfig, body: impl AsRef<str>) -> kserve::Result<InferRequest> {
    InferRequest::parse(&bytes::Bytes::copy_from_slice(body.as_ref().as_bytes()), None, model)
}

/// Reads a request of JSON and bytes after it.
pub(crate) fn mixed(
    model: &ModelConfig,
    json: impl AsRef<str>,
    blobs: &[u8],
) -> kserve::Result<InferRequest> {
    let length = json.as_ref().len().to_string();
    let body = [json.as_ref().as_bytes(), blobs].concat();
    InferRequest::parse(&body.into(), Some(length.as_bytes()), model)
}

pub(crate) fn error<T: std::fmt::Debug>(result: kserve::Result<T>) -> String {
    let error = result.expect_err("it is wrong");
    format!("{} {error}", error.status())
}
