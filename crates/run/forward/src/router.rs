//! Routers: the experts that the scores of a token choose, and the factors of their results.
//!
//! Facts: [`decoder::Router`]; the router's lines of the TorchScript text.

use decoder::Router;

use crate::number::Real;

#[derive(Clone, Debug)]
pub(crate) struct ExpertRouter<T> {
    pub(crate) kind: Router,
    /// Number of experts that each token goes through.
    pub(crate) per_token: usize,
    pub(crate) is_renormalised: bool,
    /// Number that the choice adds to the score of each expert; empty if it adds none.
    pub(crate) choice_bias: Vec<T>,
    /// Factor of each expert's share; empty if there is none.
    pub(crate) scales: Vec<T>,
}

impl<T: Real> ExpertRouter<T> {
    /// Passes the chosen experts to `take`, each with its factor.
    pub(crate) fn choose(&self, scores: &[T], mut take: impl FnMut(usize, T)) {
        let mut chosen = match self.kind {
            Router::BeforeChoice | Router::AfterChoice | Router::Scaled => self.softmax(scores),
            Router::Sparsemixer { jitter } => sparsemixer(scores, T::from_f64(2.0 * jitter)),
            Router::Sigmoid { groups, chosen_groups, .. } => self
                .sigmoid(scores, [groups, chosen_groups].map(|n| usize::try_from(n).unwrap_or(usize::MAX))),
        };
        let (is_sum, floor, factor) = match self.kind {
            Router::BeforeChoice | Router::Scaled | Router::Sparsemixer { .. } => {
                (self.is_renormalised, 0.0, T::ONE)
            }
            Router::AfterChoice => (true, 0.0, T::ONE),
            Router::Sigmoid { factor, .. } => (self.is_renormalised, 1e-20, T::from_f64(factor)),
        };
        if is_sum {
            let sum = chosen.iter().fold(T::from_f64(floor), |sum, (_, weight)| sum + *weight);
            for (_, weight) in &mut chosen {
                *weight = *weight / sum;
            }
        }
        chosen
            .into_iter()
            .map(|(expert, weight)| (expert, weight * self.scales.get(expert).copied().unwrap_or(factor)))
            .for_each(|(expert, weight)| take(expert, weight));
    }

    /// Returns the experts with the highest scores, each with the exponential of its score, divided by the sum over all
    /// experts if the softmax comes before the choice.
    fn softmax(&self, scores: &[T]) -> Vec<(usize, T)> {
        let most = largest(scores);
        let power = |score: T| (score - most).exp();
        let sum = match self.kind {
            Router::AfterChoice => T::ONE,
            _ => scores.iter().fold(T::default(), |sum, score| sum + power(*score)),
        };
        let best = highest(scores, self.per_token).into_iter();
        best.filter_map(|expert| Some((expert, power(*scores.get(expert)?) / sum))).collect()
    }

    fn sigmoid(&self, scores: &[T], [groups, chosen_groups]: [usize; 2]) -> Vec<(usize, T)> {
        let scores: Vec<T> = scores.iter().map(|score| T::ONE / (T::ONE + (-*score).exp())).collect();
        let mut choice: Vec<T> =
            scores.iter().zip(&self.choice_bias).map(|(score, bias)| *score + *bias).collect();
        if groups > 1 {
            let size = choice.len() / groups;
            let best_two = |group: &[T]| {
                let best = highest(group, 2).into_iter().filter_map(|at| group.get(at));
                best.fold(T::default(), |sum, score| sum + *score)
            };
            let of_groups: Vec<T> = choice.chunks_exact(size).map(best_two).collect();
            let kept = highest(&of_groups, chosen_groups);
            for (group, scores) in choice.chunks_exact_mut(size).enumerate() {
                if !kept.contains(&group) {
                    scores.fill(T::NEG_INFINITY);
                }
            }
        }
        let best = highest(&choice, self.per_token).into_iter();
        best.filter_map(|expert| Some((expert, *scores.get(expert)?))).collect()
    }
}

