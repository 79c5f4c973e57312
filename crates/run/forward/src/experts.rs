//! Mixture of experts: a router chooses a few feed-forward networks for each token, and only their weights are read.
//!
//! Facts: the formulas of [`decoder::Experts`].

use crate::Result;
use crate::activation::LayerActivation;
use crate::feed_forward::{FeedForward, FeedForwardRows};
use crate::kernel::Pool;
use crate::linear::Linear;
use crate::memory::{checked_product, zeros};
use crate::norm::Norm;
use crate::number::Real;
use crate::router::ExpertRouter;
use crate::vector::AddScaled;

#[derive(Debug)]
pub(crate) struct Experts<T> {
    /// Router matrix of shape [experts, dim].
    pub(crate) scores: Linear<T>,
    pub(crate) router: ExpertRouter<T>,
    /// Norms of experts next to a dense layer.
    pub(crate) beside: Option<Beside<T>>,
    pub(crate) each: Vec<FeedForward<T>>,
    pub(crate) shared: Option<SharedExpertLayer<T>>,
}

/// Norms of experts that are next to a dense feed-forward layer, and that layer.
#[derive(Debug)]
pub(crate) struct Beside<T> {
    pub(crate) dense: FeedForward<T>,
    pub(crate) dense_norm: Norm<T>,
    /// Norm of what the router reads.
    pub(crate) router_norm: Norm<T>,
    /// Norms before and after the experts.
    pub(crate) norms: [Norm<T>; 2],
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
    /// Computes the output of the experts for the rows `x` [rows, dim], the norm of `h`, into `out` of the same shape, and that of a
    /// dense layer next to them.
    ///
    /// # Errors
    /// When an intermediate result does not fit in memory.
    pub(crate) fn apply(
        &self,
        pool: &Pool,
        activation: LayerActivation,
        dim: usize,
        h: &[T],
        x: &[T],
        out: &mut [T],
    ) -> Result<()> {
        let rows = x.len() / dim;
        let Some(beside) = &self.beside else {
            let choices = self.route_rows(pool, rows, x)?;
            return self.apply_chosen(pool, activation, dim, &choices, x, out);
        };
        let mut hidden = zeros(checked_product(&[rows, beside.dense.hidden(), 2])?)?;
        let dense = FeedForwardRows { layer: &beside.dense, x, hidden: &mut hidden, out: &mut *out };
        FeedForward::apply_all(pool, activation, &mut [dense]);
        beside.dense_norm.apply(pool, dim, out);
        let mut normed = zeros(h.len())?;
        beside.router_norm.apply_into(pool, h, &mut normed);
        let choices = self.route_rows(pool, rows, &normed)?;
        let [before, after] = &beside.norms;
        before.apply_into(pool, h, &mut normed);
        let mut results = zeros(h.len())?;
        self.apply_chosen(pool, activation, dim, &choices, &normed, &mut results)?;
        after.apply(pool, dim, &mut results);
        T::run(AddScaled { x: out, y: &results, factor: T::ONE });
        Ok(())
    }

    /// Computes the output of the chosen experts, and of the shared one.
    fn apply_chosen(
        &self,
        pool: &Pool,
        activation: LayerActivation,
        dim: usize,
        choices: &[ExpertRoute<T>],
        x: &[T],
        out: &mut [T],
    ) -> Result<()> {
        let rows = x.len() / dim;
        let hidden = self.each.first().map_or(0, FeedForward::hidden);
        let mut chosen = Vec::new();
        let mut results = zeros(checked_product(&[choices.len(), dim])?)?;
        let mut room = zeros(checked_product(&[choices.len(), hidden, 2])?)?;
        for ExpertRoute { row, .. } in choices {
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
        Linear::apply_all(pool, [(&self.scores, x, &mut scores[..])]);
        let mut choices = Vec::new();
        for (row, scores) in scores.chunks_exact(count).enumerate() {
            self.router.choose(scores, |expert, weight| choices.push(ExpertRoute { expert, row, weight }));
        }
        choices.sort_by_key(|choice| (choice.expert, choice.row));
        Ok(choices)
    }
}
