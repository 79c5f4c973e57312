//! Storages of numbers that are cast to another dtype when they are read.
//!
//! Facts: `Tensor.to(dtype)`; see [`DtypeConversion`].

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use byte_source::{NotRepresentable, Observer, WINDOW, Window};

use crate::compute::{Compute, Inputs};
use crate::{DtypeConversion, Storage};

/// Largest read, in bytes, that uses a buffer on the stack.
const STACK_BYTES_MAX: usize = 256;

/// Elements of a storage that tensors view, and for each element the name of such a tensor.
///
/// All elements between the first and the last element of a tensor count as viewed, even if its strides pass over some.
#[derive(Clone, Debug, Default)]
pub struct ViewedRanges {
    /// Ranges of elements that do not overlap, in ascending order.
    ranges: Vec<(Range<u64>, Arc<str>)>,
}

impl ViewedRanges {
    /// Merges `views`: a range of elements of the storage and a tensor name each.
    pub fn new(mut views: Vec<(Range<u64>, Arc<str>)>) -> Self {
        // Of ranges with the same start, the largest comes first.
        views.sort_by_key(|(range, _)| (range.start, std::cmp::Reverse(range.end)));
        let mut end = 0;
        views.retain_mut(|(range, _)| {
            range.start = range.start.max(end);
            end = end.max(range.end);
            !range.is_empty()
        });
        Self { ranges: views }
    }

    /// Returns the range from the first to the last viewed element.
    fn hull(&self) -> Range<u64> {
        let end = self.ranges.last().map_or(0, |(range, _)| range.end);
        self.ranges.first().map_or(0, |(range, _)| range.start)..end
    }

    fn name(&self, element: u64) -> Option<&Arc<str>> {
        let before = self.ranges.partition_point(|(range, _)| range.start <= element);
        let (range, name) = self.ranges.get(before.checked_sub(1)?)?;
        range.contains(&element).then_some(name)
    }
}

/// Numbers of a storage that are out of the range of the new dtype.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// Number of such values, where each part of a complex number counts.
    pub count: u64,
    /// Name of a tensor that has the first value.
    pub first: Arc<str>,
}

/// Computation that casts the numbers of a storage to another dtype.
#[derive(Debug)]
pub struct CastNumbers {
    base: Storage,
    conversion: DtypeConversion,
    /// Offset of the first converted byte in the base.
    start: usize,
    components: usize,
    /// Size of a component in bytes before (`from`) and after (`to`) the conversion.
    from: usize,
    to: usize,
    viewed_ranges: ViewedRanges,
    /// Set when a converted component was out of range.
    is_out_of_range: AtomicBool,
}

/// Callback for a component that is out of range. It takes the name of a tensor that has the component, and the bytes
/// before the conversion.
type OutOfRangeCallback<'f> = dyn FnMut(&Arc<str>, &[u8]) -> Result<(), byte_source::Error> + 'f;

impl CastNumbers {
    /// Casts the elements of `range` of `base` whenever they are read. Only elements that tensors have `seen`, counted
    /// from the start of the range, are an error or counted if they are out of the dtype's range. Returns `None` if
    /// `range` is not inside `base`.
    pub fn new(
        base: &Storage,
        conversion: DtypeConversion,
        range: &Range<u64>,
        seen: ViewedRanges,
    ) -> Option<Self> {
        let size = conversion.from().size();
        if range.start > range.end || range.end.checked_mul(size)? > base.len() {
            return None;
        }
        let (from, to) = (conversion.from().component_size(), conversion.to().component_size());
        let components = range.end.checked_sub(range.start)?.checked_mul(size.checked_div(from)?)?;
        let nbytes = components.checked_mul(to)?;
        i64::try_from(nbytes).ok()?;
        Some(Self {
            base: base.clone(),
            conversion,
            start: usize::try_from(range.start.checked_mul(size)?).ok()?,
            components: usize::try_from(components).ok()?,
            from: usize::try_from(from).ok()?,
            to: usize::try_from(to).ok()?,
            viewed_ranges: seen,
            is_out_of_range: AtomicBool::new(false),
        })
    }

