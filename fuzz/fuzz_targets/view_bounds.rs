//! A view is accepted exactly if its last byte is inside the storage and its numbers fit PyTorch's 63 bits, computed in
//! integers that do not overflow.

#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::{Corpus, fuzz_target};
use tensor::{Storage, Tensor};

fuzz_target!(|bytes: &[u8]| -> Corpus {
    match check(&mut Unstructured::new(bytes)) {
        Ok(()) => Corpus::Keep,
        Err(_) => Corpus::Reject,
    }
});

fn check(u: &mut Unstructured<'_>) -> Result<()> {
    let dtype = torch2carton_fuzz::tensors::dtype(u)?;
    let (rank, other) = (u.int_in_range(0..=5)?, u.ratio(1, 16)?);
    let shape = numbers(u, rank)?;
    let stride = numbers(u, rank + usize::from(other))?;
    let offset = number(u)?;
    let len = u.int_in_range(0..=256)?;
    let accepted = Tensor::new(dtype, shape.clone(), stride.clone(), offset, Storage::owned(vec![0; len]));
    let end = end(&shape, &stride, offset, dtype.size());
    let expected = !other && end.is_some_and(|end| end <= len as u128);
    assert_eq!(accepted.is_ok(), expected, "{dtype} {shape:?} {stride:?} {offset} {len}");
    if let Ok(tensor) = accepted {
        let span = tensor.span();
        assert!(span.start <= span.end);
        assert!(tensor.numel() == 0 || u128::from(span.end) == end.unwrap_or_default());
    }
    Ok(())
}

/// Bytes up to the end of the last element; `None` where PyTorch's numbers are too small.
fn end(shape: &[u64], stride: &[u64], offset: u64, size: u64) -> Option<u128> {
    if shape.contains(&0) {
        return Some(0);
    }
    let (mut numel, mut last) = (1_u128, u128::from(offset));
    for (size, stride) in shape.iter().zip(stride) {
        numel = numel.checked_mul(u128::from(*size))?;
        last = last.checked_add(u128::from(size - 1).checked_mul(u128::from(*stride))?)?;
    }
    let fits = |n: u128| (n <= i64::MAX as u128).then_some(n);
    fits(numel.checked_mul(u128::from(size))?)?;
    fits((last + 1).checked_mul(u128::from(size))?)
}

fn numbers(u: &mut Unstructured<'_>, count: usize) -> Result<Vec<u64>> {
    (0..count).map(|_| number(u)).collect()
}

/// Mostly small numbers, and those around which computers go wrong.
fn number(u: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match u.int_in_range(0..=7)? {
        0 => u.arbitrary()?,
        1 => (1_u64 << u.int_in_range(0..=63)?).wrapping_add_signed(u.int_in_range(-1..=1)?),
        _ => u.int_in_range(0..=12)?,
    })
}
