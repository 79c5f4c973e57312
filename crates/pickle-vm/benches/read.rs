//! Measures how fast a pickle is read: `cargo bench -p pickle-vm`, or with `-- FILE` for your own pickle.
//!
//! If `python3` is installed, CPython's C implementation reads the same bytes. Without a file the benchmark uses what
//! `torch.save` writes for 100,000 tensors (PyTorch 2.15, protocol 2).

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::cast_precision_loss, reason = "three digits are precise enough")]

#[path = "../tests/it/common/checkpoint.rs"]
mod checkpoint;

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use checkpoint::checkpoint;
use pickle_vm::{Reader, load};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let bytes = match path {
        Some(path) => std::fs::read(path)?,
        None => checkpoint(100_000, 64)?,
    };
    let before = peak_memory();
    let pickle = load(&bytes)?;
    let after = peak_memory();
    println!("{} bytes, {} opcodes, {} objects", bytes.len(), pickle.opcodes, pickle.heap.len());
    if let (Some(before), Some(after)) = (before, after) {
        let grown = after.saturating_sub(before) as f64 * 1024.0;
        println!("memory   {:8.1} MB, {:.2} x the pickle", grown / 1e6, grown / bytes.len() as f64);
    }
    report("reader", &bytes, pickle.opcodes, || Reader::new(&bytes).try_for_each(|i| i.map(|_| ())));
    report("machine", &bytes, pickle.opcodes, || load(&bytes).map(|_| ()));
    if let Some(seconds) = cpython(&bytes) {
        print("CPython", &bytes, pickle.opcodes, seconds);
    }
    Ok(())
}

/// The best of five times that CPython's C unpickler takes, with stubs for classes and storages.
fn cpython(bytes: &[u8]) -> Option<f64> {
    const PROGRAM: &str = "
import io, pickle, sys, time
class Unpickler(pickle.Unpickler):
    def find_class(self, module, name): return dict if name == 'OrderedDict' else lambda *args: None
    def persistent_load(self, pid): return None
data = sys.stdin.buffer.read()
def run():
    start = time.perf_counter()
    Unpickler(io.BytesIO(data)).load()
    return time.perf_counter() - start
print(min(run() for _ in range(5)))
";
    let mut child = Command::new("python3")
        .args(["-c", PROGRAM])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    child.stdin.take()?.write_all(bytes).ok()?;
    let output = child.wait_with_output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// Prints the best of forty runs, which is the least disturbed one.
fn report(name: &str, bytes: &[u8], opcodes: u64, run: impl Fn() -> pickle_vm::Result<()>) {
    let time = |_| {
        let start = Instant::now();
        run().expect("this pickle was read before");
        start.elapsed()
    };
    let best = (0..40).map(time).min().unwrap_or(Duration::MAX).as_secs_f64();
    print(name, bytes, opcodes, best);
}

fn print(name: &str, bytes: &[u8], opcodes: u64, best: f64) {
    let (megabytes, millions) = (bytes.len() as f64 / 1e6, opcodes as f64 / 1e6);
    println!("{name:8} {:8.1} MB/s, {:6.1} M opcodes/s, {best:.4} s", megabytes / best, millions / best);
}

/// The peak memory of this process, in KiB; Linux only.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok())
}
