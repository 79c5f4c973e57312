//! The self test that a carton of a decoder can have: tokens, and the logits that the model returns for them.
//!
//! Facts: the Carton v1 specification, after which outputs are compared with "something conceptually similar to
//! np.allclose"; the newest public version of Carton does not compare them. Programs that run float32 and float64 weights
//! agree but for the last digits: in float32, PyTorch's logits differ from these by about a millionth of the largest one.
//! Weights of fewer digits round what they are multiplied with, in a way that depends on the program.

use std::ops::ControlFlow;

use carton_format::{DataType, References, SelfTest, TENSOR_REFERENCE, TensorIndex, TensorSpec};
use decoder::{Assignment, Decoder};
use forward::{Model, Rows};
use serde::Serialize;
use tensor::{Dtype, Tensor};
use torch_import::Container;
use torchscript::{Converted, Kind};

use super::Job;
use crate::{Error, Note, Result};

/// What is stored about a test in a carton.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SelfTestReport {
    /// The inputs of the test.
    pub inputs: Vec<String>,
    /// The outputs that it expects; empty if it only runs the model.
    pub expected_out: Vec<String>,
}

/// Tokens are two sequences of this many.
const SEQ: u64 = 4;
const BATCH: u64 = 2;

/// A self test with its tensors.
pub(crate) struct Stored {
    pub(super) test: SelfTest,
    pub(super) index: TensorIndex,
    /// The files of the tensors: their paths, and their bytes.
    pub(super) files: Vec<(String, Vec<u8>)>,
}

impl Stored {
    /// The test of the model that the tensors became.
    ///
    /// # Errors
    /// When they did not become a model, it cannot run, or the observer stops the work.
    pub(super) fn new(job: &Job<'_>, converted: &Converted, notes: &mut Vec<Note>) -> Result<Self> {
        let Some(decoder) = &converted.decoder else {
            let why = converted.why.as_ref().map(ToString::to_string);
            let why = why.unwrap_or_else(|| match converted.kind {
                Kind::Script => "only decoders have self tests, and it is a TorchScript module".to_owned(),
                _ => "weights were asked for".to_owned(),
            });
            return Err(job.error(Error::NothingToTest { why }));
        };
        let assigned = decoder.assign(job.tensors, true);
        let assignment = assigned.map_err(|error| job.error(Error::Module(Box::new(error.into()))))?;
        let tokens = tokens(decoder.vocab());
        let mut stored = Self {
            test: SelfTest {
                name: Some("eight tokens".to_owned()),
                description: Some("two sequences of ids from the whole vocabulary".to_owned()),
                ..SelfTest::default()
            },
            index: TensorIndex::default(),
            files: Vec::new(),
        };
        let bytes = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        stored.test.inputs = stored.add("tokens", DataType::Int64, vec![BATCH, SEQ], bytes);
        if let Some(dtype) = rounded(&assignment, job.tensors) {
            notes.push(Note::NoExpectedLogits { dtype });
        } else {
            let logits = logits(job, (decoder, &assignment), &tokens)?;
            let shape = vec![BATCH, SEQ, decoder.vocab()];
            stored.test.expected_out = Some(stored.add("logits", DataType::Float32, shape, logits));
        }
        Ok(stored)
    }

    /// Adds a tensor for an input or output, and returns the reference to it.
    fn add(&mut self, port: &str, dtype: DataType, shape: Vec<u64>, bytes: Vec<u8>) -> References {
        let name = format!("self_test_{port}");
        let file = format!("{name}.bin");
        self.files.push((format!("tensor_data/{file}"), bytes));
        let target = format!("{TENSOR_REFERENCE}{name}");
        let other = toml::Table::new();
        self.index.tensors.push(TensorSpec::Array { name, dtype, shape, file, other });
        References(vec![(port.to_owned(), target)])
    }

    pub(super) fn report(&self) -> SelfTestReport {
        let names =
            |References(references): &References| references.iter().map(|(name, _)| name.clone()).collect();
        SelfTestReport {
            inputs: names(&self.test.inputs),
            expected_out: self.test.expected_out.as_ref().map(names).unwrap_or_default(),
        }
    }
}

/// Ids from the first to the last one, at equal distances.
fn tokens(vocab: u64) -> Vec<i64> {
    let count = BATCH.saturating_mul(SEQ);
    let last = u128::from(vocab.saturating_sub(1));
    let steps = u128::from(count.saturating_sub(1)).max(1);
    let id = |number: u64| last.saturating_mul(u128::from(number)).checked_div(steps);
    (0..count).map(|number| id(number).and_then(|id| i64::try_from(id).ok()).unwrap_or(0)).collect()
}

/// The dtype of the first weight that rounds more than float32 does.
fn rounded(assignment: &Assignment, tensors: &[(String, Tensor)]) -> Option<Dtype> {
    let weights = assignment.weights.iter().filter_map(|assigned| tensors.get(assigned.index));
    let mut dtypes = weights.map(|(_, tensor)| tensor.dtype());
    dtypes.find(|dtype| !matches!(dtype, Dtype::Float32 | Dtype::Float64))
}

/// The logits of the tokens as the bytes of f32 numbers. A dry run does not compute them.
fn logits(job: &Job<'_>, (decoder, assignment): (&Decoder, &Assignment), tokens: &[i64]) -> Result<Vec<u8>> {
    let failed = |error| match error {
        forward::Error::Cancelled => Error::Cancelled,
        error => job.error(Error::Logits(Box::new(error))),
    };
    let batch = usize::try_from(BATCH).unwrap_or(1);
    let model = Model::new(decoder, job.tensors, assignment, &forward::Options::default()).map_err(failed)?;
    if job.options.dry_run {
        let len = tokens.len().saturating_mul(model.vocab()).saturating_mul(size_of::<f32>());
        return Ok(vec![0; len]);
    }
    let check =
        || if job.observer.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let mut cache = model.cache(batch).map_err(failed)?;
    let logits = model.forward(tokens, batch, &mut cache, Rows::All, &check).map_err(failed)?;
    // What the weights are mapped from is read again, window by window.
    job.containers.iter().for_each(Container::release);
    Ok(logits.into_iter().flat_map(f32::to_le_bytes).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_valid_and_spread() {
        assert_eq!(tokens(1), [0; 8]);
        assert_eq!(tokens(2), [0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(tokens(8), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(tokens(128_256), [0, 18322, 36644, 54966, 73288, 91610, 109_932, 128_255]);
        assert_eq!(tokens(0), [0; 8]);
        assert_eq!(tokens(1 << 63).last(), Some(&i64::MAX));
    }
}
