//! Numeric differences of pairs of tensors of equal shape, computed on all cores.
//!
//! Elements are compared as float64; int64 and uint64 are subtracted as integers first. Two elements of the same bits are
//! equal, also if they are NaN.

use std::sync::{Mutex, PoisonError};

use byte_source::ProgressReporter;
use serde::Serialize;
use tensor::{Dtype, DtypeConversion, ElementReader, RecordChecks, Tensor};

use crate::compare::segments::{Buffers, READ_LEN, Segments, UnreadItem};

/// Numbers that are accumulated side by side, so that the compiler can use vector instructions.
const LANES: usize = 8;

/// How much the elements of two tensors differ.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ElementChange {
    /// Number of elements that differ; a complex element counts once for each of its parts.
    pub count: u64,
    /// Number of elements.
    pub numel: u64,
    /// Number of the elements that differ of which one is NaN or infinite; the following fields leave them out.
    pub not_finite: u64,
    /// Largest absolute difference.
    pub max_abs: f64,
    /// Largest difference relative to the larger of the two elements.
    pub max_rel: f64,
    /// Mean of the absolute differences of all elements.
    pub mean_abs: f64,
    /// Euclidean norm of the difference.
    pub norm: f64,
    /// Norm of the difference divided by the larger norm of the two tensors; at most 2.
    pub relative_norm: f64,
    /// Cosine of the angle between the two tensors; `None` if one of them is zero.
    pub cosine: Option<f64>,
    /// First element that differs.
    pub first: Option<FirstChange>,
}

/// Element that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FirstChange {
    pub index: Vec<u64>,
    /// Element of the first tensor, as text.
    pub a: String,
    pub b: String,
}

/// Numeric change, and the norms of both tensors.
#[derive(Clone, Debug, Default)]
pub(crate) struct PairNumbers {
    pub(crate) change: ElementChange,
    /// Norms of the finite elements; `None` if the dtype is not one of numbers.
    pub(crate) norms: Option<(f64, f64)>,
}

/// Sums over a segment.
#[derive(Clone, Debug, Default)]
struct Sums {
    count: u64,
    not_finite: u64,
    max_abs: f64,
    max_rel: f64,
    abs: f64,
    square: f64,
    square_a: f64,
    square_b: f64,
    product: f64,
    /// First component that differs, in C order.
    first: Option<u64>,
}

impl Sums {
    fn append(&mut self, next: &Self) {
        self.count = self.count.saturating_add(next.count);
        self.not_finite = self.not_finite.saturating_add(next.not_finite);
        self.max_abs = self.max_abs.max(next.max_abs);
        self.max_rel = self.max_rel.max(next.max_rel);
        self.abs += next.abs;
        self.square += next.square;
        self.square_a += next.square_a;
        self.square_b += next.square_b;
        self.product += next.product;
        self.first = self.first.or(next.first);
    }
}

/// Dtype of an element, decoded to float64.
#[derive(Clone, Copy)]
enum NumberKind {
    Signed64,
    Unsigned64,
    Converted(DtypeConversion),
    /// Packed numbers and bits, which are only compared.
    Bits,
}

impl NumberKind {
    fn new(dtype: Dtype) -> Self {
        let to = if DtypeConversion::new(dtype, Dtype::Complex128)
            .is_some_and(|_| DtypeConversion::new(dtype, Dtype::Float64).is_none())
        {
            Dtype::Complex128
        } else {
            Dtype::Float64
        };
        match (dtype, DtypeConversion::new(dtype, to)) {
            (Dtype::Int64, _) => Self::Signed64,
            (Dtype::UInt64, _) => Self::Unsigned64,
            (_, Some(conversion)) => Self::Converted(conversion),
            (_, None) => Self::Bits,
        }
    }

    /// Decodes components into `out`; integers of 64 bits are rounded.
    #[expect(
        clippy::cast_precision_loss,
        reason = "the difference of two integers is computed before they are rounded"
    )]
    fn decode(self, bytes: &[u8], out: &mut Vec<f64>, scratch: &mut Vec<u8>) {
        out.clear();
        match self {
            Self::Signed64 => {
                out.extend(bytes.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes) as f64));
            }
            Self::Unsigned64 => {
                out.extend(bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes) as f64));
            }
            Self::Converted(conversion) => {
                let size = usize::try_from(conversion.from().component_size()).unwrap_or(1).max(1);
                scratch.resize(bytes.len().checked_div(size).unwrap_or(0).saturating_mul(8), 0);
                conversion.convert(bytes, scratch);
                out.extend(scratch.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)));
            }
            Self::Bits => {}
        }
    }

    /// Formats a component as a program would print it.
    fn format(self, bytes: &[u8]) -> String {
        match (self, bytes.first_chunk::<8>()) {
            (Self::Signed64, Some(bytes)) => i64::from_le_bytes(*bytes).to_string(),
            (Self::Unsigned64, Some(bytes)) => u64::from_le_bytes(*bytes).to_string(),
            (Self::Converted(_), _) => {
                let (mut out, mut scratch) = (Vec::new(), Vec::new());
                self.decode(bytes, &mut out, &mut scratch);
                out.first().map_or_else(String::new, |number| format_number(*number))
            }
            _ => format!("0x{}", byte_source::hex(bytes)),
        }
    }
}

