//! The weights of a decoder, found and checked: matrices stay in the file, vectors are widened.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use decoder::{Assigned, Assignment, Decoder, Part, Weight};
use tensor::{Budget, Tensor};

use crate::block::{Attention, FeedForward, Layer};
use crate::kernel::Matrix;
use crate::linear::Linear;
use crate::norm::Norm;
use crate::number::Real;
use crate::{Error, Result};

/// All weights.
#[derive(Debug)]
pub(crate) struct Weights<T> {
    /// [vocab, dim].
    pub(crate) embedding: Matrix,
    pub(crate) layers: Vec<Layer<T>>,
    pub(crate) norm: Norm<T>,
    /// [vocab, dim].
    pub(crate) output: Linear<T>,
}

/// The sizes of a decoder, as sizes in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dims {
    pub(crate) dim: usize,
    pub(crate) hidden: usize,
    pub(crate) vocab: usize,
    pub(crate) n_layers: usize,
    pub(crate) n_heads: usize,
    pub(crate) n_kv_heads: usize,
    pub(crate) head_dim: usize,
}

impl Dims {
    pub(crate) fn new(decoder: &Decoder) -> Result<Self> {
        let size = |n: u64| usize::try_from(n).map_err(|_| Error::Memory { nbytes: n });
        Ok(Self {
            dim: size(decoder.dim())?,
            hidden: size(decoder.hidden())?,
            vocab: size(decoder.vocab())?,
            n_layers: size(decoder.n_layers())?,
            n_heads: size(decoder.n_heads())?,
            n_kv_heads: size(decoder.n_kv_heads())?,
            head_dim: size(decoder.head_dim())?,
        })
    }

    /// The shape of a layer's weight.
    fn shape(&self, part: Part) -> [usize; 2] {
        let queries = self.n_heads.saturating_mul(self.head_dim);
        let keys = self.n_kv_heads.saturating_mul(self.head_dim);
        match part {
            Part::Wq => [queries, self.dim],
            Part::Wk | Part::Wv => [keys, self.dim],
            Part::Wo => [self.dim, queries],
            Part::W1 | Part::W3 => [self.hidden, self.dim],
            Part::W2 => [self.dim, self.hidden],
            _ => [1, self.dim],
        }
    }
}

/// Bytes that copies of weights may have more than their storages: four bytes can be expanded to terabytes.
const REPEATED: u64 = 1 << 26;

/// Finds the tensors of weights.
struct Source<'s> {
    decoder: &'s Decoder,
    dims: Dims,
    tensors: &'s [(String, Tensor)],
    assigned: HashMap<Weight, &'s Assigned>,
    /// What may be copied of weights that are not in the file as they are.
    budget: RefCell<Budget>,
}

impl<T: Real> Weights<T> {
    /// The weights of `decoder` among `tensors`.
    ///
    /// # Errors
    /// When a weight is missing, has another shape than the decoder's or another dtype than a floating-point one, or
    /// cannot be read.
    pub(crate) fn new(
        decoder: &Decoder,
        dims: Dims,
        tensors: &[(String, Tensor)],
        assignment: &Assignment,
    ) -> Result<Self> {
        let assigned = assignment.weights.iter().map(|assigned| (assigned.weight, assigned)).collect();
        let budget = RefCell::new(Budget::new(REPEATED));
        let source = Source { decoder, dims, tensors, assigned, budget };
        let vocab = [dims.vocab, dims.dim];
        let layers = (0..decoder.n_layers()).map(|layer| source.layer(layer)).collect::<Result<_>>()?;
        let embedding = source.matrix(Weight::Embedding, vocab)?;
        let of = |weight| source.tensor(weight).map(|(_, tensor)| tensor.view());
        let output = if of(Weight::Embedding)? == of(Weight::Output)? {
            embedding.clone()
        } else {
            source.matrix(Weight::Output, vocab)?
        };
        Ok(Self {
            embedding,
            layers,
            norm: source.norm(Weight::Norm)?,
            output: Linear { matrix: output, bias: None },
        })
    }
}

