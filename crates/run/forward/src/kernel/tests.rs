//! Tests of every kernel that this CPU has, against sums in f64.
//!
//! The error bound holds for any order of a sum (Higham, "Accuracy and Stability of Numerical Algorithms", section
//! 3.1), plus the rounding error if inputs are rounded to bfloat16.

use std::io::Write;
use std::sync::Arc;

use byte_source::{MappedFile, Region, Source};
use proptest::prelude::*;
use tensor::{Dtype, Storage, Tensor, contiguous_strides};

use crate::kernel::{self, Encoding, Kernel, Matrix, Pool, Product};

const DTYPES: [Dtype; 4] = [Dtype::Float64, Dtype::Float32, Dtype::BFloat16, Dtype::Float16];

#[path = "tests/q8_0.rs"]
mod q8_0;

/// Returns pseudorandom numbers between -1 and 1.
fn numbers(count: usize, seed: u32) -> impl Iterator<Item = f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    (0..count).map(move |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        f32::from_bits(0x3f80_0000 | state >> 9) * 2.0 - 3.0
    })
}

/// Encodes a number in a dtype, little-endian.
fn encode_as(dtype: Dtype, value: f32) -> Vec<u8> {
    let bits = value.to_bits();
    match dtype {
        Dtype::Float64 => f64::from(value).to_le_bytes().into(),
        Dtype::Float32 => value.to_le_bytes().into(),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "tests have bytes as numbers"
        )]
        Dtype::UInt8 => vec![value as u8],
        // Truncated, not rounded: the test needs any number of the dtype.
        Dtype::BFloat16 => bits.to_le_bytes()[2..].into(),
        _ => {
            let magnitude = (bits & 0x7fff_ffff).saturating_sub(112 << 23) >> 13;
            let magnitude = if value.is_finite() { magnitude } else { 0x7c00 };
            u16::try_from((bits >> 16 & 0x8000) | magnitude).expect("16 bits").to_le_bytes().into()
        }
    }
}

fn decode_as(dtype: Dtype, bytes: &[u8]) -> f64 {
    match (dtype, bytes) {
        (Dtype::Float64, _) => f64::from_le_bytes(bytes.try_into().expect("8 bytes")),
        (Dtype::UInt8, &[byte]) => byte.into(),
        (Dtype::Float32, _) => f32::from_le_bytes(bytes.try_into().expect("4 bytes")).into(),
        (Dtype::BFloat16, &[low, high]) => f32::from_le_bytes([0, 0, low, high]).into(),
        (_, &[low, high]) => {
            let bits = u16::from_le_bytes([low, high]);
            let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
            let magnitude = match (exponent, bits & 0x3ff) {
                (31, 0) => f64::INFINITY,
                (31, _) => f64::NAN,
                (0, _) => fraction * 2_f64.powi(-24),
                _ => (1024.0 + fraction) * 2_f64.powi(exponent - 25),
            };
            if bits >> 15 == 1 { -magnitude } else { magnitude }
        }
        _ => panic!("2 bytes"),
    }
}

/// Creates a matrix of these numbers, whose first byte is at an odd address. Returns also the numbers as the dtype has
/// them.
fn matrix(dtype: Dtype, rows: usize, cols: usize, values: impl Iterator<Item = f32>) -> (Matrix, Vec<f64>) {
    let (tensor, numbers) = tensor(dtype, rows, cols, values);
    (Matrix::new(&tensor).expect("a matrix"), numbers)
}

#[test]
fn rows_out_of_range_have_no_elements() {
    let (w, numbers) = matrix(Dtype::Float32, 2, 3, (0..6_u8).map(f32::from));
    let row = |number| {
        let mut row = Vec::new();
        w.for_each_in_row(number, |element| row.push(element.to_string()));
        row
    };
    let expected: Vec<String> = numbers.iter().skip(3).map(ToString::to_string).collect();
    assert_eq!((row(1), row(2)), (expected, Vec::new()));
}

