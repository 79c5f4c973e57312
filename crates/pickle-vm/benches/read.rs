//! How fast a pickle is read: `cargo bench -p pickle-vm`, or with `-- FILE` for a pickle of one's own.
//!
//! Without a file it writes what `torch.save` writes for 100,000 tensors (PyTorch 2.15, protocol 2).

#![expect(clippy::print_stdout, reason = "figures are what a bench is for")]
#![expect(clippy::cast_precision_loss, reason = "figures of three digits")]

use std::time::{Duration, Instant};

use pickle_vm::{Reader, Writer, load};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let bytes = match path {
        Some(path) => std::fs::read(path)?,
        None => checkpoint(100_000)?,
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
    Ok(())
}

/// Prints the best of forty runs, which is the one that the machine disturbed least.
fn report(name: &str, bytes: &[u8], opcodes: u64, run: impl Fn() -> pickle_vm::Result<()>) {
    let time = |_| {
        let start = Instant::now();
        run().expect("this pickle was read before");
        start.elapsed()
    };
    let best = (0..40).map(time).min().unwrap_or(Duration::MAX).as_secs_f64();
    let (megabytes, millions) = (bytes.len() as f64 / 1e6, opcodes as f64 / 1e6);
    println!("{name:8} {:8.1} MB/s, {:6.1} M opcodes/s, {best:.4} s", megabytes / best, millions / best);
}

/// The most memory that this process ever held, in KiB; Linux only.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok())
}

/// A state dict of `count` matrices.
fn checkpoint(count: u32) -> pickle_vm::Result<Vec<u8>> {
    let mut out = Writer::new();
    out.empty_dict();
    out.put()?;
    out.mark();
    let mut shared = Vec::new();
    for index in 0..count {
        out.text(&format!("layers.{index}.weight"))?;
        out.put()?;
        let remember = |out: &mut Writer, shared: &mut Vec<_>| -> pickle_vm::Result<()> {
            shared.push(out.put()?);
            Ok(())
        };
        if let [rebuild, storage, kind, _, _] = shared[..] {
            out.get(rebuild);
            out.mark();
            out.mark();
            out.get(storage);
            out.get(kind);
        } else {
            out.global("torch._utils", "_rebuild_tensor_v2")?;
            remember(&mut out, &mut shared)?;
            out.mark();
            out.mark();
            out.text("storage")?;
            remember(&mut out, &mut shared)?;
            out.global("torch", "BFloat16Storage")?;
            remember(&mut out, &mut shared)?;
        }
        out.text(&index.to_string())?;
        out.put()?;
        if let [_, _, _, device, _] = shared[..] {
            out.get(device);
        } else {
            out.text("cpu")?;
            remember(&mut out, &mut shared)?;
        }
        out.int(4096);
        out.tuple();
        out.put()?;
        out.binpersid();
        out.int(0);
        for [left, right] in [[64, 64], [64, 1]] {
            out.int(left);
            out.int(right);
            out.tuple2();
            out.put()?;
        }
        out.bool(false);
        if let [_, _, _, _, hooks] = shared[..] {
            out.get(hooks);
        } else {
            out.global("collections", "OrderedDict")?;
            remember(&mut out, &mut shared)?;
        }
        out.empty_tuple();
        out.reduce();
        out.put()?;
        out.tuple();
        out.put()?;
        out.reduce();
        out.put()?;
    }
    out.setitems();
    Ok(out.finish())
}
