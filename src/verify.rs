//! `torch2carton verify`: every hash, every checksum, every rule; optionally every tensor's bits.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, sync_channel};

use anyhow::{Context, Result, bail};
use carton_format::sha256_to_hex;
use carton_reader::{Carton, Error, Report};
use mapped::{Blob, Sink, Window};
use serde_json::json;
use store::file_name;
use tensor::Tensor;
use torch_import::Checkpoint;

use crate::cli::{self, Usage};
use crate::inspect_carton::{MODEL_PT, view};
use crate::repack::{checkpoint_format, counted, told};
use crate::select::select;
use crate::terminal::{self, Progress, bytes, safe};
use sources::Sources;

/// Version of the object that `--json` prints.
const SCHEMA_VERSION: u32 = 1;
/// Windows that wait for the comparison, at most.
const QUEUE: usize = 4;

pub(crate) fn run(args: &cli::Verify, quiet: bool) -> Result<()> {
    let file = &args.file;
    if args.against.is_empty() && !args.select.is_empty() {
        bail!(Usage(
            "--key, --include, --exclude and --strip-prefix are about the checkpoint of --against".to_owned()
        ));
    }
    let carton = match Carton::open(file) {
        Ok(carton) => carton,
        // Nothing was read, so nothing is known of it.
        Err(error @ (Error::Map(_) | Error::Io { .. })) => return Err(error.into()),
        Err(error) if checkpoint_format(file).is_some() => return Err(told(file, error)),
        Err(error) => {
            let problems = match &error {
                Error::Format(carton_format::Error::Document(problems)) => {
                    problems.0.iter().map(|problem| (problem.document.clone(), problem.to_string())).collect()
                }
                error => vec![(error.entry().unwrap_or_default().to_owned(), error.to_string())],
            };
            return print(args, None, &Report::default(), &problems, None);
        }
    };
    let total = carton.entries().fold(0_u64, |sum, entry| sum.saturating_add(entry.len));
    let mut report = {
        let progress = Mutex::new(Progress::new(&file_name(file), total, quiet || args.json));
        carton.verify(&|done| {
            // Who comes while another tells is told of next time.
            if let Ok(mut progress) = progress.try_lock() {
                progress.set(done);
            }
            ControlFlow::Continue(())
        })?
    };
    let mut findings: Vec<(String, String)> =
        report.findings.iter().map(|finding| (finding.entry.clone(), finding.what.clone())).collect();
    let mut compared = None;
    if !args.against.is_empty() {
        match against(&carton, args) {
            Ok(against) => {
                findings.extend(against.differences.into_iter().map(|what| (MODEL_PT.to_owned(), what)));
                report.notes.extend(against.notes);
                compared = Some(against.compared);
            }
            // What is damaged cannot be compared either.
            Err(error) if !findings.is_empty() => {
                findings.push((MODEL_PT.to_owned(), format!("not compared: {error:#}")));
            }
            Err(error) => return Err(error),
        }
    }
    let printed = print(args, Some(&carton), &report, &findings, compared);
    if printed.is_ok() && !quiet && !args.json {
        report.notes.iter().for_each(terminal::note);
        let hashes =
            if carton.manifest().is_some() { "all hashes are right" } else { "no hashes to compare" };
        let tensors = compared.map_or_else(String::new, |count| format!(", {count} tensors bit-equal"));
        let mut err = anstream::stderr().lock();
        writeln!(
            err,
            "{}: {} files, {}, {hashes}{tensors}",
            safe(file.display()),
            report.files,
            bytes(report.bytes)
        )?;
    }
    printed
}

fn print(
    args: &cli::Verify,
    carton: Option<&Carton>,
    report: &Report,
    findings: &[(String, String)],
    compared: Option<usize>,
) -> Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    if args.json {
        let hash = carton.and_then(Carton::manifest_hash).map(|hash| sha256_to_hex(&hash));
        let findings: Vec<_> =
            findings.iter().map(|(entry, what)| json!({ "entry": entry, "what": what })).collect();
        let object = json!({
            "schema_version": SCHEMA_VERSION,
            "ok": findings.is_empty(),
            "manifest_sha256": hash,
            "files": report.files,
            "bytes": report.bytes,
            "tensors_compared": compared,
            "findings": findings,
            "notes": report.notes,
        });
        writeln!(out, "{object:#}")?;
    } else {
        for (_, what) in findings {
            writeln!(out, "{}", safe(what))?;
        }
    }
    out.flush()?;
    if !findings.is_empty() {
        bail!("{}: {}", args.file.display(), counted(findings.len()));
    }
    Ok(())
}

