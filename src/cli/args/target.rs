//! Output target of `convert` from its flags, and the flags that only some kinds of output have.

use anyhow::Result;
use pipeline::{
    ArchitectureChoice, CartonFields, CartonOptions, ModelOptions, OnInvalidInput as OnErrors, OutputKind,
    RequiredTorch as Version, SafetensorsOptions, ScriptOptions, Target, TargetLayout as Layout,
    TieHandling as Tied, TorchOptions, TritonOptions,
};

use super::convert::{Convert, ErrorsArg, NamesArg, SafetensorsArgs, TiesArg, ToArg, TorchArg};
use crate::cli::ui::invocation::UsageError;

/// Rule for flags that only some kinds of output have.
struct FlagRule {
    flags: &'static str,
    /// True if one of the flags has a value other than its default.
    is_typed: bool,
    kinds: &'static [OutputKind],
    /// Reason printed when the flags are used with another kind.
    reason: &'static str,
}

impl Convert {
    /// Returns the kind of output with its options.
    ///
    /// # Errors
    /// When a flag was typed that this kind does not have, or the extension of the output is that of a foreign format.
    pub(super) fn target(&self) -> Result<Target> {
        if let Some(path) = self.output.as_deref().filter(|_| self.to.is_none()) {
            Target::from_path(path).map_err(pipeline::Error::Option)?;
        }
        let by_name = self.output.as_deref().and_then(OutputKind::from_path);
        // The output of --each is a folder, whose name says something only if it is a repository of models.
        let by_name = by_name.filter(|kind| !self.each || *kind == OutputKind::Triton);
        let chosen = self.to.map(OutputKind::from).or(by_name);
        let kind = chosen.unwrap_or_else(|| self.default_kind());
        self.reject_unsupported_flags(kind)?;
        let names = self.renaming.layout();
        let mut model = ModelOptions::new(self.model.arch.clone());
        model.keep_extra = self.model.keep_extra;
        Ok(match kind {
            OutputKind::Carton => Target::Carton(self.carton_options(model, chosen.is_none())),
            OutputKind::Safetensors => self.safetensors_options(names).into(),
            OutputKind::Torch => {
                let mut options = TorchOptions::default();
                options.target_layout = names;
                options.into()
            }
            OutputKind::Triton => {
                let mut options = TritonOptions::default().model(model).script(self.script.options());
                options.name.clone_from(&self.name);
                options.into()
            }
        })
    }

    /// Returns the kind of output if neither a flag nor an extension names one.
    fn default_kind(&self) -> OutputKind {
        let safetensors = &self.safetensors;
        let has_default_safetensors =
            safetensors.ties == TiesArg::Drop && safetensors.max_shard_size.is_none();
        match self.renaming.names {
            // Meta's code loads `.pth` files.
            Some(NamesArg::Meta) if has_default_safetensors => OutputKind::Torch,
            Some(_) => OutputKind::Safetensors,
            None if safetensors.max_shard_size.is_some() => OutputKind::Safetensors,
            None => OutputKind::Carton,
        }
    }

    fn safetensors_options(&self, names: Option<Layout>) -> SafetensorsOptions {
        // Without `..`, so that a new flag does not compile until it has its place.
        let SafetensorsArgs { ties, max_shard_size } = &self.safetensors;
        let mut options = SafetensorsOptions::default();
        options.target_layout = names;
        options.ties = match ties {
            TiesArg::Drop => Tied::Drop,
            TiesArg::Duplicate => Tied::Duplicate,
        };
        options.max_shard_size = *max_shard_size;
        options.misc.clone_from(&self.misc);
        options
    }

