//! `torch2carton trace`: prints the steps of the pickle machine on a checkpoint's pickle.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use inspect::{TraceListing, TraceOptions, TraceView};

use crate::cli::args::Trace;
use crate::cli::ui::escapes::EscapingWriter;

pub(crate) fn trace(args: &Trace) -> Result<ExitCode> {
    let view = match (args.json, args.lines) {
        (true, _) => TraceView::Json,
        (_, true) => TraceView::Lines,
        _ => TraceView::Steps,
    };
    let listing = match (args.dis, args.summary) {
        (true, _) => TraceListing::Disassembly,
        (_, true) => TraceListing::Summary,
        _ => TraceListing::Trace { view, full: args.full, limit: args.limit },
    };
    let mut options = TraceOptions::new(args.remote.locate_or_stdin(&args.file)?);
    options.name = (args.file == Path::new("-")).then(|| "-".to_owned());
    options.listing = listing;
    options.pickle = args.pickle;
    let mut out = EscapingWriter::new(io::BufWriter::new(io::stdout().lock()), args.json);
    inspect::trace(&options, &mut out)?;
    Ok(ExitCode::SUCCESS)
}
