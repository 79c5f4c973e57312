//! `torch2carton inspect` of a carton: what it says of itself, its files, its tensors.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;
use carton_format::{Config, Manifest, Port, TensorIndex, TensorSpec, sha256_to_hex};
use carton_reader::{Carton, Method};
use mapped::MappedFile;
use serde_json::{Value, json};
use torch_import::Checkpoint;
use zip_index::Index;

use crate::repack::told;
use crate::terminal::{self, BOLD, DIM, bytes, safe};

/// Version of the object that `--json` prints.
const SCHEMA_VERSION: u32 = 1;
/// Where a converted checkpoint lies in its carton.
pub(crate) const MODEL_PT: &str = "model/model.pt";
/// Where the names of a zip file's entries are sought, in bytes from its end.
const TAIL: usize = 1 << 20;

/// Whether `path` is a carton, by its content.
pub(crate) fn is_carton(path: &Path) -> bool {
    if path.is_dir() {
        return path.join(Config::PATH).is_file();
    }
    let Ok(file) = MappedFile::open(path) else { return false };
    let bytes = file.bytes();
    if !bytes.starts_with(b"PK") {
        return false;
    }
    if let Some(has_both) = Index::lists(&file, &[Config::PATH, Manifest::PATH]) {
        return has_both;
    }
    // A damaged carton is one all the same, and its own errors say more.
    let tail = bytes.get(bytes.len().saturating_sub(TAIL)..).unwrap_or_default();
    let names = |name: &str| tail.windows(name.len()).any(|found| found == name.as_bytes());
    names(Config::PATH) && names(Manifest::PATH)
}

pub(crate) fn run(path: &Path, as_json: bool) -> Result<()> {
    let carton = Carton::open(path).map_err(|error| told(path, error))?;
    let config = carton.config().map_err(|error| told(path, error))?.document;
    let index = carton.tensor_index().map_err(|error| told(path, error))?.document;
    // Another runner's model may be of another format.
    let (tensors, unread) = match tensors(&carton) {
        Ok(tensors) => (tensors, None),
        Err(error) => (Vec::new(), Some(format!("no tensors are listed: {error:#}"))),
    };
    if as_json {
        let mut out = io::BufWriter::new(io::stdout().lock());
        writeln!(out, "{:#}", object(&carton, &config, &index, &tensors, unread.as_deref())?)?;
        out.flush()?;
    } else {
        let mut out = io::BufWriter::new(anstream::stdout().lock());
        print(&mut out, &carton, &config, &index, &tensors)?;
        out.flush()?;
        unread.iter().for_each(terminal::note);
    }
    Ok(())
}

/// Name, dtype, shape and bytes of each tensor of the model, where the model is a file of tensors.
type Row = (String, String, Vec<u64>, u64);

fn tensors(carton: &Carton) -> Result<Vec<Row>> {
    if carton.entry(MODEL_PT).is_err() {
        return Ok(Vec::new());
    }
    let model = carton.model(MODEL_PT)?;
    let checkpoint = Checkpoint::read(&model)?;
    let row = |(name, tensor): &(String, tensor::Tensor)| {
        (name.clone(), tensor.dtype().to_string(), tensor.shape().to_vec(), tensor.nbytes())
    };
    let tensors: Vec<(String, tensor::Tensor)> =
        checkpoint.tensors().map(|(name, tensor)| (name.into_owned(), tensor.clone())).collect();
    Ok(once(&tensors).map(row).collect())
}

/// The tensors of a module without the lists in which our modules hold them a second time.
fn once<'t>(tensors: &'t [(String, tensor::Tensor)]) -> impl Iterator<Item = &'t (String, tensor::Tensor)> {
    // `list.0`, `list.1`, …: a list all of whose members have other names, too, is such a one.
    let list = |name: &'t str| name.rsplit_once('.').filter(|(_, at)| at.parse::<u64>().is_ok());
    let named: HashSet<_> =
        tensors.iter().filter(|(name, _)| list(name).is_none()).map(|(_, tensor)| view(tensor)).collect();
    let own: HashSet<&str> = tensors
        .iter()
        .filter(|(_, tensor)| !named.contains(&view(tensor)))
        .filter_map(|(name, _)| Some(list(name)?.0))
        .collect();
    tensors.iter().filter(move |(name, _)| list(name).is_none_or(|(list, _)| own.contains(list)))
}

/// Equal for tensors that are the same elements.
pub(crate) fn view<'t>(tensor: &'t tensor::Tensor) -> (tensor::StorageId, u64, &'t [u64], &'t [u64]) {
    (tensor.storage().id(), tensor.storage_offset(), tensor.shape(), tensor.stride())
}

fn compression(method: Method) -> String {
    match method {
        Method::Stored => "stored".to_owned(),
        Method::Deflated => "deflate".to_owned(),
        Method::Zstd => "zstd".to_owned(),
        Method::Other(number) => format!("method {number}"),
    }
}

