//! Statistics of a tensor's elements: extremes, mean, standard deviation, and counts of special numbers.
//!
//! Facts: NumPy's `ndarray.min`, `max`, `mean` and `std` over a contiguous array of float64 or complex128. Sums are
//! [added in NumPy's order](crate::pairwise_sum), a tree of halves, which several threads compute in parallel.

use crate::gather::Gathered;
use crate::pairwise_sum::{complex_pairwise_sum, pairwise_sum};
use crate::{Dtype, DtypeConversion, Tensor};

/// Largest number of components that a thread reads at once from a contiguous tensor.
const WINDOW_COMPONENTS: u64 = 1 << 14;
/// The same for a tensor whose elements are scattered, where neighbouring windows read the same blocks of the file.
const SCATTERED_WINDOW_COMPONENTS: u64 = 1 << 20;
const BINS: usize = 48;

/// An element as float64 or complex128.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ElementValue {
    Real(f64),
    /// Real and imaginary part.
    Complex(f64, f64),
}

/// Statistics of the elements of a tensor. Extremes, mean and deviation are `None` for a tensor without elements. As in
/// NumPy, they are NaN if an element is NaN.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TensorStatistics {
    /// Number of numbers; twice the number of elements of a dtype that packs two numbers into a byte.
    pub count: u64,
    pub min: Option<ElementValue>,
    pub max: Option<ElementValue>,
    pub mean: Option<ElementValue>,
    /// Standard deviation of the population.
    pub std: Option<f64>,
    /// Number of elements equal to zero.
    pub zeros: u64,
    /// Number of elements that are NaN, or have a part that is.
    pub nan: u64,
    /// Number of elements that are infinite, or have a part that is.
    pub infinite: u64,
    /// Distribution of the finite numbers, if it was requested and there are two different ones.
    pub histogram: Option<Histogram>,
}

/// Numbers counted in bins of equal width from the smallest finite number to the largest.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Histogram {
    pub min: f64,
    pub max: f64,
    pub counts: Vec<u64>,
}

impl Tensor {
    /// Computes the statistics of the elements on all cores, in two passes and a few megabytes of memory. `None` if the
    /// elements are not numbers: bits, or numbers that a quantizer scales. `on_window` is called with the number of bytes
    /// of each window that is read.
    ///
    /// # Errors
    /// When an element cannot be read, or `on_window` returns an error.
    pub fn statistics(
        &self,
        with_histogram: bool,
        on_window: &(dyn Fn(u64) -> Result<(), byte_source::Error> + Sync),
    ) -> Result<Option<TensorStatistics>, byte_source::Error> {
        let Some(reader) = ComponentReader::new(self, on_window) else { return Ok(None) };
        let first = reader.fold(0, reader.components, &Extremes::read)?;
        let count = if reader.is_complex { reader.components / 2 } else { reader.components };
        let mut statistics = TensorStatistics {
            count,
            min: None,
            max: None,
            mean: None,
            std: None,
            zeros: first.zeros,
            nan: first.nan,
            infinite: first.infinite,
            histogram: None,
        };
        let (Some(min), Some(max)) = (first.min, first.max) else { return Ok(Some(statistics)) };
        let number = |[re, im]: [f64; 2]| match reader.is_complex {
            _ if first.nan > 0 => reader.number(f64::NAN, f64::NAN),
            is_complex => {
                if is_complex {
                    ElementValue::Complex(re, im)
                } else {
                    ElementValue::Real(re)
                }
            }
        };
        statistics.min = Some(number(min));
        statistics.max = Some(number(max));
        let mean = mean(first.sum, count, reader.is_complex);
        statistics.mean = Some(reader.number(mean[0], mean[1]));
        let range = (first.finite_min, first.finite_max);
        let bins = (with_histogram && !reader.is_complex && range.0 < range.1).then_some(range);
        let second = reader.fold(0, reader.components, &|numbers: &[f64], is_complex| {
            Deviations::read(numbers, is_complex, mean, bins)
        })?;
        statistics.std = Some((second.sum / as_f64(count)).sqrt());
        statistics.histogram = bins.map(|(min, max)| Histogram { min, max, counts: second.counts });
        Ok(Some(statistics))
    }
}

