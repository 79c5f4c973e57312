//! Rotary embeddings: the angles of each position, and the rotation of queries and keys.
//!
//! Facts: `freqs` and `rotate` of the TorchScript text, which follow Meta's `llama-models` 0.3.0 and Hugging Face's
//! `transformers` 5.23. With unscaled frequencies, and with those of Llama 3.1, angles are products of rounded numbers,
//! in f32 and f64 alike, so that long contexts have the angles that models were trained with. All other angles are
//! computed in f64.

use std::ops::Range;

use decoder::{Llama3, Rope, RopeScaling};

use crate::cache::{BLOCK, Head};
use crate::number::Real;

/// Rotary frequencies of a head, one for each pair of numbers that is rotated.
#[derive(Clone, Debug)]
pub(crate) struct Frequencies<T> {
    kind: FrequencyKind<T>,
    magnitude: f64,
    /// True if a pair is a number of the first half and one of the second, false if it is two neighbours.
    rotates_halves: bool,
}

#[derive(Clone, Debug)]
enum FrequencyKind<T> {
    /// Frequencies for texts of any length, rounded.
    Rounded(Vec<T>),
    /// Frequencies for texts of any length, in f64.
    Exact(Vec<f64>),
    /// Frequencies that depend on the length of the text; the number counts the rotary dimensions of a head.
    ByLength(Rope, u64),
}

/// Cosines and sines of consecutive positions, each [positions, pairs].
#[derive(Clone, Debug)]
pub(crate) struct Angles<T> {
    cos: Vec<T>,
    sin: Vec<T>,
    pairs: usize,
    /// Position of the first row.
    first: usize,
    depend_on_length: bool,
    rotates_halves: bool,
}

impl<T: Real> Frequencies<T> {
    /// Creates the frequencies of heads with `rotated` rotary dimensions.
    pub(crate) fn new(rope: &Rope, rotated: u64, rotates_halves: bool) -> Self {
        let kind = match rope.scaling {
            None => FrequencyKind::Rounded(unscaled_frequencies(rope.theta, rotated).collect()),
            Some(RopeScaling::Llama3(scaling)) => FrequencyKind::Rounded(
                unscaled_frequencies(rope.theta, rotated).map(|f| scale_llama3(f, scaling)).collect(),
            ),
            _ if rope.depends_on_length() => FrequencyKind::ByLength(rope.clone(), rotated),
            _ => FrequencyKind::Exact(rope.frequencies(rotated, 0)),
        };
        Self { kind, magnitude: rope.magnitude(), rotates_halves }
    }

    pub(crate) fn depend_on_length(&self) -> bool {
        matches!(self.kind, FrequencyKind::ByLength(..))
    }

    /// Returns the frequencies for a text of this many tokens, if they depend on its length.
    pub(crate) fn frequencies_for_length(&self, tokens: usize) -> Option<Vec<f64>> {
        match &self.kind {
            FrequencyKind::ByLength(rope, rotated) => Some(rope.frequencies(*rotated, tokens as u64)),
            _ => None,
        }
    }

    /// Returns the angles of these positions; `of_length` are the frequencies if they depend on the length of the text.
    #[expect(clippy::cast_precision_loss, reason = "PyTorch rounds positions, too")]
    pub(crate) fn angles(&self, positions: Range<usize>, of_length: Option<&[f64]>) -> Angles<T> {
        let (first, depend_on_length, rotates_halves) =
            (positions.start, of_length.is_some(), self.rotates_halves);
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        let mut add = |angle: f64| {
            cos.push(T::from_f64(libm::cos(angle) * self.magnitude));
            sin.push(T::from_f64(libm::sin(angle) * self.magnitude));
        };
        let pairs = match &self.kind {
            FrequencyKind::Rounded(each) => {
                let angle = |position: usize, f: &T| (T::from_f64(position as f64) * *f).to_f64();
                positions.for_each(|position| each.iter().for_each(|f| add(angle(position, f))));
                each.len()
            }
            FrequencyKind::Exact(_) | FrequencyKind::ByLength(..) => {
                let listed = if let FrequencyKind::Exact(each) = &self.kind {
                    Some(each.as_slice())
                } else {
                    of_length
                };
                let each = listed.unwrap_or_default();
                positions.for_each(|position| each.iter().for_each(|f| add(position as f64 * f)));
                each.len()
            }
        };
        Angles { cos, sin, pairs, first, depend_on_length, rotates_halves }
    }
}

