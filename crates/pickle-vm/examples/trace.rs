//! Prints what a pickle does: `cargo run -p pickle-vm --example trace -- [--dis|--json|--lines|--summary|--full] FILE`.

use std::io::{self, Write};

use pickle_vm::trace::{self, ListingOptions, PickleSummary, TraceView};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut view = TraceView::Steps;
    let (mut dis, mut summary, mut full) = (false, false, false);
    let mut path = None;
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "--dis" => dis = true,
            "--summary" => summary = true,
            "--full" => full = true,
            "--json" => view = TraceView::Json,
            "--lines" => view = TraceView::Lines,
            _ => path = Some(arg),
        }
    }
    let bytes = std::fs::read(path.ok_or("a file is missing")?)?;
    let mut out = io::stdout().lock();
    if dis {
        trace::dis(&bytes, &mut out)?;
    } else if summary {
        let summary = PickleSummary::read(&bytes, &pickle_vm::PickleLimits::default())?;
        summary.write(0, &mut out)?;
    } else {
        trace::write(&bytes, &ListingOptions { view, full, ..ListingOptions::default() }, &mut out)?;
    }
    out.flush()?;
    Ok(())
}
