//! Mixture of experts: a router chooses a few feed-forward networks for each token, and only their weights are read.
//!
//! Facts: the formulas of [`decoder::Experts`].

use decoder::{Activation, RouterSoftmax};

use crate::Result;
use crate::feed_forward::{FeedForward, FeedForwardRows};
use crate::kernel::Pool;
use crate::linear::Linear;
use crate::memory::{checked_product, zeros};
use crate::number::Real;
use crate::vector::AddScaled;

#[derive(Debug)]
pub(crate) struct Experts<T> {
    /// Router matrix of shape [experts, dim].
    pub(crate) router: Linear<T>,
    pub(crate) each: Vec<FeedForward<T>>,
    pub(crate) shared: Option<SharedExpertLayer<T>>,
    /// Number of experts that each token goes through.
    pub(crate) per_token: usize,
    pub(crate) softmax: RouterSoftmax,
    pub(crate) is_renormalised: bool,
}

/// Shared expert, which all tokens go through.
#[derive(Debug)]
pub(crate) struct SharedExpertLayer<T> {
    pub(crate) layer: FeedForward<T>,
    /// Gate matrix of shape [1, dim].
    pub(crate) gate: Option<Linear<T>>,
}

#[derive(Clone, Copy, Debug)]
struct ExpertRoute<T> {
    expert: usize,
    row: usize,
    /// Factor of the expert's result.
    weight: T,
}

impl<T: Real> Experts<T> {
    /// Computes the output of the experts for the rows `x` [rows, dim] into `out` of the same shape.
    ///
    /// # Errors
    /// When an intermediate result does not fit in memory.
    pub(crate) fn apply(
        &self,
        pool: &Pool,
        activation: Activation,
        dim: usize,
        x: &[T],
        out: &mut [T],
    ) -> Result<()> {
        let rows = x.len() / dim;
        let choices = self.route_rows(pool, rows, x)?;
        let hidden = self.each.first().map_or(0, FeedForward::hidden);
        let mut chosen = Vec::new();
        let mut results = zeros(checked_product(&[choices.len(), dim])?)?;
        let mut room = zeros(checked_product(&[choices.len(), hidden, 2])?)?;
        for ExpertRoute { row, .. } in &choices {
            chosen.extend_from_slice(x.get(row * dim..(row + 1) * dim).unwrap_or_default());
        }
        let mut shared_results = zeros(if self.shared.is_some() { x.len() } else { 0 })?;
        let shared_hidden = self.shared.as_ref().map_or(0, |shared| shared.layer.hidden());
        let mut shared_room = zeros(checked_product(&[rows, shared_hidden, 2])?)?;

        let (mut chosen, mut left, mut room) = (&chosen[..], &mut results[..], &mut room[..]);
        let mut all = Vec::new();
        for of_one in choices.chunk_by(|a, b| a.expert == b.expert) {
            let layer = of_one.first().and_then(|choice| self.each.get(choice.expert));
            let (x, more_x) = chosen.split_at(of_one.len() * dim);
            let (out, more_left) = left.split_at_mut(of_one.len() * dim);
            let (hidden, more_room) = room.split_at_mut(of_one.len() * hidden * 2);
            (chosen, left, room) = (more_x, more_left, more_room);
            all.extend(layer.map(|layer| FeedForwardRows { layer, x, hidden, out }));
        }
        if let Some(SharedExpertLayer { layer, .. }) = &self.shared {
            all.push(FeedForwardRows { layer, x, hidden: &mut shared_room, out: &mut shared_results });
        }
        FeedForward::apply_all(pool, activation, &mut all);

        out.fill(T::default());
        for (ExpertRoute { row, weight, .. }, y) in choices.iter().zip(results.chunks_exact(dim)) {
            if let Some(x) = out.get_mut(row * dim..(row + 1) * dim) {
                T::run(AddScaled { x, y, factor: *weight });
            }
        }
        if let Some(SharedExpertLayer { gate, .. }) = &self.shared {
            let mut factors: Vec<T> = zeros(rows)?;
            match gate {
                Some(gate) => {
                    Linear::apply_all(pool, [(gate, x, &mut factors[..])]);
                    for x in &mut factors {
                        *x = T::ONE / (T::ONE + (-*x).exp());
                    }
                }
                None => factors.fill(T::ONE),
            }
            let rows = out.chunks_exact_mut(dim).zip(shared_results.chunks_exact(dim));
            for ((x, y), factor) in rows.zip(factors) {
                T::run(AddScaled { x, y, factor });
            }
        }
        Ok(())
    }

