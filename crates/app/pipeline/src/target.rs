//! What a conversion writes, with the options that only this kind of output has. Each kind is a variant here, and a file in
//! `back/`.

use std::path::Path;

use crate::back::carton::CartonOptions;
use crate::back::safetensors::SafetensorsOptions;
use crate::back::torch::TorchOptions;
use crate::back::triton::TritonOptions;
use crate::back::{Format, Job, Kept, Plan};
use crate::kind::foreign;
use crate::notes::Notes;
use crate::{InvalidOption, OutputKind, OutputReport, Result};

/// What a conversion writes, with the options that only this kind of output has.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "there is one in a conversion")]
pub enum Target {
    /// A carton.
    Carton(CartonOptions),
    /// A safetensors file, or a folder of them with the documents of the model.
    Safetensors(SafetensorsOptions),
    /// The zip file that `torch.save` writes.
    Torch(TorchOptions),
    /// A model in a repository of NVIDIA Triton, which is a folder.
    Triton(TritonOptions),
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
    /// A carton, with the default options.
    pub fn carton() -> Self {
        Self::from(OutputKind::Carton)
    }

    /// Safetensors, with the default options.
    pub fn safetensors() -> Self {
        Self::from(OutputKind::Safetensors)
    }

    /// The zip file that `torch.save` writes, with the default options.
    pub fn torch() -> Self {
        Self::from(OutputKind::Torch)
    }

    /// A model in a repository of NVIDIA Triton, with the default options.
    pub fn triton() -> Self {
        Self::from(OutputKind::Triton)
    }

    /// The kind of output that the extension of `path` names, with its default options. A carton whose path has another
    /// extension is [assumed](CartonOptions::assumed).
    ///
    /// # Errors
    /// When the extension is that of a format which this crate does not write.
    pub fn from_path(path: &Path) -> Result<Self, InvalidOption> {
        if let Some(kind) = foreign(path) {
            return Err(InvalidOption::ForeignOutput { path: path.to_owned(), kind });
        }
        let assumed = || Self::Carton(CartonOptions { assumed: true, ..CartonOptions::default() });
        Ok(OutputKind::from_path(path).map_or_else(assumed, Self::from))
    }

    /// The kind of output.
    pub fn kind(&self) -> OutputKind {
        match self {
            Self::Carton(_) => OutputKind::Carton,
            Self::Safetensors(_) => OutputKind::Safetensors,
            Self::Torch(_) => OutputKind::Torch,
            Self::Triton(_) => OutputKind::Triton,
        }
    }

    /// The options of a carton, if that is the output.
    pub(crate) fn as_carton(&self) -> Option<&CartonOptions> {
        if let Self::Carton(options) = self { Some(options) } else { None }
    }

    /// The format of the output.
    pub(crate) fn format(&self) -> &dyn Format {
        match self {
            Self::Carton(options) => options,
            Self::Safetensors(options) => options,
            Self::Torch(options) => options,
            Self::Triton(options) => options,
        }
    }

    /// Lays out the files of the output.
    ///
    /// # Errors
    /// Those of [`Format::plan`].
    pub(crate) fn plan<'p>(
        &'p self,
        job: &Job<'p>,
        kept: Kept,
        notes: &mut Notes<'_>,
    ) -> Result<Plan<'p, OutputReport>> {
        Ok(match self {
            Self::Carton(options) => options.plan(job, kept, notes)?.map(OutputReport::Carton),
            Self::Safetensors(options) => options.plan(job, kept, notes)?.map(OutputReport::Safetensors),
            Self::Torch(options) => options.plan(job, kept, notes)?.map(OutputReport::Torch),
            Self::Triton(options) => options.plan(job, kept, notes)?.map(OutputReport::Triton),
        })
    }
}
