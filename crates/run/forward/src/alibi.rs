//! Biases of scores that grow with the position of the key.
//!
//! Facts: [`decoder::Alibi`].

use decoder::Alibi;

use crate::number::Real;

#[derive(Debug)]
pub(crate) struct ScoreBias {
    pub(crate) kind: Alibi,
    /// Slope of each query head.
    pub(crate) slopes: Vec<f32>,
}

impl ScoreBias {
    /// Adds the biases to rows of scores, each of `width` keys from position `start` on. The rows are of query heads from
    /// `head` on, again and again `group` of them.
    #[expect(clippy::cast_precision_loss, reason = "PyTorch rounds positions, too")]
    pub(crate) fn add_to<T: Real>(
        &self,
        [head, group]: [usize; 2],
        start: usize,
        width: usize,
        scores: &mut [T],
    ) {
        for (row, scores) in scores.chunks_exact_mut(width).enumerate() {
            let slope = self.slopes.get(head + row % group).copied().unwrap_or_default();
            for (position, score) in (start..).zip(scores) {
                let position = position as f32;
                *score += T::from_f32(match self.kind {
                    Alibi::AfterScale => slope * position,
                    Alibi::BeforeScale => to_bfloat16(to_bfloat16(slope) * to_bfloat16(position)),
                });
            }
        }
    }
}

/// Returns the nearest number that bfloat16 has, of two the even one.
fn to_bfloat16(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(bits.saturating_add(0x7fff + (bits >> 16 & 1)) & !0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_biases_have_the_numbers_of_bfloat16() {
        let rounded = [1.0, 257.0, 259.0, 0.1].map(|x| to_bfloat16(x).to_string());
        assert_eq!(rounded, ["1", "256", "260", "0.100097656"]);
        let mut scores = [1.0_f32; 4];
        let bias = ScoreBias { kind: Alibi::BeforeScale, slopes: vec![0.5, 0.25, 2.0] };
        bias.add_to([1, 2], 256, 2, &mut scores);
        assert_eq!(scores.map(|score| score.to_string()), ["65", "65", "513", "513"]);
    }
}