/// Divides a sum as NumPy does, which multiplies a complex number by the reciprocal.
fn mean([re, im]: [f64; 2], count: u64, is_complex: bool) -> [f64; 2] {
    let count = as_f64(count);
    if is_complex {
        let scale = 1.0 / count;
        [(re + im * 0.0) * scale, (im - re * 0.0) * scale]
    } else {
        [re / count, 0.0]
    }
}

#[expect(clippy::cast_precision_loss, reason = "NumPy divides by the nearest float64 as well")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

/// Reads the real numbers of a tensor as float64; a complex element has two.
struct ComponentReader<'t> {
    gathered: Gathered,
    decoding: Decoding,
    /// Components of a byte, or bytes of a component.
    component_size: u64,
    components: u64,
    window: u64,
    is_complex: bool,
    on_window: &'t (dyn Fn(u64) -> Result<(), byte_source::Error> + Sync),
}

/// Way in which bytes become float64.
enum Decoding {
    Convert(DtypeConversion),
    /// Two numbers of four bits in a byte, the lower one first.
    Float4,
}

/// Numbers of `float4_e2m1fn`.
const FLOAT4: [f64; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// Result of a window that is combined with that of its neighbour.
trait WindowResult: Send + Sized {
    #[must_use]
    fn join(self, next: Self) -> Self;
}

impl<'t> ComponentReader<'t> {
    fn new(
        tensor: &Tensor,
        on_window: &'t (dyn Fn(u64) -> Result<(), byte_source::Error> + Sync),
    ) -> Option<Self> {
        let dtype = tensor.dtype();
        let is_complex = dtype.component_size() != dtype.size();
        let target = if is_complex { Dtype::Complex128 } else { Dtype::Float64 };
        let (decoding, components) = match dtype {
            Dtype::Float4E2M1FnX2 => (Decoding::Float4, tensor.numel().checked_mul(2)?),
            dtype => {
                let components = tensor.nbytes().checked_div(dtype.component_size())?;
                (Decoding::Convert(DtypeConversion::new(dtype, target)?), components)
            }
        };
        let window = if tensor.is_contiguous() { WINDOW_COMPONENTS } else { SCATTERED_WINDOW_COMPONENTS };
        let component_size = dtype.component_size();
        Some(Self {
            gathered: tensor.gathered(),
            decoding,
            component_size,
            components,
            window,
            is_complex,
            on_window,
        })
    }

    fn number(&self, re: f64, im: f64) -> ElementValue {
        if self.is_complex { ElementValue::Complex(re, im) } else { ElementValue::Real(re) }
    }

    /// Combines the results of all windows of a range of components, as a tree of halves. The depth is the logarithm of the
    /// number of windows, at most 50.
    fn fold<R: WindowResult>(
        &self,
        start: u64,
        len: u64,
        read: &(impl Fn(&[f64], bool) -> R + Sync),
    ) -> Result<R, byte_source::Error> {
        if len <= self.window {
            return Ok(read(&self.read(start, len)?, self.is_complex));
        }
        let first = halve(len);
        let (left, right) = rayon::join(
            || self.fold(start, first, read),
            || self.fold(start.saturating_add(first), len.saturating_sub(first), read),
        );
        Ok(left?.join(right?))
    }

    fn read(&self, start: u64, len: u64) -> Result<Vec<f64>, byte_source::Error> {
        let bytes = |components: u64| match self.decoding {
            Decoding::Convert(_) => components.saturating_mul(self.component_size),
            Decoding::Float4 => components / 2,
        };
        let (from, nbytes) = (bytes(start), bytes(len));
        (self.on_window)(nbytes)?;
        let size = |n: u64| {
            usize::try_from(n).map_err(|_| byte_source::Error::from(std::io::ErrorKind::OutOfMemory))
        };
        let mut stored = vec![0; size(nbytes)?];
        self.gathered.read(from, &mut stored, &mut self.gathered.blocks())?;
        Ok(match self.decoding {
            Decoding::Float4 => {
                let number = |code: u8| FLOAT4.get(usize::from(code)).copied().unwrap_or_default();
                stored.iter().flat_map(|byte| [number(byte & 15), number(byte >> 4)]).collect()
            }
            Decoding::Convert(conversion) => {
                let mut decoded = vec![0; size(len.saturating_mul(8))?];
                conversion.convert(&stored, &mut decoded);
                decoded.as_chunks().0.iter().map(|number| f64::from_le_bytes(*number)).collect()
            }
        })
    }
}

/// Returns the size of the first half of a range, a multiple of eight.
fn halve(len: u64) -> u64 {
    let half = len / 2;
    half.saturating_sub(half % 8)
}

struct Extremes {
    sum: [f64; 2],
    /// Smallest and largest element that is not NaN; complex numbers are ordered by their real parts first.
    min: Option<[f64; 2]>,
    max: Option<[f64; 2]>,
    finite_min: f64,
    finite_max: f64,
    zeros: u64,
    nan: u64,
    infinite: u64,
}

impl Extremes {
    fn read(numbers: &[f64], is_complex: bool) -> Self {
        let mut found = Self {
            sum: [0.0; 2],
            min: None,
            max: None,
            finite_min: f64::INFINITY,
            finite_max: f64::NEG_INFINITY,
            zeros: 0,
            nan: 0,
            infinite: 0,
        };
        if is_complex {
            found.sum = complex_pairwise_sum(numbers);
            for [re, im] in numbers.as_chunks().0 {
                found.add_complex(*re, *im);
            }
        } else {
            found.sum = [pairwise_sum(numbers), 0.0];
            found.add_reals(numbers);
        }
        found
    }

    fn add_reals(&mut self, numbers: &[f64]) {
        let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
        let (mut zeros, mut nan, mut infinite) = (0_u64, 0_u64, 0_u64);
        for &number in numbers {
            min = if number < min { number } else { min };
            max = if number > max { number } else { max };
            zeros = zeros.wrapping_add(u64::from(number == 0.0));
            nan = nan.wrapping_add(u64::from(number.is_nan()));
            infinite = infinite.wrapping_add(u64::from(number.is_infinite()));
        }
        (self.zeros, self.nan, self.infinite) = (zeros, nan, infinite);
        (self.finite_min, self.finite_max) = (min, max);
        if infinite > 0 {
            let finite = || numbers.iter().copied().filter(|number| number.is_finite());
            self.finite_min = finite().fold(f64::INFINITY, f64::min);
            self.finite_max = finite().fold(f64::NEG_INFINITY, f64::max);
        }
        if !numbers.is_empty() {
            (self.min, self.max) = (Some([min, 0.0]), Some([max, 0.0]));
        }
    }

    fn add_complex(&mut self, re: f64, im: f64) {
        let number = [re, im];
        self.zeros = self.zeros.saturating_add(u64::from(re == 0.0 && im == 0.0));
        self.nan = self.nan.saturating_add(u64::from(re.is_nan() || im.is_nan()));
        self.infinite = self.infinite.saturating_add(u64::from(re.is_infinite() || im.is_infinite()));
        if self.min.is_none_or(|min| number < min) {
            self.min = Some(number);
        }
        if self.max.is_none_or(|max| number > max) {
            self.max = Some(number);
        }
    }
}

impl WindowResult for Extremes {
    fn join(self, next: Self) -> Self {
        let [re, im] = self.sum;
        let [next_re, next_im] = next.sum;
        let pick = |first: Option<[f64; 2]>,
                    second: Option<[f64; 2]>,
                    is_second: fn(&[f64; 2], &[f64; 2]) -> bool| {
            match (first, second) {
                (Some(first), Some(second)) => Some(if is_second(&second, &first) { second } else { first }),
                (first, second) => first.or(second),
            }
        };
        Self {
            sum: [re + next_re, im + next_im],
            min: pick(self.min, next.min, |second, first| second < first),
            max: pick(self.max, next.max, |second, first| second > first),
            finite_min: self.finite_min.min(next.finite_min),
            finite_max: self.finite_max.max(next.finite_max),
            zeros: self.zeros.saturating_add(next.zeros),
            nan: self.nan.saturating_add(next.nan),
            infinite: self.infinite.saturating_add(next.infinite),
        }
    }
}

/// Results of the second pass: the sum of the squared deviations from the mean, and the counts of a histogram.
struct Deviations {
    sum: f64,
    counts: Vec<u64>,
}

impl Deviations {
    fn read(numbers: &[f64], is_complex: bool, mean: [f64; 2], bins: Option<(f64, f64)>) -> Self {
        let [mean_re, mean_im] = mean;
        let squares: Vec<f64> = if is_complex {
            let square =
                |[re, im]: &[f64; 2]| (re - mean_re) * (re - mean_re) + (im - mean_im) * (im - mean_im);
            numbers.as_chunks().0.iter().map(square).collect()
        } else {
            numbers.iter().map(|number| (number - mean_re) * (number - mean_re)).collect()
        };
        let mut counts = vec![0_u64; if bins.is_some() { BINS } else { 0 }];
        if let Some((min, max)) = bins {
            // Halved first, so that the width of the widest range is finite.
            let scale = 1.0 / (max / 2.0 - min / 2.0);
            for number in numbers.iter().filter(|number| number.is_finite()) {
                if let Some(count) = counts.get_mut(bin((number / 2.0 - min / 2.0) * scale)) {
                    *count = count.saturating_add(1);
                }
            }
        }
        Self { sum: pairwise_sum(&squares), counts }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the number is from 0 to 1, and there are few bins"
)]
fn bin(part: f64) -> usize {
    ((part * BINS as f64) as usize).min(BINS - 1)
}

impl WindowResult for Deviations {
    fn join(mut self, next: Self) -> Self {
        for (count, more) in self.counts.iter_mut().zip(next.counts) {
            *count = count.saturating_add(more);
        }
        Self { sum: self.sum + next.sum, counts: self.counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairwise_sum::tests::noise;
    use crate::{Storage, contiguous_strides};

    fn statistics(dtype: Dtype, shape: &[u64], bytes: Vec<u8>) -> Option<TensorStatistics> {
        let stride = contiguous_strides(shape);
        let tensor = Tensor::new(dtype, shape.to_vec(), stride, 0, Storage::owned(bytes)).expect("inside");
        tensor.statistics(true, &|_| Ok(())).expect("memory can be read")
    }

    #[test]
    fn sums_of_windows_are_the_sum_of_the_whole() {
        for len in [0, 1, 7, 8, 129, 16_384, 16_385, 100_003, 1_000_000] {
            let numbers = noise(len);
            let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            let found = statistics(Dtype::Float64, &[len as u64], bytes).expect("numbers");
            let mean = (len > 0).then(|| ElementValue::Real(pairwise_sum(&numbers) / as_f64(len as u64)));
            assert_eq!(found.mean, mean, "{len}");
            assert_eq!(found.histogram.map_or(len as u64, |it| it.counts.iter().sum()), len as u64);
        }
    }

    #[test]
    fn special_numbers_are_counted() {
        let numbers = [1.0_f32, -0.0, 0.0, f32::INFINITY, f32::NEG_INFINITY, -3.0];
        let bytes = |numbers: &[f32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let found = statistics(Dtype::Float32, &[6], bytes(&numbers)).expect("numbers");
        assert_eq!((found.zeros, found.nan, found.infinite), (2, 0, 2));
        assert_eq!(found.min, Some(ElementValue::Real(f64::NEG_INFINITY)));
        let histogram = found.histogram.expect("four finite numbers");
        assert_eq!((histogram.min, histogram.max), (-3.0, 1.0));
        assert_eq!(histogram.counts.iter().sum::<u64>(), 4);
        let found = statistics(Dtype::Float32, &[2], bytes(&[1.0, f32::NAN])).expect("numbers");
        assert_eq!(found.nan, 1);
        assert!(matches!(found.max, Some(ElementValue::Real(max)) if max.is_nan()));
    }

    /// Compares with sums in one loop, which differ from those of NumPy's order in the last bits.
    fn assert_close(found: f64, expected: f64, what: &str) {
        assert!((found - expected).abs() <= expected.abs() * 1e-12, "{what}: {found}, expected {expected}");
    }

    #[test]
    fn moments_and_bins_of_many_windows_are_those_of_one_loop() {
        let mut numbers: Vec<f64> = noise(100_003).iter().map(|number| number * 3.0 + 5.0).collect();
        // Extremes in different windows, of which one is found before the other and one after.
        (numbers[40_000], numbers[90_000], numbers[99_000]) = (-20.0, 60.0, 0.0);
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let found = statistics(Dtype::Float64, &[100_003], bytes).expect("numbers");
        let extremes = [ElementValue::Real(-20.0), ElementValue::Real(60.0)].map(Some);
        assert_eq!(([found.min, found.max], found.zeros), (extremes, 1));
        let mean = numbers.iter().sum::<f64>() / 100_003.0;
        let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
        assert_close(found.std.expect("numbers"), (squares / 100_003.0).sqrt(), "deviation");
        let mut counts = vec![0_u64; BINS];
        for number in &numbers {
            counts[bin((number + 20.0) / 80.0)] += 1;
        }
        assert_eq!(found.histogram.expect("different numbers").counts, counts);
        assert_eq!((counts[0], counts[BINS - 1]), (1, 1));
    }

    #[test]
    fn complex_numbers_are_ordered_and_summed_by_their_parts() {
        let mut numbers: Vec<[f64; 2]> = noise(60_002).as_chunks::<2>().0.to_vec();
        (numbers[20_000], numbers[29_000]) = ([-7.0, 2.0], [-7.0, 1.0]);
        (numbers[10_000], numbers[28_000]) = ([9.0, -3.0], [9.0, -4.0]);
        (numbers[5], numbers[6], numbers[7]) = ([0.0, 0.0], [0.0, 1.0], [1.0, 0.0]);
        let values =
            |numbers: &[[f64; 2]]| numbers.as_flattened().iter().flat_map(|it| it.to_le_bytes()).collect();
        let found = statistics(Dtype::Complex128, &[30_001], values(&numbers)).expect("numbers");
        let extremes = [ElementValue::Complex(-7.0, 1.0), ElementValue::Complex(9.0, -3.0)].map(Some);
        assert_eq!(([found.min, found.max], found.zeros, found.count), (extremes, 1, 30_001));
        let mean = [0, 1].map(|part| numbers.iter().map(|number| number[part]).sum::<f64>() / 30_001.0);
        let Some(ElementValue::Complex(re, im)) = found.mean else { panic!("{found:?}") };
        assert_close(re, mean[0], "real part");
        assert_close(im, mean[1], "imaginary part");
        let square = |number: &[f64; 2]| (number[0] - mean[0]).powi(2) + (number[1] - mean[1]).powi(2);
        let variance = numbers.iter().map(square).sum::<f64>() / 30_001.0;
        assert_close(found.std.expect("numbers"), variance.sqrt(), "deviation");
        // One part is enough for a special number, and a zero needs both.
        let special =
            [[f64::NAN, 0.0], [0.0, f64::NAN], [f64::INFINITY, 0.0], [0.0, f64::NEG_INFINITY], [1.0, 1.0]];
        let found = statistics(Dtype::Complex128, &[5], values(&special)).expect("numbers");
        assert_eq!((found.zeros, found.nan, found.infinite), (0, 2, 2));
    }

    #[test]
    fn packed_and_complex_numbers_are_decoded() {
        let found = statistics(Dtype::Float4E2M1FnX2, &[2], vec![0x72, 0xf0]).expect("numbers");
        assert_eq!((found.count, found.zeros), (4, 1));
        assert_eq!(found.min, Some(ElementValue::Real(-6.0)));
        assert_eq!(found.mean, Some(ElementValue::Real(0.25)));
        let bytes = [1.0_f32, 5.0, 1.0, -2.0].iter().flat_map(|number| number.to_le_bytes()).collect();
        let found = statistics(Dtype::Complex64, &[2], bytes).expect("numbers");
        assert_eq!(found.max, Some(ElementValue::Complex(1.0, 5.0)));
        assert_eq!((found.mean, found.std), (Some(ElementValue::Complex(1.0, 1.5)), Some(3.5)));
        assert!(statistics(Dtype::Bits8, &[1], vec![1]).is_none());
    }
}
