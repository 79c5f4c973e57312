//! `torch2carton serve`: answers inference requests for cartons over HTTP.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context, Result, bail};
use byte_source::{Error, FileError, Location, Observer, Stores};
use carton_format::Carton;
use runtime::RunnableOptions;
use serve::{
    ApiKeys, InferModel, LoadError, ModelSource, ModelVersion, RepositoryFolder, RequestLimits, ServeLimits,
    ServeOptions, Server, Timeouts,
};

use super::run::open_runnable;
use crate::cli::args::{Serve, into_io_error};
use crate::cli::ui::errors::error_chain_text;
use crate::cli::ui::invocation::UsageError;
use crate::cli::ui::log::Log;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::shell::shell_quoted_path;
use crate::cli::ui::{signals, stdin};

/// File extension of the models in a repository.
const MODEL_EXTENSION: &str = "carton";

/// Variable of the environment with a key.
const API_KEY: &str = "TORCH2CARTON_API_KEY";

/// Most bytes of a file with keys that are read.
const KEYS_MAX: u64 = 1 << 20;

pub(crate) fn serve(args: &Serve, quiet: bool) -> Result<ExitCode> {
    args.cartons.iter().try_for_each(|carton| stdin::reject(carton, "serve"))?;
    signals::raise_file_limit();
    let options = options(args)?;
    let (log, observer) = Log::new(args.log_format, quiet)?;
    let request = RequestLimits {
        memory: options.limits.memory,
        tokens: args.max_tokens,
        positions: args.max_positions,
    };
    let progress = Arc::new(Progress::new(quiet));
    let models = match &args.repository {
        Some(folder) => open_repository(args, folder, args.open, request, &progress),
        None => open_models(args, &args.open, &request, &log, &progress)?,
    };
    let server = Server::new(&options, models, Arc::new(observer))?;
    drop(progress);
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
    warn_about_start(&log, server.address(), !options.api_keys.is_empty(), quiet);
    let report = server.run();
    log.finish();
    if report.unfinished == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let signal = u8::try_from(ended_by.load(Ordering::Relaxed)).unwrap_or(0);
    Ok(ExitCode::from(signal + 128))
}

/// Logs what may surprise the person who started the server: who can reach it, and that Ctrl-C does not end it.
fn warn_about_start(log: &Log, address: SocketAddr, has_keys: bool, quiet: bool) {
    if !address.ip().to_canonical().is_loopback() {
        let (lacks, keys) = if has_keys {
            ("has no TLS", "")
        } else {
            ("has no TLS and asks for no key", "give it keys with --api-key-file, ")
        };
        log.warn(format!(
            "other machines can reach {address}: the server {lacks}, so {keys}put a proxy in front of it, or leave out --host"
        ));
    }
    if !quiet && signals::ignores_ctrl_c() {
        let pid = std::process::id();
        log.warn(format!(
            "SIGINT is ignored, as in a script's command that ends with &: `kill {pid}`, which sends SIGTERM, ends the server"
        ));
    }
}

fn options(args: &Serve) -> Result<ServeOptions> {
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    Ok(ServeOptions {
        host: args.host.clone(),
        port: args.port,
        allowed_hosts: args.allow_host.clone(),
        api_keys: api_keys(args)?,
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
            compute: Duration::from_secs(args.compute_timeout),
            ..Timeouts::default()
        },
    })
}

/// Returns the keys of the arguments, of the environment and of the file. No error shows a key.
fn api_keys(args: &Serve) -> Result<ApiKeys> {
    let mut keys = args.api_key.clone();
    if let Some(key) = env::var_os(API_KEY) {
        keys.push(key.to_string_lossy().into_owned());
    }
    if let Some(path) = &args.api_key_file {
        let shown = path.display();
        let mut text = String::new();
        fs::File::open(path)
            .and_then(|file| file.take(KEYS_MAX).read_to_string(&mut text))
            .map_err(|reason| Error::from(FileError::Read { path: path.clone(), reason }))?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let before = keys.len();
        keys.extend(lines.map(str::to_owned));
        if keys.len() == before {
            bail!("{shown} has no key: expected one on each line");
        }
    }
    Ok(ApiKeys::new(keys.iter().map(String::as_str))?)
}

/// Returns the repository in a folder or at an address, whose models are loaded when the server starts, with `progress`, and when a
/// client wants it, without.
fn open_repository(
    args: &Serve,
    folder: &Path,
    open: RunnableOptions,
    limits: RequestLimits,
    progress: &Arc<Progress>,
) -> ModelSource {
    let (remote, address) = (args.remote(), folder.to_owned());
    let stores = Stores::with_addresses(move |_| {
        let found = remote.locate(&address).map_err(into_io_error)?;
        if !found.is_local() && !found.is_folder() {
            return Err(io::Error::other("it is a file, or on a web server, which has no listings; without --repository, a carton there is served").into());
        }
        Ok(Some(found))
    });
    let folder =
        RepositoryFolder { path: output::shown_path(folder), extension: MODEL_EXTENSION.to_owned(), stores };
    let progress = Arc::downgrade(progress);
    let load = move |found: &ModelVersion| -> Result<Arc<dyn InferModel>, LoadError> {
        match progress.upgrade() {
            Some(progress) => Ok(load_carton(&found.location, &open, &limits, &*progress)?),
            None => Ok(load_carton(&found.location, &open, &limits, &())?),
        }
    };
    ModelSource::Folder { folder, load: Box::new(load) }
}

