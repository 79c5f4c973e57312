//! Verifies an output by its statement: finds the inputs, repeats the conversion, and compares what it makes.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{ErrorKind, Location, Observer, SourceReader, Stores};
use output::{Destination, RECORDS_NAME, Scratch};
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::compare::{Compared, ComparingStore, StatementFinding};
use super::found::{FoundInputs, NamedStore, find_inputs};
use super::request::{FOLDER, Request};
use super::statement::Statement;
use super::write::convert_stated;
use crate::{ConvertOptions, Error, PlannedConversion, Problem, Result};

/// Version of the fields of [`StatementReport`].
const SCHEMA_VERSION: u32 = 1;
/// Path of the outputs of a repeated conversion. Nothing is written there.
const MADE: &str = "s3://repeated";

/// Options for verifying an output by its statement.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StatementOptions {
    /// File with the statement.
    pub statement: Location,
    /// Files with the inputs, and folders with them, under any names.
    pub inputs: Vec<Location>,
    /// The output: a file, or its folder.
    pub output: Location,
    /// True if another version of the program may have made the output.
    pub any_version: bool,
}

impl StatementOptions {
    /// Creates options for the output that `statement` is about, and for the folder that has its inputs.
    pub fn new(
        statement: impl Into<Location>,
        input: impl Into<Location>,
        output: impl Into<Location>,
    ) -> Self {
        Self {
            statement: statement.into(),
            inputs: vec![input.into()],
            output: output.into(),
            any_version: false,
        }
    }
}

/// Result of verifying an output by its statement.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct StatementReport {
    /// Version of the report's fields.
    pub schema_version: u32,
    /// Path of the output, as given.
    pub file: String,
    /// Path of the statement, as given.
    pub statement: String,
    /// Version of the program that made the output.
    pub version: String,
    /// True if there are no findings.
    pub ok: bool,
    /// Number of the inputs that were found.
    pub inputs: usize,
    /// Number of files that were made again and compared.
    pub files: usize,
    /// Length of these files in bytes.
    pub bytes: u64,
    /// Differences, in the order in which they were found.
    pub findings: Vec<StatementFinding>,
}

/// Repeats the conversion of a statement, and compares its output bit by bit while it is made. Nothing is written but temporary
/// copies of documents. A difference is a finding of the report.
///
/// # Errors
/// When the statement cannot be read, an input is missing or cannot be read, another version made the output, or `observer` stops the
/// work.
pub fn verify_statement(options: &StatementOptions, observer: &dyn Observer) -> Result<StatementReport> {
    let statement = Statement::read(&options.statement)?;
    if !(options.any_version || statement.is_of_this_version()) {
        return Err(Problem::StatementVersion { version: statement.version().to_owned() }.into());
    }
    if options.output.stat().map_err(|error| at(&options.output, error.into()))?.is_none() {
        return Err(at(&options.output, std::io::Error::from(std::io::ErrorKind::NotFound).into()));
    }
    let dependencies = &statement.definition().resolved_dependencies;
    let mut found = find_inputs(dependencies, &options.inputs, observer)?;
    found.place_cartons(dependencies, observer)?;
    let FoundInputs { files, changed } = found;
    let mut report = StatementReport {
        schema_version: SCHEMA_VERSION,
        file: options.output.path().display().to_string(),
        statement: options.statement.path().display().to_string(),
        version: statement.version().to_owned(),
        ok: false,
        inputs: files.len(),
        files: 0,
        bytes: 0,
        findings: Vec::new(),
    };
    if !changed.is_empty() {
        report.findings.extend(changed.iter().map(|name| StatementFinding::new(name, "the input changed")));
        return Ok(report);
    }
    match repeat(options, &statement, &files, observer) {
        Err(error) if matches!(error.kind(), ErrorKind::Cancelled | ErrorKind::Io | ErrorKind::Changed) => {
            return Err(error);
        }
        Err(error) if matches!(error.detail(), Some(Problem::Statement { .. })) => {
            return Err(at(&options.statement, error));
        }
        Err(error) => {
            let what = format!("the conversion cannot be repeated: {error}");
            report.findings.push(StatementFinding::new("", what));
        }
        Ok(Compared { findings, made, nbytes }) => {
            (report.files, report.bytes, report.findings) = (made.len(), nbytes, findings);
        }
    }
    report.ok = report.findings.is_empty();
    Ok(report)
}

fn at(file: &Location, error: Error) -> Error {
    error.in_file(file.path())
}

