//! Tests of products with blocks of `Q8_0`.

use proptest::prelude::*;
use tensor::{Dtype, Storage, Tensor};

use super::{available_kernels, compare_products, numbers, tensor};
use crate::kernel::{Encoding, Matrix, Pool, Product};

/// Returns a matrix of blocks, mapped at an odd address, and its numbers.
fn matrix(rows: usize, blocks: usize, seed: u32) -> (Tensor, Vec<f64>) {
    let bytes = numbers(rows * blocks * 34, seed).enumerate().map(|(at, number)| {
        // Scales are float16 numbers of any sign and moderate size; the bytes of codes are any.
        let byte = u8::try_from(number.to_bits() >> 8 & 0xff).expect("a byte");
        if at % 34 == 1 { byte & 0xbf | 0x20 } else { byte }
    });
    let bytes: Vec<u8> = bytes.collect();
    let values = bytes.chunks_exact(34).flat_map(|block| {
        let scale = super::decode_as(Dtype::Float16, &block[..2]);
        block[2..].iter().map(move |code| scale * f64::from(code.cast_signed()))
    });
    let values = values.collect();
    let floats = bytes.iter().map(|byte| f32::from(*byte)).collect::<Vec<_>>();
    let (stored, _) = tensor(Dtype::UInt8, rows, blocks * 34, floats.into_iter());
    (Tensor::from_q8_0_blocks(&stored).expect("whole blocks"), values)
}

fn compare(rows: usize, blocks: usize, m: usize, bias: bool, seed: u32) {
    let (tensor, values) = matrix(rows, blocks, seed);
    let w = Matrix::new(&tensor).expect("a matrix");
    assert_eq!((w.encoding(), w.cols()), (Encoding::Q8_0, blocks * 32));
    compare_products(&w, &values, m, bias, seed);
    let mut row = Vec::new();
    w.for_each_in_row(rows - 1, |number| row.push(number));
    assert_eq!(row, values[(rows - 1) * blocks * 32..]);
}

#[test]
fn edges_of_blocks() {
    for (rows, blocks) in [(1, 1), (3, 2), (4, 3), (5, 5), (13, 6), (31, 7), (70, 12), (230, 13)] {
        for m in [1, 3, 4, 9, 17] {
            compare(rows, blocks, m, rows % 2 == 1, 1);
        }
    }
    compare(1500, 1, 5, true, 2);
    compare(20, 2, 600, true, 2);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_shape(rows in 1..90_usize, blocks in 1..20_usize, m in 1..70_usize, bias: bool, seed: u32) {
        compare(rows, blocks, m, bias, seed >> 1);
    }
}

#[test]
fn rows_and_threads_do_not_change_a_result() {
    let (tensor, _) = matrix(300, 9, 3);
    let w = Matrix::new(&tensor).expect("a matrix");
    let x: Vec<f32> = numbers(40 * w.cols(), 4).collect();
    for kernel in available_kernels() {
        let product = |m: usize, threads| {
            let mut y = vec![0.0; m * w.rows()];
            let pool = Pool::new(Some(threads)).expect("threads");
            let mut product = Product::new(&w, &x[..m * w.cols()], m, None, &mut y);
            product.is_alike = true;
            kernel.linear(&pool, vec![product]);
            y.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        let all = product(40, 1);
        for (m, threads) in [(1, 2), (2, 1), (7, 3), (33, 2)] {
            assert_eq!(product(m, threads), all[..m * w.rows()], "{}, {m}", kernel.name());
        }
    }
}

#[test]
fn a_scale_that_is_infinite() {
    let (tensor, _) = matrix(40, 4, 5);
    let blocks = tensor.q8_0_blocks().expect("blocks");
    let mut bytes = blocks.mapped_bytes().expect("mapped").to_vec();
    bytes[34 * 4 * 7..][..2].copy_from_slice(&[0, 0x7c]);
    let shape = vec![40, 4 * 34];
    let stored =
        Tensor::new(Dtype::UInt8, shape, vec![4 * 34, 1], 0, Storage::owned(bytes)).expect("it fits");
    let w = Matrix::new(&Tensor::from_q8_0_blocks(&stored).expect("blocks")).expect("a matrix");
    let pool = Pool::new(Some(2)).expect("two threads");
    for (kernel, m) in available_kernels().flat_map(|kernel| [(kernel, 1), (kernel, 20)]) {
        let x = vec![1.0; m * w.cols()];
        let mut y = vec![0.0; m * w.rows()];
        kernel.linear(&pool, vec![Product::new(&w, &x, m, None, &mut y)]);
        for (at, y) in y.into_iter().enumerate() {
            assert_eq!(y.is_finite(), at % 40 != 7, "{}, {at}: {y}", kernel.name());
        }
    }
}
