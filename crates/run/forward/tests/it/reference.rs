//! Random decoders, and their logits computed in f64 the plain way, token by token and head by head.
//!
//! Facts: the formulas of Meta's `llama-models` 0.3.0 (`model.py`), of rotary embeddings (Su et al., 2021), of Llama 3.1's,
//! `YaRN`'s and `LongRoPE`'s scaling of wavelengths, and of `decoder::Block`; nothing of this crate is used.

mod attention;
mod delta_net;
mod experts;
mod layer_inputs;

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use byte_source::{MappedFile, Region, Source};
use decoder::{
    Activation, Alibi, AssignedWeight, Assignment, Decoder, DecoderOptions, Detected, FeedForwardKind,
    HeadNormScope, LayerPart, LayoutOwner, ModelDocuments, NormKind, NormPlace, RopeScaling, Router, Weight,
};
use serde_json::{Value, json};
use tensor::{Dtype, Storage, Tensor, contiguous_strides};

use super::formulas::{dot, erf, frequency, product, rounded, softmax};

/// A model with random weights.
pub(crate) struct Random {
    pub(crate) decoder: Decoder,
    pub(crate) assignment: Assignment,
    pub(crate) tensors: Vec<(String, Tensor)>,
    numbers: HashMap<Weight, Vec<f64>>,
}

pub(crate) const DIM: usize = 24;
pub(crate) const VOCAB: usize = 40;
const HIDDEN: usize = 36;
const LAYERS: usize = 2;

/// The shape of a kind of model.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) layout: LayoutOwner,
    /// `model_type` and more members of config.json, or members of params.json.
    pub(crate) document: &'static str,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) has_biases: bool,
    pub(crate) is_tied: bool,
}

/// The flags of a kind of model, as members of a record.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) layout: LayoutOwner,
    pub(crate) rotated: u64,
    pub(crate) ropes: Value,
    pub(crate) rope_of_layer: Value,
    pub(crate) windows: Value,
    pub(crate) has_biases: bool,
    pub(crate) block: Value,
    /// Whether the file has the matrices of experts by columns.
    pub(crate) is_turned: bool,
}

/// The number of heads, of those of keys and values, and the size of one, in models of records.
const HEADS: [u64; 3] = [4, 2, 6];

impl Kind {
    fn record(&self) -> Value {
        let [heads, kv_heads, head_dim] = HEADS;
        json!({
            "code_version": 1, "architecture": "llama", "dim": DIM, "n_layers": LAYERS, "n_heads": heads,
            "n_kv_heads": kv_heads, "head_dim": head_dim, "rotated": self.rotated, "hidden": HIDDEN, "vocab": VOCAB, "norm_eps": 1e-3,
            "ropes": self.ropes, "rope_of_layer": self.rope_of_layer, "windows": self.windows,
            "biases": {"qkv": self.has_biases, "output": self.has_biases, "feed_forward": self.has_biases, "head_norm": self.has_biases && self.block["norm"] == "Layer" && self.block["head_norm"] == "Head"},
            "block": self.block,
        })
    }
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
        let text = if layout == LayoutOwner::Meta {
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
        let documents = if layout == LayoutOwner::Meta {
            ModelDocuments { params: document, ..ModelDocuments::default() }
        } else {
            ModelDocuments { config: document, ..ModelDocuments::default() }
        };
        let options = DecoderOptions { documents, ..DecoderOptions::default() };
        let all_numbers: Vec<_> = all.iter().map(|(_, _, numbers)| numbers.clone()).collect();
        let tensors: Vec<_> = all.drain(..).map(|(name, tensor, _)| (name, tensor)).collect();
        let found = decoder::detect(&tensors.clone().into(), &options).expect("documents and shapes agree");
        let Detected::Model(decoder) = found else { panic!("{found:?}") };
        let assignment = decoder.assign(&tensors.clone().into(), false).expect("all is there");
        let numbers =
            assignment.weights.iter().map(|it| (it.weight, all_numbers[it.index].clone())).collect();
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
        let name = |weight: Weight| layout.llama_names().name(weight).expect("a LLaMA has it");
        add(name(Weight::Embedding), &[VOCAB, DIM], 2.0, 0.0);
        for layer in 0..LAYERS {
            for part in LayerPart::ALL {
                let (queries, keys) = (heads * head_dim, kv_heads * head_dim);
                let size = match part {
                    LayerPart::Wq => vec![queries, DIM],
                    LayerPart::Wk | LayerPart::Wv => vec![keys, DIM],
                    LayerPart::Wo => vec![DIM, queries],
                    LayerPart::W1 | LayerPart::W3 => vec![HIDDEN, DIM],
                    LayerPart::W2 => vec![DIM, HIDDEN],
                    _ => vec![DIM],
                };
                let is_norm = size.len() == 1;
                let (scale, offset) = if is_norm { (0.2, 1.0) } else { (0.8, 0.0) };
                add(name(Weight::Layer { layer: layer as u64, part }), &size, scale, offset);
                if shape.has_biases
                    && !is_norm
                    && matches!(
                        part,
                        LayerPart::Wq | LayerPart::Wk | LayerPart::Wv | LayerPart::W1 | LayerPart::W2
                    )
                {
                    add(name(Weight::Bias { layer: layer as u64, part }), &size[..1], 0.5, 0.0);
                }
                if shape.has_biases && matches!(part, LayerPart::W3 | LayerPart::Wo) {
                    add(name(Weight::Bias { layer: layer as u64, part }), &size[..1], 0.5, 0.0);
                }
            }
        }
        add(name(Weight::Norm), &[DIM], 0.2, 1.0);
        if !shape.is_tied {
            add(name(Weight::Output), &[VOCAB, DIM], 1.0, 0.0);
        }
        all
    }