fn tensor(dtype: Dtype, rows: usize, cols: usize, values: impl Iterator<Item = f32>) -> (Tensor, Vec<f64>) {
    let bytes: Vec<u8> = values.flat_map(|value| encode_as(dtype, value)).collect();
    let size = usize::try_from(dtype.size()).expect("small");
    let numbers = bytes.chunks(size).map(|bytes| decode_as(dtype, bytes)).collect();
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(&[0]).and_then(|()| file.write_all(&bytes)).expect("it is written");
    let file: Arc<dyn Source> = Arc::new(MappedFile::open(file.path()).expect("it opens"));
    let region = Region::new(&file, 1..file.len()).expect("it is in the file");
    let storage = Storage::stored(region, None);
    let shape = vec![rows as u64, cols as u64];
    let tensor = Tensor::new(dtype, shape.clone(), contiguous_strides(&shape), 0, storage).expect("it fits");
    (tensor, numbers)
}

/// Compares each kernel with sums in f64.
fn compare(dtype: Dtype, rows: usize, cols: usize, m: usize, bias: bool, seed: u32) {
    let (w, weights) = matrix(dtype, rows, cols, numbers(rows * cols, seed));
    compare_products(&w, &weights, m, bias, seed);
}

/// Compares the products of a matrix, whose numbers are `weights`, with sums in f64.
fn compare_products(w: &Matrix, weights: &[f64], m: usize, bias: bool, seed: u32) {
    let (encoding, rows, cols) = (w.encoding(), w.rows(), w.cols());
    let x: Vec<f32> = numbers(m * cols, seed + 1).collect();
    let wide: Vec<f64> = x.iter().copied().map(f64::from).collect();
    let bias: Option<Vec<f32>> = bias.then(|| numbers(rows, seed + 2).collect());
    let wide_bias: Option<Vec<f64>> = bias.as_ref().map(|bias| bias.iter().copied().map(f64::from).collect());
    let pool = Pool::new(Some(2)).expect("two threads");
    for kernel in available_kernels() {
        let mut y = vec![f32::NAN; m * rows];
        let mut wide_y = vec![f64::NAN; m * rows];
        kernel.linear(&pool, vec![Product::new(w, &x, m, bias.as_deref(), &mut y)]);
        kernel.linear_f64(&pool, vec![Product::new(w, &wide, m, wide_bias.as_deref(), &mut wide_y)]);
        let rounds = encoding == Encoding::Dtype(Dtype::BFloat16)
            && matches!(kernel, Kernel::AmxBf16 | Kernel::Avx512Bf16);
        let of_inputs = if rounds { 2_f64.powi(-8) } else { 0.0 };
        for (at, (y, wide_y)) in y.into_iter().zip(wide_y).enumerate() {
            let (input, row) = (at / rows, at % rows);
            let (w, x) = (&weights[row * cols..][..cols], &wide[input * cols..][..cols]);
            let bias = wide_bias.as_ref().map_or(0.0, |bias| bias[row]);
            let sum: f64 = w.iter().zip(x).map(|(w, x)| w * x).sum::<f64>() + bias;
            let size: f64 = w.iter().zip(x).map(|(w, x)| (w * x).abs()).sum::<f64>() + bias.abs();
            let terms = f64::from(u32::try_from(cols + 2).expect("small"));
            let what = format!(
                "{encoding:?}, {}, {m} × {cols} times {rows} × {cols}, y[{input}, {row}]",
                kernel.name()
            );
            let bound = (of_inputs + terms * 2_f64.powi(-24)) * size;
            assert!((f64::from(y) - sum).abs() <= bound, "{what}: {y}, {sum} ± {bound}");
            let bound = terms * 2_f64.powi(-53) * size * 2.0;
            assert!((wide_y - sum).abs() <= bound, "{what} in f64: {wide_y}, {sum} ± {bound}");
        }
    }
}

