//! Experts, the plain way.

use super::*;

impl Random {
    /// The output for the row `x`; the router reads `read`.
    pub(super) fn experts(&self, layer: u64, read: &[f64], x: &[f64]) -> Vec<f64> {
        let experts = self.decoder.block().experts.as_ref().expect("the layer has experts");
        let router = Weight::Layer { layer, part: LayerPart::Router };
        let scores = self.linear(router, Some(Weight::Bias { layer, part: LayerPart::Router }), read);
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
            Router::BeforeChoice | Router::Scaled => {
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
        if experts.router == Router::Scaled {
            let scales = self.of(Weight::Layer { layer, part: LayerPart::ExpertScale });
            weights.iter_mut().zip(&order).for_each(|(weight, expert)| *weight *= scales[*expert]);
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
}
