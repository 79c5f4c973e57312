//! Compares an output with the expected output of a self test.
//!
//! Facts: the Carton v1 specification: outputs are compared with "something conceptually similar to np.allclose".
//! `numpy.allclose` of NumPy 2.4 compares `|found − expected| <= atol + rtol × |expected|`, with rtol 1e-5 and atol 1e-8;
//! infinities equal themselves, and NaN equals nothing. [`Tolerance`] can allow more.

use serde::Serialize;
use tensor::Tensor;

use crate::Result;
use crate::numbers::read_f64;

/// Largest allowed difference of two numbers: `relative × |expected|`, plus the larger of `absolute` and
/// `of_largest × |largest|`, where `largest` is the largest finite number of the expected output.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tolerance {
    /// Allowance as a fraction of the expected number.
    pub relative: f64,
    /// Allowance that does not depend on the expected number.
    pub absolute: f64,
    /// Allowance as a fraction of the output's largest expected number.
    pub of_largest: f64,
}

/// Uses the tolerance of `numpy.allclose`.
impl Default for Tolerance {
    fn default() -> Self {
        Self { relative: 1e-5, absolute: 1e-8, of_largest: 0.0 }
    }
}

impl Tolerance {
    /// Creates a tolerance with `number` as both the relative and the absolute allowance.
    pub fn relative_and_absolute(number: f64) -> Self {
        Self { relative: number, absolute: number, of_largest: 0.0 }
    }

    /// Returns the tolerance of `numpy.allclose`, with an allowance of at least 1e-4 of the largest number. Each output of a
    /// model is a sum of products, which other CPUs and other numbers of threads add in another order. The error of a sum
    /// depends on its terms, so it can be larger than a sum near zero. `docs/running.md` has a measurement.
    pub fn for_sums() -> Self {
        Self { of_largest: 1e-4, ..Self::default() }
    }

    /// Resolves `of_largest` into an absolute allowance, for an output with these expected numbers.
    pub(crate) fn for_expected(self, expected: &[f64]) -> Self {
        let finite = expected.iter().map(|number| number.abs()).filter(|number| number.is_finite());
        Self {
            absolute: self.absolute.max(self.of_largest * finite.fold(0.0, f64::max)),
            of_largest: 0.0,
            ..self
        }
    }

    /// Returns true if `found` lies within this tolerance of `expected`.
    pub(crate) fn allows(self, found: f64, expected: f64) -> bool {
        let most = self.relative.mul_add(expected.abs(), self.absolute);
        // An infinite number is only close to itself.
        let is_equal = found.partial_cmp(&expected) == Some(std::cmp::Ordering::Equal);
        is_equal || (expected.is_finite() && (found - expected).abs() <= most)
    }
}

pub(crate) struct OutputDifference {
    /// Largest absolute difference of two elements; `None` if there are no elements, or if the shapes differ.
    pub(crate) largest: Option<f64>,
    /// Description of the mismatch; `None` if the output is within the tolerance.
    pub(crate) difference_text: Option<String>,
}

pub(crate) fn compare_output(
    name: &str,
    found: &Tensor,
    expected: &Tensor,
    tolerance: Tolerance,
) -> Result<OutputDifference> {
    let other = |what: String| Ok(OutputDifference { largest: None, difference_text: Some(what) });
    if found.dtype() != expected.dtype() {
        return other(format!("is {}, expected {}", found.dtype(), expected.dtype()));
    }
    if found.shape() != expected.shape() {
        return other(format!("has the shape {:?}, expected {:?}", found.shape(), expected.shape()));
    }
    let (Some(a), Some(b)) = (read_f64(name, found)?, read_f64(name, expected)?) else {
        return other(format!("is {}, which cannot be compared", found.dtype()));
    };
    let tolerance = tolerance.for_expected(&b);
    let mut largest: Option<f64> = None;
    let (mut apart, mut first) = (0_usize, None);
    for (index, (found, expected)) in a.iter().zip(&b).enumerate() {
        let difference = if found.to_bits() == expected.to_bits() { 0.0 } else { (found - expected).abs() };
        // A NaN difference counts as the largest.
        if largest.is_none_or(|largest| difference > largest || difference.is_nan()) {
            largest = Some(difference);
        }
        if !tolerance.allows(*found, *expected) {
            apart = apart.saturating_add(1);
            first = first.or(Some((index, *found, *expected)));
        }
    }
    let what = first.map(|(index, found, expected_number)| {
        let (count, at) = (b.len(), unravel_index(index as u64, expected.shape()));
        format!(
            "{apart} of {count} elements differ, the first at {at:?}: {found:?}, expected {expected_number:?}"
        )
    });
    Ok(OutputDifference { largest, difference_text: what })
}

