//! `torch2carton run CARTON` without more arguments: what the carton can do, and the commands for it.

use std::io::{self, Write};

use anyhow::Result;
use pipeline::{format_count, format_things};
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
    carton_commands::print_commands(&mut out, &carton_commands::of_runnable(runnable))?;
    Ok(out.flush()?)
}

fn print_ports(out: &mut dyn Write, label: &str, ports: &[RunnablePort]) -> io::Result<()> {
    let shown = ports.iter().take(SHOWN_MAX).map(|port| {
        let optional = if port.optional { " (optional)" } else { "" };
        format!("{} {} {}{optional}", port.name, port.dtype.name(), port.shape)
    });
    let more = match ports.len().saturating_sub(SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shown = shown.collect::<Vec<_>>().join(", ");
    writeln!(out, "  {DIM}{label:<9}{DIM:#}  {}{more}", escape_hidden(shown))
}
