//! Subcommands, each of which calls a library and prints its report. A successful command returns its exit status.

mod batch;
mod carton_commands;
#[cfg(feature = "tokenizer")]
mod chat;
#[cfg(feature = "tokenizer")]
mod chat_input;
mod check;
mod completions;
mod convert;
mod convert_each;
mod convert_report;
mod detokenizer;
mod diff;
mod digest;
mod inspect;
mod inspect_carton;
mod inspect_tree;
mod inspect_values;
mod man;
mod merge_summary;
mod pack;
mod report;
#[cfg(feature = "download")]
mod resolve;
mod run;
mod run_overview;
mod run_tests;
mod run_text;
mod sarif;
mod scan;
mod scan_headline;
mod scan_sarif;
mod scan_text;
#[cfg(feature = "serve")]
mod serve;
mod shrink;
mod trace;
mod unpack;
mod verify;
mod version;

use std::io::{self, Write};

use serde::Serialize;

use crate::cli::args::RemoteArgs;

pub(crate) use batch::{batch, encode_batch_line};
#[cfg(feature = "tokenizer")]
pub(crate) use chat::chat;
pub(crate) use check::check;
pub(crate) use completions::completions;
pub(crate) use convert::convert;
pub(crate) use diff::diff;
pub(crate) use digest::digest;
pub(crate) use inspect::inspect;
pub(crate) use man::man;
pub(crate) use pack::pack;
pub(crate) use report::report;
#[cfg(feature = "download")]
pub(crate) use resolve::resolve;
pub(crate) use run::run;
pub(crate) use scan::scan;
#[cfg(feature = "serve")]
pub(crate) use serve::serve;
pub(crate) use shrink::shrink;
pub(crate) use trace::trace;
pub(crate) use unpack::unpack;
pub(crate) use verify::verify;
pub(crate) use version::version;

use crate::cli::ui::escapes::EscapingJsonFormatter;

/// Writes bytes to standard output and flushes it.
fn write_stdout(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Writes a report as one JSON object on a line, with hidden characters escaped, and with the requests for its input if it was read at an address.
fn write_report_line(out: &mut impl Write, report: &impl Serialize, remote: &RemoteArgs) -> io::Result<()> {
    /// A report, and the requests for it.
    #[derive(Serialize)]
    struct WithTraffic<'r, R> {
        #[serde(flatten)]
        report: &'r R,
        remote: remote_source::Traffic,
    }
    match remote.take_traffic() {
        Some(remote) => write_json_line(out, &WithTraffic { report, remote }),
        None => write_json_line(out, report),
    }
}

fn write_json_line(out: &mut impl Write, report: &impl Serialize) -> io::Result<()> {
    report.serialize(&mut serde_json::Serializer::with_formatter(&mut *out, EscapingJsonFormatter))?;
    writeln!(out)
}
