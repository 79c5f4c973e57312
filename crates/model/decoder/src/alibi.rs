//! Positions as a bias of attention's scores that grows with the position of the key (`ALiBi`).
//!
//! Facts: `build_alibi_tensor` in `modeling_bloom.py` and `modeling_falcon.py` of `transformers` 5.23.

use serde::{Deserialize, Serialize};

/// Bias of scores: a slope for each query head, times the position of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Alibi {
    /// Added to scores that are already scaled.
    AfterScale,
    /// Rounded to bfloat16, added to scores, and scaled with them.
    BeforeScale,
}

impl Alibi {
    /// Returns the slopes of this many heads. If their number is not a power of 2, those beyond the last power of 2 are
    /// every other slope of twice as many heads.
    #[expect(clippy::cast_possible_truncation, reason = "the slopes are float32")]
    pub fn slopes(n_heads: u64) -> Vec<f32> {
        let power = 1_u64 << n_heads.max(1).ilog2();
        let slope = |heads: u64, number: u64| {
            let exponent = 3_i32.saturating_sub(i32::try_from(heads.ilog2()).unwrap_or(0));
            let base = libm::exp2(-2_f64.powi(exponent)) as f32;
            f64::from(base).powi(i32::try_from(number).unwrap_or(i32::MAX)) as f32
        };
        let first = (1..=power).map(|number| slope(power, number));
        let others = (power..n_heads).zip(0_u64..).map(|(_, number)| slope(power << 1, number << 1 | 1));
        first.chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_of_other_counts_than_powers_of_2_are_from_two_series() {
        assert_eq!(Alibi::slopes(1), [0.003_906_25]);
        assert_eq!(Alibi::slopes(4), [0.25, 0.0625, 0.015_625, 0.003_906_25]);
        assert_eq!(Alibi::slopes(6), [0.25, 0.0625, 0.015_625, 0.003_906_25, 0.5, 0.125]);
        let of_12 = Alibi::slopes(12);
        assert_eq!(of_12[..2], [0.5, 0.25]);
        assert!((of_12[8] - 0.5_f32.sqrt()).abs() < 1e-7 && (of_12[9] - 0.125_f32.sqrt()).abs() < 1e-7);
    }
}