fn object(
    carton: &Carton,
    config: &Config,
    index: &TensorIndex,
    tensors: &[Row],
    unread: Option<&str>,
) -> Result<Value> {
    let files: Vec<Value> = carton
        .entries()
        .map(|entry| {
            json!({
                "path": entry.path,
                "nbytes": entry.len,
                "packed_nbytes": entry.packed_len,
                "compression": compression(entry.method),
                "link": entry.link,
            })
        })
        .collect();
    let absent: Vec<Value> = carton
        .absent()
        .iter()
        .map(|(path, sha256)| {
            json!({ "path": path, "sha256": sha256_to_hex(sha256), "urls": carton.links().urls(sha256) })
        })
        .collect();
    let tensors: Vec<Value> = tensors
        .iter()
        .map(|(name, dtype, shape, nbytes)| {
            json!({ "name": name, "dtype": dtype, "shape": shape, "nbytes": nbytes })
        })
        .collect();
    Ok(json!({
        "schema_version": SCHEMA_VERSION,
        "format": "carton",
        "manifest_sha256": carton.manifest_hash().map(|hash| sha256_to_hex(&hash)),
        "config": serde_json::to_value(config)?,
        "files": files,
        "absent": absent,
        "tensors": tensors,
        "tensor_data": serde_json::to_value(&index.tensors)?,
        "notes": unread.into_iter().collect::<Vec<_>>(),
    }))
}

fn print(
    out: &mut dyn Write,
    carton: &Carton,
    config: &Config,
    index: &TensorIndex,
    tensors: &[Row],
) -> Result<()> {
    let mut field = |label: &str, value: Option<String>| match value {
        Some(value) => writeln!(
            out,
            "{DIM}{label:<13}{DIM:#}{}",
            safe(value.trim_end()).replace("\\n", "\n             ")
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
            field(label, Some(shown(port)))?;
        }
    }
    field("self tests", (!config.self_tests.is_empty()).then(|| config.self_tests.len().to_string()))?;
    field("examples", (!config.examples.is_empty()).then(|| config.examples.len().to_string()))?;
    let runner = &config.runner;
    let (name, framework) = (&runner.runner_name, &runner.required_framework_version);
    field(
        "runner",
        Some(format!("{name} {framework}, contents of version {}", runner.runner_compat_version)),
    )?;
    for (name, value) in &runner.opts {
        field("option", Some(format!("{name} = {value}")))?;
    }
    field("manifest", carton.manifest_hash().map(|hash| sha256_to_hex(&hash)))?;
    writeln!(out)?;
    let files = carton.entries().map(|entry| {
        let kind = if entry.link { "link".to_owned() } else { compression(entry.method) };
        let packed = if entry.len == entry.packed_len { String::new() } else { bytes(entry.packed_len) };
        [safe(&entry.path), bytes(entry.len), kind, packed]
    });
    let mut rows: Vec<[String; 4]> = vec![["file", "size", "compression", "packed"].map(str::to_owned)];
    rows.extend(files);
    rows.extend(
        carton
            .absent()
            .iter()
            .map(|(path, _)| [safe(path), String::new(), "not here, in LINKS".to_owned(), String::new()]),
    );
    table(out, &rows)?;
    if !index.tensors.is_empty() {
        writeln!(out)?;
        let mut rows: Vec<[String; 4]> = vec![["test tensor", "size", "dtype", "shape"].map(str::to_owned)];
        rows.extend(index.tensors.iter().map(|tensor| match tensor {
            TensorSpec::Array { name, dtype, shape, .. } => {
                let size = tensor.nbytes().map_or_else(String::new, bytes);
                [safe(name), size, dtype.name().to_owned(), format!("{shape:?}")]
            }
            TensorSpec::Nested { name, inner, .. } => {
                [safe(name), String::new(), "nested".to_owned(), safe(format!("of {}", inner.join(", ")))]
            }
        }));
        table(out, &rows)?;
    }
    if !tensors.is_empty() {
        writeln!(out)?;
        let mut rows: Vec<[String; 4]> = vec![["tensor", "size", "dtype", "shape"].map(str::to_owned)];
        rows.extend(tensors.iter().map(|(name, dtype, shape, nbytes)| {
            [safe(name), bytes(*nbytes), dtype.clone(), format!("{shape:?}")]
        }));
        table(out, &rows)?;
    }
    Ok(())
}

fn shown(port: &Port) -> String {
    let mut text = format!("{} {} {}", port.name, port.dtype.name(), port.shape);
    for part in [&port.internal_name, &port.description].into_iter().flatten() {
        text = format!("{text}, {part}");
    }
    text
}

/// Columns, the second one to the right.
fn table(out: &mut dyn Write, rows: &[[String; 4]]) -> io::Result<()> {
    let mut widths = [0_usize; 4];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let [first, second, third, _] = widths;
    for (index, [a, b, c, d]) in rows.iter().enumerate() {
        let style = if index == 0 { BOLD } else { anstyle::Style::new() };
        let text = format!("{a:first$}  {b:>second$}  {c:third$}  {d}");
        writeln!(out, "{style}{}{style:#}", text.trim_end())?;
    }
    Ok(())
}
