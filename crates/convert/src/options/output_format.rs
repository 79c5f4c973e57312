//! The registry of output formats: what each is called, which extensions its files have, and how its options are made.

use std::fmt;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value as Json;

use crate::Target;
use crate::back::Output;
use crate::back::carton::CARTON;
use crate::back::gguf::GGUF;
use crate::back::safetensors::SAFETENSORS;
use crate::back::torch::TORCH;
use crate::back::triton::TRITON;

/// The formats of this crate, in the order in which one is chosen by the options that it has. The first is the default.
pub static OUTPUTS: &[&OutputFormat] = &[&CARTON, &SAFETENSORS, &TORCH, &TRITON, &GGUF];

static REGISTERED: RwLock<Vec<&'static OutputFormat>> = RwLock::new(Vec::new());

/// Adds a format of another crate to those that this process writes. Its name becomes a value of `--to`, and its extensions choose
/// it. Returns false, and adds nothing, if a format has this name.
pub fn register_output(format: &'static OutputFormat) -> bool {
    let mut registered = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
    let is_new = OUTPUTS.iter().chain(registered.iter()).all(|known| known.name != format.name);
    registered.extend(is_new.then_some(format));
    is_new
}

/// Returns all output formats: those of this crate, and the registered ones.
pub fn outputs() -> impl Iterator<Item = &'static OutputFormat> + Clone {
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner).clone();
    OUTPUTS.iter().copied().chain(registered)
}

/// Output format of a conversion. Its [`Output`] has the options.
pub struct OutputFormat {
    name: &'static str,
    extensions: &'static [&'static str],
    help: &'static str,
    make: fn() -> Target,
    pub(crate) read: fn(Json) -> serde_json::Result<Target>,
    #[cfg(feature = "cli")]
    pub(crate) arguments: Option<Arguments>,
}

/// The options of one output as arguments.
#[cfg(feature = "cli")]
pub(crate) struct Arguments {
    pub(crate) augment: fn(clap::Command) -> clap::Command,
    pub(crate) read: fn(&clap::ArgMatches) -> Result<Target, clap::Error>,
}

impl OutputFormat {
    /// Creates a format with the options `O`. `name` is also the default extension of its files; `extensions` are all of them, in
    /// lower case.
    pub const fn new<O: Output + Default + DeserializeOwned>(
        name: &'static str,
        extensions: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self {
            name,
            extensions,
            help,
            make: || O::default().into(),
            read: |options| serde_json::from_value::<O>(options).map(Target::from),
            #[cfg(feature = "cli")]
            arguments: None,
        }
    }

    /// Returns the format with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        outputs().find(|format| format.name == name)
    }

    /// Infers the format from the extension of a path.
    pub fn from_path(path: &Path) -> Option<&'static Self> {
        let extension = extension(path)?;
        outputs().find(|format| format.extensions.contains(&extension.as_str()))
    }

    /// Returns the name of the format.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns what an output is, for the help of `--to`.
    pub fn help(&self) -> &'static str {
        self.help
    }

    /// Returns the format with its default options.
    pub fn target(&self) -> Target {
        (self.make)()
    }
}

/// The carton.
impl Default for &OutputFormat {
    fn default() -> Self {
        &CARTON
    }
}

impl PartialEq for OutputFormat {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for OutputFormat {}

impl fmt::Debug for OutputFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for OutputFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Serialize for OutputFormat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for &'static OutputFormat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        OutputFormat::named(&name).ok_or_else(|| {
            let known: Vec<String> = outputs().map(|format| format!("`{format}`")).collect();
            D::Error::custom(format_args!("unknown output `{name}`, expected one of {}", known.join(", ")))
        })
    }
}

/// Model format that only other programs write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignKind {
    /// ONNX, a graph of operators, exported from a model's code.
    Onnx,
    /// Another graph of operators, exported from a model's code.
    Graph,
    /// Arrays of NumPy.
    NumPy,
    /// An HDF5 file, such as one of Keras.
    Hdf5,
    /// A pickle of Python, not in an archive of PyTorch.
    Pickle,
}

fn extension(path: &Path) -> Option<String> {
    path.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase)
}

/// Returns true if the extension of a path looks like that of a format which is not written here, such as `x.h5`. A number, as in
/// `llama-3.1`, is not an extension.
pub(crate) fn has_unknown_extension(path: &Path) -> bool {
    let is_format = |extension: String| extension.starts_with(|c: char| c.is_ascii_alphabetic());
    OutputFormat::from_path(path).is_none() && extension(path).is_some_and(is_format)
}

/// Returns the extension that was meant, if that of a path is none but has one or two letters that are wrong, such as `safetensor`.
pub(crate) fn similar_extension(path: &Path) -> Option<&'static str> {
    let typed = extension(path).filter(|_| OutputFormat::from_path(path).is_none())?;
    let known = outputs().flat_map(|format| format.extensions.iter().copied());
    let distances = known.map(|known| (strsim::osa_distance(&typed, known), known));
    let (distance, nearest) = distances.min()?;
    // In a short extension, a letter more or less makes another one.
    let allowed = match nearest.len() {
        ..=3 => 0,
        4..=7 => 1,
        8.. => 2,
    };
    (distance <= allowed).then_some(nearest)
}

/// Infers a format that only other programs write from the extension of a path.
pub(crate) fn foreign_kind(path: &Path) -> Option<ForeignKind> {
    let kind = match extension(path)?.as_str() {
        "onnx" => ForeignKind::Onnx,
        "pt2" | "ptl" | "pte" | "tflite" | "pb" | "mlmodel" | "mlpackage" | "engine" | "plan" => {
            ForeignKind::Graph
        }
        "npz" | "npy" => ForeignKind::NumPy,
        "h5" | "hdf5" | "keras" => ForeignKind::Hdf5,
        "pkl" | "pickle" | "joblib" => ForeignKind::Pickle,
        _ => return None,
    };
    OutputFormat::from_path(path).is_none().then_some(kind)
}
