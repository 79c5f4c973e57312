//! Attention, the plain way.

use super::*;

impl Random {
    /// The outputs of attention for the rows `x`, whose keys and values are added to the cache.
    pub(super) fn attention(&self, layer: u64, x: &[Vec<f64>], (keys, values): &mut Cached) -> Vec<Vec<f64>> {
        let (decoder, scores) = (&self.decoder, &self.decoder.block().scores);
        let size = |n: u64| usize::try_from(n).expect("small");
        let (heads, kv_heads, hd) =
            (size(decoder.n_heads()), size(decoder.n_kv_heads_of(layer)), size(decoder.head_dim_of(layer)));
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
        let block = decoder.block();
        let is_shared = decoder.shares_keys(layer);
        let before = keys.len() - if is_shared { x.len() } else { 0 };
        let limited = |row: Vec<f64>| -> Vec<f64> {
            let limit = block.qkv_limit.unwrap_or(f64::INFINITY);
            row.into_iter().map(|x| x.clamp(-limit, limit)).collect()
        };
        let early = |part, row| if block.head_norm_last { row } else { self.head_norm(layer, part, row) };
        let late = |part, row| if block.head_norm_last { self.head_norm(layer, part, row) } else { row };
        let value = |x: &[f64]| {
            let is_key = decoder.has_keys_as_values(layer);
            let value = part(if is_key { LayerPart::Wk } else { LayerPart::Wv }, x);
            if block.mixed_heads.is_none() {
                return value;
            }
            value.chunks_exact(hd).flat_map(|head| self.norm(head, &vec![1.0; hd], None)).collect()
        };
        if !is_shared {
            keys.extend(x.iter().map(|x| limited(early(LayerPart::KNorm, part(LayerPart::Wk, x)))));
            values.extend(x.iter().map(|x| limited(value(x))));
        }
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
}