/// Formats a number as Python does.
fn format_number(number: f64) -> String {
    if number.is_finite() { format!("{number:?}") } else { number.to_string().to_lowercase() }
}

/// Returns true if the numbers of two dtypes can be compared: equal dtypes always can, complex numbers only with complex ones.
pub(crate) fn are_comparable(a: Dtype, b: Dtype) -> bool {
    a == b || DtypeConversion::new(a, b).is_some()
}

struct NumberBuffers {
    bytes: Buffers,
    first: Vec<f64>,
    second: Vec<f64>,
    scratch: Vec<u8>,
}

/// Computes the numeric difference of each pair. The dtypes of a pair may differ.
///
/// # Errors
/// When a tensor cannot be read, or the observer stops the work.
pub(crate) fn compare_numbers(
    pairs: &[(&Tensor, &Tensor)],
    checks: &RecordChecks,
    progress: ProgressReporter<'_>,
) -> Result<Vec<PairNumbers>, UnreadItem> {
    let segments = Segments::new(pairs.iter().map(|(a, _)| *a));
    let sums: Vec<Mutex<Vec<Sums>>> =
        (0..pairs.len()).map(|item| Mutex::new(vec![Sums::default(); segments.count(item)])).collect();
    let buffers = || NumberBuffers {
        bytes: Buffers::new(),
        first: Vec::new(),
        second: Vec::new(),
        scratch: Vec::new(),
    };
    segments.run(progress, buffers, |buffers, segment| {
        let Some((a, b)) = pairs.get(segment.item) else { return Ok(()) };
        let (a_kind, b_kind) = (NumberKind::new(a.dtype()), NumberKind::new(b.dtype()));
        let (a_size, b_size) = (a.dtype().size().max(1), b.dtype().size().max(1));
        let step = (READ_LEN as u64).checked_div(a_size.max(b_size)).unwrap_or(1).max(1);
        let mut readers = (ElementReader::new(a, checks), ElementReader::new(b, checks));
        let (mut total, mut at) = (Sums::default(), segment.start);
        let same_dtype = a.dtype() == b.dtype();
        let component = usize::try_from(a.dtype().component_size()).unwrap_or(1).max(1);
        let components = a_size.checked_div(component as u64).unwrap_or(1).max(1);
        while at < segment.end {
            let elements = step.min(segment.end.saturating_sub(at));
            let NumberBuffers { bytes: Buffers(ours, theirs), first, second, scratch } = buffers;
            let part = |buffer: &mut Vec<u8>, size: u64| {
                usize::try_from(elements.saturating_mul(size)).unwrap_or(READ_LEN).min(buffer.len())
            };
            let (our_len, their_len) = (part(ours, a_size), part(theirs, b_size));
            let ours = ours.get_mut(..our_len).unwrap_or_default();
            let theirs = theirs.get_mut(..their_len).unwrap_or_default();
            let item = segment.item;
            readers.0.read(at.saturating_mul(a_size), ours).map_err(|reason| UnreadItem {
                item,
                is_second: false,
                reason,
            })?;
            readers.1.read(at.saturating_mul(b_size), theirs).map_err(|reason| UnreadItem {
                item,
                is_second: true,
                reason,
            })?;
            let from = at.saturating_mul(components);
            a_kind.decode(ours, first, scratch);
            b_kind.decode(theirs, second, scratch);
            let mut sums = Sums::default();
            match (a_kind, b_kind) {
                (NumberKind::Bits, _) | (_, NumberKind::Bits) => {
                    let size = usize::try_from(a_size).unwrap_or(1);
                    compare_bits(ours, theirs, size, from, &mut sums);
                }
                (NumberKind::Signed64 | NumberKind::Unsigned64, _) if same_dtype => {
                    add_integers((ours, theirs), (first, second), a_kind, from, &mut sums);
                }
                _ => {
                    let is_same = |number: usize| {
                        let range = number.saturating_mul(component)..;
                        let ours = ours.get(range.clone()).and_then(|bytes| bytes.get(..component));
                        if same_dtype {
                            ours == theirs.get(range).and_then(|bytes| bytes.get(..component))
                        } else {
                            first.get(number).map(|x| x.to_bits()) == second.get(number).map(|y| y.to_bits())
                        }
                    };
                    add_numbers(first, second, &is_same, from, &mut sums);
                }
            }
            total.append(&sums);
            at = at.saturating_add(elements);
        }
        let mut sums = sums.get(segment.item).map(|sums| sums.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(slot) = sums.as_mut().and_then(|sums| sums.get_mut(segment.number)) {
            *slot = total;
        }
        Ok(())
    })?;
    let mut all = Vec::with_capacity(pairs.len());
    for (item, ((a, b), sums)) in pairs.iter().zip(sums).enumerate() {
        let mut total = Sums::default();
        sums.into_inner().unwrap_or_else(PoisonError::into_inner).iter().for_each(|sums| total.append(sums));
        all.push(finish(item, a, b, &total)?);
    }
    Ok(all)
}

/// Turns the sums of a pair into its numeric change.
#[expect(clippy::cast_precision_loss, reason = "a mean of more than 2^53 elements is rounded")]
fn finish(item: usize, a: &Tensor, b: &Tensor, total: &Sums) -> Result<PairNumbers, UnreadItem> {
    let (a_kind, b_kind) = (NumberKind::new(a.dtype()), NumberKind::new(b.dtype()));
    let component = a.dtype().component_size().max(1);
    let components = a.dtype().size().checked_div(component).unwrap_or(1).max(1);
    let (norm_a, norm_b) = (total.square_a.sqrt(), total.square_b.sqrt());
    let norm = total.square.sqrt();
    let larger = norm_a.max(norm_b);
    let is_number = !matches!(a_kind, NumberKind::Bits) && !matches!(b_kind, NumberKind::Bits);
    let first = match total.first {
        Some(at) => {
            let element = at.checked_div(components).unwrap_or(0);
            let text = |tensor: &Tensor, kind: NumberKind, is_second| {
                let size = tensor.dtype().component_size().max(1);
                let mut bytes = vec![0; usize::try_from(size).unwrap_or(1)];
                let checks = RecordChecks::default();
                let at = at.saturating_mul(size);
                let read = ElementReader::new(tensor, &checks).read(at, &mut bytes);
                read.map_err(|reason| UnreadItem { item, is_second, reason })?;
                Ok(kind.format(&bytes))
            };
            Some(FirstChange {
                index: index_of(element, a.shape()),
                a: text(a, a_kind, false)?,
                b: text(b, b_kind, true)?,
            })
        }
        None => None,
    };
    let numel = a.numel();
    let change = ElementChange {
        count: total.count,
        numel,
        not_finite: total.not_finite,
        max_abs: total.max_abs,
        max_rel: total.max_rel,
        mean_abs: if numel == 0 { 0.0 } else { total.abs / numel.saturating_mul(components) as f64 },
        norm,
        relative_norm: if larger > 0.0 { norm / larger } else { 0.0 },
        cosine: (norm_a > 0.0 && norm_b > 0.0).then(|| (total.product / (norm_a * norm_b)).clamp(-1.0, 1.0)),
        first,
    };
    Ok(PairNumbers { change, norms: is_number.then_some((norm_a, norm_b)) })
}

/// Returns the index of an element, counted in C order.
fn index_of(element: u64, shape: &[u64]) -> Vec<u64> {
    let mut rest = element;
    let mut index: Vec<u64> = shape
        .iter()
        .rev()
        .map(|size| {
            let within = rest.checked_rem(*size).unwrap_or(0);
            rest = rest.checked_div(*size).unwrap_or(0);
            within
        })
        .collect();
    index.reverse();
    index
}

fn compare_bits(ours: &[u8], theirs: &[u8], size: usize, from: u64, sums: &mut Sums) {
    for (at, (ours, theirs)) in (from..).zip(ours.chunks(size).zip(theirs.chunks(size))) {
        if ours != theirs {
            sums.count = sums.count.saturating_add(1);
            sums.first = sums.first.or(Some(at));
        }
    }
}

/// Adds integers of 64 bits, whose difference is exact.
#[expect(clippy::cast_precision_loss, reason = "the exact difference is rounded once")]
fn add_integers(
    (ours, theirs): (&[u8], &[u8]),
    (first, second): (&[f64], &[f64]),
    kind: NumberKind,
    from: u64,
    sums: &mut Sums,
) {
    let wide = |bytes: &[u8; 8]| match kind {
        NumberKind::Unsigned64 => i128::from(u64::from_le_bytes(*bytes)),
        _ => i128::from(i64::from_le_bytes(*bytes)),
    };
    let pairs = ours.as_chunks::<8>().0.iter().zip(theirs.as_chunks::<8>().0);
    for (at, ((ours, theirs), (x, y))) in (from..).zip(pairs.zip(first.iter().zip(second))) {
        let difference = wide(theirs).saturating_sub(wide(ours)).unsigned_abs() as f64;
        sums.square_a += x * x;
        sums.square_b += y * y;
        sums.product += x * y;
        if difference > 0.0 {
            sums.count = sums.count.saturating_add(1);
            sums.first = sums.first.or(Some(at));
            sums.max_abs = sums.max_abs.max(difference);
            sums.max_rel = sums.max_rel.max(difference / x.abs().max(y.abs()));
            sums.abs += difference;
            sums.square += difference * difference;
        }
    }
}

/// Adds decoded numbers. `is_same` returns true for a component with the same bits in both tensors.
fn add_numbers(first: &[f64], second: &[f64], is_same: &dyn Fn(usize) -> bool, from: u64, sums: &mut Sums) {
    let (blocks, others) = (first.as_chunks::<LANES>(), second.as_chunks::<LANES>());
    let (mut abs, mut square) = ([0.0_f64; LANES], [0.0_f64; LANES]);
    let (mut square_a, mut square_b, mut product) = ([0.0_f64; LANES], [0.0_f64; LANES], [0.0_f64; LANES]);
    let mut slow = Vec::new();
    for (block, (x, y)) in (0_usize..).zip(blocks.0.iter().zip(others.0)) {
        let mut is_finite = true;
        let mut differs = false;
        for (x, y) in x.iter().zip(y) {
            // A product of 0 and an infinity or NaN is NaN.
            is_finite &= x * 0.0 + y * 0.0 == 0.0;
            differs |= x.to_bits() != y.to_bits();
        }
        if !is_finite || differs {
            slow.push(block);
        }
        if !is_finite {
            continue;
        }
        let lanes = abs.iter_mut().zip(&mut square).zip(&mut square_a).zip(&mut square_b).zip(&mut product);
        for (((((abs, square), square_a), square_b), product), (x, y)) in lanes.zip(x.iter().zip(y)) {
            let difference = (y - x).abs();
            *abs += difference;
            *square += difference * difference;
            *square_a += x * x;
            *square_b += y * y;
            *product += x * y;
        }
    }
    sums.abs += abs.iter().sum::<f64>();
    sums.square += square.iter().sum::<f64>();
    sums.square_a += square_a.iter().sum::<f64>();
    sums.square_b += square_b.iter().sum::<f64>();
    sums.product += product.iter().sum::<f64>();
    for block in slow {
        let pair = blocks.0.get(block).zip(others.0.get(block));
        let Some((x, y)) = pair else { continue };
        let number = block.saturating_mul(LANES);
        let is_finite = x.iter().chain(y).all(|number| number.is_finite());
        add_differences(x, y, number, is_same, (from, !is_finite), sums);
    }
    let number = blocks.0.len().saturating_mul(LANES);
    add_differences(blocks.1, others.1, number, is_same, (from, true), sums);
}

/// Counts the differences of a few numbers, the first of which is component `number` of the window. `needs_sums` says that
/// their sums were not added yet.
fn add_differences(
    first: &[f64],
    second: &[f64],
    number: usize,
    is_same: &dyn Fn(usize) -> bool,
    (from, needs_sums): (u64, bool),
    sums: &mut Sums,
) {
    for (number, (x, y)) in (number..).zip(first.iter().zip(second)) {
        let difference = (y - x).abs();
        let is_finite = x.is_finite() && y.is_finite();
        if needs_sums && x.is_finite() {
            sums.square_a += x * x;
        }
        if needs_sums && y.is_finite() {
            sums.square_b += y * y;
        }
        if needs_sums && is_finite {
            sums.abs += difference;
            sums.square += difference * difference;
            sums.product += x * y;
        }
        if (x.to_bits() == y.to_bits() && !x.is_nan()) || is_same(number) {
            continue;
        }
        sums.count = sums.count.saturating_add(1);
        sums.first = sums.first.or(Some(from.saturating_add(number as u64)));
        if is_finite {
            sums.max_abs = sums.max_abs.max(difference);
            let larger = x.abs().max(y.abs());
            if larger > 0.0 {
                sums.max_rel = sums.max_rel.max(difference / larger);
            }
        } else {
            sums.not_finite = sums.not_finite.saturating_add(1);
        }
    }
}
