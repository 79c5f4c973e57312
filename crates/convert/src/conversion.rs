//! Planning of a conversion: finds the input files, and names the output.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::Location;
use families::TextPart;
use open::files::CheckpointSources;
use open::{
    ADAPTER_CONFIG, CartonInput, CheckpointSum, check_renames, find_sources, take_documents, take_part,
    tensor_file,
};
use output::{IfExists, file_name, is_given_as_folder};
use quantization::QuantizationDocuments;
use safetensors_format::ModelLibrary;
use serde_json::Value as Json;

use crate::input::misc;
use crate::output_path::OutputNaming;
use crate::{ConvertOptions, InvalidOption, Result, Target, output_path};

/// A conversion that is ready to run: its files are found, but not opened.
#[derive(Debug)]
pub struct PlannedConversion {
    pub(crate) options: ConvertOptions,
    pub(crate) sources: Arc<CheckpointSources>,
    /// The input, if it is a carton.
    pub(crate) carton: Option<Arc<CartonInput>>,
    /// Name of the model in the output.
    pub(crate) name: String,
    /// Name of the folder of the model, which a GGUF file is named after.
    pub(crate) folder_name: String,
    pub(crate) output: PathBuf,
    /// True if the output is a folder for the files of a model.
    pub(crate) is_folder: bool,
    /// True if the report has a checksum of each file of the output. A batch records them.
    pub(crate) checksums: bool,
    /// True if the report has the SHA-256 of each file of the output, for a statement.
    pub(crate) is_stated: bool,
    /// The part of the model that is taken. The documents of `sources` describe it.
    pub(crate) part: Option<TextPart>,
    /// Documents that describe the quantization of the weights, if it is undone. The documents of `sources` describe the
    /// result.
    pub(crate) quantization: Option<QuantizationDocuments>,
    /// Files of the adapters that are merged, and of the checkpoints that are summed or complete the model.
    pub(crate) other_inputs: Vec<Location>,
}

impl PlannedConversion {
    /// Finds the files of the inputs, and names the output. The default output is next to the checkpoint and has its name;
    /// if the input is a folder, the output is next to the folder.
    ///
    /// # Errors
    /// When the inputs are not one checkpoint, or an option has a value that it cannot have.
    pub fn plan(options: &ConvertOptions) -> Result<Self> {
        Self::new(options.clone(), None, OutputNaming::Stem)
    }

    /// Plans a conversion with an output in `folder`, which the caller creates before the conversion runs.
    ///
    /// # Errors
    /// Those of [`plan`](Self::plan).
    pub fn plan_in(folder: &Path, options: ConvertOptions) -> Result<Self> {
        Self::new(options, Some(folder), OutputNaming::Stem)
    }

    /// Plans a conversion whose default output has a name of this form, in `folder` if there is one.
    ///
    /// # Errors
    /// Those of [`plan`](Self::plan).
    pub(crate) fn new(
        mut options: ConvertOptions,
        folder: Option<&Path>,
        naming: OutputNaming,
    ) -> Result<Self> {
        check_options(&options)?;
        if options.no_sync {
            options.destination = options.destination.without_sync();
        }
        let format = options.target.output();
        let open = options.open_options();
        let carton = CartonInput::find(&open, open.documents)?.map(Arc::new);
        let mut sources = match &carton {
            Some(carton) => carton.sources(),
            None => find_sources(&open)?,
        };
        misc::take_documents(format.misc(), &mut sources)?;
        let part = options.part.map(|_| take_part(&mut sources)).transpose()?;
        let quantization = options.dequantize.then(|| take_documents(&mut sources)).transpose()?;
        let name = output_path::model_name(&options, &sources);
        let folder_name = match &carton {
            Some(_) => String::new(),
            None => sources.location().parent().folder_name(),
        };
        let folder_name = if folder_name.is_empty() { name.clone() } else { folder_name };
        let has_documents = sources.folder().is_some() && has_documents(&sources, carton.as_deref())?;
        // A name without an extension is as likely meant for a folder as for a file.
        if let (None, Some(output)) = (folder, &options.output)
            && options.target.is_assumed()
            && !is_given_as_folder(output)
            && has_documents
        {
            return Err(InvalidOption::NoKind { path: output.clone() }.into());
        }
        let has_folder = format.is_folder(None, has_documents);
        let default = || output_path::default_output_path(&options, &sources, has_folder, naming);
        let output = match (folder, &options.output) {
            (Some(folder), _) if format.is_repository() => folder.to_owned(),
            (Some(folder), _) => folder.join(file_name(&default())),
            // Of a format that is a file, an existing folder gets the file with its default name.
            (None, Some(output))
                if is_given_as_folder(output) && !format.is_folder(Some(output), has_documents) =>
            {
                output.join(file_name(&default()))
            }
            (None, Some(output)) => output.clone(),
            (None, None) => default(),
        };
        let is_given = folder.is_some() || options.output.is_some();
        if !is_given && options.if_exists == IfExists::ReplaceOwn {
            let origin = output::noted_origin(&output).filter(|origin| *origin != file_name(&sources.path));
            if let Some(input) = origin {
                return Err(output::Problem::OfAnotherInput { path: output, input }.into());
            }
        }
        let given = Some(&output).filter(|_| is_given).map(PathBuf::as_path);
        let is_folder = match folder {
            // In the folder of a batch, an output has the same form as without the folder.
            Some(_) => has_folder,
            None => format.is_folder(given, has_documents),
        };
        let other_inputs = other_inputs(&options, &sources)?;
        let sources = Arc::new(sources);
        Ok(Self {
            sources,
            carton,
            name,
            folder_name,
            output,
            is_folder,
            checksums: false,
            is_stated: options.statement.is_some(),
            part,
            quantization,
            other_inputs,
            options,
        })
    }

