//! Numbers of a weight as doubles, and doubles as numbers of a weight.

use tensor::Dtype;

use crate::round;

/// Widens little-endian floating-point numbers to doubles.
pub(crate) fn widen(dtype: Dtype, bytes: &[u8], numbers: &mut Vec<f64>) -> byte_source::Result<()> {
    numbers.clear();
    let halves = bytes.as_chunks::<2>().0.iter().map(|half| u16::from_le_bytes(*half));
    match dtype {
        Dtype::BFloat16 => numbers.extend(halves.map(|bits| f64::from(kernels::from_bf16(bits)))),
        Dtype::Float16 => numbers.extend(halves.map(|bits| f64::from(kernels::from_f16(bits)))),
        Dtype::Float32 => {
            let singles = bytes.as_chunks().0.iter();
            numbers.extend(singles.map(|single| f64::from(f32::from_le_bytes(*single))));
        }
        Dtype::Float64 => {
            numbers.extend(bytes.as_chunks().0.iter().map(|double| f64::from_le_bytes(*double)));
        }
        _ => return Err(std::io::ErrorKind::Unsupported.into()),
    }
    Ok(())
}

/// Rounds doubles to little-endian numbers of a dtype that [`widen`] reads.
pub(crate) fn narrow(dtype: Dtype, numbers: &[f64], bytes: &mut [u8]) {
    match dtype {
        Dtype::BFloat16 => {
            let halves = bytes.as_chunks_mut::<2>().0.iter_mut().zip(numbers);
            halves.for_each(|(half, number)| *half = round::to_bf16(*number).to_le_bytes());
        }
        Dtype::Float16 => {
            let halves = bytes.as_chunks_mut::<2>().0.iter_mut().zip(numbers);
            halves.for_each(|(half, number)| *half = round::to_f16(*number).to_le_bytes());
        }
        Dtype::Float32 => {
            let singles = bytes.as_chunks_mut::<4>().0.iter_mut().zip(numbers);
            singles.for_each(|(single, number)| *single = round::to_f32(*number).to_le_bytes());
        }
        _ => {
            let doubles = bytes.as_chunks_mut::<8>().0.iter_mut().zip(numbers);
            doubles.for_each(|(double, number)| *double = round::to_f64(*number).to_le_bytes());
        }
    }
}
