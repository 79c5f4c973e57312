//! The request of a conversion, with names in place of paths, and the files that it reads.
//!
//! The input's files have their paths relative to the folder of the input. Those of another input begin with `@` and what it is,
//! such as `@merge-1/adapter_config.json`; a name of the input's that begins with `@` has `./` before it.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use batch::clean_absolute;
use byte_source::Location;
use carton_format::Carton;
use open::files::{CheckpointSources, is_companion_name};
use open::{ADAPTER_CONFIG, CheckpointSum, changed_options, tensor_file};
use output::{RemoteAddress, file_name};
use quantization::QUANTIZATION_DOCUMENTS;
use serde_json::{Map, Value as Json, json};

use super::statement::InternalParameters;
use crate::{ConvertOptions, PlannedConversion, Result};

/// Documents that are read and not copied.
const READ_DOCUMENTS: [&str; 3] = ["params.json", "config.json", ADAPTER_CONFIG];
/// Options on which the bytes of an output do not depend, and those that the statement has in another form.
const OTHER_OPTIONS: [&str; 7] = ["output", "no_clobber", "force", "dry_run", "no_sync", "statement", "to"];
/// Name of a folder as an input or an output.
pub(super) const FOLDER: &str = ".";

/// Request of a conversion.
pub(super) struct Request {
    pub(super) parameters: Map<String, Json>,
    pub(super) internal: InternalParameters,
    /// Files that the conversion reads, by their names in the statement.
    pub(super) files: BTreeMap<String, Location>,
}

impl Request {
    /// # Errors
    /// When an input cannot be found or listed.
    pub(super) fn of(conversion: &PlannedConversion) -> Result<Self> {
        let options = &conversion.options;
        let format = options.target.output();
        let mut named = options.clone();
        let mut files = BTreeMap::new();
        let (inputs, left_out) = add_checkpoint(conversion, &mut files)?;
        for (number, adapter) in (1..).zip(&mut named.adapters) {
            let given = options.locate(&adapter.path)?;
            let group = InputGroup::of(format!("@merge-{number}/"), std::slice::from_ref(&given));
            let tensors = tensor_file(&given)?;
            let config = tensors.at(tensors.path().with_file_name(ADAPTER_CONFIG));
            group.add(&mut files, [tensors, config])?;
            adapter.path = group.name(&given).into();
        }
        let sum = &mut named.sum;
        let added = sum.add.iter_mut().map(|file| &mut file.path).zip(1..);
        let added = added.map(|(path, number)| (format!("@add-{number}/"), path));
        let averaged = sum.average.iter_mut().zip(1..);
        let averaged = averaged.map(|(path, number)| (format!("@average-{number}/"), path));
        let completed = named.complete_from.iter_mut().map(|path| ("@complete-from/".to_owned(), path));
        for (prefix, path) in added.chain(averaged).chain(completed) {
            let given = options.locate(path)?;
            let group = InputGroup::of(prefix, std::slice::from_ref(&given));
            let sources = CheckpointSum::find(&options.context(&()).open_options(path)?)?;
            group.add(&mut files, sources.locations())?;
            if !Carton::is_at(&given) {
                group.add(&mut files, documents(&sources, &[]))?;
            }
            *path = group.name(&given).into();
        }
        let mut parameters = Map::new();
        parameters.insert("inputs".to_owned(), inputs.into());
        let is_folder = conversion.is_folder || format.is_repository();
        let output = if is_folder { FOLDER.to_owned() } else { file_name(&conversion.output) };
        parameters.insert("output".to_owned(), output.into());
        parameters.insert("to".to_owned(), options.target.format().name().into());
        let default =
            ConvertOptions { target: options.target.format().target(), ..ConvertOptions::default() };
        let mut changed = changed_options(&named, &default);
        changed.retain(|name, _| !OTHER_OPTIONS.contains(&name.as_str()));
        for (option, given) in [("misc", format.misc()), ("config", format.read_files())] {
            let Some(value) = changed.get_mut(option).filter(|_| !given.is_empty()) else { continue };
            let name = |path: &PathBuf| format!("@{option}/{}", file_name(path));
            files.extend(given.iter().map(|path| (name(path), Location::from(path))));
            let all: Vec<String> = given.iter().map(name).collect();
            *value = if value.is_array() { json!(all) } else { json!(all.first()) };
        }
        changed.sort_keys();
        parameters.extend(changed);
        let name = if format.is_for_llama_cpp() {
            Some(conversion.folder_name.clone())
        } else {
            format.module_options().map(|_| conversion.name.clone())
        };
        Ok(Self { parameters, internal: InternalParameters { name, left_out }, files })
    }
}