/// Repeats the conversion, and returns what was compared.
fn repeat(
    options: &StatementOptions,
    statement: &Statement,
    files: &BTreeMap<String, Location>,
    observer: &dyn Observer,
) -> Result<Compared> {
    let definition = statement.definition();
    let store = Arc::new(NamedStore::new(files, &definition.internal_parameters.left_out));
    let (conversion, _copies) = {
        let (mut conversion, copies) = request(definition.external_parameters.clone(), files)?;
        let inputs = std::mem::take(&mut conversion.inputs);
        conversion.inputs = inputs.iter().map(|input| store.locate(input.path())).collect();
        let store = store.clone();
        conversion.stores = Stores::with_addresses(move |path| Ok(Some(store.locate(path))));
        (conversion, copies)
    };
    let made = conversion.output.clone().unwrap_or_default();
    let compared = ComparingStore::new(made, options.output.clone());
    let destination = Destination::with_store(Arc::new(compared.clone()));
    let mut planned = PlannedConversion::plan(&ConvertOptions { destination, ..conversion })?;
    planned.is_stated = true;
    if let Some(name) = &definition.internal_parameters.name {
        (planned.name, planned.folder_name) = (name.clone(), name.clone());
    }
    let known: BTreeMap<String, String> = definition
        .resolved_dependencies
        .iter()
        .filter_map(|file| Some((file.name.clone(), file.sha256()?.to_owned())))
        .collect();
    let request = Request::of(&planned)?;
    let (_, mut again) = convert_stated(&planned, request, &known, observer)?;
    // Where the files came from is not what was made of them.
    again.take_addresses(statement);
    let mut compared = compared.take();
    let is_folder = planned.is_folder || planned.options.target.output().is_repository();
    if is_folder {
        let own = planned.own_output();
        let inside = own.strip_prefix(&planned.output).unwrap_or(Path::new(""));
        compared.add_others(&options.output.join(inside), &options.output, &options.statement)?;
    }
    if let Some(place) = statement.first_difference(&again).filter(|_| compared.findings.is_empty()) {
        let what = "the statement differs from that of the repeated conversion";
        compared.findings.push(StatementFinding::new(place, what));
    }
    Ok(compared)
}

impl Compared {
    /// Adds what is in the folder of an output and was not made.
    fn add_others(&mut self, folder: &Location, output: &Location, statement: &Location) -> Result<()> {
        if !folder.is_folder() {
            return Ok(());
        }
        let others = if folder.is_local() {
            self.others_below(folder.path())
        } else {
            let below = folder.files_below();
            below.map(|names| names.iter().map(|name| folder.join(name).path().to_owned()).collect())
        };
        for path in others.map_err(|error| at(folder, error.into()))? {
            let is_statement = folder.is_local()
                && path.is_file()
                && same_file::is_same_file(&path, statement.path()).unwrap_or(false);
            // Where the filesystem has no extended attributes, this file marks the outputs.
            let is_record = output::file_name(&path) == RECORDS_NAME;
            if !(is_statement || is_record || self.made.contains(&path)) {
                let name = path.strip_prefix(output.path()).unwrap_or(&path);
                let name = name.to_string_lossy().replace('\\', "/");
                self.findings.push(StatementFinding::new(name, "is not part of the output"));
            }
        }
        Ok(())
    }

    /// Returns all that is below a folder of this machine, whatever it is and is called, but the folders. A link to a folder is one only
    /// if something was made in it.
    fn others_below(&self, folder: &Path) -> std::io::Result<Vec<PathBuf>> {
        let (mut folders, mut others) = (vec![folder.to_owned()], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in folder.read_dir()? {
                let entry = entry?;
                let path = entry.path();
                let has_made =
                    || self.made.range(path.clone()..).next().is_some_and(|made| made.starts_with(&path));
                let kind = entry.file_type()?;
                if kind.is_dir() || (kind.is_symlink() && path.is_dir() && has_made()) {
                    folders.push(path);
                } else {
                    others.push(path);
                }
            }
        }
        others.sort_unstable();
        Ok(others)
    }
}

/// Creates the options of a request, whose inputs have their names. Files that options name are copied into a temporary folder.
fn request(
    mut parameters: Map<String, Json>,
    files: &BTreeMap<String, Location>,
) -> Result<(ConvertOptions, Scratch)> {
    let refuse = |reason: String| Error::from(Problem::Statement { reason });
    let copies = Scratch::create(&std::env::temp_dir())?;
    let texts = |json: Option<Json>| -> Option<Vec<String>> { serde_json::from_value(json?).ok() };
    let inputs = texts(parameters.remove("inputs")).ok_or_else(|| refuse("it has no inputs".to_owned()))?;
    let output = match parameters.remove("output") {
        Some(Json::String(name)) if is_name(&name) => name,
        _ => return Err(refuse("it has no output".to_owned())),
    };
    for option in ["misc", "config"] {
        let Some(value) = parameters.get_mut(option) else { continue };
        let given = match value.take() {
            Json::Array(names) => names,
            name => vec![name],
        };
        let prefix = format!("@{option}/");
        let folder = copies.path().join(option);
        let mut paths = Vec::with_capacity(given.len());
        for name in &given {
            let name = name.as_str().unwrap_or_default();
            let found = name.strip_prefix(&prefix).filter(|name| is_name(name)).zip(files.get(name));
            let (name, file) =
                found.ok_or_else(|| refuse(format!("it has no input `{}`", name.escape_debug())))?;
            paths.push(copy(file, &folder, name)?.display().to_string());
        }
        *value = if option == "misc" { paths.into() } else { paths.pop().into() };
    }
    let mut options = ConvertOptions::from_json(parameters).map_err(|error| refuse(error.to_string()))?;
    let made = Path::new(MADE);
    options.output =
        Some(if output == FOLDER { PathBuf::from(format!("{MADE}/output/")) } else { made.join(output) });
    options.inputs = inputs.into_iter().map(Location::from).collect();
    (options.dry_run, options.statement) = (false, None);
    Ok((options, copies))
}

/// Returns true for the name of a file or folder that leads nowhere else.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name != ".." && !name.contains(['/', '\\', ':'])
}

fn copy(file: &Location, folder: &Path, name: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    let failed = |error: std::io::Error| Error::from(error).in_file(&path);
    std::fs::create_dir_all(folder).map_err(failed)?;
    let source = file.open().map_err(|error| at(file, error))?;
    let mut copied = File::create(&path).map_err(failed)?;
    std::io::copy(&mut SourceReader::new(&*source, 0..source.len()), &mut copied).map_err(failed)?;
    Ok(path)
}