fn open_models(
    args: &Serve,
    open: &RunnableOptions,
    limits: &RequestLimits,
    log: &Log,
    progress: &Progress,
) -> Result<ModelSource> {
    let remote = args.remote();
    let mut cartons = Vec::new();
    for given in &args.cartons {
        let located = remote.locate(given)?;
        if located.is_local() {
            cartons.extend(models_at(given)?.into_iter().map(|path| {
                let is_found = path != *given;
                GivenCarton { input: path.into(), is_found }
            }));
        } else {
            cartons.extend(models_at_address(located)?);
        }
    }
    if args.name.is_some() && cartons.len() > 1 {
        bail!(UsageError("--name is for one carton; several have the names of their files".to_owned()));
    }
    carton_tools::check_copy_space(cartons.iter().map(|carton| &carton.input))?;
    let mut models = Vec::with_capacity(cartons.len());
    let mut skipped = Vec::new();
    for carton in &cartons {
        let name = args.name.clone().unwrap_or_else(|| model_name_of_path(carton.input.path()));
        match load_carton(&carton.input, open, limits, progress) {
            Ok(model) => models.push((name, model)),
            Err(error) if carton.is_found && needs_another_runner(&error) => {
                skipped.push(anyhow::Error::from(error));
            }
            Err(error) => return Err(error.into()),
        }
    }
    progress.clear();
    match skipped.pop() {
        Some(error) if models.is_empty() => return Err(error),
        last => skipped.extend(last),
    }
    for error in skipped {
        log.warn(format!("not served: {}", error_chain_text(&error)));
    }
    Ok(ModelSource::Fixed(models))
}

struct GivenCarton {
    input: Location,
    /// True if it was found in a folder that was given.
    is_found: bool,
}

/// Returns the cartons that an address stands for: those directly in a folder, or the one at the address.
fn models_at_address(address: Location) -> Result<Vec<GivenCarton>> {
    if !address.is_folder() {
        return Ok(vec![GivenCarton { input: address, is_found: false }]);
    }
    let cartons = carton_tools::open_packed_in(&address)?;
    if cartons.is_empty() {
        bail!(
            "there are no packed cartons at {}; `torch2carton MODEL -o NAME.carton` makes one",
            shell_quoted_path(address.path())
        );
    }
    Ok(cartons.into_iter().map(|input| GivenCarton { input, is_found: true }).collect())
}

/// Returns true for a carton that is in order and runs elsewhere, such as a TorchScript module.
fn needs_another_runner(error: &byte_source::Error) -> bool {
    matches!(error.detail(), Some(runtime::Problem::ForeignCode { .. } | runtime::Problem::Runner { .. }))
}

/// Returns the models that a path stands for: the cartons in a folder, or the path itself.
fn models_at(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() || Carton::is_at(&path.into()) {
        return Ok(vec![path.to_owned()]);
    }
    let cartons = cartons_in(path).with_context(|| format!("cannot list {}", path.display()))?;
    if !cartons.is_empty() {
        return Ok(cartons);
    }
    let folders = fs::read_dir(path)?.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    let has_versions = |folder: PathBuf| cartons_in(&folder).is_ok_and(|cartons| !cartons.is_empty());
    if folders.into_iter().any(has_versions) {
        let path = shell_quoted_path(path);
        bail!(
            "{path} has its cartons in folders; `torch2carton serve --repository {path}` serves NAME/VERSION.carton"
        );
    }
    let is_no_carton =
        |error: byte_source::Error| matches!(error.detail(), Some(carton_tools::Problem::NotACarton { .. }));
    if carton_tools::open(&path.into()).is_err_and(is_no_carton) {
        let path = shell_quoted_path(path);
        bail!(
            "there are no cartons in the folder {path}; `torch2carton MODEL -o {path}/NAME.carton` puts one there"
        );
    }
    // The error of opening it says what the folder is.
    Ok(vec![path.to_owned()])
}

/// Returns the cartons that are directly in a folder, packed or not, sorted.
fn cartons_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut cartons = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_named = path.extension().is_some_and(|extension| extension == MODEL_EXTENSION);
        if is_named || path.is_dir() && Carton::is_at(&path.as_path().into()) {
            cartons.push(path);
        }
    }
    cartons.sort();
    Ok(cartons)
}

/// Opens a carton as a model, of one at an address a copy; or the decoder of a checkpoint in place.
fn load_carton(
    input: &Location,
    open: &RunnableOptions,
    limits: &RequestLimits,
    observer: &dyn Observer,
) -> Result<Arc<dyn InferModel>, byte_source::Error> {
    serve::carton_model(open_runnable(input, open, observer)?, limits)
}

/// Returns the name of a file without its extension, or the whole name of a folder.
fn model_name_of_path(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = if whole.is_dir() { path.file_name().or(whole.file_name()) } else { path.file_stem() };
    name.unwrap_or_default().to_string_lossy().into_owned()
}
