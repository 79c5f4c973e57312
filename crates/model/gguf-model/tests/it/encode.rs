//! Blocks of random numbers have the hashes of those that the Python package `gguf` 0.19.0 makes.
use byte_source::{Blob, hex, sha256};
use gguf_format::GgmlType;
use gguf_model::{encode_blocks, encode_finite_q8_0};
use tensor::{Dtype, Storage, Tensor};

/// Returns bytes that look random: the highest ones of a linear congruential generator.
fn bytes(len: u64) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

/// Type, and the start of the hash of the blocks that `gguf` makes of [`numbers`].
const ENCODED: &[(&str, &str)] = &[
    ("Q8_0", "6c49a6571d9611c8"),
    ("Q4_0", "4710bedbec27c806"),
    ("Q4_1", "9217f780289f40bb"),
    ("Q5_0", "41be03c2511e3f7e"),
    ("Q5_1", "11ea7124ff733541"),
];

/// Rows of 64 numbers: any bits but those of NaN, small numbers, and zeros, in turn.
fn numbers() -> Tensor {
    let mut numbers = bytes(4 * 64 * 3000);
    for (row, row_bytes) in numbers.chunks_exact_mut(4 * 64).enumerate() {
        for number in row_bytes.as_chunks_mut::<4>().0 {
            match row % 3 {
                0 if f32::from_le_bytes(*number).is_nan() => *number = [0; 4],
                0 => {}
                1 => *number = (f32::from(number[0].cast_signed()) / 64.0).to_le_bytes(),
                _ => *number = (f32::from(number[0] / 255) * -0.0).to_le_bytes(),
            }
        }
    }
    Tensor::new(Dtype::Float32, vec![3000, 64], vec![64, 1], 0, Storage::owned(numbers))
        .expect("it has all bytes")
}

#[test]
fn blocks_are_those_of_the_package() {
    for (name, hash) in ENCODED {
        let kind = GgmlType::from_name(name).expect("it is known");
        let encoded = encode_blocks(&numbers(), kind).expect("rows consist of blocks");
        assert_eq!(encoded.shape(), [3000, 2 * kind.block_bytes]);
        let mut whole: Vec<u8> = Vec::new();
        encoded.gathered().write_to(&mut whole).expect("memory can be read");
        let found = hex(&sha256(&encoded.gathered(), &()).expect("memory can be read"));
        assert_eq!(&found[..16], *hash, "{name}");
        // Any byte is computed alone.
        let every = Tensor::new(Dtype::UInt8, vec![900], vec![101], 7, encoded.storage().clone());
        let (mut whole, mut some): (Vec<u8>, Vec<u8>) = Default::default();
        encoded.gathered().write_to(&mut whole).expect("memory can be read");
        every.expect("it is inside").gathered().write_to(&mut some).expect("memory can be read");
        assert!(some.iter().eq(whole.iter().skip(7).step_by(101).take(900)), "{name}");
    }
}

#[test]
fn numbers_of_blocks_have_the_same_blocks() {
    // The largest code of the second block is not 127, so that other blocks have the same numbers.
    let stored = [[0, 0x3c].as_slice(), &[127; 32], &[0, 0x3c], &[5; 32]].concat();
    let blocks = Tensor::new(Dtype::UInt8, vec![1, 68], vec![68, 1], 0, Storage::owned(stored.clone()));
    let numbers = Tensor::from_q8_0_blocks(&blocks.expect("it has all bytes")).expect("whole blocks");
    let mut found: Vec<u8> = Vec::new();
    let encoded = encode_finite_q8_0("w", &numbers).expect("whole blocks");
    encoded.gathered().write_to(&mut found).expect("memory can be read");
    assert_eq!(found, stored);
}

#[test]
fn a_scale_that_is_not_finite_is_refused_with_its_tensor() {
    let encoded = |number: f32| {
        let mut numbers = vec![1.0; 96];
        numbers[40] = number;
        let bytes = numbers.into_iter().flat_map(f32::to_le_bytes).collect();
        let tensor = Tensor::new(Dtype::Float32, vec![3, 32], vec![32, 1], 0, Storage::owned(bytes));
        let blocks =
            encode_finite_q8_0("a.weight", &tensor.expect("it has all bytes")).expect("whole blocks");
        blocks.gathered().write_to(&mut Vec::<u8>::new()).map_err(|error| error.to_string())
    };
    assert_eq!(encoded(8.3e6), Ok(()));
    for number in [8.4e6, f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
        let text = encoded(number).expect_err("it has no scale");
        assert!(text.starts_with("tensor `a.weight`: "), "{text}");
    }
}

#[test]
fn other_rows_and_types_are_not_encoded() {
    let kind = |name| GgmlType::from_name(name).expect("it is known");
    assert!(encode_blocks(&numbers(), kind("Q4_K")).is_none());
    let narrow = Tensor::new(Dtype::Float32, vec![2, 16], vec![16, 1], 0, Storage::owned(vec![0; 128]));
    assert!(encode_blocks(&narrow.expect("it has all bytes"), kind("Q8_0")).is_none());
}
