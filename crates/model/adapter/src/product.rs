//! Adds products of low rank to rows of a weight, in double precision.

use pulp::Arch;

/// Rows that are computed together: each number of the right factor is loaded once for all of them.
const ROWS: usize = 4;
/// Columns that are computed together; their sums stay in the first cache.
const COLUMNS: usize = 512;

/// Factors of a product of low rank in row-major order, as stored. Narrower floats are exact in float32.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Factors<'f> {
    /// `rows × rank` numbers.
    pub(crate) left: &'f [f32],
    /// `rank × columns` numbers.
    pub(crate) right: &'f [f32],
    pub(crate) rank: usize,
    pub(crate) scale: f64,
}

/// Adds `scale · left · right` to `sums`, which has `columns` numbers of each row, from column `first` of the right factor on.
/// `width` is the number of columns of the right factor.
pub(crate) fn add_product(
    factors: Factors<'_>,
    sums: &mut [f64],
    columns: usize,
    (first, width): (usize, usize),
) {
    if has_fma() {
        Arch::new().dispatch(|| add::<true>(factors, sums, columns, (first, width)));
    } else {
        add::<false>(factors, sums, columns, (first, width));
    }
}

/// Returns true if the processor fuses products and sums, and [`Arch`] uses that.
fn has_fma() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        !matches!(Arch::new(), Arch::Scalar)
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

#[inline(always)]
fn add<const FUSED: bool>(
    factors: Factors<'_>,
    sums: &mut [f64],
    columns: usize,
    (first, width): (usize, usize),
) {
    let Factors { left, right, rank, scale } = factors;
    if rank == 0 || columns == 0 {
        return;
    }
    let mut products = [[0.0_f64; COLUMNS]; ROWS];
    let groups = left.chunks(rank.saturating_mul(ROWS));
    for (left, sums) in groups.zip(sums.chunks_mut(columns.saturating_mul(ROWS))) {
        let mut start = 0;
        while start < columns {
            let count = COLUMNS.min(columns.saturating_sub(start));
            for row in &mut products {
                row.fill(0.0);
            }
            for (step, right) in right.chunks_exact(width).enumerate() {
                let from = first.saturating_add(start);
                let Some(right) = right.get(from..from.saturating_add(count)) else { continue };
                let mut factor = [0.0_f64; ROWS];
                for (factor, row) in factor.iter_mut().zip(left.chunks_exact(rank)) {
                    *factor = row.get(step).copied().map_or(0.0, f64::from);
                }
                multiply_add::<FUSED>(&factor, right, &mut products);
            }
            for (row, products) in sums.chunks_mut(columns).zip(&products) {
                let Some(row) = row.get_mut(start..start.saturating_add(count)) else { continue };
                for (sum, product) in row.iter_mut().zip(products) {
                    *sum += scale * product;
                }
            }
            start = start.saturating_add(count);
        }
    }
}

/// Adds `factor[row] · right` to each row of `products`.
#[inline(always)]
fn multiply_add<const FUSED: bool>(
    factor: &[f64; ROWS],
    right: &[f32],
    products: &mut [[f64; COLUMNS]; ROWS],
) {
    let [first, second, third, fourth] = products;
    let rows = first.iter_mut().zip(second.iter_mut()).zip(third.iter_mut().zip(fourth.iter_mut()));
    for (((first, second), (third, fourth)), right) in rows.zip(right) {
        let right = f64::from(*right);
        let add = |factor: f64, sum: &mut f64| {
            *sum = if FUSED { factor.mul_add(right, *sum) } else { factor * right + *sum };
        };
        add(factor[0], first);
        add(factor[1], second);
        add(factor[2], third);
        add(factor[3], fourth);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_those_of_the_definition() {
        for (rows, rank, width, first, columns) in
            [(1, 1, 1, 0, 1), (5, 3, 1100, 7, 1000), (9, 16, 600, 0, 600), (4, 2, 10, 9, 1)]
        {
            let number = |n: usize| f32::from(u8::try_from((n * 37 + 11) % 101).expect("small")) / 64.0 - 0.7;
            let left: Vec<f32> = (0..rows * rank).map(number).collect();
            let right: Vec<f32> = (0..rank * width).map(|n| number(n + 5)).collect();
            let mut sums = vec![0.25; rows * columns];
            let factors = Factors { left: &left, right: &right, rank, scale: 0.5 };
            add_product(factors, &mut sums, columns, (first, width));
            for row in 0..rows {
                for column in 0..columns {
                    let products = (0..rank).map(|step| {
                        f64::from(left[row * rank + step]) * f64::from(right[step * width + first + column])
                    });
                    let expected = 0.25 + 0.5 * products.sum::<f64>();
                    assert!((sums[row * columns + column] - expected).abs() < 1e-12, "{row} {column}");
                }
            }
        }
    }
}
