//! Factors of float64 as sums of float32: a product of two such factors is one of float32 with a higher rank.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "it parses nothing: sizes are those of numbers in memory"
)]

use std::io::ErrorKind;

/// Parts of the left and of the right factor whose products are summed. The other products are below the last place of float64.
pub(crate) const PAIRS: [(usize, usize); 6] = [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0)];

/// Splits a number into a sum of three, the largest first.
///
/// # Errors
/// When the number is finite and too large for float32.
fn parts(number: f64) -> Result<[f32; 3], byte_source::Error> {
    let mut rest = number;
    let parts = [(); 3].map(|()| {
        #[expect(clippy::cast_possible_truncation, reason = "the next part is the error of the rounding")]
        let part = rest as f32;
        rest = if part.is_finite() { rest - f64::from(part) } else { 0.0 };
        part
    });
    match parts {
        [first, ..] if number.is_finite() && !first.is_finite() => Err(ErrorKind::InvalidData.into()),
        parts => Ok(parts),
    }
}

/// Splits a right factor in row-major order: for each pair, all rows of one part.
///
/// # Errors
/// When a number is too large for float32.
pub(crate) fn split_right(numbers: &[f64]) -> byte_source::Result<Vec<f32>> {
    let all = numbers.iter().map(|number| parts(*number)).collect::<Result<Vec<_>, _>>()?;
    let part = |number: usize| all.iter().map(move |parts| parts.get(number).copied().unwrap_or(0.0));
    Ok(PAIRS.iter().flat_map(|(_, right)| part(*right)).collect())
}

/// Splits a left factor with rows of `rank` numbers: for each row and pair, all numbers of one part.
///
/// # Errors
/// When a number is too large for float32.
pub(crate) fn split_left(numbers: &[f64], rank: usize) -> byte_source::Result<Vec<f32>> {
    let mut split = Vec::with_capacity(numbers.len() * PAIRS.len());
    for row in numbers.chunks(rank.max(1)) {
        let row = row.iter().map(|number| parts(*number)).collect::<Result<Vec<_>, _>>()?;
        for (left, _) in PAIRS {
            split.extend(row.iter().map(|parts| parts.get(left).copied().unwrap_or(0.0)));
        }
    }
    Ok(split)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_parts_are_those_of_doubles() {
        let left = [1.0 / 3.0, -2.0e-9, 7.0f64.sqrt(), 1e30];
        let right = [5.0 / 7.0, 3.0f64.sqrt(), -1e-20, 0.1];
        // Two rows of rank 2, and two columns.
        let (parts, others) = (split_left(&left, 2).expect("small"), split_right(&right).expect("small"));
        for row in 0..2 {
            for column in 0..2 {
                let exact = left[row * 2] * right[column] + left[row * 2 + 1] * right[2 + column];
                let product = |step: usize| {
                    f64::from(parts[row * 2 * PAIRS.len() + step]) * f64::from(others[step * 2 + column])
                };
                let found: f64 = (0..2 * PAIRS.len()).map(product).sum();
                assert!((found - exact).abs() <= exact.abs() * 1e-15, "{found} {exact}");
            }
        }
        assert!(split_right(&[1e300]).is_err() && split_right(&[f64::INFINITY]).is_ok());
    }
}
