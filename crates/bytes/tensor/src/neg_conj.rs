//! Storages of numbers with flipped signs, for tensors whose conj or neg bit is set.
//!
//! Facts: `Tensor.resolve_conj` and `Tensor.resolve_neg`. The sign of a floating-point number is the highest bit of its
//! last byte, little-endian; the imaginary part of a complex number follows the real one.

use std::ops::Range;

use crate::Storage;
use crate::compute::{Compute, Inputs};

/// Numbers whose sign is flipped, which follow from a tensor's conj and neg bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NegConj {
    /// All numbers: a neg bit.
    All,
    /// Imaginary parts: a conj bit.
    Imaginary,
    /// Real parts: a conj and a neg bit.
    Real,
}

/// Computation that implements [`Storage::with_flipped_signs`].
#[derive(Debug)]
pub(crate) struct SignFlip {
    pub(crate) base: Storage,
    /// Size in bytes of a real number, or of a part of a complex number.
    pub(crate) component: usize,
    pub(crate) signs: NegConj,
}

impl Compute for SignFlip {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn inputs(&self) -> &[Storage] {
        std::slice::from_ref(&self.base)
    }

    fn granule(&self) -> u64 {
        self.component as u64
    }

    fn read_at(
        &self,
        inputs: &mut Inputs<'_>,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<(), byte_source::Error> {
        inputs.read(0, buffer, offset)?;
        self.flip(buffer, offset);
        Ok(())
    }

    /// Returns `None` for a range that starts with an imaginary part, because flips count from a real part.
    fn slice(&self, range: Range<u64>) -> Option<Storage> {
        let component = self.component as u64;
        let is_real = range.start.is_multiple_of(component.saturating_mul(2));
        Some(self.base.slice(range).filter(|_| is_real)?.with_flipped_signs(component, self.signs))
    }
}

impl SignFlip {
    /// Flips signs in `bytes`, which start at byte `at` of the storage, the first byte of a component.
    fn flip(&self, bytes: &mut [u8], at: u64) {
        let first = usize::from(at.checked_div(self.component as u64).unwrap_or(0) % 2 == 1);
        for (index, number) in bytes.chunks_exact_mut(self.component).enumerate() {
            let is_real = index % 2 == first;
            let flipped = match self.signs {
                NegConj::All => true,
                NegConj::Imaginary => !is_real,
                NegConj::Real => is_real,
            };
            if let (true, Some(last)) = (flipped, number.last_mut()) {
                *last ^= 0x80;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use byte_source::{Blob, Sink};

    use super::*;
    use crate::{Dtype, Tensor};

    fn numbers(blob: &dyn for<'a> Fn(&mut dyn Sink) -> Result<(), byte_source::Error>) -> Vec<f32> {
        let mut bytes: Vec<u8> = Vec::new();
        blob(&mut bytes).expect("a Vec takes everything");
        bytes.as_chunks().0.iter().map(|number| f32::from_le_bytes(*number)).collect()
    }

    #[test]
    fn each_part_of_a_complex_number_has_a_sign() {
        // 0+1j, 2+3j, 4+5j
        let bytes: Vec<u8> =
            [0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0].iter().flat_map(|n| n.to_le_bytes()).collect();
        let base = Storage::owned(bytes);
        let of = |signs| base.with_flipped_signs(4, signs);
        for (signs, expected) in [
            (NegConj::All, [-0.0, -1.0, -2.0, -3.0, -4.0, -5.0]),
            (NegConj::Imaginary, [0.0, -1.0, 2.0, -3.0, 4.0, -5.0]),
            (NegConj::Real, [-0.0, 1.0, -2.0, 3.0, -4.0, 5.0]),
        ] {
            let found = numbers(&|sink| of(signs).write_to(sink));
            assert_eq!(found.iter().map(|n| n.to_bits()).collect::<Vec<_>>(), expected.map(f32::to_bits));
        }
        // A strided view, and a slice from the middle.
        let every_other = Tensor::new(Dtype::Complex64, vec![2], vec![2], 0, of(NegConj::Imaginary));
        let every_other = every_other.expect("three numbers are enough");
        assert_eq!(numbers(&|sink| every_other.gathered().write_to(sink)), [0.0, -1.0, 4.0, -5.0]);
        let cut = of(NegConj::Imaginary).slice(8..24).expect("it is inside");
        assert_eq!(numbers(&|sink| cut.write_to(sink)), [2.0, -3.0, 4.0, -5.0]);
        assert!(of(NegConj::Imaginary).slice(4..12).is_none(), "it starts with an imaginary part");
        assert_ne!(of(NegConj::All).id(), base.id());
    }
}
