//! Random models in Meta's layout.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, and its numbers are small"
)]

use proptest::prelude::*;
use tensor::{CastNumbers, Dtype, DtypeConversion, Storage, Tensor, ViewedRanges, contiguous_strides};

pub(crate) type List = Vec<(String, Tensor)>;

/// How a model of any size is made.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) kv_heads: u64,
    pub(crate) group: u64,
    pub(crate) head_dim: u64,
    pub(crate) usual_dim: bool,
    pub(crate) layers: u64,
    pub(crate) multiple_of: u64,
    pub(crate) dtype: Dtype,
    pub(crate) transposed: bool,
    pub(crate) tied: bool,
    pub(crate) frequencies: Option<Dtype>,
    pub(crate) scaled: Option<f64>,
    pub(crate) theta: f64,
}

pub(crate) fn plans() -> impl Strategy<Value = Plan> {
    let floats =
        || prop::sample::select(vec![Dtype::Float64, Dtype::Float32, Dtype::Float16, Dtype::BFloat16]);
    let sizes =
        (1_u64..4, 1_u64..4, 1_u64..5, any::<bool>(), 1_u64..3, prop::sample::select(vec![1_u64, 8, 256]));
    let kinds = (floats(), any::<bool>(), any::<bool>(), prop::option::of(floats()));
    let positions = (prop::option::of(1.0_f64..40.0), prop::sample::select(vec![1e4, 5e5, 1e6]));
    (sizes, kinds, positions).prop_map(|(sizes, kinds, positions)| {
        let (kv_heads, group, half, usual_dim, layers, multiple_of) = sizes;
        let ((dtype, transposed, tied, frequencies), (scaled, theta)) = (kinds, positions);
        let head_dim = 2 * half;
        Plan {
            kv_heads,
            group,
            head_dim,
            usual_dim,
            layers,
            multiple_of,
            dtype,
            transposed,
            tied,
            frequencies,
            scaled,
            theta,
        }
    })
}

impl Plan {
    fn heads(&self) -> u64 {
        self.kv_heads * self.group
    }

    fn dim(&self) -> u64 {
        let usual = self.heads() * self.head_dim;
        if self.usual_dim { usual } else { usual + self.heads() }
    }

    fn hidden(&self) -> u64 {
        (self.dim() * 8 / 3).next_multiple_of(self.multiple_of)
    }

    pub(crate) fn params(&self) -> String {
        let scaled = self
            .scaled
            .map(|factor| format!(r#", "use_scaled_rope": true, "rope_scaling_factor": {factor}"#));
        format!(
            r#"{{"dim": {}, "n_layers": {}, "n_heads": {}, "n_kv_heads": {}, "head_dim": {}, "multiple_of": {}, "vocab_size": -1, "norm_eps": 1e-6, "rope_theta": {}{}}}"#,
            self.dim(),
            self.layers,
            self.heads(),
            self.kv_heads,
            self.head_dim,
            self.multiple_of,
            self.theta,
            scaled.unwrap_or_default()
        )
    }

    /// A matrix or a vector whose bytes are different from those of others.
    fn tensor(&self, seed: usize, shape: &[u64]) -> Tensor {
        let numel = shape.iter().product::<u64>() * self.dtype.size();
        let storage = Storage::owned(
            (0..numel as usize).map(|n| ((n * 31 + n / 251 + seed * 7) % 256) as u8).collect(),
        );
        let stride = match shape {
            [rows, _] if self.transposed => vec![1, *rows],
            shape => contiguous_strides(shape),
        };
        Tensor::new(self.dtype, shape.to_vec(), stride, 0, storage).expect("inside")
    }

    /// The model in Meta's layout.
    pub(crate) fn tensors(&self) -> List {
        let (dim, hidden) = (self.dim(), self.hidden());
        let (queries, keys) = (self.heads() * self.head_dim, self.kv_heads * self.head_dim);
        let mut shapes =
            vec![("tok_embeddings.weight".to_owned(), vec![13, dim]), ("norm.weight".to_owned(), vec![dim])];
        for layer in 0..self.layers {
            for (part, shape) in [
                ("attention.wq", vec![queries, dim]),
                ("attention.wk", vec![keys, dim]),
                ("attention.wv", vec![keys, dim]),
                ("attention.wo", vec![dim, queries]),
                ("feed_forward.w1", vec![hidden, dim]),
                ("feed_forward.w2", vec![dim, hidden]),
                ("feed_forward.w3", vec![hidden, dim]),
                ("attention_norm", vec![dim]),
                ("ffn_norm", vec![dim]),
            ] {
                shapes.push((format!("layers.{layer}.{part}.weight"), shape));
            }
        }
        let made = |(seed, (name, shape)): (usize, (String, Vec<u64>))| (name, self.tensor(seed, &shape));
        let mut all: List = shapes.into_iter().enumerate().map(made).collect();
        let output = if self.tied { all[0].1.clone() } else { self.tensor(99, &[13, dim]) };
        all.push(("output.weight".to_owned(), output));
        all
    }
}

/// As `precompute_freqs_cis` computes them.
pub(crate) fn frequencies(plan: &Plan, dtype: Dtype) -> Tensor {
    let number = |pair: u64| 1.0 / (plan.theta as f32).powf((2 * pair) as f32 / plan.head_dim as f32);
    let numbers: Vec<u8> = (0..plan.head_dim / 2).flat_map(|pair| number(pair).to_le_bytes()).collect();
    let shape = vec![plan.head_dim / 2];
    let conversion = DtypeConversion::new(Dtype::Float32, dtype).expect("floats");
    let cast =
        CastNumbers::new(&Storage::owned(numbers), conversion, &(0..shape[0]), ViewedRanges::default());
    let storage = Storage::computed(std::sync::Arc::new(cast.expect("inside")));
    Tensor::new(dtype, shape, vec![1], 0, storage).expect("inside")
}
