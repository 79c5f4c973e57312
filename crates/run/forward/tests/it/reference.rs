//! Random decoders, and their logits computed in f64 the plain way, token by token and head by head.
//!
//! Facts: the formulas of Meta's `llama-models` 0.3.0 (`model.py`), of rotary embeddings (Su et al., 2021), of Llama 3.1's,
//! `YaRN`'s and `LongRoPE`'s scaling of wavelengths, and of `decoder::Block`; nothing of this crate is used.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use byte_source::{MappedFile, Region, Source};
use decoder::{
    Activation, Alibi, AssignedWeight, Assignment, CheckpointLayout, Decoder, DecoderOptions, Detected,
    FeedForwardKind, HeadNormScope, LayerPart, ModelDocuments, NormKind, NormPlace, RopeScaling, Router,
    Weight,
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
    pub(crate) layout: &'static CheckpointLayout,
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
    pub(crate) layout: &'static CheckpointLayout,
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
        let weight = |path: &str| format!("{path}.weight");
        add(weight(layout.embedding), &[VOCAB, DIM], 2.0, 0.0);
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
                add(layout.weight(layer as u64, part), &size, scale, offset);
                if shape.has_biases
                    && !is_norm
                    && matches!(
                        part,
                        LayerPart::Wq | LayerPart::Wk | LayerPart::Wv | LayerPart::W1 | LayerPart::W2
                    )
                {
                    add(layout.bias(layer as u64, part), &size[..1], 0.5, 0.0);
                }
                if shape.has_biases && matches!(part, LayerPart::W3 | LayerPart::Wo) {
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

    /// A model of tensors in a file that has the decoder of a record.
    pub(crate) fn from_record(kind: &Kind, dtype: Dtype, seed: u64) -> Self {
        let placeholder = |name: String| {
            let tensor = Tensor::new(dtype, vec![0], vec![1], 0, Storage::owned(Vec::new()));
            (name, tensor.expect("no elements"))
        };
        let mut named: Vec<_> =
            (0..LAYERS as u64).map(|layer| placeholder(kind.layout.weight(layer, LayerPart::Wq))).collect();
        named.push(placeholder(format!("{}.weight", kind.layout.embedding)));
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
            let cached = &mut cache[layer as usize];
            let attended = if block.has_delta_net(layer) {
                self.delta_net(layer, &read, cached)
            } else {
                self.attention(layer, &read, cached)
            };
            for (((h, read), attended), early) in h.iter_mut().zip(&read).zip(attended).zip(early) {
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
                let y = if block.has_experts(layer) {
                    self.experts(layer, &x)
                } else {
                    let of = |part| (Weight::Layer { layer, part }, Weight::Bias { layer, part });
                    self.dense(layer, [LayerPart::W1, LayerPart::W3, LayerPart::W2].map(of), &x)
                };
                add(h, if block.parallel { y } else { after(LayerPart::FfnPostNorm, y) });
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

    /// The outputs of attention for the rows `x`, whose keys and values are added to the cache.
    fn attention(&self, layer: u64, x: &[Vec<f64>], (keys, values): &mut Cached) -> Vec<Vec<f64>> {
        let (decoder, scores) = (&self.decoder, &self.decoder.block().scores);
        let size = |n: u64| usize::try_from(n).expect("small");
        let (heads, kv_heads, hd) =
            (size(decoder.n_heads()), size(decoder.n_kv_heads()), size(decoder.head_dim()));
        let part = |part, x: &[f64]| {
            if decoder.block().fused_heads && part != LayerPart::Wo {
                let part_of = LayerPart::Wqkv;
                let all = self.linear(
                    Weight::Layer { layer, part: part_of },
                    Some(Weight::Bias { layer, part: part_of }),
                    x,
                );
                let group = heads / kv_heads;
                let of_head = |head: &[f64]| match part {
                    LayerPart::Wq => head[..group * hd].to_vec(),
                    LayerPart::Wk => head[group * hd..][..hd].to_vec(),
                    _ => head[(group + 1) * hd..].to_vec(),
                };
                return all.chunks_exact((group + 2) * hd).flat_map(of_head).collect();
            }
            let all = self.linear(Weight::Layer { layer, part }, Some(Weight::Bias { layer, part }), x);
            if part != LayerPart::Wq || !decoder.block().gated_attention {
                return all;
            }
            all.chunks_exact(2 * hd).flat_map(|head| head[..hd].to_vec()).collect()
        };
        let before = keys.len();
        let block = decoder.block();
        let limited = |row: Vec<f64>| -> Vec<f64> {
            let limit = block.qkv_limit.unwrap_or(f64::INFINITY);
            row.into_iter().map(|x| x.clamp(-limit, limit)).collect()
        };
        let early = |part, row| if block.head_norm_last { row } else { self.head_norm(layer, part, row) };
        let late = |part, row| if block.head_norm_last { self.head_norm(layer, part, row) } else { row };
        keys.extend(x.iter().map(|x| limited(early(LayerPart::KNorm, part(LayerPart::Wk, x)))));
        values.extend(x.iter().map(|x| limited(part(LayerPart::Wv, x))));
        let rotated = |position: usize, row: &[f64]| self.rotated(layer, position, keys.len(), row);
        let rotated_keys: Vec<_> =
            keys.iter().enumerate().map(|(at, row)| late(LayerPart::KNorm, rotated(at, row))).collect();
        let mut results = Vec::new();
        for (position, x) in (before..).zip(x) {
            let q = limited(early(LayerPart::QNorm, part(LayerPart::Wq, x)));
            let sharpness = block
                .query_scale
                .map_or(1.0, |scale| 1.0 + scale.beta * (1.0 + (position as f64 / scale.old).floor()).ln());
            let q: Vec<f64> =
                late(LayerPart::QNorm, rotated(position, &q)).into_iter().map(|x| x * sharpness).collect();
            let window = decoder.windows().window_of(layer).map_or(usize::MAX, size);
            let first = (position + 1).saturating_sub(window);
            let mut out = Vec::new();
            for head in 0..heads {
                let kv = head / (heads / kv_heads) * hd;
                let factor = scores.scale.unwrap_or(1.0 / (hd as f64).sqrt());
                let slope = f64::from(Alibi::slopes(decoder.n_heads())[head]);
                let bfloat16 = |x: f64| rounded(Dtype::BFloat16, &[x]).1[0];
                let score = |token: usize| {
                    let product = dot(&q[head * hd..][..hd], &rotated_keys[token][kv..][..hd]);
                    let score = match block.alibi {
                        None => factor * product,
                        Some(Alibi::AfterScale) => factor * product + slope * token as f64,
                        Some(Alibi::BeforeScale) => {
                            factor * (product + bfloat16(bfloat16(slope) * bfloat16(token as f64)))
                        }
                    };
                    scores.soft_cap.map_or(score, |cap| cap * (score / cap).tanh())
                };
                let mut all: Vec<f64> = (first..=position).map(score).collect();
                if scores.sinks {
                    all.push(self.of(Weight::Layer { layer, part: LayerPart::Sinks })[head]);
                }
                let weights = softmax(&all);
                let mut o = vec![0.0; hd];
                for (weight, token) in weights.iter().zip(first..=position) {
                    o.iter_mut().zip(&values[token][kv..][..hd]).for_each(|(o, v)| *o += weight * v);
                }
                out.extend(o);
            }
            if block.gated_attention {
                let all = self.linear(
                    Weight::Layer { layer, part: LayerPart::Wq },
                    Some(Weight::Bias { layer, part: LayerPart::Wq }),
                    x,
                );
                let gates = all.chunks_exact(2 * hd).flat_map(|head| head[hd..].to_vec());
                out.iter_mut().zip(gates).for_each(|(x, gate)| *x /= 1.0 + (-gate).exp());
            }
            results.push(part(LayerPart::Wo, &out));
        }
        results
    }

    /// The outputs of gated `DeltaNet` for the rows `x`, which are kept in place of keys: all is computed from the first.
    fn delta_net(&self, layer: u64, x: &[Vec<f64>], (rows, _): &mut Cached) -> Vec<Vec<f64>> {
        let delta_net = self.decoder.block().delta_net.as_ref().expect("a layer has it");
        let size = |n: u64| usize::try_from(n).expect("small");
        let [key_heads, heads, dk, dv, kernel] = [
            delta_net.key_heads,
            delta_net.value_heads,
            delta_net.key_dim,
            delta_net.value_dim,
            delta_net.kernel,
        ]
        .map(size);
        let (group, keys, before) = (heads / key_heads, key_heads * dk, rows.len());
        rows.extend_from_slice(x);
        let linear = |part, x: &[f64]| self.linear(Weight::Layer { layer, part }, None, x);
        let numbers = |part| self.of(Weight::Layer { layer, part });
        // Queries, keys and values; gates; step sizes; decays.
        let project = |x: &Vec<f64>| -> [Vec<f64>; 4] {
            if !delta_net.fused {
                return [LayerPart::DeltaQkv, LayerPart::DeltaZ, LayerPart::DeltaB, LayerPart::DeltaA]
                    .map(|part| linear(part, x));
            }
            let (all, pairs) = (linear(LayerPart::DeltaQkvz, x), linear(LayerPart::DeltaBa, x));
            let parts = |from: usize, len: usize| -> Vec<f64> {
                all.chunks_exact(2 * (dk + group * dv))
                    .flat_map(|head| head[from..from + len].to_vec())
                    .collect()
            };
            let qkv = [parts(0, dk), parts(dk, dk), parts(2 * dk, group * dv)].concat();
            let half = |from: usize| -> Vec<f64> {
                pairs.chunks_exact(2 * group).flat_map(|head| head[from..from + group].to_vec()).collect()
            };
            [qkv, parts(2 * dk + group * dv, group * dv), half(0), half(group)]
        };
        let projected: Vec<[Vec<f64>; 4]> = rows.iter().map(project).collect();
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let weights = numbers(LayerPart::DeltaConv);
        let mixed = |token: usize, channel: usize| {
            let tap = |tap: usize| {
                let row = (token + tap).checked_sub(kernel - 1);
                row.map_or(0.0, |row| projected[row][0][channel] * weights[channel * kernel + tap])
            };
            let sum: f64 = (0..kernel).map(tap).sum();
            self.activation(sum, 1.0)
        };
        let unit = |x: Vec<f64>| -> Vec<f64> {
            let length = (dot(&x, &x) + 1e-6).sqrt();
            x.into_iter().map(|x| x / length).collect()
        };
        let mut states = vec![vec![vec![0.0; dv]; dk]; heads];
        let mut results = Vec::new();
        for (token, [_, gates, steps, decays]) in projected.iter().enumerate() {
            let mut out = Vec::new();
            for (head, state) in states.iter_mut().enumerate() {
                let of = |start: usize, len: usize| -> Vec<f64> {
                    (start..start + len).map(|channel| mixed(token, channel)).collect()
                };
                let q = unit(of(head / group * dk, dk));
                let k = unit(of(keys + head / group * dk, dk));
                let v = of(2 * keys + head * dv, dv);
                let softplus = (1.0 + (decays[head] + numbers(LayerPart::DeltaBias)[head]).exp()).ln();
                let kept = (-numbers(LayerPart::DeltaLog)[head].exp() * softplus).exp();
                state.iter_mut().flatten().for_each(|x| *x *= kept);
                let column = |x: &[f64], column: usize, state: &[Vec<f64>]| -> f64 {
                    state.iter().zip(x).map(|(row, x)| row[column] * x).sum()
                };
                let change: Vec<f64> =
                    (0..dv).map(|at| sigmoid(steps[head]) * (v[at] - column(&k, at, state))).collect();
                for (row, k) in state.iter_mut().zip(&k) {
                    row.iter_mut().zip(&change).for_each(|(x, change)| *x += k * change);
                }
                let found: Vec<f64> = (0..dv).map(|at| column(&q, at, state) / (dk as f64).sqrt()).collect();
                let root = (dot(&found, &found) / dv as f64 + self.decoder.norm_eps()).sqrt();
                let norm = numbers(LayerPart::DeltaNorm);
                out.extend((0..dv).map(|at| {
                    let gate = gates[head * dv + at];
                    found[at] / root * norm[at] * gate * sigmoid(gate)
                }));
            }
            if token >= before {
                results.push(linear(LayerPart::DeltaOut, &out));
            }
        }
        results
    }

    fn head_norm(&self, layer: u64, part: LayerPart, row: Vec<f64>) -> Vec<f64> {
        let whole = || self.of(Weight::Layer { layer, part });
        let heads = row.chunks_exact(self.decoder.head_dim() as usize);
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

    fn experts(&self, layer: u64, x: &[f64]) -> Vec<f64> {
        let experts = self.decoder.block().experts.as_ref().expect("the layer has experts");
        let router = Weight::Layer { layer, part: LayerPart::Router };
        let scores = self.linear(router, Some(Weight::Bias { layer, part: LayerPart::Router }), x);
        let highest = |scores: &[f64], count: usize| {
            let mut order: Vec<usize> = (0..scores.len()).collect();
            order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
            order.truncate(count);
            order
        };
        let mut order = highest(&scores, experts.per_token as usize);
        let mut weights: Vec<f64> = match experts.router {
            Router::Sigmoid { groups, chosen_groups, .. } => {
                let bias = self.of(Weight::Layer { layer, part: LayerPart::ChoiceBias });
                let share: Vec<f64> = scores.iter().map(|score| 1.0 / (1.0 + (-score).exp())).collect();
                let mut choice: Vec<f64> = share.iter().zip(bias).map(|(share, bias)| share + bias).collect();
                let size = choice.len() / groups as usize;
                if groups > 1 {
                    let of_groups: Vec<f64> = choice
                        .chunks(size)
                        .map(|group| highest(group, 2).iter().map(|at| group[*at]).sum())
                        .collect();
                    let kept = highest(&of_groups, chosen_groups as usize);
                    for (at, choice) in choice.iter_mut().enumerate() {
                        if !kept.contains(&(at / size)) {
                            *choice = -1e9;
                        }
                    }
                }
                order = highest(&choice, experts.per_token as usize);
                order.iter().map(|expert| share[*expert]).collect()
            }
            Router::Sparsemixer { jitter } => {
                let share = |expert: usize, out: Option<usize>| {
                    let top = scores[expert];
                    let is_near = |at: &usize| {
                        Some(*at) != out && (top - scores[*at]) / scores[*at].abs().max(top) <= 2.0 * jitter
                    };
                    let sum: f64 = (0..scores.len()).filter(is_near).map(|at| (scores[at] - top).exp()).sum();
                    1.0 / sum
                };
                vec![share(order[0], None), share(order[1], Some(order[0]))]
            }
            Router::BeforeChoice => {
                let all = softmax(&scores);
                order.iter().map(|expert| all[*expert]).collect()
            }
            Router::AfterChoice => softmax(&order.iter().map(|expert| scores[*expert]).collect::<Vec<_>>()),
        };
        if experts.renormalised {
            let sum: f64 = weights.iter().sum();
            for weight in &mut weights {
                *weight /= sum;
            }
        }
        if let Router::Sigmoid { factor, .. } = experts.router {
            for weight in &mut weights {
                *weight *= factor;
            }
        }
        let mut out = vec![0.0; x.len()];
        for (expert, weight) in order.into_iter().zip(weights) {
            let expert = expert as u64;
            let of =
                |part| (Weight::Expert { layer, part, expert }, Weight::ExpertBias { layer, part, expert });
            let y = if experts.interleaved {
                let (matrix, bias) = of(LayerPart::W13);
                let both = self.linear(matrix, Some(bias), x);
                let both: Vec<f64> = both.chunks(2).map(|pair| self.activation(pair[0], pair[1])).collect();
                let (matrix, bias) = of(LayerPart::W2);
                self.linear(matrix, Some(bias), &both)
            } else {
                self.feed_forward([LayerPart::W1, LayerPart::W3, LayerPart::W2].map(of), x)
            };
            out.iter_mut().zip(y).for_each(|(out, y)| *out += weight * y);
        }
        if let Some(shared) = experts.shared {
            let of = |part| (Weight::Layer { layer, part }, Weight::Bias { layer, part });
            let y =
                self.feed_forward([LayerPart::SharedW1, LayerPart::SharedW3, LayerPart::SharedW2].map(of), x);
            let gate = || self.linear(of(LayerPart::SharedGate).0, None, x)[0];
            let factor = if shared.gated { 1.0 / (1.0 + (-gate()).exp()) } else { 1.0 };
            out.iter_mut().zip(y).for_each(|(out, y)| *out += factor * y);
        }
        out
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
        let Some(rope) = self.decoder.rope_of(layer).map(|rope| &self.decoder.ropes()[rope]) else {
            return row;
        };
        let (hd, rotated) = (self.decoder.head_dim() as usize, self.decoder.rotated() as usize);
        let magnitude = match &rope.scaling {
            Some(RopeScaling::Yarn(yarn)) => yarn.magnitude,
            Some(RopeScaling::LongRope(long)) => long.magnitude,
            _ => 1.0,
        };
        for head in row.chunks_exact_mut(hd) {
            for pair in 0..rotated / 2 {
                let (sin, cos) = (position as f64 * frequency(rope, pair, rotated, total)).sin_cos();
                let (sin, cos) = (sin * magnitude, cos * magnitude);
                let (a, b) = if self.decoder.layout().rotates_halves {
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