/// Adds the files of the checkpoint that is converted, and the documents next to it. Returns the names of the inputs, and of the
/// documents that outputs do not have, such as links out of the folder.
fn add_checkpoint(
    conversion: &PlannedConversion,
    files: &mut BTreeMap<String, Location>,
) -> Result<(Vec<String>, Vec<String>)> {
    let PlannedConversion { options, sources, .. } = conversion;
    let group = InputGroup::of(String::new(), &options.inputs);
    group.add(files, sources.locations())?;
    let mut left_out = Vec::new();
    if conversion.carton.is_none() {
        group.add(files, documents(sources, &[]))?;
        let companions = sources.companion_locations()?;
        let is_left_out = |file: &Location| {
            is_companion_name(&file_name(file.path()))
                && !companions.iter().any(|companion| companion.path() == file.path())
        };
        let read = documents(sources, &[]).filter(|file| file.is_file() && is_left_out(file));
        left_out.extend(read.map(|file| group.name(&file)));
        group.add(files, companions)?;
        let is_for_llama_cpp = options.target.output().is_for_llama_cpp();
        group.add(files, documents(sources, if is_for_llama_cpp { &["README.md"] } else { &[] }))?;
        let templates = sources.document("additional_chat_templates");
        group.add(files, Some(templates).filter(|folder| is_for_llama_cpp && folder.is_folder()))?;
    }
    Ok((options.inputs.iter().map(|input| group.name(input)).collect(), left_out))
}

/// Returns the documents next to a checkpoint that are read whatever the output is, and those of the given names.
fn documents<'s>(sources: &'s CheckpointSources, others: &'s [&str]) -> impl Iterator<Item = Location> {
    let names = READ_DOCUMENTS.iter().chain(QUANTIZATION_DOCUMENTS).chain(others);
    names.map(|name| sources.document(name))
}

/// Files of one input.
struct InputGroup {
    prefix: String,
    /// Folder to which the names are relative.
    base: PathBuf,
}

impl InputGroup {
    /// Creates the group of a folder, or of files, whose names are relative to the folder that they have in common.
    fn of(prefix: String, inputs: &[Location]) -> Self {
        let folder = |input: &Location| {
            let path = clean(input);
            if input.is_folder() { path } else { output::parent_folder(&path).to_owned() }
        };
        let base = inputs.iter().map(folder).reduce(|all, folder| {
            let common = all.components().zip(folder.components()).take_while(|(one, other)| one == other);
            common.map(|(part, _)| part).collect()
        });
        Self { prefix, base: base.unwrap_or_default() }
    }

    /// Adds the files, and all files below the folders. A file that does not exist is left out: what needs it says so.
    fn add(
        &self,
        files: &mut BTreeMap<String, Location>,
        added: impl IntoIterator<Item = Location>,
    ) -> Result<()> {
        for file in added {
            if file.is_folder() {
                let below =
                    file.files_below().map_err(|error| crate::Error::from(error).in_file(file.path()))?;
                let below = below.into_iter().map(|name| file.join(name));
                files.extend(below.map(|file| (self.name(&file), file)));
            } else if file.stat().is_ok_and(|found| found.is_some()) {
                files.insert(self.name(&file), file);
            }
        }
        Ok(())
    }

    fn name(&self, file: &Location) -> String {
        let path = clean(file);
        let common = self.base.components().zip(path.components()).take_while(|(one, other)| one == other);
        let common = common.count();
        let up = self.base.components().skip(common).map(|_| "..".to_owned());
        let down = path.components().skip(common).map(|part| part.as_os_str().to_string_lossy().into_owned());
        let parts: Vec<String> = up.chain(down).collect();
        match parts.join("/") {
            name if self.prefix.is_empty() && name.starts_with('@') => format!("./{name}"),
            name if !name.is_empty() => format!("{}{name}", self.prefix),
            _ if self.prefix.is_empty() => FOLDER.to_owned(),
            _ => self.prefix.trim_end_matches('/').to_owned(),
        }
    }
}

fn clean(file: &Location) -> PathBuf {
    match address(file) {
        Some(address) => without_dots(Path::new(&address)),
        None if file.is_local() => clean_absolute(file.path()),
        None => without_dots(file.path()),
    }
}

/// Resolves the names `.` and `..` in a path without looking at files.
pub(super) fn without_dots(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(clean.pop()),
            part => clean.push(part),
        }
    }
    clean
}

/// Returns the address of a file without user, password and query; `None` for a file of this machine.
pub(super) fn address(file: &Location) -> Option<String> {
    let address = RemoteAddress::from_path(&output::shown_path(file.path()));
    address.filter(|_| !file.is_local()).map(|address| address.to_string())
}
