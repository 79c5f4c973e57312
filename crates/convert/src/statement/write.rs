//! Writes the statement of a conversion, once its output is complete.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use batch::clean_absolute;
use byte_source::{
    FileError, Location, Observer, Region, Stat, core_share, hex, on_all_cores, set_core_share,
};
use open::{Context, Model, OpenOptions, Selection, digest_tensors};
use output::WrittenFile;

use super::request::{Request, address};
use super::statement::{ResourceDescriptor, Statement};
use crate::{ConvertReport, PlannedConversion, Problem, Result};

/// Converts, and writes the statement to `file`.
///
/// # Errors
/// Those of the conversion, after which there is no new statement; and when the statement cannot be written.
pub(crate) fn convert_with_statement(
    conversion: &PlannedConversion,
    file: &Path,
    observer: &dyn Observer,
) -> Result<ConvertReport> {
    let options = &conversion.options;
    let file = &if output::is_given_as_folder(file) {
        statement_path(&file.join(output::file_name(&conversion.own_output())))
    } else {
        file.to_owned()
    };
    if clean_absolute(file) == clean_absolute(&conversion.output) {
        let (output, input) = (file.clone(), conversion.output.clone());
        return Err(output::Problem::SameFile { output, input }.into());
    }
    let request = Request::of(conversion)?;
    let inputs: Vec<&Path> =
        request.files.values().filter(|file| file.is_local()).map(Location::path).collect();
    options.destination.check_target(file, &inputs, options.if_exists)?;
    let (mut report, statement) = convert_stated(conversion, request, &BTreeMap::new(), observer)?;
    let text = statement.to_text();
    if options.destination.store_of(file)?.is_none() {
        let folder = output::parent_folder(file);
        std::fs::create_dir_all(folder)
            .map_err(|reason| FileError::Create { path: folder.to_owned(), reason })?;
    }
    let mut output = options.destination.create(file, text.len() as u64)?;
    output.write_all(text.as_bytes()).map_err(|reason| FileError::Write { path: file.clone(), reason })?;
    output.commit(options.if_exists)?;
    report.statement = Some(file.display().to_string());
    Ok(report)
}

/// Returns the path of the statement on `output`, next to it.
pub(crate) fn statement_path(output: &Path) -> PathBuf {
    output.with_file_name(output::file_name(output) + ".intoto.json")
}

/// Converts, and returns the statement. The inputs are hashed at the same time, unless their hashes are `known` by their names.
///
/// # Errors
/// Those of the conversion, and when an input cannot be hashed.
pub(super) fn convert_stated(
    conversion: &PlannedConversion,
    request: Request,
    known: &BTreeMap<String, String>,
    observer: &dyn Observer,
) -> Result<(ConvertReport, Statement)> {
    let Request { parameters, internal, files } = request;
    let stop = AtomicBool::new(false);
    let stopping = Stopping { stop: &stop, observer };
    let share = NonZeroUsize::new(core_share()).unwrap_or(NonZeroUsize::MIN);
    let dependencies = Mutex::new(Vec::new());
    let report = std::thread::scope(|scope| {
        let hashing = scope.spawn(|| {
            set_core_share(share);
            hash_inputs(conversion, &files, known, &stopping)
        });
        let hashing = Mutex::new(Some(hashing));
        let is_hashed = || {
            let Some(hashing) = hashing.lock().unwrap_or_else(PoisonError::into_inner).take() else {
                return Ok(());
            };
            let hashed = hashing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            *dependencies.lock().unwrap_or_else(PoisonError::into_inner) = hashed;
            Ok(())
        };
        let report = conversion.convert(&is_hashed, observer);
        stop.store(true, Ordering::Relaxed);
        report
    })?;
    let dependencies = dependencies.into_inner().unwrap_or_else(PoisonError::into_inner);
    let subjects = subjects(conversion, &report.written_files)?;
    let statement = Statement::new(subjects, (parameters, internal), dependencies);
    Ok((report, statement))
}

/// Returns the files of the output, sorted by name.
fn subjects(conversion: &PlannedConversion, written: &[WrittenFile]) -> Result<Vec<ResourceDescriptor>> {
    let subject = |file: &WrittenFile| {
        let name = subject_name(conversion, &file.path);
        let hash = file.sha256.map(|hash| ResourceDescriptor::file(name, None, hex(&hash)));
        hash.ok_or_else(|| {
            crate::Error::from(Problem::Statement { reason: "a file was not hashed".to_owned() })
        })
    };
    let mut subjects = written.iter().map(subject).collect::<Result<Vec<_>>>()?;
    subjects.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(subjects)
}