    fn carton_options(&self, model: ModelOptions, assumed: bool) -> CartonOptions {
        let mut options = CartonOptions::default().fields(self.carton_fields()).model(model);
        options.config.clone_from(&self.config);
        options.misc.clone_from(&self.misc);
        options.keep_values = !self.no_values;
        options.self_test = self.self_test;
        options.torch = match self.torch {
            TorchArg::Carton => Version::Carton,
            TorchArg::Newest => Version::Newest,
        };
        options.require_model = self.model.required;
        options.errors = match self.model.errors {
            ErrorsArg::Return => OnErrors::Return,
            ErrorsArg::Raise => OnErrors::Raise,
        };
        options.script = self.script.options();
        options.assumed = assumed;
        options
    }

    fn carton_fields(&self) -> CartonFields {
        let mut fields = CartonFields::default();
        fields.name.clone_from(&self.name);
        fields.description.clone_from(&self.description);
        fields.short_description.clone_from(&self.short_description);
        fields.license.clone_from(&self.license);
        fields.repository.clone_from(&self.repository);
        fields.homepage.clone_from(&self.homepage);
        fields
    }

    /// Returns an error if a flag was typed that this kind of output does not have.
    fn reject_unsupported_flags(&self, kind: OutputKind) -> Result<(), UsageError> {
        let misplaced =
            self.flag_rules().into_iter().find(|rule| rule.is_typed && !rule.kinds.contains(&kind));
        misplaced.map_or(Ok(()), |rule| Err(UsageError(format!("{}: {}", rule.flags, rule.reason))))
    }

    fn flag_rules(&self) -> [FlagRule; 12] {
        use OutputKind::{Carton, Safetensors, Torch as Checkpoint, Triton};
        let rule = |flags, is_typed, kinds, reason| FlagRule { flags, is_typed, kinds, reason };
        let fields =
            [&self.description, &self.short_description, &self.license, &self.repository, &self.homepage];
        let model = &self.model;
        let is_model = model.required
            || model.keep_extra
            || model.arch != ArchitectureChoice::Auto
            || model.errors != ErrorsArg::Return;
        [
            rule(
                "--names",
                self.renaming.names.is_some(),
                &[Safetensors, Checkpoint],
                "only safetensors and checkpoints can be converted into another layout",
            ),
            rule(
                "--description, --short-description, --license, --repository, --homepage",
                fields.into_iter().any(Option::is_some),
                &[Carton],
                "only a carton has fields such as a license",
            ),
            rule(
                "--name",
                self.name.is_some(),
                &[Carton, Triton],
                "a file of tensors has no name for the model",
            ),
            rule("--config", self.config.is_some(), &[Carton], "only a carton has fields such as a license"),
            rule(
                "--misc",
                !self.misc.is_empty(),
                &[Carton, Safetensors],
                "only cartons and folders of safetensors keep other files",
            ),
            rule("--self-test", self.self_test, &[Carton], "only a carton has self tests"),
            rule(
                "--torch",
                self.torch != TorchArg::Carton,
                &[Carton],
                "only a carton requires a version of PyTorch",
            ),
            rule(
                "--arch, --keep-extra, --require-model, --errors",
                is_model,
                &[Carton, Triton],
                "only cartons and Triton repositories hold models that run",
            ),
            rule(
                "--ties",
                self.safetensors.ties != TiesArg::Drop,
                &[Safetensors],
                "applies only to safetensors",
            ),
            rule(
                "--max-shard-size",
                self.safetensors.max_shard_size.is_some(),
                &[Safetensors],
                "applies only to safetensors",
            ),
            rule(
                "--no-wrap",
                self.script.options().keep_unchanged,
                &[Carton],
                "only a carton keeps a TorchScript module as it is",
            ),
            rule(
                "--input, --output-type, --output-names, --no-wrap",
                self.script.options() != ScriptOptions::default(),
                &[Carton, Triton],
                "only cartons and Triton repositories keep the code of a TorchScript module",
            ),
        ]
    }
}

impl From<ToArg> for OutputKind {
    fn from(to: ToArg) -> Self {
        match to {
            ToArg::Carton => Self::Carton,
            ToArg::Safetensors => Self::Safetensors,
            ToArg::Pth => Self::Torch,
            ToArg::Triton => Self::Triton,
        }
    }
}