/// Returns the unscaled frequencies, rounded at each step as in PyTorch.
#[expect(clippy::cast_precision_loss, reason = "the size of a head is small")]
fn unscaled_frequencies<T: Real>(theta: f64, rotated: u64) -> impl Iterator<Item = T> {
    let rounded = |number: f64| T::from_f64(number);
    let exponent = move |pair: u64| rounded((pair * 2) as f64) / rounded(rotated as f64);
    let power = move |pair| rounded(libm::pow(rounded(theta).to_f64(), exponent(pair).to_f64()));
    (0..rotated / 2).map(move |pair| T::ONE / power(pair))
}

/// Scales a frequency as Llama 3.1 does: a long wavelength is stretched.
fn scale_llama3<T: Real>(f: T, scaling: Llama3) -> T {
    let number = T::from_f64;
    let wavelength = number(std::f64::consts::TAU) * (T::ONE / f);
    let turns = number(scaling.old) * (T::ONE / wavelength);
    let ramp = (turns - number(scaling.low)) / number(scaling.high - scaling.low);
    let ramp = if ramp > T::ONE { T::ONE } else { ramp };
    let ramp = if ramp < T::default() { T::default() } else { ramp };
    (T::ONE - ramp) * f / number(scaling.factor) + ramp * f
}

impl<T: Real> Angles<T> {
    /// Returns true if the angles change as the text grows. The cache then also has keys that are not rotated.
    pub(crate) fn depend_on_length(&self) -> bool {
        self.depend_on_length
    }

    /// Rotates the rotary dimensions, which come first, of all heads of a token at `position`. A head has `head_dim`
    /// numbers.
    pub(crate) fn rotate(&self, position: usize, head_dim: usize, heads: &mut [T]) {
        let Some((cos, sin)) = self.cos_sin_at(position) else { return };
        for head in heads.chunks_exact_mut(head_dim) {
            let Some(head) = head.get_mut(..self.pairs * 2) else { return };
            let angles = cos.iter().zip(sin);
            if self.rotates_halves {
                let (first, second) = head.split_at_mut(self.pairs);
                for ((a, b), (cos, sin)) in first.iter_mut().zip(second).zip(angles) {
                    rotate_pair(a, b, *cos, *sin);
                }
            } else {
                for ([a, b], (cos, sin)) in head.as_chunks_mut::<2>().0.iter_mut().zip(angles) {
                    rotate_pair(a, b, *cos, *sin);
                }
            }
        }
    }

    /// Rotates the keys of a head from the first position of these angles to the one before `end`.
    pub(crate) fn rotate_keys(&self, head: &mut Head<T>, end: usize) {
        for (start, (keys, rotated)) in (0..end).step_by(BLOCK).zip(head.keys_mut()) {
            let positions = start.max(self.first)..end.min(start + BLOCK);
            let columns = positions.start - start..positions.end - start;
            if positions.is_empty() {
                continue;
            }
            // A row holds one dimension of all tokens of the block.
            let (keys, rows) = (keys.as_chunks::<BLOCK>().0, rotated.as_chunks_mut::<BLOCK>().0);
            for (row, key) in rows.iter_mut().zip(keys) {
                let (to, from) = (row.get_mut(columns.clone()), key.get(columns.clone()));
                to.unwrap_or_default().copy_from_slice(from.unwrap_or_default());
            }
            for pair in 0..self.pairs {
                let row = if self.rotates_halves { pair } else { pair * 2 };
                let after = if self.rotates_halves { self.pairs } else { 1 };
                let Ok([a, b]) = rows.get_disjoint_mut([row, row + after]) else { return };
                let pairs = a.iter_mut().zip(b).skip(columns.start);
                for (position, (a, b)) in positions.clone().zip(pairs) {
                    let Some((cos, sin)) = self.cos_sin_at(position) else { return };
                    if let (Some(cos), Some(sin)) = (cos.get(pair), sin.get(pair)) {
                        rotate_pair(a, b, *cos, *sin);
                    }
                }
            }
        }
    }

    fn cos_sin_at(&self, position: usize) -> Option<(&[T], &[T])> {
        let start = (position - self.first) * self.pairs;
        let range = start..start + self.pairs;
        Some((self.cos.get(range.clone())?, self.sin.get(range)?))
    }
}

fn rotate_pair<T: Real>(a: &mut T, b: &mut T, cos: T, sin: T) {
    (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
}
