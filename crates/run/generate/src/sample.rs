//! Choice of the next token from its logits.
//!
//! Facts: temperature, top-k and top-p are those of Hugging Face's `TemperatureLogitsWarper`, `TopKLogitsWarper` and
//! `TopPLogitsWarper` (`transformers/generation/logits_process.py`), in this order. Probabilities are computed in f64. Random numbers come from `ChaCha8` as
//! `rand_chacha` seeds it from a number, so a seed gives the same tokens in every version that keeps this generator.

use std::cmp::Ordering;
use std::num::NonZeroU32;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use crate::{Error, Result};

/// Method of choosing the next token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TokenChoice {
    /// The most probable token; the lowest id among equals.
    Greedy,
    /// A random token, drawn by its probability.
    Random {
        /// Divisor of the logits, above 0. Values below 1 favour probable tokens.
        temperature: f64,
        /// Number of most probable tokens that are candidates, and tokens as probable as the last of them; `None` for all.
        top_k: Option<NonZeroU32>,
        /// Sum of probabilities, above 0 and at most 1: only the fewest most probable tokens that reach it are candidates.
        top_p: f64,
        /// Seed of the random number generator.
        seed: u64,
    },
}

/// Chooses tokens one after another, with the state of a random number generator.
#[derive(Clone, Debug)]
pub struct Sampler {
    choice: TokenChoice,
    random: ChaCha8Rng,
}

impl Sampler {
    /// Creates a sampler from its seed.
    ///
    /// # Errors
    /// Returns an error if the temperature or top-p is out of range.
    pub fn new(choice: TokenChoice) -> Result<Self> {
        let seed = match choice {
            TokenChoice::Greedy => 0,
            TokenChoice::Random { temperature, top_p, seed, .. } => {
                if !(temperature.is_finite() && temperature > 0.0) {
                    return Err(Error::Temperature { found: temperature });
                }
                if !(top_p > 0.0 && top_p <= 1.0) {
                    return Err(Error::TopP { found: top_p });
                }
                seed
            }
        };
        Ok(Self { choice, random: ChaCha8Rng::seed_from_u64(seed) })
    }

    /// Chooses the next token: an index of `logits`.
    ///
    /// # Errors
    /// Returns an error if a logit is NaN, or if there are no logits.
    pub fn next(&mut self, logits: &[f32]) -> Result<u32> {
        let largest = largest_logit(logits)?;
        let TokenChoice::Random { temperature, top_k, top_p, .. } = self.choice else {
            return Ok(largest.id);
        };
        let weights = softmax_weights(logits, largest.logit, temperature);
        let mut total: f64 = weights.iter().sum();
        let mut order: Vec<u32> = token_ids(logits).collect();
        let weight = |id: &u32| weight_of_token(&weights, *id);
        let count = top_k.and_then(|count| usize::try_from(count.get()).ok());
        if top_p < 1.0 || count.is_some() {
            order.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
        }
        if let Some(last) = count.and_then(|count| order.get(count.saturating_sub(1))).map(weight) {
            order.truncate(order.partition_point(|id| weight(id) >= last));
            total = order.iter().map(weight).sum();
        }
        let mut kept = total;
        if top_p < 1.0 {
            let (mut count, mut sum) = (0_usize, 0.0);
            for id in &order {
                sum += weight(id);
                count += 1;
                if sum >= top_p * total {
                    break;
                }
            }
            order.truncate(count);
            kept = sum;
        }
        let at = self.uniform() * kept;
        let mut sum = 0.0;
        let chosen = order.iter().find(|id| {
            sum += weight(id);
            at < sum
        });
        // Rounding may leave the final sum slightly below `at`.
        let last = || order.iter().rfind(|id| weight(id) > 0.0);
        Ok(chosen.or_else(last).copied().unwrap_or(largest.id))
    }

    /// Returns a random number in `[0, 1)`: the upper 53 bits of a 64-bit random number.
    fn uniform(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
        let numerator = (self.random.next_u64() >> 11) as f64;
        numerator / 9_007_199_254_740_992.0
    }
}

/// Returns the logarithm of the sum of the logits' exponentials: the logarithm of a token's probability is the difference of its logit
/// and this.
///
/// # Errors
/// Returns an error if a logit is NaN, or if there are no logits.
pub fn log_normalizer(logits: &[f32]) -> Result<f64> {
    let largest = largest_logit(logits)?.logit;
    Ok(f64::from(largest) + softmax_weights(logits, largest, 1.0).iter().sum::<f64>().ln())
}

