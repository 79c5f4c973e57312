//! Times matrix products and the machine's read bandwidth, and prints a line of JSON for each.
//!
//! `cargo bench -p forward -- [--threads N] [--kernel NAME] [--seconds S]`. The kernels are not public, so they are compiled as
//! a part of this program. `products.py`, next to this file, runs it interleaved with PyTorch.
//!
//! Weights are mapped from a file in the page cache, as those of a model are. No cache of a CPU holds all of them.

#![expect(clippy::print_stdout, reason = "a program that prints figures for its author")]
#![expect(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "its sizes are constants")]
#![expect(clippy::cast_precision_loss, reason = "figures of a few digits")]
#![allow(unreachable_pub, reason = "files of the library are modules here")]
#![allow(dead_code, unused_imports, reason = "not all of the kernels' interface is timed")]

#[path = "../src/error.rs"]
mod error;
#[path = "../src/kernel/mod.rs"]
mod kernel;

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use byte_source::Result;
use byte_source::{MappedFile, Region, Source};
pub(crate) use error::Problem;
use kernel::{Kernel, Matrix, Pool};
use rustix::time::{ClockId, clock_gettime};
use tensor::{Dtype, Storage, Tensor};

const ROWS: usize = 5632;
const COLS: usize = 2048;
const MATRICES: usize = 24;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).cloned();
    let threads = value("--threads").map(|n| n.parse().expect("--threads takes a number"));
    let seconds = value("--seconds").map_or(1.0, |n| n.parse().expect("--seconds takes a number"));
    let named = |name: String| Kernel::ALL.into_iter().find(|kernel| kernel.name() == name);
    let kernel =
        value("--kernel").map_or(Kernel::best(), |name| named(name).expect("--kernel takes a kernel's name"));
    let only = value("--only").unwrap_or_default();
    let pool = Pool::new(threads).expect("the system starts the threads");
    let file = weights();
    let about = |what: &str| {
        format!(r#"{{"what":"{what}","kernel":"{}","threads":{}"#, kernel.name(), pool.threads())
    };
    if "read".contains(&only) {
        let bytes = file.in_memory().expect("it is mapped");
        let per_job = 1 << 18;
        let time = timed(seconds, || {
            let jobs: Vec<&[u8]> = bytes.chunks(per_job).collect();
            pool.for_each(jobs, |bytes| {
                std::hint::black_box(exclusive_or(bytes));
            });
        });
        println!("{},{}}}", about("read"), rate("GB/s", bytes.len() as f64, time));
    }
    for (name, dtype, cols) in [
        ("float32", Dtype::Float32, COLS),
        ("bfloat16", Dtype::BFloat16, COLS),
        ("float16", Dtype::Float16, COLS),
        ("q8_0", Dtype::UInt8, COLS / 32 * 34),
    ] {
        let nbytes = ROWS * cols * usize::try_from(dtype.size()).expect("a size of a few bytes");
        let matrices: Vec<Matrix> = (0..MATRICES).map(|i| matrix(&file, dtype, cols, i * nbytes)).collect();
        for m in [1, 2, 4, 8, 16, 32, 128, 512] {
            let what = format!("{name} {m}x{COLS} {COLS}x{ROWS}");
            if !what.starts_with(&only) {
                continue;
            }
            let x: Vec<f32> = (0..m * COLS).map(|i| ((i * 7919) % 1000) as f32 / 1000.0 - 0.5).collect();
            let mut y = vec![0.0; m * ROWS];
            let count = if m <= 32 { MATRICES } else { 1 };
            let time = timed(seconds, || {
                for matrix in &matrices[..count] {
                    kernel.linear(&pool, vec![kernel::Product::new(matrix, &x, m, None, &mut y)]);
                }
            });
            let time = time.map(|time| time / u32::try_from(count).expect("at most MATRICES"));
            let (flops, read) = (2.0 * (m * ROWS * COLS) as f64, nbytes as f64);
            println!("{},{},{}}}", about(&what), rate("GFLOP/s", flops, time), rate("GB/s", read, time));
        }
    }
}

/// Wall and processor time of the fastest of several calls.
fn timed(seconds: f64, mut work: impl FnMut()) -> [Duration; 2] {
    let processor = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let seconds = time.tv_sec.try_into().expect("a processor time is not negative");
        Duration::new(seconds, time.tv_nsec.try_into().expect("below 10^9"))
    };
    work();
    let (mut best, begin) = ([Duration::MAX; 2], Instant::now());
    while begin.elapsed().as_secs_f64() < seconds {
        let (wall, cpu) = (Instant::now(), processor());
        work();
        best = [best[0].min(wall.elapsed()), best[1].min(processor().saturating_sub(cpu))];
    }
    best
}

fn rate(unit: &str, amount: f64, [wall, cpu]: [Duration; 2]) -> String {
    let per = |time: Duration| amount / time.as_secs_f64() / 1e9;
    let (ms, cpu_ms) = (wall.as_secs_f64() * 1e3, cpu.as_secs_f64() * 1e3);
    format!(
        r#""ms":{ms:.3},"cpu_ms":{cpu_ms:.3},"{unit}":{:.1},"{unit} a processor":{:.1}"#,
        per(wall),
        per(cpu)
    )
}

/// A file of random numbers of moderate size in any of the dtypes.
fn weights() -> Arc<dyn Source> {
    let mut file = tempfile::NamedTempFile::new().expect("the temporary folder can be written");
    let (mut state, mut bytes) = (1_u32, Vec::new());
    for _ in 0..ROWS * COLS * 2 {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        let number = 0x3800 | (state & 0x87ff);
        bytes.extend(u16::try_from(number).expect("the masks keep 16 bits").to_le_bytes());
    }
    for _ in 0..MATRICES {
        file.write_all(&bytes).expect("the disk has room");
    }
    Arc::new(MappedFile::open(file.path()).expect("the file was just written"))
}

/// Returns a matrix of the numbers, or of the blocks of `Q8_0`, in a part of the file.
fn matrix(file: &Arc<dyn Source>, dtype: Dtype, cols: usize, start: usize) -> Matrix {
    let (rows, cols) = (ROWS as u64, cols as u64);
    let region = Region::new(file, start as u64..file.len()).expect("a range of the file");
    let storage = Storage::stored(region, None);
    let tensor = Tensor::new(dtype, vec![rows, cols], vec![cols, 1], 0, storage);
    let tensor = tensor.expect("the file has MATRICES of these");
    Matrix::new(&Tensor::from_q8_0_blocks(&tensor).unwrap_or(tensor)).expect("a matrix of floats")
}

/// Reads all bytes with little work.
fn exclusive_or(bytes: &[u8]) -> [u64; 8] {
    let mut sum = [0; 8];
    for chunk in bytes.as_chunks::<64>().0 {
        let (words, _) = chunk.as_chunks::<8>();
        for (sum, word) in sum.iter_mut().zip(words) {
            *sum ^= u64::from_ne_bytes(*word);
        }
    }
    sum
}
