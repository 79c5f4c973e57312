//! A carton as an input, with its model and its documents.

pub(crate) mod checkpoint;
pub(crate) mod own_tensors;

use std::fs::File;
use std::path::PathBuf;

use byte_source::{Location, Observer, ProgressReporter};
use carton_format::{Carton, MODEL_PT};
use output::Scratch;
use torch_import::{Checkpoint, Container};

use crate::files::{CheckpointSources, Companion};
use crate::values::VALUES_PATH;
use crate::{Error, OpenOptions, Result, in_carton};

/// Folder of the documents in a carton.
const MISC_FOLDER: &str = "misc";
/// Opens the converted checkpoint in a carton. A compressed one is decompressed into a temporary file first, which takes
/// long.
///
/// # Errors
/// When the checkpoint is not in the carton, is damaged, or holds no tensors; and when `observer` stops the work.
pub fn open_model(carton: &Carton, observer: &dyn Observer) -> Result<Container> {
    let source = carton.source(MODEL_PT, observer).map_err(|error| error.in_file(carton.path()))?;
    Container::from_source(source).map_err(|error| in_model(carton, error))
}

/// Reads the tensors of the checkpoint in a carton, which [`open_model`] opened.
///
/// # Errors
/// When it is damaged or holds no tensors.
pub fn read_model(carton: &Carton, model: &Container) -> Result<Checkpoint> {
    Checkpoint::read(model).map_err(|error| in_model(carton, error))
}

fn in_model(carton: &Carton, error: Error) -> Error {
    error.in_record(MODEL_PT).in_file(carton.path())
}

/// A carton as an input, with the documents in its `misc/`.
#[derive(Debug)]
#[non_exhaustive]
pub struct CartonInput {
    pub carton: Carton,
    location: Location,
    /// Copies of the documents of a packed carton, if they were asked for.
    copied: Option<Scratch>,
}

impl CartonInput {
    /// Opens the input if it is a carton. With `has_documents`, its documents can be read.
    ///
    /// # Errors
    /// When the input is a carton that cannot be read.
    pub fn find(options: &OpenOptions, has_documents: bool) -> Result<Option<Self>> {
        let [location] = options.inputs.as_slice() else { return Ok(None) };
        let carton = Carton::find(location).map_err(in_carton(location.path()))?;
        let Some(carton) = carton else { return Ok(None) };
        let copied = (has_documents && carton.is_packed()).then(|| copy_documents(&carton)).transpose()?;
        Ok(Some(Self { carton, location: location.clone(), copied }))
    }

    /// Returns the folder with the documents, which need not exist.
    fn folder(&self) -> PathBuf {
        match &self.copied {
            Some(copied) => copied.path().to_owned(),
            None => self.carton.path().join(MISC_FOLDER),
        }
    }

    /// Returns the carton as a checkpoint of one file, next to which its documents are.
    pub fn sources(&self) -> CheckpointSources {
        let documents = self.folder().join(output::file_name(self.carton.path()));
        CheckpointSources::with_documents_next_to(&self.location, &documents.into())
    }

    /// Returns the documents, without links and without the values of the checkpoint, which outputs have in their own form.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn documents(&self) -> Result<Vec<Companion>> {
        let folder = self.folder();
        if !folder.is_dir() {
            return Ok(Vec::new());
        }
        let io = |error: std::io::Error| Error::from(error).in_file(&folder);
        let mut documents = Vec::new();
        for entry in folder.read_dir().map_err(io)? {
            let entry = entry.map_err(io)?;
            let is_file = entry.file_type().map_err(io)?.is_file();
            let Ok(name) = entry.file_name().into_string() else { continue };
            if is_file && !VALUES_PATH.ends_with(&format!("/{name}")) {
                documents.push((name, entry.path()));
            }
        }
        documents.sort();
        Ok(documents)
    }
}

/// Copies the files directly in `misc/` into a temporary folder.
fn copy_documents(carton: &Carton) -> Result<Scratch> {
    let copied = Scratch::create(&std::env::temp_dir())?;
    for entry in carton.entries().filter(|entry| !entry.is_symbolic_link) {
        let name = entry.path.strip_prefix(MISC_FOLDER).and_then(|rest| rest.strip_prefix('/'));
        let Some(name) = name.filter(|name| !name.contains('/') && entry.path != VALUES_PATH) else {
            continue;
        };
        let path = copied.path().join(name);
        output::check_system_name(&path)?;
        let mut file = File::create(&path).map_err(|error| Error::from(error).in_file(&path))?;
        let copy = carton.copy(&entry.path, &mut file, ProgressReporter::unobserved());
        copy.map_err(|error| error.in_file(carton.path()))?;
    }
    Ok(copied)
}
