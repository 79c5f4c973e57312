//! The library without the command line: inspects a checkpoint, converts it with progress, and cancels a second
//! conversion. `cargo run --release --example library -- model.pth`

#![expect(clippy::print_stdout, reason = "an example shows what it finds")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use torch2carton::{Error, ErrorKind, Notice, Observer, ProgressUpdate, convert, inspect};

/// Prints progress and notes, and stops the work once it was asked to.
#[derive(Default)]
struct Console {
    stop: AtomicBool,
    stop_at_once: bool,
}

impl Observer for Console {
    fn progress(&self, step: ProgressUpdate<'_>) {
        println!("{}: {} of {:?} bytes", step.name, step.done, step.total);
        self.stop.store(self.stop_at_once, Ordering::Relaxed);
    }

    fn note(&self, note: &dyn Notice) {
        println!("note: {note}");
    }

    fn is_cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: library CHECKPOINT")?;
    for tensor in &inspect(&path).run(&())?.tensors {
        println!("{} {} {:?}", tensor.name, tensor.dtype, tensor.shape());
    }
    let report = convert(&path).run(&Console::default())?;
    let manifest = report.carton().and_then(|carton| carton.manifest_sha256.as_deref());
    println!("{}: {} tensors, manifest {manifest:?}", report.output, report.tensors);
    let second = convert(&path).output("cancelled.carton");
    let cancelled = second.run(&Console { stop_at_once: true, ..Console::default() });
    let kind = cancelled.as_ref().err().map(Error::kind);
    assert_eq!(kind, Some(ErrorKind::Cancelled), "{cancelled:?}");
    assert!(!Path::new("cancelled.carton").exists(), "a cancelled conversion leaves no output");
    Ok(())
}