/// A candidate for the next token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenCandidate {
    pub id: u32,
    pub logit: f32,
    /// Probability of the token: the softmax over all logits.
    pub probability: f64,
}

/// Returns the `count` most probable tokens, the most probable first; among equals, the lowest id first.
///
/// # Errors
/// Returns an error if a logit is NaN, or if there are no logits.
pub fn top_candidates(logits: &[f32], count: usize) -> Result<Vec<TokenCandidate>> {
    let largest = largest_logit(logits)?;
    let weights = softmax_weights(logits, largest.logit, 1.0);
    let total: f64 = weights.iter().sum();
    let mut order: Vec<(u32, f32)> = token_ids(logits).zip(logits.iter().copied()).collect();
    let by_logit =
        |a: &(u32, f32), b: &(u32, f32)| b.1.partial_cmp(&a.1).unwrap_or(Ordering::Equal).then(a.0.cmp(&b.0));
    if let Some(last) = count.checked_sub(1).filter(|last| *last < order.len()) {
        order.select_nth_unstable_by(last, by_logit);
    }
    order.truncate(count);
    order.sort_by(by_logit);
    let candidate =
        |(id, logit)| TokenCandidate { id, logit, probability: weight_of_token(&weights, id) / total };
    Ok(order.into_iter().map(candidate).collect())
}

struct LargestLogit {
    id: u32,
    logit: f32,
}

/// Returns the largest logit; among equals, the one with the lowest id.
fn largest_logit(logits: &[f32]) -> Result<LargestLogit> {
    let mut largest: Option<LargestLogit> = None;
    for (id, logit) in token_ids(logits).zip(logits) {
        if logit.is_nan() {
            return Err(Error::NotANumber { token: id });
        }
        if largest.as_ref().is_none_or(|largest| *logit > largest.logit) {
            largest = Some(LargestLogit { id, logit: *logit });
        }
    }
    largest.ok_or(Error::NoLogits)
}

fn token_ids(logits: &[f32]) -> impl Iterator<Item = u32> {
    (0_u32..).take(logits.len())
}

/// Returns the exponentials of scaled logits relative to the largest, proportional to the probabilities. The largest logit
/// has weight 1, so nothing overflows.
fn softmax_weights(logits: &[f32], largest: f32, temperature: f64) -> Vec<f64> {
    let largest = f64::from(largest);
    let weight = |logit: &f32| {
        let below = f64::from(*logit) - largest;
        // Infinity minus infinity is NaN.
        if below.is_nan() { 1.0 } else { (below / temperature).exp() }
    };
    logits.iter().map(weight).collect()
}

