//! Blocks of GGUF: the numbers of random blocks have the hashes of those that the Python package `gguf` 0.19.0 computes.

#![expect(clippy::arithmetic_side_effects, reason = "the sizes are those of the table")]

use byte_source::{Blob, hex, sha256};
use quantization::{QuantizationDocuments, recognise};
use tensor::{CompoundKind, Dtype, Storage, Tensor, Tensors, contiguous_strides};

/// Rows of two blocks in each tensor.
const ROWS: u64 = 8;

/// Type, elements and bytes of a block, and the start of the hash of the numbers.
const TYPES: &[(&str, u64, u64, &str)] = &[
    ("Q4_0", 32, 18, "a6553d3597546d0b"),
    ("Q4_1", 32, 20, "0cad01dbce6097cc"),
    ("Q5_0", 32, 22, "8e1c17c3a4faf7c4"),
    ("Q5_1", 32, 24, "52399f69d5aec83a"),
    ("Q8_0", 32, 34, "a70f02fefe503363"),
    ("Q2_K", 256, 84, "f0f9211d266328fa"),
    ("Q3_K", 256, 110, "85d762e0d8de1c76"),
    ("Q4_K", 256, 144, "cc6cfbdd342eb80c"),
    ("Q5_K", 256, 176, "e480385074f6a65e"),
    ("Q6_K", 256, 210, "3eff0e34c5eed9c5"),
    ("TQ1_0", 256, 54, "d7d4bd4dc245ef2d"),
    ("TQ2_0", 256, 66, "dfe871c446c1c47c"),
    ("MXFP4", 32, 17, "4fb80b11f2a6e9e7"),
    ("NVFP4", 64, 36, "fca1314b3d0a5837"),
    ("IQ2_XXS", 256, 66, "7f9face08cc2f6cf"),
    ("IQ2_XS", 256, 74, "9611e167ea581043"),
    ("IQ2_S", 256, 82, "30ee86dd13427984"),
    ("IQ3_XXS", 256, 98, "1739273db1fda2ef"),
    ("IQ3_S", 256, 110, "b920ae172943cb99"),
    ("IQ1_S", 256, 50, "2fce0f1adaa51db9"),
    ("IQ1_M", 256, 56, "abc7a9aa99eb815a"),
    ("IQ4_NL", 32, 18, "ba637dbd3b803e26"),
    ("IQ4_XS", 256, 136, "6ebce729223e7ee4"),
];

/// Returns bytes that look random: the highest ones of a linear congruential generator.
fn bytes(len: u64) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

fn blocks(scheme: &str, elements: u64, block_bytes: u64) -> Tensors {
    let shape = vec![2, ROWS / 2, 2 * block_bytes];
    let storage = Storage::owned(bytes(2 * ROWS * block_bytes));
    let strides = contiguous_strides(&shape);
    let part = Tensor::new(Dtype::UInt8, shape, strides, 0, storage).expect("it has all bytes");
    let whole =
        (CompoundKind::Blocks { scheme: scheme.to_owned() }, Dtype::Float32, vec![2, ROWS / 2, 2 * elements]);
    let mut tensors = Tensors::default();
    tensors.push_compound("w".to_owned(), whole, [("w.blocks".to_owned(), part)]);
    tensors
}

#[test]
fn the_numbers_are_those_of_the_package() {
    for (scheme, elements, block_bytes, expected) in TYPES {
        let tensors = blocks(scheme, *elements, *block_bytes);
        let model = recognise(&QuantizationDocuments::default(), &tensors).expect("it is known");
        let model = model.expect("it is quantized");
        assert_eq!((model.tensors[0].scheme.as_str(), model.method.as_str()), (*scheme, "gguf"));
        let (numbers, _) = model.dequantize(&tensors, |_| Dtype::Float32).expect("it is small");
        let mut stored: Vec<u8> = Vec::new();
        let numbers = numbers.get("w").expect("it is there");
        assert_eq!(numbers.shape(), [2, ROWS / 2, 2 * elements]);
        numbers.gathered().write_to(&mut stored).expect("memory");
        // A scale may be NaN, which has many forms.
        for number in stored.as_chunks_mut().0 {
            if f32::from_le_bytes(*number).is_nan() {
                *number = f32::NAN.to_le_bytes();
            }
        }
        let digest = sha256(&Storage::owned(stored), &()).expect("memory");
        assert_eq!(&hex(&digest)[..16], *expected, "{scheme}");
    }
}

#[test]
fn what_has_no_numbers_is_refused_by_name() {
    let error = |tensors: &Tensors| {
        recognise(&QuantizationDocuments::default(), tensors).expect_err("it has none").to_string()
    };
    let text = error(&blocks("Q8_K", 256, 292));
    assert!(text.starts_with("GGUF: `w` is Q8_K, expected one of Q4_0, "), "{text}");
    let text = error(&blocks("Q8_0", 31, 34));
    assert!(text.contains("rows of whole blocks of 32"), "{text}");
    let text = error(&blocks("Q8_0", 32, 33));
    assert!(text.contains("`w.blocks`"), "{text}");
}
