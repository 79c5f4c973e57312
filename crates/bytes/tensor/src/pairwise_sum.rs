//! Sums of floats in NumPy's order, which have the same bits.
//!
//! Facts: `pairwise_sum` in NumPy's `numpy/_core/src/umath/loops_utils.h.src`.

/// Components summed in one loop; a larger range is halved.
const PAIRWISE_BLOCK: usize = 128;

/// Adds numbers in NumPy's order. The depth is the logarithm of the length.
pub(crate) fn pairwise_sum(numbers: &[f64]) -> f64 {
    if numbers.len() > PAIRWISE_BLOCK {
        let half = numbers.len() / 2;
        let (left, right) = numbers.split_at(half.saturating_sub(half % 8));
        return pairwise_sum(left) + pairwise_sum(right);
    }
    let (eights, rest) = numbers.as_chunks::<8>();
    let mut sum = match eights.split_first() {
        None => 0.0,
        Some((first, more)) => {
            let mut sums = *first;
            for eight in more {
                for (sum, number) in sums.iter_mut().zip(eight) {
                    *sum += number;
                }
            }
            ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]))
        }
    };
    for number in rest {
        sum += number;
    }
    sum
}

/// Adds complex numbers, each a real and an imaginary part, in NumPy's order.
pub(crate) fn complex_pairwise_sum(numbers: &[f64]) -> [f64; 2] {
    if numbers.len() > PAIRWISE_BLOCK {
        let half = numbers.len() / 2;
        let (left, right) = numbers.split_at(half.saturating_sub(half % 8));
        let ([re, im], [right_re, right_im]) = (complex_pairwise_sum(left), complex_pairwise_sum(right));
        return [re + right_re, im + right_im];
    }
    let (eights, rest) = numbers.as_chunks::<8>();
    let [mut re, mut im] = match eights.split_first() {
        None => [0.0; 2],
        Some((first, more)) => {
            let mut sums = *first;
            for eight in more {
                for (sum, number) in sums.iter_mut().zip(eight) {
                    *sum += number;
                }
            }
            [(sums[0] + sums[2]) + (sums[4] + sums[6]), (sums[1] + sums[3]) + (sums[5] + sums[7])]
        }
    };
    for [rest_re, rest_im] in rest.as_chunks().0 {
        re += rest_re;
        im += rest_im;
    }
    [re, im]
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the numbers of a linear congruential generator between -1 and 1.
    pub(crate) fn noise(len: usize) -> Vec<f64> {
        let mut seed = 7_u64;
        let next = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            f64::from(u32::try_from(seed >> 32).expect("32 bits")) / f64::from(1_u32 << 31) - 1.0
        };
        std::iter::repeat_with(next).take(len).collect()
    }

    #[test]
    fn sums_are_halved_where_numpy_halves_them() {
        // Eight sums, which are joined at the end; of complex numbers, four of each part.
        let block = |numbers: &[f64]| {
            let mut sums = [0.0; 8];
            for (at, number) in numbers.iter().enumerate() {
                sums[at % 8] += number;
            }
            sums
        };
        let real = |numbers: &[f64]| {
            let it = block(numbers);
            ((it[0] + it[1]) + (it[2] + it[3])) + ((it[4] + it[5]) + (it[6] + it[7]))
        };
        let complex = |numbers: &[f64]| {
            let it = block(numbers);
            [(it[0] + it[2]) + (it[4] + it[6]), (it[1] + it[3]) + (it[5] + it[7])]
        };
        // Numbers whose sums are rounded.
        let numbers: Vec<f64> = noise(256).iter().map(|number| (number + 2.0).sqrt()).collect();
        let assert_same = |found: f64, expected: f64| assert_eq!(found.to_bits(), expected.to_bits());
        for numbers in numbers.windows(128) {
            assert_same(pairwise_sum(numbers), real(numbers));
        }
        assert_same(pairwise_sum(&numbers[..136]), real(&numbers[..64]) + real(&numbers[64..136]));
        let (first, second) = (complex(&numbers[..128]), complex(&numbers[128..]));
        for part in [0, 1] {
            assert_same(complex_pairwise_sum(&numbers[..128])[part], first[part]);
            assert_same(complex_pairwise_sum(&numbers)[part], first[part] + second[part]);
        }
    }
}
