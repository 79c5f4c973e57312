//! Codes of fewer than eight bits, packed into bytes.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "the sizes of a tensor were compared with those of its parts when it was recognised"
)]

/// Order of the codes in a byte or word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeOrder {
    /// The first code has the lowest bits, and a code may continue in the next byte.
    LowFirst,
    /// The first code has the highest bits of a byte.
    HighFirst,
}

/// Returns the first `count` codes of `bits` bits; 0 for codes after the last byte.
pub(crate) fn unpack(bytes: &[u8], bits: u32, order: CodeOrder, count: usize) -> Vec<u8> {
    let mut codes = vec![0; count.next_multiple_of(2)];
    if bits == 4 {
        for (pair, byte) in codes.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
            let (low, high) = (byte & 15, byte >> 4);
            *pair = if order == CodeOrder::LowFirst { [low, high] } else { [high, low] };
        }
        codes.truncate(count);
        return codes;
    }
    let mask = u8::MAX.checked_shr(8_u32 - bits).unwrap_or(0);
    if order == CodeOrder::LowFirst {
        // Eight codes have as many bytes as a code has bits.
        for (codes, bytes) in codes.chunks_mut(8).zip(bytes.chunks(bits as usize)) {
            let mut word = bytes.iter().rev().fold(0_u64, |word, byte| (word << 8) | u64::from(*byte));
            for code in codes {
                let [low, ..] = word.to_le_bytes();
                *code = low & mask;
                word = word.checked_shr(bits).unwrap_or(0);
            }
        }
    } else {
        for (index, code) in codes.iter_mut().enumerate() {
            let bit = index * bits as usize;
            let shift = u32::try_from(bit % 8).unwrap_or(0);
            let byte = bytes.get(bit / 8).copied().unwrap_or(0);
            *code = byte.checked_shr(8_u32 - shift - bits).unwrap_or(0) & mask;
        }
    }
    codes.truncate(count);
    codes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_either_order() {
        assert_eq!(unpack(&[0x21, 0x43], 4, CodeOrder::LowFirst, 3), [1, 2, 3]);
        assert_eq!(unpack(&[0x21, 0x43], 4, CodeOrder::HighFirst, 4), [2, 1, 4, 3]);
        assert_eq!(unpack(&[0b11_10_01_00], 2, CodeOrder::LowFirst, 4), [0, 1, 2, 3]);
        assert_eq!(unpack(&[0b11_10_01_00], 2, CodeOrder::HighFirst, 4), [3, 2, 1, 0]);
        assert_eq!(unpack(&[0b0110_0001], 1, CodeOrder::HighFirst, 8), [0, 1, 1, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn codes_of_three_bits_continue_in_the_next_byte() {
        // 1, 2, 3, 4, 5, 6, 7, 0 from the lowest bit on.
        let bits: u32 = (1..=7).rev().fold(0, |all, code| (all << 3) | code);
        let [first, second, third, _] = bits.to_le_bytes();
        assert_eq!(unpack(&[first, second, third], 3, CodeOrder::LowFirst, 8), [1, 2, 3, 4, 5, 6, 7, 0]);
    }
}