/// What came of the comparison with a checkpoint.
struct Against {
    /// How many tensors were compared.
    compared: usize,
    differences: Vec<String>,
    notes: Vec<String>,
}

/// Compares the tensors of the model with those that a conversion takes of the checkpoint.
fn against(carton: &Carton, args: &cli::Verify) -> Result<Against> {
    let sources = Sources::find(&args.against, args.single)?;
    let containers = sources.open()?;
    let (checkpoint, notes) = sources.read::<sources::Error>(&containers, &|_, _| Ok(()))?;
    let mut notes: Vec<String> = notes.iter().map(ToString::to_string).collect();
    let expected = select(&args.select, &checkpoint).with_context(|| sources.path.display().to_string())?;
    notes.extend(expected.notes);
    let shown = || args.file.display().to_string();
    let model = carton.model(MODEL_PT).with_context(shown)?;
    let found = Checkpoint::read(&model).with_context(|| format!("{}: {MODEL_PT}", shown()))?;
    let mut by_name: HashMap<Cow<'_, str>, &Tensor> = found.tensors().collect();
    let mut views = HashSet::new();
    let mut differences = Vec::new();
    for (name, tensor) in &expected.tensors {
        match by_name.remove(name.as_str()) {
            None => differences.push(format!("tensor `{}` is missing", name.escape_debug())),
            Some(other) => {
                views.insert(view(other));
                let what = difference(tensor, other)?;
                differences.extend(what.map(|what| format!("tensor `{}` {what}", name.escape_debug())));
            }
        }
    }
    // Our modules hold tensors a second time, in lists.
    let more = by_name.into_iter().filter(|(_, tensor)| !views.contains(&view(tensor)));
    let mut more: Vec<Cow<'_, str>> = more.map(|(name, _)| name).collect();
    more.sort_unstable();
    differences
        .extend(more.iter().map(|name| format!("tensor `{}` is not in the checkpoint", name.escape_debug())));
    Ok(Against { compared: expected.tensors.len(), differences, notes })
}

/// What tells two tensors apart; `None` when every bit is equal.
fn difference(expected: &Tensor, found: &Tensor) -> Result<Option<String>> {
    if expected.dtype() != found.dtype() {
        return Ok(Some(format!("has dtype {}, the checkpoint {}", found.dtype(), expected.dtype())));
    }
    if expected.shape() != found.shape() {
        return Ok(Some(format!("has shape {:?}, the checkpoint {:?}", found.shape(), expected.shape())));
    }
    let equal = std::thread::scope(|scope| -> io::Result<bool> {
        let (windows, received) = sync_channel(QUEUE);
        let sent = scope.spawn(move || {
            let mut sender = Send { windows };
            expected.gathered().write_to(&mut sender)
        });
        let mut compare = Compare { received, window: None, taken: 0, equal: true };
        found.gathered().write_to(&mut compare)?;
        let equal = compare.equal;
        drop(compare);
        match sent.join() {
            // Whoever compares stops at the first difference.
            Ok(Err(error)) if equal => Err(error),
            _ => Ok(equal),
        }
    })?;
    Ok((!equal).then(|| "has other elements than in the checkpoint".to_owned()))
}

struct Send {
    windows: std::sync::mpsc::SyncSender<Window>,
}

impl Sink for Send {
    fn write(&mut self, window: Window) -> io::Result<()> {
        self.windows.send(window).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

struct Compare {
    received: Receiver<Window>,
    window: Option<Window>,
    taken: usize,
    equal: bool,
}

impl Sink for Compare {
    fn write(&mut self, window: Window) -> io::Result<()> {
        let mut bytes: &[u8] = &window;
        while !bytes.is_empty() && self.equal {
            if self.window.as_ref().is_none_or(|window| self.taken >= window.len()) {
                self.taken = 0;
                self.window = self.received.recv().ok();
            }
            let other = self.window.as_ref().and_then(|window| window.get(self.taken..)).unwrap_or_default();
            let len = other.len().min(bytes.len());
            let (now, rest) = bytes.split_at(len);
            self.equal = len > 0 && other.get(..len) == Some(now);
            self.taken = self.taken.saturating_add(len);
            bytes = rest;
        }
        Ok(())
    }
}