/// Returns the best expert and the next one, each with its share in a softmax over the experts that are near it.
fn sparsemixer<T: Real>(scores: &[T], distance: T) -> Vec<(usize, T)> {
    let mut left = scores.to_vec();
    let mut chosen = Vec::new();
    for _ in 0..2 {
        let Some((expert, top)) = highest(&left, 1).first().and_then(|at| Some((*at, *left.get(*at)?)))
        else {
            return chosen;
        };
        let is_near = |score: T| {
            let size = if score < T::default() { -score } else { score };
            let size = if size < top { top } else { size };
            (top - score) / size <= distance
        };
        let near = scores.iter().zip(&left).filter(|(score, _)| is_near(**score));
        let sum = near.fold(T::default(), |sum, (_, left)| sum + (*left - top).exp());
        chosen.push((expert, T::ONE / sum));
        if let Some(score) = left.get_mut(expert) {
            *score = T::NEG_INFINITY;
        }
    }
    chosen
}

fn largest<T: Real>(scores: &[T]) -> T {
    scores.iter().copied().fold(T::NEG_INFINITY, |a, b| if b > a { b } else { a })
}

/// Returns the indices of the `count` highest scores, in order; of equal scores, the first comes first.
fn highest<T: Real>(scores: &[T], count: usize) -> Vec<usize> {
    let mut left: Vec<Option<T>> = scores.iter().copied().map(Some).collect();
    let mut chosen = Vec::new();
    for _ in 0..count {
        let mut best: Option<(usize, T)> = None;
        for (expert, score) in left.iter().enumerate() {
            if let Some(score) = score
                && best.is_none_or(|(_, best)| *score > best)
            {
                best = Some((expert, *score));
            }
        }
        let Some((expert, _)) = best else { return chosen };
        if let Some(left) = left.get_mut(expert) {
            *left = None;
        }
        chosen.push(expert);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The experts that are chosen by these scores, with their factors.
    fn chosen(kind: Router, is_renormalised: bool, scores: &[f32]) -> Vec<(usize, f32)> {
        let choice_bias = vec![0.0; scores.len()];
        let router = ExpertRouter { kind, per_token: 2, is_renormalised, choice_bias, scales: Vec::new() };
        let mut found = Vec::new();
        router.choose(scores, |expert, weight| found.push((expert, weight)));
        found
    }

    #[test]
    fn the_highest_scores_are_chosen_in_order() {
        let powers = |kind| chosen(kind, false, &[-40.0, 100.0, 80.0, 100.0]);
        // Of equal scores, the first one is chosen first. No power of e is too large for the type.
        assert_eq!(powers(Router::AfterChoice), [(1, 0.5), (3, 0.5)]);
        assert_eq!(powers(Router::BeforeChoice), [(1, 0.5), (3, 0.5)]);
        assert_eq!(chosen(Router::BeforeChoice, false, &[3.0]), [(0, 1.0)]);
    }

    #[test]
    fn sigmoids_are_chosen_from_the_best_groups() {
        let kind = |groups, chosen_groups| Router::Sigmoid { groups, chosen_groups, factor: 2.0 };
        // The best expert is in a group whose sum of two is smaller.
        let scores = [9.0, -90.0, 1.0, 1.0];
        assert_eq!(chosen(kind(1, 1), true, &scores).iter().map(|it| it.0).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(chosen(kind(2, 1), true, &scores), [(2, 1.0), (3, 1.0)]);
    }

    #[test]
    fn the_mixer_weighs_each_of_two_experts_alone() {
        let found = chosen(Router::Sparsemixer { jitter: 0.05 }, false, &[1.0, 2.0, 1.99, -3.0]);
        assert_eq!(found.iter().map(|it| it.0).collect::<Vec<_>>(), [1, 2]);
        let near = 1.0 / (1.0 + (-0.01_f32).exp());
        assert!((found[0].1 - near).abs() < 1e-6 && (found[1].1 - 1.0).abs() < 1e-6, "{found:?}");
    }
}