impl Source<'_> {
    fn layer<T: Real>(&self, layer: u64) -> Result<Layer<T>> {
        let norm = |part| self.norm(Weight::Layer { layer, part });
        let linear = |part| {
            let [rows, cols] = self.dims.shape(part);
            let matrix = self.matrix(Weight::Layer { layer, part }, [rows, cols])?;
            let bias = Weight::Bias { layer, part };
            let has_bias = self.decoder.biases().contains(part);
            let bias = has_bias.then(|| self.vector(bias, rows)).transpose()?;
            Ok::<_, Error>(Linear { matrix, bias })
        };
        // A window that does not fit is longer than any sequence.
        let window =
            self.decoder.windows().at(layer).map(|window| usize::try_from(window).unwrap_or(usize::MAX / 2));
        Ok(Layer {
            attention: Attention {
                norm: norm(Part::AttentionNorm)?,
                queries: linear(Part::Wq)?,
                keys: linear(Part::Wk)?,
                values: linear(Part::Wv)?,
                output: linear(Part::Wo)?,
                window: window.map(|window| window.min(usize::MAX / 2)),
            },
            feed_forward: FeedForward {
                norm: norm(Part::FfnNorm)?,
                gate: linear(Part::W1)?,
                up: linear(Part::W3)?,
                down: linear(Part::W2)?,
            },
        })
    }

    fn norm<T: Real>(&self, weight: Weight) -> Result<Norm<T>> {
        let eps = T::from_f64(self.decoder.norm_eps());
        Ok(Norm { weight: self.vector(weight, self.dims.dim)?, eps })
    }

    /// The numbers of a weight, and the name of the tensor that has them.
    fn tensor(&self, weight: Weight) -> Result<(&str, &Tensor)> {
        let assigned = self.assigned.get(&weight).and_then(|assigned| {
            let (name, _) = self.tensors.get(assigned.index)?;
            Some((name.as_str(), assigned.tensor(self.tensors)?))
        });
        assigned.ok_or_else(|| Error::MissingWeight {
            weight: self.decoder.layout().name(weight).unwrap_or_else(|| format!("{weight:?}")),
        })
    }

    /// Looks at a tensor before it may be copied.
    fn spend(&self, tensor: &Tensor) -> Result<()> {
        if tensor.mapped_bytes().is_some() || self.budget.borrow_mut().spend(tensor) {
            return Ok(());
        }
        Err(Error::TooLarge { shape: tensor.shape().to_vec() })
    }

    fn matrix(&self, weight: Weight, expected: [usize; 2]) -> Result<Matrix> {
        let (name, tensor) = self.tensor(weight)?;
        self.spend(tensor)?;
        let matrix = Matrix::new(tensor)?;
        if [matrix.rows(), matrix.cols()] != expected {
            let expected = expected.to_vec();
            return Err(Error::WeightShape {
                tensor: name.to_owned(),
                found: tensor.shape().to_vec(),
                expected,
            });
        }
        Ok(matrix)
    }

    fn vector<T: Real>(&self, weight: Weight, expected: usize) -> Result<Vec<T>> {
        let (name, tensor) = self.tensor(weight)?;
        let shape = tensor.shape();
        if shape != [expected as u64] {
            let (tensor, found, expected) = (name.to_owned(), shape.to_vec(), vec![expected]);
            return Err(Error::WeightShape { tensor, found, expected });
        }
        self.spend(tensor)?;
        let row = tensor.reshaped(&[1, expected as u64])?;
        let mut numbers = Vec::new();
        Matrix::new(&row)?.each_of_row(0, |number| numbers.push(T::from_f64(number)));
        Ok(numbers)
    }
}

/// The bytes of all weights, those that are used twice counted once.
pub(crate) fn nbytes(tensors: &[(String, Tensor)], assignment: &Assignment) -> u64 {
    let indexes: HashSet<usize> = assignment.weights.iter().map(|assigned| assigned.index).collect();
    let tensors = indexes.into_iter().filter_map(|index| tensors.get(index));
    tensors.fold(0, |sum, (_, tensor)| sum.saturating_add(tensor.nbytes()))
}