    /// A model of tensors in a file that has the decoder of a record.
    pub(crate) fn from_record(kind: &Kind, dtype: Dtype, seed: u64) -> Self {
        let placeholder = |name: String| {
            let tensor = Tensor::new(dtype, vec![0], vec![1], 0, Storage::owned(Vec::new()));
            (name, tensor.expect("no elements"))
        };
        let signs = (0..LAYERS as u64).map(|layer| Weight::Layer { layer, part: LayerPart::Wq });
        let signs = signs.chain([Weight::Embedding]);
        let name = |weight| kind.layout.llama_names().name(weight).expect("a LLaMA has it");
        let named: Vec<_> = signs.map(|sign| placeholder(name(sign))).collect();
        let decoder =
            Decoder::from_record(&kind.record().to_string(), &named.clone().into()).expect("it is a record");

        let (mut random, mut file) = (Numbers(seed), tempfile::NamedTempFile::new().expect("a file"));
        let (mut numbers, mut places, mut end) = (HashMap::new(), Vec::new(), 0);
        for weight in decoder.weights() {
            let shape = decoder.part_dimensions(weight);
            let (scale, offset) = match weight {
                Weight::Norm | Weight::EmbeddingNorm => (0.2, 1.0),
                Weight::Layer { part, .. } | Weight::Head { part, .. } if shape.len() == 1 => {
                    (0.2, if matches!(part, LayerPart::Sinks | LayerPart::ChoiceBias) { 0.0 } else { 1.0 })
                }
                Weight::Embedding => (2.0, 0.0),
                _ => (0.8, 0.0),
            };
            let count = usize::try_from(shape.iter().product::<u64>()).expect("small");
            let exact: Vec<f64> = (0..count).map(|_| random.next() * scale + offset).collect();
            let (mut bytes, rounded) = rounded(dtype, &exact);
            let mut stride = contiguous_strides(&shape);
            if kind.is_turned && matches!(weight, Weight::Expert { .. }) {
                let size = usize::try_from(dtype.size()).expect("small");
                let (rows, cols) = (count / usize::try_from(shape[1]).expect("small"), shape[1] as usize);
                let element = |at: usize| &bytes[(at % rows * cols + at / rows) * size..][..size];
                bytes = (0..count).flat_map(|at| element(at).to_vec()).collect();
                stride = vec![1, shape[0]];
            }
            file.write_all(&bytes).expect("there is room");
            places.push((weight, shape, stride, end..end + bytes.len()));
            end += bytes.len();
            numbers.insert(weight, rounded);
        }
        let file: Arc<dyn Source> = Arc::new(MappedFile::open(file.path()).expect("it was written"));
        let (mut tensors, mut weights) = (Vec::new(), Vec::new());
        for (index, (weight, shape, stride, range)) in places.into_iter().enumerate() {
            let range = range.start as u64..range.end as u64;
            let storage = Storage::stored(Region::new(&file, range).expect("it is in the file"), None);
            let tensor = Tensor::new(dtype, shape, stride, 0, storage).expect("the bytes suffice");
            tensors.push((format!("{weight:?}"), tensor));
            weights.push(AssignedWeight { weight, index, view: None });
        }
        Self { decoder, assignment: Assignment { weights, notes: Vec::new() }, tensors, numbers }
    }

