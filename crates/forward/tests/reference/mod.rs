//! Random decoders, and their logits computed in f64 the plain way, token by token and head by head.
//!
//! Facts: the formulas of Meta's `llama-models` 0.3.0 (`model.py`), of rotary embeddings (Su et al., 2021) and of Llama
//! 3.1's scaling of wavelengths; nothing of this crate is used.

use std::collections::HashMap;

use decoder::{Assignment, Decoder, Detected, Documents, Layout, Options, Part};
use tensor::{Dtype, Storage, Tensor, contiguous_strides};

/// A model with random weights.
pub(crate) struct Random {
    pub(crate) decoder: Decoder,
    pub(crate) assignment: Assignment,
    pub(crate) tensors: Vec<(String, Tensor)>,
    /// By name, the numbers of the tensors.
    numbers: HashMap<String, Vec<f64>>,
}

pub(crate) const DIM: usize = 24;
pub(crate) const VOCAB: usize = 40;
const HIDDEN: usize = 36;
const LAYERS: usize = 2;

/// The shape of a kind of model.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) layout: &'static Layout,
    /// `model_type` and more members of config.json, or members of params.json.
    pub(crate) document: &'static str,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) has_biases: bool,
    pub(crate) is_tied: bool,
}

/// A generator whose numbers are the same on every machine.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(self.0 >> 40).expect("24 bits")) / f64::from(1_u32 << 24) - 0.5
    }
}

impl Random {
    pub(crate) fn new(shape: &Shape, dtype: Dtype, seed: u64) -> Self {
        let Shape { layout, heads, kv_heads, head_dim, .. } = *shape;
        let mut all = Self::tensors_of(shape, dtype, seed);
        let text = if layout.file == "params.json" {
            format!(
                r#"{{"dim": {DIM}, "n_layers": {LAYERS}, "n_heads": {heads}, "n_kv_heads": {kv_heads}, "head_dim": {head_dim}, "norm_eps": 1e-5, "vocab_size": -1 {}}}"#,
                shape.document
            )
        } else {
            format!(
                r#"{{"num_attention_heads": {heads}, "num_key_value_heads": {kv_heads}, "head_dim": {head_dim}, "rms_norm_eps": 1e-3 {}}}"#,
                shape.document
            )
        };
        let document = Some(text);
        let documents = if layout.file == "params.json" {
            Documents { params: document, ..Documents::default() }
        } else {
            Documents { config: document, ..Documents::default() }
        };
        let options = Options { documents, ..Options::default() };
        let numbers = all.iter().map(|(name, _, numbers)| (name.clone(), numbers.clone())).collect();
        let tensors: Vec<_> = all.drain(..).map(|(name, tensor, _)| (name, tensor)).collect();
        let found = decoder::detect(&tensors, &options).expect("documents and shapes agree");
        let Detected::Model(decoder) = found else { panic!("{found:?}") };
        let assignment = decoder.assign(&tensors, false).expect("all is there");
        Self { decoder: *decoder, assignment, tensors, numbers }
    }

