//! Measures how fast products of low rank are added to a weight in memory, in gigabytes of the weight and billions of
//! floating-point operations of the products in a second:
//! `RAYON_NUM_THREADS=1 cargo bench -p adapter --bench merge_throughput`.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::cast_precision_loss,
    clippy::print_stdout,
    reason = "it prints a measurement of tensors that it makes"
)]

use std::time::Instant;

use adapter::{Adapter, merge};
use byte_source::Blob;
use tensor::{Dtype, Storage, Tensor, Tensors, contiguous_strides};
use test_support::NullSink;

/// Numbers with the distribution of a sum of four uniform ones, of this deviation.
fn tensor(dtype: Dtype, shape: &[u64], deviation: f32, seed: u64) -> Tensor {
    let mut state = seed;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1_u64 << 24) as f32 - 0.5
    };
    let count = shape.iter().product::<u64>();
    let numbers: Vec<f32> =
        (0..count).map(|_| (uniform() + uniform() + uniform() + uniform()) * deviation * 1.73).collect();
    let mut bytes = vec![0; numbers.len() * usize::try_from(dtype.size()).expect("small")];
    dtype.encode_f32(&numbers, &mut bytes);
    Tensor::new(dtype, shape.to_vec(), contiguous_strides(shape), 0, Storage::owned(bytes)).expect("it fits")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (rows, columns) = (14336, 4096);
    for dtype in [Dtype::BFloat16, Dtype::Float16, Dtype::Float32] {
        let base = Tensors::from([("a.weight".to_owned(), tensor(dtype, &[rows, columns], 0.02, 1))]);
        for rank in [16, 64] {
            let factors = Tensors::from([
                ("a.lora_A.weight".to_owned(), tensor(Dtype::Float32, &[rank, columns], 0.01, 2)),
                ("a.lora_B.weight".to_owned(), tensor(Dtype::Float32, &[rows, rank], 0.01, 3)),
            ]);
            let config = format!(r#"{{"peft_type": "LORA", "r": {rank}, "lora_alpha": {}}}"#, 2 * rank);
            let start = Instant::now();
            let (merged, _) = merge(&base, &[Adapter::new("a", &config, factors, 1.0)?])?;
            let planned = start.elapsed().as_secs_f64();
            let weight = merged.get("a.weight").ok_or("the weight is missing")?;
            let mut seconds = f64::INFINITY;
            for _ in 0..3 {
                let start = Instant::now();
                weight.gathered().write_to(&mut NullSink)?;
                seconds = start.elapsed().as_secs_f64().min(seconds);
            }
            let operations = (rows * columns * rank * 2) as f64 / 1e9;
            println!(
                "{dtype}, rank {rank}: {:.2} GB/s, {:.1} GFLOP/s, {:.1} ms for the norm",
                weight.nbytes() as f64 / 1e9 / seconds,
                operations / seconds,
                planned * 1e3,
            );
        }
    }
    Ok(())
}
