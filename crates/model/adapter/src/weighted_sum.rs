//! Sums of the numbers of several tensors: computed in double precision, and rounded once to the dtype of the first one.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "it parses nothing: sizes are those of numbers in memory"
)]

use tensor::{Compute, Dtype, Inputs, Storage};

use crate::numbers::{narrow, widen};

const CHUNK: usize = 1 << 14;

/// Storage and dtype of the numbers of one tensor in C order; complex numbers are two of them.
pub(crate) type Numbers = (Storage, Dtype);

#[derive(Debug)]
pub(crate) struct WeightedSum {
    inputs: Vec<Storage>,
    /// Dtype of the numbers of each input.
    dtypes: Vec<Dtype>,
    /// Dtype of the numbers of the base, which the result has.
    dtype: Dtype,
    /// Weights of the differences of the other inputs from the base; `None` for the mean of all inputs.
    weights: Option<Vec<f64>>,
}

impl WeightedSum {
    pub(crate) fn new((base, dtype): Numbers, others: Vec<Numbers>, weights: Option<Vec<f64>>) -> Self {
        let (mut inputs, mut dtypes) = (vec![base], vec![dtype]);
        for (storage, dtype) in others {
            inputs.push(storage);
            dtypes.push(dtype);
        }
        Self { inputs, dtypes, dtype, weights }
    }

    /// Adds the numbers of an input to `sums`, which began with those of the base.
    fn add(&self, number: usize, base: &[f64], others: &[f64], sums: &mut [f64]) {
        let Some(weights) = &self.weights else {
            sums.iter_mut().zip(others).for_each(|(sum, other)| *sum += other);
            return;
        };
        let weight = weights.get(number).copied().unwrap_or(0.0);
        for ((sum, other), base) in sums.iter_mut().zip(others).zip(base) {
            // The difference of two infinities is not a number.
            #[expect(clippy::float_cmp, reason = "only equal numbers have no difference")]
            let difference = if other == base { 0.0 } else { other - base };
            *sum += weight * difference;
        }
    }
}

impl Compute for WeightedSum {
    fn len(&self) -> u64 {
        self.inputs.first().map_or(0, Storage::len)
    }

    fn inputs(&self) -> &[Storage] {
        &self.inputs
    }

    fn granule(&self) -> u64 {
        self.dtype.size()
    }

    fn read_at(&self, inputs: &mut Inputs<'_>, buffer: &mut [u8], offset: u64) -> byte_source::Result<()> {
        let invalid = |_| byte_source::Error::from(std::io::ErrorKind::InvalidInput);
        let size = usize::try_from(self.dtype.size()).map_err(invalid)?;
        let mut first = offset / self.dtype.size();
        let (mut bytes, mut base, mut others, mut sums) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for chunk in buffer.chunks_mut(CHUNK * size) {
            let numbers = chunk.len() / size;
            inputs.read(0, chunk, first * self.dtype.size())?;
            widen(self.dtype, chunk, &mut base)?;
            sums.clone_from(&base);
            for (number, dtype) in self.dtypes.iter().skip(1).enumerate() {
                let len = numbers * usize::try_from(dtype.size()).map_err(invalid)?;
                bytes.resize(len, 0);
                inputs.read(number + 1, &mut bytes, first * dtype.size())?;
                widen(*dtype, &bytes, &mut others)?;
                self.add(number, &base, &others, &mut sums);
            }
            if self.weights.is_none() {
                #[expect(clippy::cast_precision_loss, reason = "there are fewer files than 2^53")]
                let count = self.inputs.len() as f64;
                for sum in &mut sums {
                    *sum /= count;
                }
            }
            narrow(self.dtype, &sums, chunk);
            first += numbers as u64;
        }
        Ok(())
    }

    fn is_costly(&self) -> bool {
        true
    }
}