    fn tensors_of(shape: &Shape, dtype: Dtype, seed: u64) -> Vec<(String, Tensor, Vec<f64>)> {
        let Shape { layout, heads, kv_heads, head_dim, .. } = *shape;
        let mut random = Numbers(seed);
        let mut all = Vec::new();
        let mut add = |name: String, shape: &[usize], scale: f64, offset: f64| {
            let exact: Vec<f64> =
                (0..shape.iter().product()).map(|_| random.next() * scale + offset).collect();
            let (bytes, numbers) = rounded(dtype, &exact);
            let shape: Vec<u64> = shape.iter().map(|size| *size as u64).collect();
            let stride = contiguous_strides(&shape);
            let tensor = Tensor::new(dtype, shape, stride, 0, Storage::owned(bytes));
            all.push((name, tensor.expect("the bytes suffice"), numbers));
        };
        let weight = |path: &str| format!("{path}.weight");
        add(weight(layout.embedding), &[VOCAB, DIM], 2.0, 0.0);
        for layer in 0..LAYERS {
            for part in Part::ALL {
                let (queries, keys) = (heads * head_dim, kv_heads * head_dim);
                let size = match part {
                    Part::Wq => vec![queries, DIM],
                    Part::Wk | Part::Wv => vec![keys, DIM],
                    Part::Wo => vec![DIM, queries],
                    Part::W1 | Part::W3 => vec![HIDDEN, DIM],
                    Part::W2 => vec![DIM, HIDDEN],
                    _ => vec![DIM],
                };
                let is_norm = size.len() == 1;
                let (scale, offset) = if is_norm { (0.2, 1.0) } else { (0.8, 0.0) };
                add(layout.weight(layer as u64, part), &size, scale, offset);
                if shape.has_biases
                    && !is_norm
                    && matches!(part, Part::Wq | Part::Wk | Part::Wv | Part::W1 | Part::W2)
                {
                    add(layout.bias(layer as u64, part), &size[..1], 0.5, 0.0);
                }
                if shape.has_biases && matches!(part, Part::W3 | Part::Wo) {
                    add(layout.bias(layer as u64, part), &size[..1], 0.5, 0.0);
                }
            }
        }
        add(weight(layout.norm), &[DIM], 0.2, 1.0);
        if !shape.is_tied {
            add(weight(layout.output), &[VOCAB, DIM], 1.0, 0.0);
        }
        all
    }

    fn of(&self, name: &str) -> &[f64] {
        self.numbers.get(name).unwrap_or_else(|| panic!("there is no {name}"))
    }

    /// The logits of each of `tokens`.
    pub(crate) fn logits(&self, tokens: &[i64]) -> Vec<Vec<f64>> {
        let decoder = &self.decoder;
        let layout = decoder.layout();
        let size = |n: u64| usize::try_from(n).expect("small");
        let (heads, kv_heads, hd) =
            (size(decoder.n_heads()), size(decoder.n_kv_heads()), size(decoder.head_dim()));
        let embedding = self.of(&format!("{}.weight", layout.embedding));
        let mut h: Vec<Vec<f64>> = tokens
            .iter()
            .map(|id| embedding[usize::try_from(*id).expect("an id") * DIM..][..DIM].to_vec())
            .collect();
        for layer in 0..decoder.n_layers() {
            let linear = |part: Part, x: &[f64]| {
                let bias = self.numbers.get(&layout.bias(layer, part));
                product(self.of(&layout.weight(layer, part)), x, bias.map(Vec::as_slice))
            };
            let norm = |part: Part, x: &[f64]| self.norm(x, self.of(&layout.weight(layer, part)));
            let normed: Vec<Vec<f64>> = h.iter().map(|row| norm(Part::AttentionNorm, row)).collect();
            let all = |part: Part| normed.iter().map(|row| linear(part, row)).collect::<Vec<_>>();
            let (mut q, mut k, v) = (all(Part::Wq), all(Part::Wk), all(Part::Wv));
            for position in 0..tokens.len() {
                self.rotate(position, &mut q[position]);
                self.rotate(position, &mut k[position]);
            }
            for (position, row) in h.iter_mut().enumerate() {
                let window = decoder.windows().at(layer).map_or(usize::MAX, size);
                let first = (position + 1).saturating_sub(window);
                let mut out = Vec::new();
                for head in 0..heads {
                    let of = |rows: &[Vec<f64>], token: usize, head: usize| {
                        rows[token][head * hd..][..hd].to_vec()
                    };
                    let query = of(&q, position, head);
                    let kv = head / (heads / kv_heads);
                    let scores: Vec<f64> = (first..=position)
                        .map(|token| dot(&query, &of(&k, token, kv)) / (hd as f64).sqrt())
                        .collect();
                    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let powers: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
                    let sum: f64 = powers.iter().sum();
                    let mut o = vec![0.0; hd];
                    for (power, token) in powers.iter().zip(first..) {
                        for (o, v) in o.iter_mut().zip(of(&v, token, kv)) {
                            *o += power / sum * v;
                        }
                    }
                    out.extend(o);
                }
                row.iter_mut().zip(linear(Part::Wo, &out)).for_each(|(h, o)| *h += o);
            }
            for row in &mut h {
                let y = norm(Part::FfnNorm, row);
                let gate = linear(Part::W1, &y);
                let up = linear(Part::W3, &y);
                let both: Vec<f64> = gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
                row.iter_mut().zip(linear(Part::W2, &both)).for_each(|(h, o)| *h += o);
            }
        }
        let output = self.numbers.get(&format!("{}.weight", layout.output));
        let output = output.map_or(embedding, Vec::as_slice);
        let weight = self.of(&format!("{}.weight", layout.norm));
        h.iter().map(|row| product(output, &self.norm(row, weight), None)).collect()
    }