    fn of(&self, weight: Weight) -> &[f64] {
        self.numbers.get(&weight).unwrap_or_else(|| panic!("there is no {weight:?}"))
    }

    /// The logits of each of `tokens`, which come in one call.
    pub(crate) fn logits(&self, tokens: &[i64]) -> Vec<Vec<f64>> {
        self.logits_of_parts(tokens, &[tokens.len()])
    }

    /// The logits of each of `tokens`, which come in several calls with a cache.
    pub(crate) fn logits_of_parts(&self, tokens: &[i64], parts: &[usize]) -> Vec<Vec<f64>> {
        let mut cache = vec![(Vec::new(), Vec::new()); LAYERS];
        let (mut logits, mut past) = (Vec::new(), 0);
        for part in parts {
            logits.extend(self.call(&tokens[past..past + part], &mut cache));
            past += part;
        }
        logits
    }

    fn call(&self, tokens: &[i64], cache: &mut [Cached]) -> Vec<Vec<f64>> {
        let (block, dim) = (self.decoder.block(), self.decoder.dim() as usize);
        let embedding = self.of(Weight::Embedding);
        let row = |id: &i64| &embedding[usize::try_from(*id).expect("an id") * dim..][..dim];
        let mut h: Vec<Vec<f64>> = tokens
            .iter()
            .map(|id| row(id).iter().map(|number| number * block.scales.embedding).collect())
            .collect();
        if let Some(learned) = block.learned_positions {
            let (table, first) = (self.of(Weight::Positions), cache[0].0.len() + learned.offset as usize);
            for (row, embedding) in h.iter_mut().enumerate() {
                let position = &table[(first + row) * dim..][..dim];
                embedding.iter_mut().zip(position).for_each(|(x, position)| *x += position);
            }
        }
        if block.embedding_norm {
            let bias = self.numbers.get(&Weight::EmbeddingNormBias).map(Vec::as_slice);
            for row in &mut h {
                *row = self.norm(row, self.of(Weight::EmbeddingNorm), bias);
            }
        }
        let inputs: Vec<_> = tokens.iter().zip(&h).map(|(id, h)| self.inputs(*id, h)).collect();
        let sources = self.decoder.key_layers();
        for layer in 0..self.decoder.n_layers() {
            let norm = |part, x: &[f64]| {
                let weight = Weight::Layer { layer, part };
                let bias = self.numbers.get(&Weight::Bias { layer, part });
                self.norm(x, self.of(weight), bias.map(Vec::as_slice))
            };
            let own = block.parallel && block.parallel_norms;
            let early: Vec<_> =
                h.iter().map(|row| if own { norm(LayerPart::FfnNorm, row) } else { Vec::new() }).collect();
            let before = |part, x: &[f64]| {
                if block.norms == NormPlace::After { x.to_vec() } else { norm(part, x) }
            };
            let after = |part, x: Vec<f64>| {
                if block.norms == NormPlace::Before { x } else { norm(part, &x) }
            };
            let add = |h: &mut [f64], y: Vec<f64>| {
                h.iter_mut().zip(y).for_each(|(h, y)| *h += block.scales.residual * y);
            };
            let read: Vec<_> = h.iter().map(|row| before(LayerPart::AttentionNorm, row)).collect();
            let cached = &mut cache[sources[layer as usize] as usize];
            let attended = if block.has_delta_net(layer) {
                self.delta_net(layer, &read, cached)
            } else {
                self.attention(layer, &read, cached)
            };
            let rows = h.iter_mut().zip(&read).zip(attended).zip(early).zip(&inputs);
            for ((((h, read), attended), early), inputs) in rows {
                if block.adds_to_norms {
                    h.clone_from(read);
                }
                add(h, after(LayerPart::AttentionPostNorm, attended));
                let x = match (block.parallel, own) {
                    (true, true) => early,
                    (true, false) => read.clone(),
                    _ => before(LayerPart::FfnNorm, h),
                };
                if block.adds_to_norms {
                    h.clone_from(&x);
                }
                let y = if block.has_experts_beside_dense() {
                    self.experts_beside_dense(layer, h, &x)
                } else if block.has_experts(layer) {
                    self.experts(layer, &x, &x)
                } else {
                    let of = |part| (Weight::Layer { layer, part }, Weight::Bias { layer, part });
                    self.dense(layer, [LayerPart::W1, LayerPart::W3, LayerPart::W2].map(of), &x)
                };
                add(h, if block.parallel { y } else { after(LayerPart::FfnPostNorm, y) });
                self.end_layer(layer, inputs, h);
            }
        }
        let bias = self.numbers.get(&Weight::NormBias).map(Vec::as_slice);
        let cap = |logit: f64| block.scales.logits_soft_cap.map_or(logit, |cap| cap * (logit / cap).tanh());
        h.iter()
            .map(|row| {
                self.linear(
                    Weight::Output,
                    Some(Weight::OutputBias),
                    &self.norm(row, self.of(Weight::Norm), bias),
                )
            })
            .map(|logits| logits.into_iter().map(|logit| cap(logit * block.scales.logits)).collect())
            .collect()
    }