fn weight_of_token(weights: &[f64], id: u32) -> f64 {
    usize::try_from(id).ok().and_then(|id| weights.get(id)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(temperature: f64, top_p: f64, seed: u64) -> Sampler {
        Sampler::new(TokenChoice::Random { temperature, top_k: None, top_p, seed }).expect("in range")
    }

    #[test]
    fn greedy_takes_the_first_of_the_largest() {
        let mut greedy = Sampler::new(TokenChoice::Greedy).expect("no numbers");
        assert_eq!(greedy.next(&[-1.0, 3.0, 3.0, 2.0]), Ok(1));
        assert_eq!(greedy.next(&[f32::NEG_INFINITY; 3]), Ok(0));
        assert_eq!(greedy.next(&[0.0, f32::INFINITY]), Ok(1));
        assert_eq!(greedy.next(&[]), Err(Error::NoLogits));
        assert_eq!(greedy.next(&[0.0, f32::NAN]), Err(Error::NotANumber { token: 1 }));
    }

    /// Expected values are those of `torch.softmax(torch.tensor([1., 2., 3., -100.], dtype=torch.float64), 0)`.
    #[test]
    fn probabilities_are_a_softmax() {
        let top = top_candidates(&[1.0, 2.0, 3.0, -100.0], 3).expect("numbers");
        let expected =
            [(2, 0.665_240_955_774_821_7), (1, 0.244_728_471_054_797_67), (0, 0.090_030_573_170_380_46)];
        for (candidate, (id, probability)) in top.iter().zip(expected) {
            assert_eq!(candidate.id, id);
            assert!((candidate.probability - probability).abs() < 1e-15, "{candidate:?}");
        }
        assert_eq!(top.len(), 3);
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let all = top_candidates(&[3e38, -3e38, 3e38], 9).expect("numbers");
        assert_eq!(
            all.iter().map(|it| (it.id, it.probability)).collect::<Vec<_>>(),
            [(0, 0.5), (2, 0.5), (1, 0.0)]
        );
        assert_eq!(sampler(1e-300, 1.0, 1).next(&[0.0, 1.0]), Ok(1));
        assert_eq!(top_candidates(&[-0.0, 0.0], 2).expect("numbers").first().map(|it| it.id), Some(0));
    }

    #[test]
    fn top_p_keeps_the_smallest_set_that_reaches_it() {
        // Probabilities 0.5, 0.25, 0.125, 0.125.
        let logits = [0.125_f32, 0.5, 0.125, 0.25].map(f32::ln);
        let seen = |top_p| {
            let mut sampler = sampler(1.0, top_p, 7);
            let mut seen = [0_u32; 4];
            for _ in 0..4000 {
                let id = sampler.next(&logits).expect("numbers") as usize;
                seen[id] += 1;
            }
            seen
        };
        assert_eq!(seen(0.4), [0, 4000, 0, 0]);
        let [a, b, c, d] = seen(0.6);
        assert_eq!((a, c), (0, 0));
        assert!((2500..2840).contains(&b), "{b} of 4000, expected two thirds");
        assert_eq!(b + d, 4000);
        let all = seen(1.0);
        for (count, expected) in all.into_iter().zip([500, 2000, 500, 1000_u32]) {
            assert!(count.abs_diff(expected) < 130, "{all:?}");
        }
    }

    #[test]
    fn top_k_keeps_the_most_probable_and_their_equals() {
        let seen = |top_k, top_p| {
            let choice =
                TokenChoice::Random { temperature: 1.0, top_k: NonZeroU32::new(top_k), top_p, seed: 3 };
            let mut sampler = Sampler::new(choice).expect("in range");
            let mut seen = [false; 5];
            for _ in 0..500 {
                seen[sampler.next(&[0.1, 2.0, 1.0, 1.0, -3.0]).expect("numbers") as usize] = true;
            }
            seen
        };
        assert_eq!(seen(1, 1.0), [false, true, false, false, false]);
        assert_eq!(seen(2, 1.0), [false, true, true, true, false]);
        assert_eq!(seen(9, 1.0), [true; 5]);
        // Of the two most probable tokens and their equal, the first alone has 0.58 of the probability.
        assert_eq!(seen(2, 0.5), [false, true, false, false, false]);
    }

    #[test]
    fn a_seed_gives_the_same_tokens() {
        let logits = [0.0; 1000];
        let drawn = |seed| {
            let mut sampler = sampler(1.0, 1.0, seed);
            [(); 6].map(|()| sampler.next(&logits).expect("numbers"))
        };
        // ChaCha8 as `rand_chacha` 0.9 seeds it; another generator would change the tokens of a seed.
        assert_eq!(drawn(42), SEED_42);
        assert_ne!(drawn(43), drawn(42));
    }

    const SEED_42: [u32; 6] = [681, 950, 427, 627, 288, 149];

    #[test]
    fn numbers_out_of_range_are_errors() {
        let new = |temperature, top_p| {
            Sampler::new(TokenChoice::Random { temperature, top_k: None, top_p, seed: 0 }).map(|_| ())
        };
        for found in [0.0, -1.0, f64::INFINITY] {
            assert_eq!(new(found, 1.0), Err(Error::Temperature { found }));
        }
        assert!(matches!(new(f64::NAN, 1.0), Err(Error::Temperature { .. })));
        for found in [0.0, 1.5, -0.1] {
            assert_eq!(new(1.0, found), Err(Error::TopP { found }));
        }
        assert!(matches!(new(1.0, f64::NAN), Err(Error::TopP { .. })));
    }

    #[test]
    fn the_normalizer_gives_logarithms_of_probabilities() {
        let logits = [1.0, 3.0, -2.5, f32::NEG_INFINITY];
        let normalizer = log_normalizer(&logits).expect("numbers");
        for candidate in top_candidates(&logits, 4).expect("numbers") {
            let found = (f64::from(candidate.logit) - normalizer).exp();
            assert!((found - candidate.probability).abs() < 1e-12, "{candidate:?}");
        }
        assert_eq!(log_normalizer(&[]), Err(Error::NoLogits));
    }
}
