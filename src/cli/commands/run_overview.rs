//! `torch2carton run CARTON` without more arguments: what the carton can do, and the commands for it.

use std::io::{self, Write};

use anyhow::Result;
use byte_source::{format_count, format_things};
use carton_format::{Carton, Port};
use runtime::{Runnable, RunnableKind, RunnablePort};

use super::carton_commands;
use super::detokenizer::Detokenizer;
use crate::cli::ui::terminal::{BOLD, DIM, escape_hidden};

/// Maximum number of ports and of tensor names that are listed.
const SHOWN_MAX: usize = 4;

/// Prints the kind of model, its inputs and outputs, and the commands that use them.
pub(super) fn print_overview(runnable: &Runnable) -> Result<()> {
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    let is_model = matches!(runnable.kind(), RunnableKind::Decoder(_));
    let has_tokenizer = is_model && Detokenizer::optional(runnable).is_some();
    let tensors = runnable.tensors();
    let parameters = tensors.iter().fold(0_u64, |sum, (_, tensor)| sum.saturating_add(tensor.numel()));
    let what = if is_model { "a decoder" } else { "weights without code" };
    let (things, parameters) = (format_things(tensors.len(), "tensor"), format_count(parameters));
    let path = runnable.path();
    writeln!(out, "{BOLD}{}{BOLD:#}: {what}, {things}, {parameters} numbers", escape_hidden(path.display()))?;
    if is_model {
        print_ports(&mut out, "inputs", runnable.inputs())?;
        print_ports(&mut out, "outputs", runnable.outputs())?;
        let tokenizer = if has_tokenizer { "yes" } else { "none: give token ids" };
        writeln!(out, "  {DIM}tokenizer{DIM:#}  {tokenizer}")?;
    }
    writeln!(out)?;
    carton_commands::print_commands(&mut out, &carton_commands::for_runnable(runnable))?;
    Ok(out.flush()?)
}

/// Prints what a module with code of its own is, which cannot run here, and the commands for it.
pub(super) fn print_overview_of_code(carton: &Carton) -> Result<()> {
    let (path, report) = (carton.path(), carton_tools::contents_of(carton)?);
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    let tensors = format_things(report.tensors.len(), "tensor");
    let path_text = escape_hidden(path.display());
    writeln!(out, "{BOLD}{path_text}{BOLD:#}: a TorchScript module with its own code, {tensors}")?;
    let ports = |ports: &[Port]| ports.iter().map(port_text).collect::<Vec<_>>();
    let (inputs, mut outputs) = (ports(&report.config.inputs), ports(&report.config.outputs));
    let is_listed = |name: &String| report.config.outputs.iter().any(|port| port.name == *name);
    outputs.extend(report.script_outputs.iter().filter(|name| !is_listed(name)).cloned());
    for (label, ports) in [("inputs", inputs), ("outputs", outputs)] {
        if !ports.is_empty() {
            let shown = shortened_list(ports.len(), ports.into_iter());
            writeln!(out, "  {DIM}{label:<9}{DIM:#}  {}", escape_hidden(shown))?;
        }
    }
    writeln!(out)?;
    carton_commands::print_commands(&mut out, &carton_commands::for_foreign_code(path, &report))?;
    Ok(out.flush()?)
}

fn port_text(port: &Port) -> String {
    format!("{} {} {}", port.name, port.dtype.name(), port.shape)
}

/// Joins the first few of `count` texts, and counts the others.
fn shortened_list(count: usize, texts: impl Iterator<Item = String>) -> String {
    let shown = texts.take(SHOWN_MAX).collect::<Vec<_>>().join(", ");
    match count.saturating_sub(SHOWN_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn print_ports(out: &mut dyn Write, label: &str, ports: &[RunnablePort]) -> io::Result<()> {
    let shown = ports.iter().map(|port| {
        let optional = if port.optional { " (optional)" } else { "" };
        format!("{} {} {}{optional}", port.name, port.dtype.name(), port.shape)
    });
    let shown = shortened_list(ports.len(), shown);
    writeln!(out, "  {DIM}{label:<9}{DIM:#}  {}", escape_hidden(shown))
}
