//! `torch2carton trace`: the pickle machine at work on a checkpoint's pickle.

use std::io::{self, Write};

use anyhow::{Context, Result};
use pickle_vm::trace::{self, Options, Summary, View};
use pickle_vm::{Heap, Limits, ObjectId};
use torch_import::{Pickles, annotate, count_tensors};

use crate::cli;

pub(crate) fn run(args: &cli::Trace) -> Result<()> {
    store::refuse_remote(&args.file)?;
    let path = || args.file.display().to_string();
    let pickles = Pickles::open(&args.file).with_context(path)?;
    let pickle = pickles.pickle(args.pickle).with_context(path)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    if args.dis {
        trace::dis(pickle, &mut out).with_context(path)?;
    } else if args.summary {
        let summary = Summary::read(pickle, &Limits::default()).with_context(path)?;
        summary.write(count_tensors(&summary.pickle.heap), &mut out)?;
    } else {
        let container = pickles.container();
        let annotate = |heap: &Heap<'_>, id: ObjectId| annotate(container, heap, id);
        let view = match (args.json, args.lines) {
            (true, _) => View::Json,
            (_, true) => View::Lines,
            _ => View::Steps,
        };
        let options = Options {
            view,
            full: args.full,
            limit: args.limit,
            annotate: Some(&annotate),
            ..Options::default()
        };
        trace::write(pickle, &options, &mut out).with_context(path)?;
    }
    out.flush()?;
    Ok(())
}
