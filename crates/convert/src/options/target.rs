//! Target of a conversion: the output format with its options. Each format is a variant here, and a file in `back/`.

use std::path::Path;
use std::sync::Arc;

use open::{TargetLayout, to_object};
use serde::{Deserialize, Serialize, Serializer};

use crate::back::Output;
use crate::back::carton::CartonOptions;
use crate::back::safetensors::SafetensorsOptions;
use crate::back::torch::TorchOptions;
use crate::back::triton::TritonOptions;
use crate::options::output_kind::foreign_kind;
use crate::{InvalidOption, OutputKind};

/// Output format of a conversion, with the options of this format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "to", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Target {
    Carton(CartonOptions),
    /// One safetensors file, or a folder of them with the documents of the model.
    Safetensors(SafetensorsOptions),
    /// PyTorch checkpoint: the zip file that `torch.save` writes.
    #[serde(rename = "pth")]
    Torch(TorchOptions),
    /// Model in a repository of NVIDIA Triton, which is a folder.
    Triton(TritonOptions),
    /// Format of another crate.
    #[serde(skip_deserializing)]
    Other(OtherOutput),
}

/// Format that another crate implements.
#[derive(Clone, Debug)]
pub struct OtherOutput(Arc<dyn Output>);

impl PartialEq for OtherOutput {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Its options are known by their debug text alone.
impl Serialize for OtherOutput {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([("format", format!("{:?}", self.0))])
    }
}

impl Default for Target {
    fn default() -> Self {
        Self::Carton(CartonOptions::default())
    }
}

impl From<OutputKind> for Target {
    fn from(kind: OutputKind) -> Self {
        match kind {
            OutputKind::Carton => Self::default(),
            OutputKind::Safetensors => Self::Safetensors(SafetensorsOptions::default()),
            OutputKind::Torch => Self::Torch(TorchOptions::default()),
            OutputKind::Triton => Self::Triton(TritonOptions::default()),
        }
    }
}

impl From<CartonOptions> for Target {
    fn from(options: CartonOptions) -> Self {
        Self::Carton(options)
    }
}

impl From<SafetensorsOptions> for Target {
    fn from(options: SafetensorsOptions) -> Self {
        Self::Safetensors(options)
    }
}

impl From<TorchOptions> for Target {
    fn from(options: TorchOptions) -> Self {
        Self::Torch(options)
    }
}

impl From<TritonOptions> for Target {
    fn from(options: TritonOptions) -> Self {
        Self::Triton(options)
    }
}

impl Target {
    /// Returns a carton with the default options.
    pub fn carton() -> Self {
        Self::from(OutputKind::Carton)
    }

    /// Returns safetensors with the default options.
    pub fn safetensors() -> Self {
        Self::from(OutputKind::Safetensors)
    }

    /// Returns a PyTorch checkpoint with the default options.
    pub fn torch() -> Self {
        Self::from(OutputKind::Torch)
    }

    /// Returns a model in a Triton repository with the default options.
    pub fn triton() -> Self {
        Self::from(OutputKind::Triton)
    }

    /// Returns an output in the format of another crate.
    pub fn other(output: impl Output + 'static) -> Self {
        Self::Other(OtherOutput(Arc::new(output)))
    }

    /// Infers the output format from the extension of `path`, with the default options. For an unknown extension, the output
    /// is a carton that is marked as [assumed](CartonOptions::assumed).
    ///
    /// # Errors
    /// When the extension belongs to a format that this crate does not write.
    pub fn from_path(path: &Path) -> Result<Self, InvalidOption> {
        match foreign_kind(path) {
            Some(kind) => Err(InvalidOption::ForeignOutput { path: path.to_owned(), kind }),
            None => Self::choose(None, Some(path), &[], None),
        }
    }

    /// Returns the output format that is named or has the extension of `path`, else the first one that has all the options
    /// `given`, else a carton; with its default options. Meta's code loads `.pth` files, so they come first for its layout.
    ///
    /// # Errors
    /// When an option is that of another format.
    pub(crate) fn choose(
        to: Option<OutputKind>,
        path: Option<&Path>,
        given: &[&str],
        layout: Option<TargetLayout>,
    ) -> Result<Self, InvalidOption> {
        let named = to.or_else(|| path.and_then(OutputKind::from_path));
        let options = OutputKind::ALL.map(|kind| (kind, to_object(&Self::from(kind))));
        let has = |kind: OutputKind, name: &str| {
            options.iter().any(|(known, options)| *known == kind && options.contains_key(name))
        };
        let given: Vec<&&str> =
            given.iter().filter(|name| OutputKind::ALL.into_iter().any(|kind| has(kind, name))).collect();
        let fits = |kind: &OutputKind| given.iter().all(|name| has(*kind, name));
        let first = (layout == Some(TargetLayout::Meta)).then_some(OutputKind::Torch);
        let found = || first.into_iter().chain(OutputKind::ALL).find(fits);
        let kind = named.or_else(found).unwrap_or_default();
        if let Some(name) = given.into_iter().find(|name| !has(kind, name)) {
            let outputs = OutputKind::ALL.into_iter().filter(|kind| has(*kind, name)).collect();
            return Err(InvalidOption::OtherOutput { name: (*name).to_owned(), to: kind, outputs });
        }
        Ok(match Self::from(kind) {
            Self::Carton(options) => Self::Carton(CartonOptions { assumed: named.is_none(), ..options }),
            target => target,
        })
    }

    /// Returns the output kind without the options; `None` for a format of another crate.
    pub fn kind(&self) -> Option<OutputKind> {
        match self {
            Self::Carton(_) => Some(OutputKind::Carton),
            Self::Safetensors(_) => Some(OutputKind::Safetensors),
            Self::Torch(_) => Some(OutputKind::Torch),
            Self::Triton(_) => Some(OutputKind::Triton),
            Self::Other(_) => None,
        }
    }

    /// Returns the options of a carton, if the output is one.
    pub(crate) fn as_carton(&self) -> Option<&CartonOptions> {
        if let Self::Carton(options) = self { Some(options) } else { None }
    }

    pub(crate) fn format(&self) -> &dyn Output {
        match self {
            Self::Carton(options) => options,
            Self::Safetensors(options) => options,
            Self::Torch(options) => options,
            Self::Triton(options) => options,
            Self::Other(OtherOutput(output)) => &**output,
        }
    }
}