    fn norm(&self, x: &[f64], weight: &[f64]) -> Vec<f64> {
        let mean = dot(x, x) / x.len() as f64;
        let scale = 1.0 / (mean + self.decoder.norm_eps()).sqrt();
        x.iter().zip(weight).map(|(x, w)| x * scale * w).collect()
    }

    fn rotate(&self, position: usize, row: &mut [f64]) {
        let rope = self.decoder.rope();
        let hd = usize::try_from(self.decoder.head_dim()).expect("small");
        for head in row.chunks_exact_mut(hd) {
            for pair in 0..hd / 2 {
                let mut frequency = rope.theta.powf(-((2 * pair) as f64) / hd as f64);
                if let Some(decoder::Scaling::Llama3(scaling)) = rope.scaling {
                    let wavelength = std::f64::consts::TAU / frequency;
                    let smooth = (scaling.old / wavelength - scaling.low) / (scaling.high - scaling.low);
                    frequency *= if wavelength < scaling.old / scaling.high {
                        1.0
                    } else if wavelength > scaling.old / scaling.low {
                        1.0 / scaling.factor
                    } else {
                        (1.0 - smooth) / scaling.factor + smooth
                    };
                }
                let (sin, cos) = (position as f64 * frequency).sin_cos();
                let (a, b) = if self.decoder.layout().rotates_halves {
                    (pair, pair + hd / 2)
                } else {
                    (2 * pair, 2 * pair + 1)
                };
                (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
            }
        }
    }
}

fn product(matrix: &[f64], x: &[f64], bias: Option<&[f64]>) -> Vec<f64> {
    let rows = matrix.chunks_exact(x.len()).enumerate();
    rows.map(|(row, w)| dot(w, x) + bias.map_or(0.0, |bias| bias[row])).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Numbers as a tensor of this dtype has them: their bytes and their values.
fn rounded(dtype: Dtype, exact: &[f64]) -> (Vec<u8>, Vec<f64>) {
    let mut bytes = Vec::new();
    let mut numbers = Vec::new();
    for number in exact {
        match dtype {
            Dtype::Float64 => {
                bytes.extend(number.to_le_bytes());
                numbers.push(*number);
            }
            Dtype::Float32 => {
                let number = *number as f32;
                bytes.extend(number.to_le_bytes());
                numbers.push(number.into());
            }
            Dtype::BFloat16 => {
                let bits = (*number as f32).to_bits() & 0xffff_0000;
                bytes.extend(u16::try_from(bits >> 16).expect("16 bits").to_le_bytes());
                numbers.push(f32::from_bits(bits).into());
            }
            Dtype::Float16 => {
                // Numbers from 2^-14 to 2 in steps that a f16 has; smaller ones are 0.
                let magnitude = number.abs();
                let exponent =
                    if magnitude < 2.0_f64.powi(-14) { None } else { Some(magnitude.log2().floor()) };
                let (bits, value) = exponent.map_or((0, 0.0), |exponent| {
                    let mantissa = ((magnitude / exponent.exp2() - 1.0) * 1024.0).floor();
                    let bits = ((exponent + 15.0) as u16) << 10 | mantissa as u16;
                    (bits, (1.0 + mantissa / 1024.0) * exponent.exp2())
                });
                let sign = u16::from(*number < 0.0) << 15;
                bytes.extend((bits | sign).to_le_bytes());
                numbers.push(value * number.signum());
            }
            _ => panic!("{dtype} is not a weight's"),
        }
    }
    (bytes, numbers)
}