/// Returns the path of a file in the output, with slashes; the name of an output that is a file.
pub(super) fn subject_name(conversion: &PlannedConversion, path: &Path) -> String {
    let inside = path.strip_prefix(&conversion.output).ok().filter(|inside| *inside != Path::new(""));
    let Some(inside) = inside else { return output::file_name(path) };
    let parts = inside.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
    parts.collect::<Vec<_>>().join("/")
}

/// Hashes the inputs, and computes the digest of the tensors at the same time.
fn hash_inputs(
    conversion: &PlannedConversion,
    files: &BTreeMap<String, Location>,
    known: &BTreeMap<String, String>,
    observer: &dyn Observer,
) -> Result<Vec<ResourceDescriptor>> {
    let share = NonZeroUsize::new(core_share()).unwrap_or(NonZeroUsize::MIN);
    let unknown: Vec<Location> =
        files.iter().filter(|(name, _)| !known.contains_key(*name)).map(|(_, file)| file.clone()).collect();
    let (hashes, digest) = std::thread::scope(|scope| {
        let digest = scope.spawn(|| {
            set_core_share(share);
            tensors_digest(conversion, observer)
        });
        let hashes = hash_files(&unknown, |_| false, observer);
        (hashes, digest.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let mut hashes = hashes?.into_iter().flatten();
    let described = |(name, file): (&String, &Location)| {
        let sha256 = known.get(name).cloned().or_else(|| hashes.next()).unwrap_or_default();
        ResourceDescriptor::file(name.clone(), address(file), sha256)
    };
    let mut described: Vec<_> = files.iter().map(described).collect();
    described.extend(digest?.map(ResourceDescriptor::tensors));
    Ok(described)
}

/// Computes the SHA-256 of files in hexadecimal on all cores, and returns them in their order. `is_last` is called with each, and
/// once it returns true, no other file is started.
///
/// # Errors
/// When a file cannot be read, or `observer` stops the work.
pub(super) fn hash_files(
    files: &[Location],
    is_last: impl Fn(&str) -> bool + Sync,
    observer: &dyn Observer,
) -> Result<Vec<Option<String>>> {
    // A large file that is started last would keep one core busy alone.
    let len = |file: &Location| match file.is_local().then(|| file.stat()) {
        Some(Ok(Some(Stat::File(file)))) => file.len,
        _ => None,
    };
    let mut order: Vec<(usize, &Location)> = files.iter().enumerate().collect();
    order.sort_by_cached_key(|(_, file)| Reverse(len(file)));
    let (has_ended, hashes) = (AtomicBool::new(false), Mutex::new(vec![None; files.len()]));
    on_all_cores(
        order.len() as u64,
        || (),
        |(), number| -> Result<()> {
            let next = usize::try_from(number).ok().and_then(|number| order.get(number));
            let Some((position, file)) = next.filter(|_| !has_ended.load(Ordering::Relaxed)) else {
                return Ok(());
            };
            let sha256 = hash(file, observer)?;
            has_ended.fetch_or(is_last(&sha256), Ordering::Relaxed);
            if let Some(hash) = hashes.lock().unwrap_or_else(PoisonError::into_inner).get_mut(*position) {
                *hash = Some(sha256);
            }
            Ok(())
        },
    )?;
    Ok(hashes.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Computes the SHA-256 of a file in hexadecimal.
///
/// # Errors
/// When it cannot be read, or `observer` stops the work.
pub(super) fn hash(file: &Location, observer: &dyn Observer) -> Result<String> {
    let hashed = file.open().and_then(|source| byte_source::sha256(&Region::whole(&source), observer));
    Ok(hex(&hashed.map_err(|error| error.in_file(file.path()))?))
}

/// Computes the digest of the input's tensors, if it has one.
fn tensors_digest(conversion: &PlannedConversion, observer: &dyn Observer) -> Result<Option<String>> {
    let options = &conversion.options;
    let mut open = OpenOptions::reading(options.inputs.clone(), options.shards());
    open.globals = options.globals();
    let digest = Model::open(&open, observer).and_then(|mut model| {
        model.apply(&[Box::new(Selection::default())], &Context::new(observer))?;
        digest_tensors(model.tensors(), &conversion.name, model.allowed_nbytes(), observer)
    });
    match digest {
        Err(error) if error.is_cancelled() => Err(error),
        digest => Ok(digest.ok().map(|digest| digest.sha256)),
    }
}

/// Observer of work that another thread can stop. It reports no progress.
struct Stopping<'o> {
    stop: &'o AtomicBool,
    observer: &'o dyn Observer,
}

impl Observer for Stopping<'_> {
    fn is_cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.observer.is_cancelled()
    }
}
