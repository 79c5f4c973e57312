//! Layers of gated `DeltaNet`, the plain way.

use super::*;

impl Random {
    /// The outputs of gated `DeltaNet` for the rows `x`, which are kept in place of keys: all is computed from the first.
    pub(super) fn delta_net(&self, layer: u64, x: &[Vec<f64>], (rows, _): &mut Cached) -> Vec<Vec<f64>> {
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
}