    /// Returns the range of bytes of the base from which `len` bytes from component `at` on are converted.
    fn base_bytes(&self, at: usize, len: usize) -> Result<Range<usize>, byte_source::Error> {
        let components = len.checked_div(self.to).unwrap_or(0);
        if at.checked_add(components).is_none_or(|end| end > self.components) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let start = self.start.saturating_add(at.saturating_mul(self.from));
        Ok(start..start.saturating_add(components.saturating_mul(self.from)))
    }

    /// Returns the number of components that fill at most a window before and after the conversion.
    fn components_per_window(&self) -> usize {
        WINDOW.checked_div(self.from.max(self.to)).unwrap_or(1).max(1)
    }

    /// Converts components, the first of which is component `at`.
    fn convert(&self, at: usize, bytes: &[u8], out: &mut [u8]) -> Result<(), byte_source::Error> {
        if self.conversion.convert(bytes, out) {
            return Ok(());
        }
        self.is_out_of_range.store(true, Ordering::Relaxed);
        if !self.conversion.requires_range() {
            return Ok(());
        }
        self.for_each_out_of_range(at, bytes, &mut |name, number| {
            let tensor = name.to_string();
            let (from, to) = (self.conversion.from().name(), self.conversion.to().name());
            let number = self.conversion.format_number(number);
            Err(NotRepresentable { tensor, from, to, number }.into())
        })
    }

    /// Calls `found` for each component that is out of range and in a tensor. The first of `bytes` is component `at`.
    fn for_each_out_of_range(
        &self,
        at: usize,
        bytes: &[u8],
        found: &mut OutOfRangeCallback<'_>,
    ) -> Result<(), byte_source::Error> {
        let mut out = [0; 8];
        let out = out.get_mut(..self.to).unwrap_or_default();
        let per_element = self.conversion.from().size().checked_div(self.from as u64).unwrap_or(1);
        for (component, number) in (at as u64..).zip(bytes.chunks_exact(self.from)) {
            if self.conversion.convert(number, out) {
                continue;
            }
            if let Some(name) = self.viewed_ranges.name(component.checked_div(per_element).unwrap_or(0)) {
                found(name, number)?;
            }
        }
        Ok(())
    }

    /// Counts the numbers of tensors that are out of range, by reading the storage once more. `None` if there are none;
    /// the storage is not read if all numbers that were converted are in range.
    ///
    /// # Errors
    /// When the storage cannot be read, or `observer` stops the work.
    pub fn recount_out_of_range(
        &self,
        observer: &dyn Observer,
    ) -> Result<Option<OutOfRange>, byte_source::Error> {
        if !self.is_out_of_range.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let (mut count, mut first) = (0_u64, None);
        let hull = self.viewed_ranges.hull();
        let per_element = self.conversion.from().size().checked_div(self.from as u64).unwrap_or(1);
        let component =
            |element: u64| usize::try_from(element.saturating_mul(per_element)).unwrap_or(usize::MAX);
        let (start, end) = (component(hull.start), component(hull.end).min(self.components));
        for at in (start..end).step_by(self.components_per_window()) {
            observer.check()?;
            let components = self.components_per_window().min(end.saturating_sub(at));
            let range = self.base_bytes(at, components.saturating_mul(self.to))?;
            let bytes = Window::filled(range.len(), |bytes| self.base.read(range.start as u64, bytes))?;
            let mut all_fit = true;
            Window::filled(components.saturating_mul(self.to), |out| {
                all_fit = self.conversion.convert(&bytes, out);
                Ok(())
            })?;
            if !all_fit {
                self.for_each_out_of_range(at, &bytes, &mut |name, _| {
                    count = count.saturating_add(1);
                    first.get_or_insert_with(|| Arc::clone(name));
                    Ok(())
                })?;
            }
        }
        Ok(first.map(|first| OutOfRange { count, first }))
    }
}

