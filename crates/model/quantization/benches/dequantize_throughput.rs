//! Measures how many gigabytes of bfloat16 one thread computes in a second of user time, for each scheme:
//! `RAYON_NUM_THREADS=1 cargo bench -p quantization --bench dequantize_throughput`.
//!
//! The codes are in memory, and windows have the size that a writer asks for.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::cast_precision_loss,
    clippy::print_stdout,
    reason = "it prints a measurement of tensors that it makes"
)]

use byte_source::Blob;
use quantization::{QuantizationDocuments, recognise};
use tensor::{Dtype, Storage, Tensor, Tensors, contiguous_strides};
use test_support::NullSink;

/// User time of this process in seconds, which Linux counts in hundredths.
fn user_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    Some(fields.split_whitespace().nth(11)?.parse::<f64>().ok()? / 100.0)
}

/// Name, configuration and tensors of a model.
type Model = (&'static str, String, Vec<(&'static str, Tensor)>);

fn tensor(dtype: Dtype, shape: &[u64], pattern: &[u8]) -> Tensor {
    let size = usize::try_from(shape.iter().product::<u64>() * dtype.size()).expect("small");
    let bytes: Vec<u8> = pattern.iter().copied().cycle().take(size).collect();
    Tensor::new(dtype, shape.to_vec(), contiguous_strides(shape), 0, Storage::owned(bytes)).expect("it fits")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (rows, cols) = (4096_u64, 14336_u64);
    let codes: Vec<u8> =
        (0..65_521_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8 & 0xF7).collect();
    let float = 0.01_f32.to_le_bytes();
    let half = [0x66, 0x2E];
    let method = |members: &str| format!(r#"{{"quantization_config": {{{members}}}}}"#);
    let models: Vec<Model> = vec![
        (
            "FP8",
            method(r#""quant_method": "fp8", "weight_block_size": [128, 128]"#),
            vec![
                ("a.weight", tensor(Dtype::Float8E4M3Fn, &[rows, cols], &codes)),
                ("a.weight_scale_inv", tensor(Dtype::Float32, &[rows / 128, cols / 128], &float)),
            ],
        ),
        (
            "GPTQ",
            method(r#""quant_method": "gptq", "bits": 4, "group_size": 128"#),
            vec![
                ("a.qweight", tensor(Dtype::Int32, &[cols / 8, rows], &codes)),
                ("a.qzeros", tensor(Dtype::Int32, &[cols / 128, rows / 8], &codes)),
                ("a.scales", tensor(Dtype::Float16, &[cols / 128, rows], &half)),
            ],
        ),
        (
            "AWQ",
            method(r#""quant_method": "awq", "bits": 4, "group_size": 128"#),
            vec![
                ("a.qweight", tensor(Dtype::Int32, &[cols, rows / 8], &codes)),
                ("a.qzeros", tensor(Dtype::Int32, &[cols / 128, rows / 8], &codes)),
                ("a.scales", tensor(Dtype::Float16, &[cols / 128, rows], &half)),
            ],
        ),
        (
            "MXFP4",
            method(r#""quant_method": "mxfp4""#),
            vec![
                ("a_blocks", tensor(Dtype::UInt8, &[4, 5760, 90, 16], &codes)),
                ("a_scales", tensor(Dtype::UInt8, &[4, 5760, 90], &[0x79])),
            ],
        ),
        (
            "compressed-tensors INT4",
            method(
                r#""quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 128, "symmetric": true}}}"#,
            ),
            vec![
                ("a.weight_packed", tensor(Dtype::Int32, &[rows, cols / 8], &codes)),
                ("a.weight_scale", tensor(Dtype::BFloat16, &[rows, cols / 128], &[0x24, 0x3C])),
                (
                    "a.weight_shape",
                    tensor(Dtype::Int64, &[2], &[rows.to_le_bytes(), cols.to_le_bytes()].concat()),
                ),
            ],
        ),
    ];
    for (name, config, tensors) in models {
        let documents = QuantizationDocuments { config: Some(config), ..QuantizationDocuments::default() };
        let list: Vec<(String, Tensor)> =
            tensors.into_iter().map(|(name, it)| (name.to_owned(), it)).collect();
        let tensors = Tensors::from(list);
        let model = recognise(&documents, &tensors)?.ok_or("it is quantized")?;
        let numbers = model.tensors.first().ok_or("one tensor")?.tensor(Dtype::BFloat16)?;
        let (start, rounds) = (user_seconds().ok_or("it needs Linux")?, 10);
        for _ in 0..rounds {
            numbers.gathered().write_to(&mut NullSink)?;
        }
        let seconds = user_seconds().ok_or("it needs Linux")? - start;
        println!("{name}: {:.2} GB/s", numbers.nbytes() as f64 * f64::from(rounds) / 1e9 / seconds);
    }
    Ok(())
}