    fn linear(&self, weight: Weight, bias: Option<Weight>, x: &[f64]) -> Vec<f64> {
        let bias = bias.and_then(|bias| self.numbers.get(&bias));
        product(self.of(weight), x, bias.map(Vec::as_slice))
    }

    fn head_norm(&self, layer: u64, part: LayerPart, row: Vec<f64>) -> Vec<f64> {
        let whole = || self.of(Weight::Layer { layer, part });
        let heads = row.chunks_exact(self.decoder.head_dim_of(layer) as usize);
        match self.decoder.block().head_norm {
            None => row,
            Some(HeadNormScope::Projection) => self.norm(&row, whole(), None),
            Some(HeadNormScope::Head) => {
                let bias = self.numbers.get(&Weight::Bias { layer, part }).map(Vec::as_slice);
                heads.flat_map(|head| self.norm(head, whole(), bias)).collect()
            }
            Some(HeadNormScope::Heads) => {
                let weights = whole().chunks_exact(self.decoder.head_dim() as usize);
                heads.zip(weights).flat_map(|(head, weight)| self.norm(head, weight, None)).collect()
            }
            Some(HeadNormScope::EachHead) => {
                let weight = |head| self.of(Weight::Head { layer, part, head });
                (0..).zip(heads).flat_map(|(number, head)| self.norm(head, weight(number), None)).collect()
            }
        }
    }

    fn dense(&self, layer: u64, parts: [(Weight, Weight); 3], x: &[f64]) -> Vec<f64> {
        if self.decoder.block().feed_forward == FeedForwardKind::Gated {
            return self.feed_forward(parts, x);
        }
        let [_, up, down] = parts;
        let up = self.linear(up.0, Some(up.1), x);
        let number = |part| self.of(Weight::Layer { layer, part })[0];
        let act = |x: f64| {
            if self.decoder.block().activation != Activation::Xielu {
                return self.activation(x, 1.0);
            }
            let softplus = |x: f64| (1.0 + x.exp()).ln();
            let beta = number(LayerPart::XieluBeta);
            let low = (x.min(number(LayerPart::XieluEps)).exp() - 1.0 - x)
                * (beta + softplus(number(LayerPart::XieluNegative)));
            beta * x + if x > 0.0 { softplus(number(LayerPart::XieluPositive)) * x * x } else { low }
        };
        let up: Vec<f64> = up.into_iter().map(act).collect();
        self.linear(down.0, Some(down.1), &up)
    }