impl Compute for CastNumbers {
    fn len(&self) -> u64 {
        self.components.saturating_mul(self.to) as u64
    }

    fn inputs(&self) -> &[Storage] {
        std::slice::from_ref(&self.base)
    }

    fn granule(&self) -> u64 {
        self.to as u64
    }

    fn is_costly(&self) -> bool {
        self.base.is_costly()
    }

    fn read_at(
        &self,
        inputs: &mut Inputs<'_>,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<(), byte_source::Error> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut at = start.checked_div(self.to).unwrap_or(0);
        let mut short = [0; STACK_BYTES_MAX];
        for out in buffer.chunks_mut(self.components_per_window().saturating_mul(self.to)) {
            let range = self.base_bytes(at, out.len())?;
            if let Some(bytes) = short.get_mut(..range.len()) {
                inputs.read(0, bytes, range.start as u64)?;
                self.convert(at, bytes, out)?;
            } else {
                let bytes = Window::filled(range.len(), |bytes| inputs.read(0, bytes, range.start as u64))?;
                self.convert(at, &bytes, out)?;
            }
            at = at.saturating_add(self.components_per_window());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use byte_source::Blob;

    use super::*;
    use crate::{Dtype, Tensor};

    fn bytes(blob: &dyn Blob) -> Result<Vec<u8>, byte_source::Error> {
        let mut out: Vec<u8> = Vec::new();
        blob.write_to(&mut out)?;
        assert_eq!(out.len() as u64, blob.len());
        Ok(out)
    }

    fn floats(numbers: impl IntoIterator<Item = f32>) -> Storage {
        Storage::owned(numbers.into_iter().flat_map(f32::to_le_bytes).collect())
    }

    fn seen(ranges: &[(Range<u64>, &str)]) -> ViewedRanges {
        ViewedRanges::new(ranges.iter().map(|(range, name)| (range.clone(), Arc::from(*name))).collect())
    }

    fn cast(base: &Storage, to: Dtype, range: Range<u64>, ranges: &[(Range<u64>, &str)]) -> Storage {
        Storage::computed(numbers(base, to, range, ranges))
    }

    fn numbers(
        base: &Storage,
        to: Dtype,
        range: Range<u64>,
        ranges: &[(Range<u64>, &str)],
    ) -> Arc<CastNumbers> {
        let conversion = DtypeConversion::new(Dtype::Float32, to).expect("both are numbers");
        Arc::new(CastNumbers::new(base, conversion, &range, seen(ranges)).expect("it is inside"))
    }

    struct Stop;

    impl Observer for Stop {
        fn is_cancelled(&self) -> bool {
            true
        }
    }

    #[test]
    fn views_keep_their_strides() {
        let base = floats((0..12_u8).map(f32::from));
        let whole = cast(&base, Dtype::Int16, 0..12, &[]);
        assert_eq!(whole.len(), 24);
        assert!(whole.is_computed() && whole.mapped_bytes().is_none());
        let i16s = |bytes: Vec<u8>| -> Vec<i16> {
            bytes.as_chunks().0.iter().map(|n| i16::from_le_bytes(*n)).collect()
        };
        assert_eq!(i16s(bytes(&whole).expect("memory")), (0..12).collect::<Vec<_>>());
        let transposed = Tensor::new(Dtype::Int16, vec![4, 3], vec![1, 4], 0, whole).expect("inside");
        let found = i16s(bytes(&transposed.gathered()).expect("memory"));
        assert_eq!(found, [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]);
        let part = cast(&base, Dtype::Int16, 3..7, &[]);
        assert_eq!(i16s(bytes(&part).expect("memory")), [3, 4, 5, 6]);
    }

    #[test]
    fn windows_are_no_larger_after_the_conversion() {
        let numbers = (0..700_000_u32).map(|n| f32::from_bits(n * 4096));
        let base = floats(numbers.clone());
        for to in [Dtype::Float64, Dtype::Float32, Dtype::BFloat16] {
            let found = bytes(&cast(&base, to, 0..700_000, &[])).expect("memory");
            let gathered = Tensor::new(to, vec![100_000, 7], vec![7, 1], 0, cast(&base, to, 0..700_000, &[]));
            assert_eq!(found, bytes(&gathered.expect("inside").gathered()).expect("memory"), "{to}");
        }
        let doubles = bytes(&cast(&base, Dtype::Float64, 0..700_000, &[])).expect("memory");
        assert_eq!(doubles, numbers.flat_map(|n| f64::from(n).to_le_bytes()).collect::<Vec<_>>());
    }

    #[test]
    fn complex_numbers_are_converted_in_parts() {
        let base = floats([0.0, 1.0, 2.0, f32::MAX]);
        let conversion = DtypeConversion::new(Dtype::Complex64, Dtype::Complex32).expect("both are complex");
        let half = CastNumbers::new(&base, conversion, &(0..2), seen(&[(1..2, "z")])).expect("inside");
        let half = Arc::new(half);
        let expected = [0_u16, 0x3c00, 0x4000, 0x7c00];
        assert_eq!(
            bytes(&Storage::computed(half.clone())).expect("memory"),
            expected.map(u16::to_le_bytes).as_flattened()
        );
        let found = half.recount_out_of_range(&()).expect("memory");
        assert_eq!(found, Some(OutOfRange { count: 1, first: "z".into() }));
        assert!(
            CastNumbers::new(&base, conversion, &(0..3), ViewedRanges::default()).is_none(),
            "there are two"
        );
    }

    #[test]
    fn what_a_tensor_sees_is_counted_once() {
        let mut floating = vec![1.0_f32; 600_000];
        for at in [0, 5, 7, 8, 599_999] {
            floating[at] = 1e6;
        }
        let base = floats(floating);
        let views = [(4..9, "b"), (3..6, "a"), (3..6, "c"), (10..600_000, "d")];
        let read = |cast: &Arc<CastNumbers>| bytes(&Storage::computed(cast.clone())).expect("memory");
        let half = numbers(&base, Dtype::Float16, 0..600_000, &views);
        let count = |cast: &CastNumbers| cast.recount_out_of_range(&()).expect("memory");
        assert_eq!(count(&half), None, "nothing was read");
        for _ in 0..2 {
            read(&half);
            assert_eq!(count(&half), Some(OutOfRange { count: 4, first: "a".into() }));
        }
        let unseen = numbers(&base, Dtype::Float16, 0..600_000, &[(1..5, "a")]);
        read(&unseen);
        assert_eq!(count(&unseen), None);
        let fits = numbers(&base, Dtype::BFloat16, 0..600_000, &views);
        read(&fits);
        assert_eq!(count(&fits), None);
        assert!(half.recount_out_of_range(&Stop).is_err_and(|error| error.is_cancelled()));
    }

    #[test]
    fn a_float_without_an_integer_is_an_error() {
        let base = floats([1.0, 300.5, f32::NAN, 4.0]);
        let found = bytes(&cast(&base, Dtype::UInt8, 0..4, &[(0..4, "a\n")])).expect_err("300 is too large");
        assert!(found.detail::<NotRepresentable>().is_some());
        assert_eq!(found.to_string(), "tensor `a\\n`: 300.5 (float32) is not in the range of uint8");
        let unseen = cast(&base, Dtype::UInt8, 0..4, &[(0..1, "a"), (3..4, "b")]);
        assert_eq!(bytes(&unseen).expect("no tensor has them"), [1, 44, 0, 4]);
    }
}