    /// Returns the output file or folder of the conversion.
    pub fn output(&self) -> &Path {
        &self.output
    }

    /// Returns the library that loads the model, by its configuration.
    pub(crate) fn library(&self) -> Result<ModelLibrary> {
        let config = self.sources.documents.config()?.and_then(|text| serde_json::from_str(text).ok());
        let config: Json = config.unwrap_or_default();
        let is_of_diffusers = config.get("_class_name").is_some() && config.get("model_type").is_none();
        Ok(if is_of_diffusers { ModelLibrary::Diffusers } else { ModelLibrary::Transformers })
    }

    /// Returns the part of the output that only this conversion writes: the whole output, or the folder of its model in a
    /// repository.
    pub(crate) fn own_output(&self) -> PathBuf {
        if self.options.target.output().is_repository() {
            self.output.join(&self.name)
        } else {
            self.output.clone()
        }
    }
}

/// Returns true if a configuration or a tokenizer is next to the checkpoint.
fn has_documents(sources: &CheckpointSources, carton: Option<&CartonInput>) -> Result<bool> {
    let (companions, _) = misc::find_companions(sources, carton)?;
    Ok(companions.iter().any(|(name, _)| !name.starts_with("LICENSE")))
}

/// Checks the options before any file is looked up.
pub(crate) fn check_options(options: &ConvertOptions) -> Result<()> {
    if options.inputs.is_empty() {
        return Err(InvalidOption::NoInput.into());
    }
    if let Some(output) = options.output.as_ref().filter(|_| options.target.is_assumed()) {
        Target::from_path(output)?;
    }
    if options.allow_dangerous && options.deny_unknown {
        return Err(
            open::InvalidOption::Exclusive { first: "allow_dangerous", second: "deny_unknown" }.into()
        );
    }
    if options.part.is_some() && options.complete_from.is_some() {
        return Err(open::InvalidOption::Exclusive { first: "part", second: "complete_from" }.into());
    }
    options.overrides.check().map_err(|(name, reason)| open::InvalidOption::Value {
        name: name.to_owned(),
        reason: reason.to_owned(),
    })?;
    options.sum.check()?;
    let mut weighted = options.adapters.iter().chain(&options.sum.add);
    if let Some(file) = weighted.find(|file| !file.weight.is_finite()) {
        return Err(InvalidOption::Weight { path: file.path.clone(), weight: file.weight.to_string() }.into());
    }
    options.own_casts().check()?;
    check_renames(&options.renames)?;
    options.target.output().check_targets()
}

/// Returns the files of the adapters and the summed checkpoints, which an output must not replace. `base` are the files of the
/// input.
///
/// # Errors
/// When a path is not that of an adapter or of a checkpoint, or one of these is given twice.
fn other_inputs(options: &ConvertOptions, base: &CheckpointSources) -> Result<Vec<Location>> {
    // A path that cannot be resolved is reported when it is opened.
    let resolved = |file: &Location| match file.path().canonicalize() {
        Ok(path) if file.is_local() => path,
        _ => file.path().to_owned(),
    };
    let mut known: HashSet<PathBuf> = base.locations().map(|file| resolved(&file)).collect();
    let mut files = Vec::new();
    let mut add = |given: &Path, file: Location| {
        if !known.insert(resolved(&file)) {
            return Err(InvalidOption::GivenTwice { path: output::shown_path(given) });
        }
        files.push(file);
        Ok(())
    };
    let mut documents = Vec::new();
    for adapter in &options.adapters {
        let tensors = tensor_file(&options.locate(&adapter.path)?)?;
        documents.push(tensors.at(tensors.path().with_file_name(ADAPTER_CONFIG)));
        add(&adapter.path, tensors)?;
    }
    for path in options.other_checkpoints() {
        let sources = CheckpointSum::find(&options.context(&()).open_options(path)?)?;
        sources.locations().try_for_each(|file| add(path, file))?;
    }
    files.extend(documents);
    Ok(files)
}
