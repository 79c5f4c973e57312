//! `torch2carton serve`: answers inference requests for cartons over HTTP.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use pipeline::Observer;
use runtime::{OpenOptions, Runnable};
use serve::{LoadError, Model, ModelSource, RepositoryFolder, ServeLimits, ServeOptions, Server, Timeouts};

use crate::cli::args::Serve;
use crate::cli::ui::invocation::UsageError;
use crate::cli::ui::log::Log;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::signals;

/// File extension of the models in a repository.
const MODEL_EXTENSION: &str = "carton";

pub(crate) fn serve(args: &Serve, quiet: bool) -> Result<ExitCode> {
    signals::raise_file_limit();
    let options = options(args);
    let mut open = OpenOptions::default();
    open.threads = args.threads.map(usize::from);
    open.verify = args.verify;
    let (log, observer) = Log::new(args.log_format, quiet)?;
    let models = open_models(args, open, options.limits.memory, quiet)?;
    let server = Server::new(&options, models, Arc::new(observer))?;
    let (handle, ended_by) = (server.handle(), Arc::new(AtomicI32::new(0)));
    let signal = ended_by.clone();
    signals::on_first_signal(move |number| {
        signal.store(number, Ordering::Relaxed);
        handle.shut_down();
    })?;
    let mut out = io::stdout().lock();
    writeln!(out, "http://{}", server.address())?;
    out.flush()?;
    drop(out);
    let report = server.run();
    log.finish();
    if report.unfinished == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let signal = u8::try_from(ended_by.load(Ordering::Relaxed)).unwrap_or(0);
    Ok(ExitCode::from(signal + 128))
}

fn options(args: &Serve) -> ServeOptions {
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    ServeOptions {
        host: args.host.clone(),
        port: args.port,
        name: env!("CARGO_PKG_NAME").to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        limits: ServeLimits {
            body: bytes(args.max_body),
            json: bytes(args.max_body),
            memory: bytes(args.max_memory),
            queue: usize::from(args.queue),
            connections: usize::try_from(args.max_connections).unwrap_or(usize::MAX),
            ..ServeLimits::default()
        },
        timeouts: Timeouts {
            head: Duration::from_secs(args.timeout),
            transfer: Duration::from_secs(args.timeout),
            idle: Duration::from_secs(args.idle_timeout),
            drain: Duration::from_secs(args.drain_timeout),
            ..Timeouts::default()
        },
    }
}

fn open_models(args: &Serve, open: OpenOptions, memory: usize, quiet: bool) -> Result<ModelSource> {
    if let Some(folder) = &args.repository {
        let folder = RepositoryFolder { path: folder.clone(), extension: MODEL_EXTENSION.to_owned() };
        let load = move |path: &Path| -> Result<Arc<dyn Model>, LoadError> {
            Ok(open_carton_model(path, &open, memory, &())?)
        };
        return Ok(ModelSource::Folder { folder, load: Box::new(load) });
    }
    if args.name.is_some() && args.cartons.len() > 1 {
        bail!(UsageError("--name is for one carton; several have the names of their files".to_owned()));
    }
    let progress = Progress::new(quiet);
    let mut models = Vec::with_capacity(args.cartons.len());
    for path in &args.cartons {
        let name = args.name.clone().unwrap_or_else(|| model_name_of_path(path));
        models.push((name, open_carton_model(path, &open, memory, &progress)?));
    }
    progress.clear();
    Ok(ModelSource::Fixed(models))
}

fn open_carton_model(
    path: &Path,
    open: &OpenOptions,
    memory: usize,
    observer: &dyn Observer,
) -> Result<Arc<dyn Model>, runtime::Error> {
    serve::carton(Runnable::open(path, open, observer)?, memory)
}

/// Returns the name of a file without its extension, or the whole name of a folder.
fn model_name_of_path(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = if whole.is_dir() { path.file_name().or(whole.file_name()) } else { path.file_stem() };
    name.unwrap_or_default().to_string_lossy().into_owned()
}