/// Converts a linear index in C order to the indices of each dimension.
fn unravel_index(mut number: u64, shape: &[u64]) -> Vec<u64> {
    let mut index: Vec<u64> = shape
        .iter()
        .rev()
        .map(|size| {
            let at = number.checked_rem(*size).unwrap_or(0);
            number = number.checked_div(*size).unwrap_or(0);
            at
        })
        .collect();
    index.reverse();
    index
}

#[cfg(test)]
mod tests {
    use tensor::{Dtype, Storage, contiguous_strides};

    use super::*;

    fn doubles(shape: &[u64], numbers: &[f64]) -> Tensor {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let stride = contiguous_strides(shape);
        Tensor::new(Dtype::Float64, shape.to_vec(), stride, 0, Storage::owned(bytes)).expect("it fits")
    }

    fn compared(found: &[f64], expected: &[f64], tolerance: Tolerance) -> (Option<f64>, Option<String>) {
        let shape = |numbers: &[f64]| [numbers.len() as u64];
        let (found, expected) = (doubles(&shape(found), found), doubles(&shape(expected), expected));
        let comparison = compare_output("t", &found, &expected, tolerance).expect("in memory");
        (comparison.largest, comparison.difference_text)
    }

    /// The expected values are those of `numpy.allclose(found, expected)` in NumPy 2.4.
    #[test]
    fn numbers_are_compared_as_numpy_does() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        for (found, expected, close) in [
            (1.0, 1.0, true),
            (1.000_009, 1.0, true),
            (1.000_011, 1.0, false),
            (9e-9, 0.0, true),
            (2e-8, 0.0, false),
            (0.0, 2e-8, false),
            (-0.0, 0.0, true),
            (100_000.9, 100_000.0, true),
            (inf, inf, true),
            (inf, -inf, false),
            (1e300, inf, false),
            (inf, 1.0, false),
            (nan, nan, false),
            (nan, 1.0, false),
        ] {
            let (_, what) = compared(&[found], &[expected], Tolerance::default());
            assert_eq!(what.is_none(), close, "{found} {expected} {what:?}");
        }
        assert_eq!(
            compared(&[1.5, 4.0], &[1.0, 4.25], Tolerance::relative_and_absolute(0.5)),
            (Some(0.5), None)
        );
    }

    #[test]
    fn sums_near_zero_are_compared_with_the_largest() {
        let expected = [20.0, 3e-6, -12.5, 0.0];
        let sums = Tolerance::for_sums();
        for (found, is_close) in [
            ([20.000_1, 8e-6, -12.500_1, -1e-5], true),
            // 1e-4 of the largest number, and 1e-5 of the number itself.
            ([20.002_1, 1.9e-3, -12.502_1, -1.9e-3], true),
            ([20.002_3, 3e-6, -12.5, 0.0], false),
            ([20.0, 2.1e-3, -12.5, 0.0], false),
            ([20.0, 3e-6, -12.5, -2.1e-3], false),
            ([20.0, f64::NAN, -12.5, 0.0], false),
        ] {
            assert_eq!(compared(&found, &expected, sums).1.is_none(), is_close, "{found:?}");
        }
        // `numpy.allclose` refuses the first number.
        assert!(compared(&[20.0, 8e-6], &[20.0, 3e-6], Tolerance::default()).1.is_some());
        // With small numbers only, the tolerance is that of `numpy.allclose`; infinities do not count as the largest.
        assert_eq!(compared(&[9e-9, 0.0], &[0.0, 0.0], sums).1, None);
        assert!(compared(&[2e-8, 1e-4], &[0.0, 1e-4], sums).1.is_some());
        assert!(compared(&[f64::INFINITY, 1.0], &[f64::INFINITY, 2.0], sums).1.is_some());
        assert_eq!(compared(&[], &[], sums), (None, None));
    }

    #[test]
    fn the_first_difference_is_reported() {
        let (found, expected) =
            (doubles(&[2, 2], &[1.0, 2.0, 9.0, 5.0]), doubles(&[2, 2], &[1.0, 2.0, 3.0, 4.0]));
        let comparison = compare_output("t", &found, &expected, Tolerance::default()).expect("in memory");
        assert_eq!(comparison.largest, Some(6.0));
        let text = "2 of 4 elements differ, the first at [1, 0]: 9.0, expected 3.0";
        assert_eq!(comparison.difference_text.as_deref(), Some(text));
        assert_eq!(compared(&[], &[], Tolerance::default()), (None, None));
        let shape = compared(&[1.0], &[1.0, 2.0], Tolerance::default()).1;
        assert_eq!(shape.as_deref(), Some("has the shape [1], expected [2]"));
    }
}
