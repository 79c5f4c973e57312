//! Rotary positions: the angles of each position, and the rotation of queries and keys by them.
//!
//! Facts: `freqs` and `rotate` of the TorchScript text, which follow Meta's `llama-models` 0.3.0 and Hugging Face's
//! `transformers` 5.23. Angles are products of rounded numbers, in f32 and f64 alike, so that long contexts have the
//! angles that models were trained with.

use decoder::{Llama3, Rope, Scaling};

use crate::number::Real;

/// The frequencies of a head, one for each pair of numbers.
#[derive(Clone, Debug)]
pub(crate) struct Frequencies<T> {
    each: Vec<T>,
    /// Whether a pair is a number of the first half and one of the second, not two neighbours.
    rotates_halves: bool,
}

/// The cosines and sines of some positions: [positions, pairs].
#[derive(Clone, Debug)]
pub(crate) struct Angles<T> {
    cos: Vec<T>,
    sin: Vec<T>,
    pairs: usize,
    rotates_halves: bool,
}

#[expect(clippy::arithmetic_side_effects, reason = "floating-point numbers do not overflow")]
impl<T: Real> Frequencies<T> {
    /// Those of a head of `head_dim` numbers.
    pub(crate) fn new(rope: &Rope, head_dim: usize, rotates_halves: bool) -> Self {
        let rounded = |number: f64| T::from_f64(number);
        #[expect(clippy::cast_precision_loss, reason = "the size of a head is small")]
        let exponent = |pair: usize| rounded(pair.saturating_mul(2) as f64) / rounded(head_dim as f64);
        let power = |pair| rounded(rounded(rope.theta).to_f64().powf(exponent(pair).to_f64()));
        let plain = (0..head_dim / 2).map(|pair| T::ONE / power(pair));
        let scaling = match rope.scaling {
            Some(Scaling::Llama3(scaling)) => Some(scaling),
            _ => None,
        };
        let each = plain.map(|f| scaling.map_or(f, |scaling| scaled(f, scaling))).collect();
        Self { each, rotates_halves }
    }

    /// The angles of `count` positions from `first` on.
    pub(crate) fn angles(&self, first: usize, count: usize) -> Angles<T> {
        let positions = first..first.saturating_add(count);
        #[expect(clippy::cast_precision_loss, reason = "PyTorch rounds positions, too")]
        let angles =
            positions.flat_map(|position| self.each.iter().map(move |f| T::from_f64(position as f64) * *f));
        let (cos, sin) = angles
            .map(|angle| {
                let (sin, cos) = angle.to_f64().sin_cos();
                (T::from_f64(cos), T::from_f64(sin))
            })
            .unzip();
        Angles { cos, sin, pairs: self.each.len(), rotates_halves: self.rotates_halves }
    }
}

/// A frequency whose wavelength is stretched if it is long.
#[expect(clippy::arithmetic_side_effects, reason = "floating-point numbers do not overflow")]
fn scaled<T: Real>(f: T, scaling: Llama3) -> T {
    let number = T::from_f64;
    let wavelength = number(std::f64::consts::TAU) * (T::ONE / f);
    let turns = number(scaling.old) * (T::ONE / wavelength);
    let ramp = (turns - number(scaling.low)) / number(scaling.high - scaling.low);
    let ramp = if ramp > T::ONE { T::ONE } else { ramp };
    let ramp = if ramp < T::default() { T::default() } else { ramp };
    (T::ONE - ramp) * f / number(scaling.factor) + ramp * f
}

#[expect(clippy::arithmetic_side_effects, reason = "floating-point numbers do not overflow")]
impl<T: Real> Angles<T> {
    /// Rotates all heads of a token at the position number `index`.
    pub(crate) fn rotate(&self, index: usize, heads: &mut [T]) {
        let start = index.saturating_mul(self.pairs);
        let range = start..start.saturating_add(self.pairs);
        let (Some(cos), Some(sin)) = (self.cos.get(range.clone()), self.sin.get(range)) else { return };
        let turn = |a: &mut T, b: &mut T, cos: T, sin: T| {
            (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
        };
        for head in heads.chunks_exact_mut(self.pairs.saturating_mul(2).max(1)) {
            let angles = cos.iter().zip(sin);
            if self.rotates_halves {
                let (first, second) = head.split_at_mut(self.pairs);
                for ((a, b), (cos, sin)) in first.iter_mut().zip(second).zip(angles) {
                    turn(a, b, *cos, *sin);
                }
            } else {
                for ([a, b], (cos, sin)) in head.as_chunks_mut::<2>().0.iter_mut().zip(angles) {
                    turn(a, b, *cos, *sin);
                }
            }
        }
    }
}
