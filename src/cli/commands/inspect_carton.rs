//! `torch2carton inspect` of a carton: prints its metadata, its files and its tensors.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;
use byte_source::format_bytes;
use carton_format::{Carton, Port, TensorSpec};
use carton_tools::ContentsReport;

use super::carton_commands;
use crate::cli::args::Inspect;
use crate::cli::ui::table::{self, Align, truncate_cell};
use crate::cli::ui::terminal::{self, DIM, escape_hidden};
use crate::cli::ui::{carton_advice, stdin};

const ALIGN: [Align; 4] = [Align::Left, Align::Right, Align::Left, Align::Left];

/// Prints the contents of a carton; with `advise`, also the commands for it.
pub(crate) fn inspect(
    (path, carton): (&Path, &Carton),
    args: &Inspect,
    quiet: bool,
    advise: bool,
) -> Result<()> {
    let mut report = carton_tools::contents_of(carton)?;
    stdin::restore_typed_path(&mut report.file);
    if args.json {
        let mut out = io::BufWriter::new(io::stdout().lock());
        super::write_report_line(&mut out, &report, &args.remote)?;
        return Ok(out.flush()?);
    }
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    if !quiet {
        print_description(&mut out, &report)?;
        writeln!(out)?;
    }
    print_tables(&mut out, &report)?;
    // A pipe cannot be named in another command.
    if advise && !quiet && report.file != "-" {
        writeln!(out)?;
        carton_commands::print_commands(&mut out, &carton_commands::from_contents(path, &report))?;
    }
    out.flush()?;
    report.notes.iter().for_each(|note| terminal::note(carton_advice::carton_note_text(note, &report.file)));
    Ok(())
}

fn print_description(out: &mut dyn Write, report: &ContentsReport) -> io::Result<()> {
    let config = &report.config;
    let mut field = |label: &str, value: Option<String>| match value {
        Some(value) => writeln!(
            out,
            "{DIM}{label:<13}{DIM:#}{}",
            escape_hidden(value.trim_end()).replace("\\n", "\n             ")
        ),
        None => Ok(()),
    };
    field("name", config.model_name.clone())?;
    field("summary", config.short_description.clone())?;
    field("description", config.model_description.clone())?;
    field("license", config.license.clone())?;
    field("repository", config.repository.clone())?;
    field("homepage", config.homepage.clone())?;
    let platforms = &config.required_platforms;
    field("platforms", (!platforms.is_empty()).then(|| platforms.join(", ")))?;
    for (label, ports) in [("input", &config.inputs), ("output", &config.outputs)] {
        for port in ports {
            field(label, Some(truncate_cell(&port_text(port))))?;
        }
    }
    for name in &report.script_outputs {
        let is_listed = config.outputs.iter().any(|port| port.name == *name);
        field("output", (!is_listed).then(|| truncate_cell(&format!("{name}, of the module's code"))))?;
    }
    field("self tests", (!config.self_tests.is_empty()).then(|| config.self_tests.len().to_string()))?;
    field("examples", (!config.examples.is_empty()).then(|| config.examples.len().to_string()))?;
    let runner = &config.runner;
    let (name, framework) = (&runner.runner_name, &runner.required_framework_version);
    field("runner", Some(format!("{name} {framework}, model format {}", runner.runner_compat_version)))?;
    for (name, value) in &runner.opts {
        field("option", Some(format!("{name} = {value}")))?;
    }
    field("manifest", report.manifest_sha256.clone())?;
    Ok(())
}

fn print_tables(out: &mut dyn Write, report: &ContentsReport) -> io::Result<()> {
    let files = report.files.iter().map(|file| {
        let kind = if file.link { "link".to_owned() } else { file.compression.clone() };
        let packed =
            if file.nbytes == file.packed_nbytes { String::new() } else { format_bytes(file.packed_nbytes) };
        [file.path.clone(), format_bytes(file.nbytes), kind, packed]
    });
    let absent = report.absent.iter();
    let absent =
        absent.map(|file| [file.path.clone(), String::new(), "not here, in LINKS".to_owned(), String::new()]);
    table::print_table(out, ALIGN, ["file", "size", "compression", "packed"], files.chain(absent))?;
    if !report.tensor_data.is_empty() {
        writeln!(out)?;
        let rows = report.tensor_data.iter().map(|tensor| match tensor {
            TensorSpec::Array { name, dtype, shape, .. } => {
                let size = tensor.nbytes().map_or_else(String::new, format_bytes);
                [name.clone(), size, dtype.name().to_owned(), format!("{shape:?}")]
            }
            TensorSpec::Nested { name, inner, .. } => {
                [name.clone(), String::new(), "nested".to_owned(), format!("of {}", inner.join(", "))]
            }
        });
        table::print_table(out, ALIGN, ["test tensor", "size", "dtype", "shape"], rows)?;
    }
    if !report.tensors.is_empty() {
        writeln!(out)?;
        let rows = report.tensors.iter().map(|tensor| {
            let blocks = tensor.blocks.map_or_else(String::new, |blocks| format!(" ({blocks})"));
            [
                tensor.name.clone(),
                format_bytes(tensor.nbytes),
                format!("{}{blocks}", tensor.dtype),
                format!("{:?}", tensor.shape),
            ]
        });
        table::print_table(out, ALIGN, ["tensor", "size", "dtype", "shape"], rows)?;
    }
    Ok(())
}

fn port_text(port: &Port) -> String {
    let mut text = format!("{} {} {}", port.name, port.dtype.name(), port.shape);
    for part in [&port.internal_name, &port.description].into_iter().flatten() {
        text = format!("{text}, {part}");
    }
    text
}