    /// Chooses the experts of all rows, sorted by expert, then row.
    fn route_rows(&self, pool: &Pool, rows: usize, x: &[T]) -> Result<Vec<ExpertRoute<T>>> {
        let count = self.each.len();
        let mut scores: Vec<T> = zeros(checked_product(&[rows, count])?)?;
        Linear::apply_all(pool, [(&self.router, x, &mut scores[..])]);
        let mut choices = Vec::new();
        for (row, scores) in scores.chunks_exact(count).enumerate() {
            let first = choices.len();
            self.choose_experts(scores, |expert, weight| choices.push(ExpertRoute { expert, row, weight }));
            let chosen = choices.get_mut(first..).unwrap_or_default();
            let sum = chosen.iter().fold(T::default(), |sum, choice| sum + choice.weight);
            if self.is_renormalised || self.softmax == RouterSoftmax::AfterChoice {
                for choice in chosen {
                    choice.weight = choice.weight / sum;
                }
            }
        }
        choices.sort_by_key(|choice| (choice.expert, choice.row));
        Ok(choices)
    }

    /// Passes the experts with the highest scores to `take`, each with the exponential of its score, divided by the sum
    /// over all experts if the softmax comes before the choice.
    fn choose_experts(&self, scores: &[T], mut take: impl FnMut(usize, T)) {
        let most = scores.iter().copied().fold(T::NEG_INFINITY, |a, b| if b > a { b } else { a });
        let power = |score: T| (score - most).exp();
        let sum = match self.softmax {
            RouterSoftmax::BeforeChoice => scores.iter().fold(T::default(), |sum, score| sum + power(*score)),
            RouterSoftmax::AfterChoice => T::ONE,
        };
        let mut left: Vec<Option<T>> = scores.iter().copied().map(Some).collect();
        for _ in 0..self.per_token {
            let mut best: Option<(usize, T)> = None;
            for (expert, score) in left.iter().enumerate() {
                if let Some(score) = score
                    && best.is_none_or(|(_, best)| *score > best)
                {
                    best = Some((expert, *score));
                }
            }
            let Some((expert, score)) = best else { return };
            if let Some(left) = left.get_mut(expert) {
                *left = None;
            }
            take(expert, power(score) / sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use tensor::{Dtype, Storage, Tensor};

    use super::*;
    use crate::kernel::Matrix;

    /// The experts that are chosen by these scores, with their weights.
    fn chosen(softmax: RouterSoftmax, scores: &[f32]) -> Vec<(usize, f32)> {
        let router = Tensor::new(Dtype::Float32, vec![1, 1], vec![1, 1], 0, Storage::owned(vec![0; 4]));
        let matrix = Matrix::new(&router.expect("4 bytes are enough")).expect("it has rows");
        let router = Linear { matrix, bias: None };
        let experts =
            Experts { router, each: Vec::new(), shared: None, per_token: 2, softmax, is_renormalised: false };
        let mut found = Vec::new();
        experts.choose_experts(scores, |expert, weight| found.push((expert, weight)));
        found
    }

    #[test]
    fn the_highest_scores_are_chosen_in_order() {
        let powers = |softmax| chosen(softmax, &[-40.0, 100.0, 80.0, 100.0]);
        // Of equal scores, the first one is chosen first. No power of e is too large for the type.
        assert_eq!(powers(RouterSoftmax::AfterChoice), [(1, 1.0), (3, 1.0)]);
        assert_eq!(powers(RouterSoftmax::BeforeChoice), [(1, 0.5), (3, 0.5)]);
        assert_eq!(chosen(RouterSoftmax::BeforeChoice, &[3.0]), [(0, 1.0)]);
    }
}
