//! Self tests in cartons of decoders: input tokens, and the logits that the model returns for them.
//!
//! Facts: the Carton v1 specification, by which outputs are compared with "something conceptually similar to np.allclose";
//! the newest public version of Carton does not compare them. For float32 and float64 weights, different programs compute
//! logits that differ only in the last digits: in float32, PyTorch's logits differ from these by about a millionth of the
//! largest logit. For weights of lower precision, the rounding of the factors depends on the program.

use std::path::Path;

use byte_source::Observer;
use carton_format::{DataType, References, SelfTest, TENSOR_REFERENCE, TensorIndex, TensorSpec};
use decoder::{Assignment, Decoder};
use forward::{ForwardModel, LogitPositions};
use serde::Serialize;
use tensor::{Dtype, Tensors};
use torch_import::Container;
use torchscript::{Module, ModuleCode};

use crate::back::OutputJob;
use crate::error::at;
use crate::note_collector::NoteCollector;
use crate::{Error, Note, Problem, Result};

/// Self test that is stored in a carton.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StoredSelfTest {
    /// Names of the test's inputs.
    pub inputs: Vec<String>,
    /// Names of the outputs with expected values; empty if the test only runs the model.
    pub expected_out: Vec<String>,
}

impl StoredSelfTest {
    /// Returns the names of its tensors.
    pub(super) fn summary(&self) -> String {
        match self.expected_out.as_slice() {
            [] => format!("{}, without expected outputs", self.inputs.join(", ")),
            outputs => format!("{} -> {}", self.inputs.join(", "), outputs.join(", ")),
        }
    }
}

/// Length of each of the `BATCH` token sequences.
const SEQ: u64 = 4;
const BATCH: u64 = 2;

pub(super) struct PlannedSelfTest<'j> {
    pub(super) test: SelfTest,
    pub(super) index: TensorIndex,
    /// Paths and bytes of the tensor files. The logits are zeros until [`compute`](Self::compute) is called.
    pub(super) files: Vec<(String, Vec<u8>)>,
    logits: Option<ExpectedLogits<'j>>,
}

impl<'j> PlannedSelfTest<'j> {
    /// Creates the self test of the model.
    ///
    /// # Errors
    /// When the module is not a decoder, or the logits cannot be allocated.
    pub(super) fn new(
        job: &OutputJob<'j>,
        converted: &Module,
        notes: &mut NoteCollector<'_>,
    ) -> Result<Self> {
        let decoder = match &converted.code {
            ModuleCode::Decoder(decoder) => decoder,
            ModuleCode::Weights { why } => {
                return Err(job.at_input(Problem::NothingToTest { why: why.clone() }));
            }
            _ => return Err(job.at_input(Problem::ScriptToTest)),
        };
        let assigned = decoder.assign(job.tensors, true);
        let assignment = assigned.map_err(|error| job.at_input(error))?;
        let mut stored = Self {
            test: SelfTest {
                name: Some("eight tokens".to_owned()),
                description: Some("two sequences of ids from the whole vocabulary".to_owned()),
                ..SelfTest::default()
            },
            index: TensorIndex::default(),
            files: Vec::new(),
            logits: None,
        };
        let bytes = spread_tokens(decoder.vocab()).iter().flat_map(|token| token.to_le_bytes()).collect();
        stored.test.inputs = stored.add("tokens", DataType::Int64, vec![BATCH, SEQ], bytes);
        if let Some(dtype) = first_low_precision_dtype(&assignment, job.tensors) {
            notes.push(Note::NoExpectedLogits { dtype });
        } else {
            let (tensors, containers, root) = (job.tensors, &job.model.containers, job.model.root());
            let logits =
                ExpectedLogits { decoder: (**decoder).clone(), assignment, tensors, containers, root };
            let shape = vec![BATCH, SEQ, decoder.vocab()];
            let zeros = logits.zeros()?;
            stored.test.expected_out = Some(stored.add("logits", DataType::Float32, shape, zeros));
            stored.logits = Some(logits);
        }
        Ok(stored)
    }

    /// Computes the expected logits, if the test has any.
    ///
    /// # Errors
    /// When the model cannot run, or the observer stops the work.
    pub(super) fn compute(&mut self, observer: &dyn Observer) -> Result<()> {
        // The file of the logits was added last.
        if let (Some(logits), Some((_, bytes))) = (&self.logits, self.files.last_mut()) {
            *bytes = Vec::new();
            // Those of another processor's instructions would have other last digits.
            *bytes = kernels::with_portable_code(|| logits.compute(observer))?;
        }
        Ok(())
    }