/// Returns the kernels that this CPU has, and prints the names of the others.
#[expect(clippy::print_stderr, reason = "a test says what it skips")]
fn available_kernels() -> impl Iterator<Item = Kernel> {
    Kernel::ALL.into_iter().filter(|kernel| {
        if !kernel.is_available() {
            eprintln!("skipped: this CPU does not have {}", kernel.name());
        }
        kernel.is_available()
    })
}

#[test]
fn edges_of_blocks() {
    for dtype in DTYPES {
        for (rows, cols) in
            [(1, 1), (3, 15), (4, 16), (5, 17), (12, 31), (13, 32), (31, 33), (33, 65), (70, 70)]
        {
            for m in [1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 32, 33, 40] {
                compare(dtype, rows, cols, m, rows % 2 == 1, 1);
            }
        }
    }
}

#[test]
fn several_blocks() {
    for dtype in DTYPES {
        // More columns than are multiplied at once, more rows than a thread takes at once, more inputs than a block has.
        for (rows, cols, m) in [(40, 700, 20), (230, 40, 20), (20, 40, 600), (1500, 70, 3)] {
            compare(dtype, rows, cols, m, true, 2);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_shape(dtype in 0..4_usize, rows in 1..90_usize, cols in 1..600_usize, m in 1..70_usize, bias: bool, seed: u32) {
        compare(DTYPES[dtype], rows, cols, m, bias, seed >> 1);
    }
}

#[test]
fn matrices_by_columns() {
    for dtype in DTYPES {
        for (rows, cols, m) in
            [(1, 2, 1), (5, 3, 2), (3, 15, 2), (31, 33, 9), (70, 6, 20), (1030, 30, 3), (2100, 5, 1)]
        {
            let (stored, columns) = tensor(dtype, cols, rows, numbers(rows * cols, 7));
            let (shape, stride) = (vec![rows as u64, cols as u64], vec![1, rows as u64]);
            let turned = Tensor::new(dtype, shape, stride, 0, stored.storage().clone()).expect("it fits");
            let weights: Vec<f64> =
                (0..rows * cols).map(|at| columns[at % cols * rows + at / cols]).collect();
            let w = Matrix::column_major(&turned).unwrap_or_else(|| {
                // A matrix of one row is in C order, too.
                assert_eq!(rows, 1);
                Matrix::new(&turned).expect("a matrix")
            });
            compare_products(&w, &weights, m, rows % 2 == 1, 8);
        }
    }
}

#[test]
fn products_of_several_matrices_are_those_of_each() {
    let pool = Pool::new(Some(3)).expect("three threads");
    let matrices: Vec<Matrix> = [(DTYPES[1], 300), (DTYPES[2], 7), (DTYPES[1], 20), (DTYPES[3], 64)]
        .into_iter()
        .map(|(dtype, rows)| matrix(dtype, rows, 90, numbers(rows * 90, 9)).0)
        .collect();
    for kernel in available_kernels() {
        for m in [1, 5, 40] {
            let (x, other): (Vec<f32>, Vec<f32>) =
                (numbers(m * 90, 10).collect(), numbers(3 * 90, 11).collect());
            let inputs = [(&x, m), (&x, m), (&other, 3), (&x, m)];
            let run = |at: &[usize]| {
                let mut all: Vec<_> =
                    at.iter().map(|at| vec![f32::NAN; inputs[*at].1 * matrices[*at].rows()]).collect();
                let products = at.iter().zip(&mut all);
                let products = products
                    .map(|(at, y)| Product::new(&matrices[*at], inputs[*at].0, inputs[*at].1, None, y));
                kernel.linear(&pool, products.collect());
                all
            };
            let alone: Vec<_> = (0..4).flat_map(|at| run(&[at])).collect();
            assert_eq!(run(&[0, 1, 2, 3]), alone, "{}, {m}", kernel.name());
        }
    }
}

#[test]
fn nothing_to_multiply() {
    let pool = Pool::new(Some(2)).expect("two threads");
    for kernel in available_kernels() {
        for (rows, cols, m) in [(0, 3, 2), (3, 0, 2), (3, 2, 0)] {
            let (w, _) = matrix(Dtype::BFloat16, rows, cols, numbers(rows * cols, 1));
            let (x, bias, mut y) = (vec![1.0; m * cols], vec![7.0; rows], vec![f32::NAN; m * rows]);
            kernel.linear(&pool, vec![Product::new(&w, &x, m, Some(&bias), &mut y)]);
            assert!(y.iter().all(|y| y.to_bits() == 7_f32.to_bits()), "{y:?}");
        }
    }
}

#[test]
fn threads_do_not_change_a_result() {
    for dtype in DTYPES {
        let (w, _) = matrix(dtype, 500, 300, numbers(500 * 300, 3));
        for (kernel, m) in available_kernels().flat_map(|kernel| [(kernel, 1), (kernel, 6), (kernel, 50)]) {
            let x: Vec<f32> = numbers(m * 300, 4).collect();
            let product = |threads| {
                let mut y = vec![0.0; m * 500];
                let pool = Pool::new(Some(threads)).expect("threads");
                kernel.linear(&pool, vec![Product::new(&w, &x, m, None, &mut y)]);
                y.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            };
            let one = product(1);
            assert!(
                [2, 3, 7].into_iter().all(|threads| product(threads) == one),
                "{dtype}, {}",
                kernel.name()
            );
        }
    }
}

#[test]
fn passes_at_the_same_time_share_the_threads() {
    let pool = Pool::new(Some(2)).expect("two threads");
    let passes = 2..6_u64;
    std::thread::scope(|scope| {
        for pass in passes {
            let pool = &pool;
            scope.spawn(move || {
                for _ in 0..200 {
                    let sum = std::sync::atomic::AtomicU64::new(0);
                    let add = |number| {
                        sum.fetch_add(number, std::sync::atomic::Ordering::Relaxed);
                    };
                    pool.run(|| (0..10).for_each(|_| pool.for_each(1..=pass, add)));
                    assert_eq!(sum.into_inner(), 10 * pass * (pass + 1) / 2);
                }
            });
        }
    });
}

#[test]
fn numbers_that_are_not_finite() {
    let pool = Pool::new(Some(2)).expect("two threads");
    for dtype in DTYPES {
        for (kernel, m) in available_kernels().flat_map(|kernel| [(kernel, 2), (kernel, 20)]) {
            let (rows, cols) = (40, 50);
            let values = numbers(rows * cols, 5).enumerate();
            let values = values.map(|(at, value)| if at == 7 * cols + 49 { f32::INFINITY } else { value });
            let bytes = values.flat_map(|value| encode_as(dtype, value)).collect();
            let shape = vec![rows as u64, cols as u64];
            let tensor =
                Tensor::new(dtype, shape, vec![cols as u64, 1], 0, Storage::owned(bytes)).expect("it fits");
            let w = Matrix::new(&tensor).expect("a matrix");
            let mut x: Vec<f32> = numbers(m * cols, 6).map(|x| x + 2.0).collect();
            x[cols + 3] = f32::NAN;
            let mut y = vec![0.0; m * rows];
            kernel.linear(&pool, vec![Product::new(&w, &x, m, None, &mut y)]);
            for (at, y) in y.into_iter().enumerate() {
                let what = format!("{dtype}, {}, input {}, row {}: {y}", kernel.name(), at / rows, at % rows);
                match (at / rows, at % rows) {
                    (1, _) => assert!(y.is_nan(), "{what}"),
                    (_, 7) => assert!(y.is_infinite(), "{what}"),
                    _ => assert!(y.is_finite(), "{what}"),
                }
            }
        }
    }
}

#[test]
fn subnormal_weights() {
    // float16: 2^-24, which is not subnormal in f32. Other dtypes: the smallest number, times 2^127.
    let pool = Pool::new(Some(2)).expect("two threads");
    for (dtype, least) in [
        (Dtype::Float32, 2_f64.powi(-149)),
        (Dtype::BFloat16, 2_f64.powi(-133)),
        (Dtype::Float16, 2_f64.powi(-24)),
    ] {
        for (kernel, m) in available_kernels().flat_map(|kernel| [(kernel, 1), (kernel, 20)]) {
            let mut bytes = vec![0; usize::try_from(dtype.size()).expect("small")];
            bytes[0] = 1;
            let tensor =
                Tensor::new(dtype, vec![1, 1], vec![1, 1], 0, Storage::owned(bytes)).expect("it fits");
            let w = Matrix::new(&tensor).expect("a matrix");
            let (x, mut y) = (vec![2_f32.powi(127); m], vec![f32::NAN; m]);
            kernel.linear(&pool, vec![Product::new(&w, &x, m, None, &mut y)]);
            // Products of bfloat16 numbers treat a subnormal one as 0, as Intel documents.
            let flushes =
                dtype == Dtype::BFloat16 && m > 8 && matches!(kernel, Kernel::AmxBf16 | Kernel::Avx512Bf16);
            let expected = if flushes { 0.0 } else { least * 2_f64.powi(127) };
            assert!(
                y.iter().all(|y| f64::from(*y).to_bits() == expected.to_bits()),
                "{dtype}, {}: {y:?}",
                kernel.name()
            );
        }
    }
}

#[test]
fn rounding_to_bfloat16() {
    // x, and torch.tensor(x).to(torch.bfloat16).view(torch.uint16) of PyTorch 2.15.
    let rows = [
        (0x3f80_8000, 0x3f80),
        (0x3f81_8000, 0x3f82),
        (0x3f80_8001, 0x3f81),
        (0x7f7f_ffff, 0x7f80),
        (0xff80_0000, 0xff80),
        (0x0000_0001, 0x0000),
        (0x8000_8001, 0x8001),
    ];
    for (x, expected) in rows {
        assert_eq!(kernels::to_bf16(f32::from_bits(x)), expected, "{x:08x}");
    }
    let nan = kernels::to_bf16(f32::from_bits(0x7f80_0001));
    assert!(f32::from_bits(u32::from(nan) << 16).is_nan(), "{nan:04x}");
}

#[test]
fn matrices_of_views() {
    let bytes: Vec<u8> = (1..=6_u8).flat_map(|n| f32::from(n).to_le_bytes()).collect();
    let storage = Storage::owned(bytes);
    let transposed =
        Tensor::new(Dtype::Float32, vec![3, 2], vec![1, 3], 0, storage.clone()).expect("it fits");
    let w = Matrix::new(&transposed).expect("a matrix");
    let (pool, mut y) = (Pool::new(None).expect("threads"), [0.0; 3]);
    kernel::linear(&pool, vec![Product::new(&w, &[1.0, 10.0], 1, None, &mut y)]);
    assert_eq!(y.map(f32::to_bits), [41_f32, 52.0, 63.0].map(f32::to_bits));
    assert!((w.rows(), w.cols(), w.encoding()) == (3, 2, Encoding::Dtype(Dtype::Float32)));

    let vector = Tensor::new(Dtype::Float32, vec![6], vec![1], 0, storage.clone()).expect("it fits");
    assert!(
        Matrix::new(&vector).is_err_and(|error| error.to_string() == "expected a matrix, found shape [6]")
    );
    let integers = Tensor::new(Dtype::Int32, vec![2, 3], vec![3, 1], 0, storage).expect("it fits");
    assert!(Matrix::new(&integers).is_err_and(|error| error.code() == "forward::Dtype"));
}