    /// The gate, the matrix next to it, and the one after both; each with its bias.
    fn feed_forward(&self, [gate, up, down]: [(Weight, Weight); 3], x: &[f64]) -> Vec<f64> {
        let (gate, up) = (self.linear(gate.0, Some(gate.1), x), self.linear(up.0, Some(up.1), x));
        let both: Vec<f64> = gate.into_iter().zip(up).map(|(gate, up)| self.activation(gate, up)).collect();
        self.linear(down.0, Some(down.1), &both)
    }

    fn activation(&self, gate: f64, up: f64) -> f64 {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        match self.decoder.block().activation {
            Activation::Silu => gate * sigmoid(gate) * up,
            Activation::Gelu => 0.5 * gate * (1.0 + erf(gate / 2_f64.sqrt())) * up,
            Activation::GeluTanh => {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (gate + 0.044_715 * gate.powi(3));
                0.5 * gate * (1.0 + inner.tanh()) * up
            }
            Activation::Relu => gate.max(0.0) * up,
            Activation::ReluSquared => gate.max(0.0).powi(2) * up,
            Activation::Xielu => unreachable!("it has no gate"),
            Activation::ClampedSwiglu { alpha, limit } => {
                let gate = gate.min(limit);
                gate * sigmoid(alpha * gate) * (up.clamp(-limit, limit) + 1.0)
            }
        }
    }

    fn norm(&self, x: &[f64], weight: &[f64], bias: Option<&[f64]>) -> Vec<f64> {
        let kind = self.decoder.block().norm;
        let mean = if kind.is_centred() { x.iter().sum::<f64>() / x.len() as f64 } else { 0.0 };
        let x: Vec<f64> = x.iter().map(|x| x - mean).collect();
        let scale = 1.0 / (dot(&x, &x) / x.len() as f64 + self.decoder.norm_eps()).sqrt();
        let plus = if kind == NormKind::RmsPlusOne { 1.0 } else { 0.0 };
        let bias = |at: usize| bias.map_or(0.0, |bias| bias[at]);
        x.iter().zip(weight).enumerate().map(|(at, (x, w))| x * scale * (w + plus) + bias(at)).collect()
    }

    /// The heads of a row, rotated as in a text of `total` tokens.
    fn rotated(&self, layer: u64, position: usize, total: usize, row: &[f64]) -> Vec<f64> {
        let mut row = row.to_vec();
        let Some(number) = self.decoder.rope_of(layer) else { return row };
        let rope = &self.decoder.ropes()[number];
        let (hd, rotated) =
            (self.decoder.head_dim_of(layer) as usize, self.decoder.rotated_by(number) as usize);
        let magnitude = match &rope.scaling {
            Some(RopeScaling::Yarn(yarn)) => yarn.magnitude,
            Some(RopeScaling::LongRope(long)) => long.magnitude,
            _ => 1.0,
        };
        for head in row.chunks_exact_mut(hd) {
            for pair in 0..rotated / 2 {
                let (sin, cos) = (position as f64 * frequency(rope, pair, rotated, total)).sin_cos();
                let (sin, cos) = (sin * magnitude, cos * magnitude);
                let (a, b) = if self.decoder.rotates_halves() {
                    (pair, pair + rotated / 2)
                } else {
                    (2 * pair, 2 * pair + 1)
                };
                (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
            }
        }
        row
    }
}

/// The keys and values of a layer so far; keys are not rotated.
type Cached = (Vec<Vec<f64>>, Vec<Vec<f64>>);