    /// Adds a tensor file for an input or output, and returns the reference to it.
    fn add(&mut self, port: &str, dtype: DataType, shape: Vec<u64>, bytes: Vec<u8>) -> References {
        let name = format!("self_test_{port}");
        let file = format!("{name}.bin");
        self.files.push((format!("tensor_data/{file}"), bytes));
        let target = format!("{TENSOR_REFERENCE}{name}");
        let other = toml::Table::new();
        self.index.tensors.push(TensorSpec::Array { name, dtype, shape, file, other });
        References(vec![(port.to_owned(), target)])
    }

    pub(super) fn report(&self) -> StoredSelfTest {
        let names =
            |References(references): &References| references.iter().map(|(name, _)| name.clone()).collect();
        StoredSelfTest {
            inputs: names(&self.test.inputs),
            expected_out: self.test.expected_out.as_ref().map(names).unwrap_or_default(),
        }
    }
}

/// Returns token IDs at equal distances, from the first ID of the vocabulary to the last.
fn spread_tokens(vocab: u64) -> Vec<i64> {
    let count = BATCH.saturating_mul(SEQ);
    let last = u128::from(vocab.saturating_sub(1));
    let steps = u128::from(count.saturating_sub(1)).max(1);
    let id = |number: u64| last.saturating_mul(u128::from(number)).checked_div(steps);
    (0..count).map(|number| id(number).and_then(|id| i64::try_from(id).ok()).unwrap_or(0)).collect()
}

/// Returns the dtype of the first weight that is neither float32 nor float64.
fn first_low_precision_dtype(assignment: &Assignment, tensors: &Tensors) -> Option<Dtype> {
    let weights = assignment.weights.iter().filter_map(|assigned| tensors.get_index(assigned.index));
    let mut dtypes = weights.map(|(_, tensor)| tensor.dtype());
    dtypes.find(|dtype| !matches!(dtype, Dtype::Float32 | Dtype::Float64))
}

/// Inputs for computing the logits.
struct ExpectedLogits<'j> {
    decoder: Decoder,
    assignment: Assignment,
    tensors: &'j Tensors,
    containers: &'j [Container],
    root: &'j Path,
}

impl ExpectedLogits<'_> {
    fn logits_error(&self, error: impl Into<Error>) -> Error {
        let error = error.into();
        if error.is_cancelled() { error } else { at(self.root)(Problem::Logits(error)) }
    }

    /// Allocates zeros of the same length in bytes as the logits.
    fn zeros(&self) -> Result<Vec<u8>> {
        let nbytes = BATCH.saturating_mul(SEQ).saturating_mul(self.decoder.vocab()).saturating_mul(4);
        let too_many = || self.logits_error(forward::Problem::Memory { nbytes });
        let len = usize::try_from(nbytes).map_err(|_| too_many())?;
        let mut zeros = Vec::new();
        zeros.try_reserve_exact(len).map_err(|_| too_many())?;
        zeros.resize(len, 0);
        Ok(zeros)
    }

    /// Runs the model, and returns the logits as little-endian f32 numbers.
    fn compute(&self, observer: &dyn Observer) -> Result<Vec<u8>> {
        let batch = usize::try_from(BATCH).unwrap_or(1);
        let options = forward::ForwardOptions::default();
        let model = ForwardModel::new(&self.decoder, self.tensors, &self.assignment, &options);
        let model = model.map_err(|error| self.logits_error(error))?;
        let mut cache = model.cache(batch).map_err(|error| self.logits_error(error))?;
        let tokens = spread_tokens(self.decoder.vocab());
        let logits = model.forward(&tokens, batch, &mut cache, LogitPositions::All, observer);
        let logits = logits.map_err(|error| self.logits_error(error))?;
        // Releases the mapped pages of the weights: the writer reads the files again, window by window.
        self.containers.iter().for_each(Container::release);
        Ok(logits.into_iter().flat_map(f32::to_le_bytes).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_valid_and_spread() {
        assert_eq!(spread_tokens(1), [0; 8]);
        assert_eq!(spread_tokens(2), [0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(spread_tokens(8), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(spread_tokens(128_256), [0, 18322, 36644, 54966, 73288, 91610, 109_932, 128_255]);
        assert_eq!(spread_tokens(0), [0; 8]);
        assert_eq!(spread_tokens(1 << 63).last(), Some(&i64::MAX));
    }
}
