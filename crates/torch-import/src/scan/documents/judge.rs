//! Judges the keys and values of a document: which of them a program calls, evaluates, unpickles or imports.
//!
//! Facts: `hydra.utils.instantiate`, jsonargparse and torchtune call what `_target_`, `class_path` and `_component_` name;
//! `get_obj_from_str` of latent diffusion, what `target` names. Keras imports the `module` of a `class_name` and unmarshals the code
//! of a `Lambda`. stable-baselines3 unpickles `:serialized:`. `torch.export.load` gives `expr_str` to sympy and runs `guards_code`.
//! `transformers` runs the kernels of the repository that `attn_implementation` names, peft imports `parent_library`, `MLflow`
//! `loader_module`, MONAI evaluates texts that begin with `$`, and skops what `__module__` and `__class__` name. `ultralytics` and
//! `YOLOv5` give the layers of a model and its `activation` to `eval`, older versions of Lightning call what `_instantiator` names, `MMEngine`
//! runs `cfg` of `runtime_info` and `meta`, and `config` of `meta`, and older versions of peft trust the code of a tokenizer if `tokenizer_kwargs` says so. `PyYAML` imports and
//! calls what the tags of `python/` name, and `HyperPyYAML` those of `!new:`, `!apply:`, `!name:` and `!module:`. `transformers`,
//! `diffusers` and `sentence_transformers` import `NAME.py` for `NAME.Class` and `[NAME, Class]`; `diffusers` also imports the library of
//! a component, and peft `megatron_core`. nnU-Net, `MMEngine` and latent diffusion call a function that `network_class_name`, `type` or
//! `target` names. `ultralytics` gives `download` to a shell or to `exec`, and webdataset what follows `pipe:` to a shell. jsonpickle
//! makes objects of maps with keys such as `py/reduce`, and evaluates `py/repr`. `AllenNLP` and `MMEngine` import what `type` names with
//! dots. fairseq gives parts of a model's arguments to `eval`, and pyannote.audio
//! imports what `module` of `architecture` and the `name` of a step say. Keras' `TFOpLambda` calls the operation of `TensorFlow` that `function` names. spacy-transformers and older versions of peft
//! give `trust_remote_code` to `from_pretrained`. DVC and `MLflow` give `cmd` of `stages` and `command` of `entry_points` to a shell.

mod any_key;

use super::callable::{
    Callable, imports_package, is_function_name, is_harmless_class, is_harmless_operation,
};
use super::expression::{has, is_guard, is_symbolic};
use super::found::Found;
use super::level::Level;
use super::value_texts::{is_address, is_off, is_plain_value, leads_out, shown};
use crate::scan::budget::truncate_name;
use crate::scan::operators::operator_risk;
use crate::scan::{Finding, GlobalCall, GlobalUse};
use crate::{Global, Risk};

/// Levels of containers. Python's reader gives up earlier.
const LEVELS_MAX: usize = 100_000;
/// Bytes of a key that are kept.
const KEY_MAX: usize = 64;
/// Entries of each list of what was found.
pub(super) const FOUND_MAX: usize = 1 << 10;
/// Calls that are listed for each name.
const CALLS_MAX: usize = 8;
/// Tags that `PyYAML` reads as data.
const DATA_TAGS: &str = "binary bool float int map merge null omap pairs python/bool python/bytes python/complex python/dict python/float \
                         python/int python/list python/long python/none python/str python/tuple python/unicode seq set str timestamp value";
/// Keys of a map that names an object by its module and its class: of Keras, a tree of PyTorch, peft, skops and monty.
const OBJECT_KEYS: &str = "@class __loader__ base_model_class config default_factory_name registered_name";
/// Layers of Keras that run more than their arguments, and what they do.
const LAYERS: [(&str, &str); 4] = [
    ("__lambda__", "unmarshals Python's bytecode and runs it"),
    ("Lambda", "unmarshals Python's bytecode and runs it"),
    ("TFSMLayer", "runs a graph of TensorFlow from another file"),
    ("TorchModuleWrapper", "unpickles a module of PyTorch"),
];
/// Functions of Python that run texts or reach other objects. Keras has functions of other names.
const FUNCTIONS: &str = "__build_class__ __import__ breakpoint compile delattr eval exec getattr globals help input locals open setattr super type vars";
/// Functions that Lightning's own command line names as `_instantiator`.
const INSTANTIATORS: [&str; 2] =
    ["lightning.pytorch.cli.instantiate_module", "pytorch_lightning.cli.instantiate_module"];
/// Modules that `MLflow` imports in the place of `pickle` and for a model of Keras.
const LOADERS: &str = "cloudpickle keras pickle tensorflow.keras tf_keras";
/// Keys of the model that a program loads.
const REPOSITORIES: &str =
    "base_model model model_id model_name_or_path model_path pretrained_model_name_or_path repo_id";
/// Handlers of `TorchServe` itself.
const HANDLERS: &str = "image_classifier image_segmenter object_detector text_classifier";
/// Operators of `torch.export` that are not PyTorch's own operators.
const SYMBOL_OPERATORS: &str = "_operator.add _operator.and_ _operator.eq _operator.floordiv _operator.ge _operator.getitem _operator.gt _operator.le _operator.lshift _operator.lt _operator.mod _operator.mul _operator.ne _operator.neg _operator.not_ _operator.or_ _operator.pos _operator.pow _operator.rshift _operator.sub _operator.truediv math.ceil math.floor math.trunc torch.sym_float torch.sym_int torch.sym_ite torch.sym_max torch.sym_min torch.sym_not torch.sym_sum";

/// Reader of the events of a document. Of each value, only its key and the keys around it are known, so an alias needs no copy.
pub(in crate::scan) struct Judge<'n> {
    levels: Vec<Level>,
    /// Tells whether a file of Python code, or a folder, of this name is next to the document.
    is_near: &'n dyn Fn(&str) -> bool,
    pub(super) found: Found,
}

impl<'n> Judge<'n> {
    pub(in crate::scan) fn new(is_near: &'n dyn Fn(&str) -> bool) -> Self {
        Self { levels: Vec::new(), is_near, found: Found::default() }
    }

    /// Prepares for another document.
    pub(super) fn restart(&mut self) {
        self.levels.clear();
    }

    /// Returns the number of open maps and lists.
    pub(super) fn depth(&self) -> usize {
        self.levels.len()
    }

    /// Leaves the maps and lists beyond a depth.
    pub(super) fn close_to(&mut self, depth: usize, at: u64) {
        while self.levels.len() > depth {
            self.close(at);
        }
    }

    /// Enters a map or a list. Returns false if it is too deep.
    pub(in crate::scan) fn open(&mut self, is_map: bool) -> bool {
        if self.levels.len() >= LEVELS_MAX {
            self.found.missed.push(format!("what is nested deeper than {LEVELS_MAX} levels"));
            return false;
        }
        let outer = self.key().to_owned();
        let names_code = self.levels.last().is_some_and(|level| level.names_code)
            || matches!(outer.as_str(), "auto_map" | "custom_pipelines");
        let has_layers = self.levels.last().is_some_and(|level| level.has_layers)
            || !is_map && matches!(outer.as_str(), "backbone" | "head");
        let is_key = self.levels.last().is_some_and(|level| level.is_map && level.key.is_none());
        self.levels.push(Level { is_map, is_key, outer, names_code, has_layers, ..Level::default() });
        true
    }

    /// Leaves a map or a list.
    pub(in crate::scan) fn close(&mut self, at: u64) {
        let Some(level) = self.levels.pop() else { return };
        let is_key = level.is_key;
        // A component has the class of its parts in another map.
        let is_pipeline = level.is_pipeline || self.levels.iter().any(|level| level.is_pipeline);
        let components = level.components.iter().filter(|_| is_pipeline);
        for (library, class) in components {
            let target = [library.as_str(), ".", class].concat();
            let risk = Risk::from_names(library, class);
            if risk >= Risk::Unreviewed {
                self.add_target("component", &Callable { risk, ..Callable::unknown(&target) }, at);
            }
        }
        if let (Some(module), Some(name), None) = (&level.module, &level.name, &level.class) {
            let target = [module.as_str(), ".", name].concat();
            let target = Callable::new(&target);
            if target.risk == Risk::Dangerous || level.has_arguments && !is_harmless_class(module, name) {
                self.add_target("name", &target, at);
            }
        }
        if let Some(repository) = level.repository.as_deref().filter(|_| level.is_trusted) {
            self.add_target("trust_remote_code", &Callable::unknown(repository), at);
        }
        if let Level { module: Some(module), class: Some(class), config, is_object: true, .. } = level {
            // Keras looks up a function by its name in `config`.
            let function = config.filter(|name| {
                (module.as_str(), class.as_str()) == ("builtins", "function") && has(FUNCTIONS, name)
            });
            if function.is_some() || !is_harmless_class(&module, &class) {
                let target = [module.as_str(), ".", function.as_deref().unwrap_or(&class)].concat();
                self.add_target("class_name", &Callable::new(&target), at);
            }
        }
        if is_key { self.other() } else { self.end_value() }
    }

    /// Takes a value that is not a text.
    pub(in crate::scan) fn other(&mut self) {
        match self.levels.last_mut() {
            Some(level) if level.is_map && level.key.is_none() => level.key = Some(String::new()),
            _ => self.end_value(),
        }
    }

    /// Takes a key or a value.
    pub(in crate::scan) fn text(&mut self, text: &str, at: u64) {
        match self.levels.last_mut() {
            Some(level) if level.is_map && level.key.is_none() => {
                level.is_object |= OBJECT_KEYS.split(' ').any(|known| known == text);
                level.is_pipeline |= matches!(text, "_class_name" | "_diffusers_version");
                level.has_arguments |= matches!(text, "args" | "arguments" | "kwargs");
                let is_token = level.outer == "vocab";
                level.key = Some(text.get(..KEY_MAX.min(text.len())).unwrap_or_default().to_owned());
                // `PaddleOCR` evaluates the keys of its operators.
                if !is_token {
                    self.code("", text);
                }
            }
            _ => {
                self.value(text, at);
                self.end_value();
            }
        }
    }

    /// Takes a tag of YAML, such as `tag:yaml.org,2002:python/name:os.system`.
    pub(super) fn tag(&mut self, tag: &str, at: u64) {
        let name = tag.strip_prefix("tag:yaml.org,2002:").unwrap_or(tag);
        if matches!(name, "!" | "?") || DATA_TAGS.split(' ').any(|known| known == name) {
            return;
        }
        let local = name.strip_prefix('!').unwrap_or(name);
        match local.split_once(':') {
            None if name != local && matches!(local, "copy" | "list" | "placeholder" | "ref" | "tuple") => {}
            Some(("new" | "apply" | "applyref" | "name" | "module", callable)) => {
                self.add_target(tag, &Callable::new(callable), at);
            }
            _ if name.to_ascii_lowercase().contains("python") || name.contains('%') => {
                self.add_finding("tag", || {
                    format!("the tag `{}` makes Python import or call what it names", shown(tag))
                });
            }
            _ => {
                self.add_missed(|| format!("the tag `{}`, for which a program has its own code", shown(tag)));
            }
        }
    }

    /// Returns the key of the next value; in a list, the key of the list.
    fn key(&self) -> &str {
        match self.levels.last() {
            Some(Level { is_map: true, key, .. }) => key.as_deref().unwrap_or_default(),
            Some(level) => &level.outer,
            None => "",
        }
    }

    fn end_value(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            level.key = None;
        }
    }

    fn value(&mut self, text: &str, at: u64) {
        let key = self.key().to_owned();
        let outer = self.levels.last().map(|level| level.outer.clone()).unwrap_or_default();
        self.value_of_key(&key, &outer, text, at);
        self.value_of_any_key(&key, text, at);
        self.reference(&key, &outer, text);
        self.component(text);
        let Some(level) = self.levels.last_mut() else { return };
        match key.as_str() {
            "@module" | "module" | "default_factory_module" | "parent_library" | "__module__"
                if level.is_map =>
            {
                level.module = Some(text.to_owned());
            }
            "@class" | "class_name" | "default_factory_name" | "base_model_class" | "__class__"
                if level.is_map =>
            {
                level.class = Some(text.to_owned());
            }
            "name" if level.is_map => level.name = Some(truncate_name(text.to_owned())),
            // Fiddle imports a reference to Python.
            "type" if text == "pyref" => level.has_arguments = true,
            "trust_remote_code" => level.is_trusted = !is_off(text),
            _ if has(REPOSITORIES, &key) && level.is_map && text.contains('/') => {
                level.repository = Some(truncate_name(text.to_owned()));
            }
            "config" if level.is_map => level.config = Some(truncate_name(text.to_owned())),
            _ if !level.is_map => level.first = level.first.take().or_else(|| Some(text.to_owned())),
            _ => {}
        }
    }

    /// Judges a text by its key, and by the key of the container that it is in.
    fn value_of_key(&mut self, key: &str, outer: &str, text: &str, at: u64) {
        match key {
            "_target_" | "_component_" | "class_path" => self.add_target(key, &Callable::new(text), at),
            "_instantiator" if !INSTANTIATORS.contains(&text) => {
                self.add_target(key, &Callable::new(text), at);
            }
            "fqn" if text.contains(':') => self.add_target(key, &Callable::new(&text.replace(':', ".")), at),
            "target" if outer == "nodes" => self.operator(text, at),
            "target"
            | "type"
            | "network_class_name"
            | "activation_function"
            | "activation_fn"
            | "_class_" => {
                let target = Callable::new(text);
                if target.risk == Risk::Dangerous || is_function_name(text) || imports_package(text) {
                    self.add_target(key, &target, at);
                }
            }
            "function" if outer == "config" && !is_harmless_operation(text) => {
                self.add_target(key, &Callable::unknown(text), at);
            }
            "module"
                if outer == "python_param"
                    || outer == "architecture" && !text.starts_with("pyannote.audio.") =>
            {
                self.add_target(key, &Callable::unknown(text), at);
            }
            "name" if self.names_step(outer) && imports_package(text) && !text.starts_with("pyannote.") => {
                self.add_target(key, &Callable::new(text), at);
            }
            "file_name" if outer == "hdf5_output_param" => {
                self.add_finding("writes", || format!("a layer of Caffe that writes `{}`", shown(text)));
            }
            "py/object" | "py/type" | "py/function" | "py/class" => {
                self.add_target(key, &Callable::new(text), at);
            }
            "py/repr" => self.add_finding("expression", || {
                format!("the text `{}`, which jsonpickle evaluates", shown(text))
            }),
            "megatron_core" if text != "megatron.core" => {
                self.add_target(key, &Callable::unknown(text), at);
            }
            "download" if !is_address(text) && text.contains(['(', ' ', '\n']) => {
                self.add_target(key, &Callable::unknown(text), at);
            }
            "expr_str" | "as_expr" if !is_symbolic(text) => self.add_finding("expression", || {
                format!(
                    "the expression `{}`, which Python evaluates, is none that PyTorch writes",
                    shown(text)
                )
            }),
            "guards_code" if !is_guard(text) => self.add_finding("expression", || {
                format!("the guard `{}`, which Python runs, is none that PyTorch writes", shown(text))
            }),
            "in_spec" | "out_spec" | "context" if text.starts_with(['[', '{']) => {
                self.found.texts.push(text.to_owned());
            }
            ":serialized:" => self.add_pickle(text, at, true),
            // For the whole model, or for each part of it.
            _ if [key, outer].iter().any(|it| it.contains("_implementation")) && text.contains('/') => {
                self.add_target(key, &Callable::unknown(text), at);
            }
            "loader_module" if !text.starts_with("mlflow.") && !has(LOADERS, text) => {
                self.add_target(key, &Callable::new(&[text, "._load_pyfunc"].concat()), at);
            }
            "class_name" => {
                if let Some((_, action)) = LAYERS.iter().find(|(layer, _)| *layer == text) {
                    self.add_finding("lambda", || {
                        format!("a layer of Keras has `class_name: {text}`: it {action}")
                    });
                }
            }
            "vocabulary" if self.levels.last().is_some_and(|level| level.is_map) && leads_out(text) => {
                self.add_missed(|| format!("the vocabulary `{}`, which is in another folder", shown(text)));
            }
            _ if outer == "weight_map" && leads_out(text) => {
                self.add_missed(|| format!("the shard `{}`, which is in another folder", shown(text)));
            }
            _ => self.code_of_key(key, outer, text, at),
        }
    }

    /// Judges a text that names code, or a configuration that is code, by its key.
    fn code_of_key(&mut self, key: &str, outer: &str, text: &str, at: u64) {
        match key {
            "code" if outer == "tools" => {
                self.add_missed(|| "the Python code of a tool, which smolagents runs".to_owned());
            }
            "model_code_path" | "code" if key != "code" || outer == "python_function" => {
                self.add_missed(|| format!("the Python code in `{}`, which MLflow runs", shown(text)));
            }
            "id" | "name" if matches!(outer, "filters" | "codecs") && text.contains("pickle") => {
                self.add_missed(|| format!("arrays that zarr unpickles (`{}`)", shown(text)));
            }
            "cfg" | "config" if matches!(outer, "runtime_info" | "meta") && !is_plain_value(text) => {
                self.add_missed(|| "a configuration in Python, which MMEngine runs".to_owned());
            }
            // At the top, it says what a program did, unless it names a repository.
            "trust_remote_code" if self.levels.len() > 1 && !is_off(text) => {
                self.add_missed(|| {
                    format!("the Python code of another repository, which `{}` trusts", shown(outer))
                });
            }
            "requirementsFile" => {
                self.add_missed(|| {
                    format!("the packages of `{}`, which TorchServe may install", shown(text))
                });
            }
            "allow_remote" if !is_off(text) => {
                self.add_missed(|| "the Python code of the model, which ModelScope runs".to_owned());
            }
            // A pipeline of DVC, and a project of MLflow.
            "cmd" | "command"
                if self.levels.iter().any(|it| matches!(it.outer.as_str(), "stages" | "entry_points")) =>
            {
                self.add_target(key, &Callable::unknown(text), at);
            }
            "plugins" if text.contains('/') => self.add_target(key, &Callable::unknown(text), at),
            "imports" if self.levels.iter().any(|level| level.outer == "custom_imports") => {
                self.add_target(key, &Callable::unknown(text), at);
            }
            // MXNet takes the address of a function in the process from the text, or calls Python.
            "op" if matches!(text, "_Native" | "_NDArray" | "Custom") => {
                self.add_missed(|| format!("the operator `{text}` of MXNet, which calls other code"));
            }
            "handler" if outer == "model" => self.handler(text, at),
            _ => {}
        }
    }

    /// Returns true for the arguments of a pipeline of pyannote.audio, or of a step before it.
    fn names_step(&self, outer: &str) -> bool {
        let above = self.levels.iter().rev().nth(1);
        outer == "pipeline" || above.is_some_and(|level| level.outer == "preprocessors")
    }

    /// Judges the handler that `TorchServe` imports: one of its own, a file, or a module.
    fn handler(&mut self, text: &str, at: u64) {
        if text.contains(".py") {
            self.add_missed(|| format!("`{}`, Python code that TorchServe runs", shown(text)));
        } else if !text.is_empty() && !HANDLERS.split(' ').any(|known| known == text) {
            self.add_target("handler", &Callable::new(&text.replace(':', ".")), at);
        }
    }

    /// Judges the operator of a node of an exported program.
    fn operator(&mut self, text: &str, at: u64) {
        let known = || {
            let name = text.strip_prefix("torch.ops.")?;
            let (namespace, operator) = name.split_once('.')?;
            let operator = operator.split('.').next().unwrap_or_default();
            Some(match namespace {
                "higher_order" => Risk::Known,
                _ => operator_risk(namespace, operator),
            })
        };
        let is_symbol = SYMBOL_OPERATORS.split(' ').any(|known| known == text);
        let risk = if is_symbol { Risk::Known } else { known().unwrap_or(Risk::Unknown) };
        let mut target = Callable::new(text);
        target.risk = if text.starts_with("torch.ops.") || is_symbol { risk } else { target.risk.max(risk) };
        self.add_target("target", &target, at);
    }

    fn add_target(&mut self, key: &str, target: &Callable, at: u64) {
        if target.risk == Risk::Known {
            return;
        }
        let (module, name) = (truncate_name(target.module.clone()), truncate_name(target.name.clone()));
        let next = self.found.uses.len();
        if next >= FOUND_MAX {
            return self.add_missed(|| "more callables".to_owned());
        }
        let place = *self.found.places.entry((module.clone(), name.clone())).or_insert(next);
        if place == next {
            let global = Global::with_risk(&module, &name, at, target.risk);
            let calls = Vec::new();
            self.found.uses.push(GlobalUse {
                global,
                risk: target.risk,
                calls,
                unlisted_calls: 0,
                after_error: false,
            });
        }
        let Some(found) = self.found.uses.get_mut(place) else { return };
        if found.calls.len() < CALLS_MAX {
            let text = truncate_name(format!("{key}: {}", target.text));
            found.calls.push(GlobalCall { opcode: "document", offset: at, text, has_arguments: true });
        } else {
            found.unlisted_calls = found.unlisted_calls.saturating_add(1);
        }
    }

    fn add_finding(&mut self, kind: &'static str, text: impl FnOnce() -> String) {
        if self.found.findings.len() < FOUND_MAX {
            self.found.findings.push(Finding { kind, text: text() });
        }
    }

    pub(super) fn add_missed(&mut self, text: impl FnOnce() -> String) {
        if self.found.missed.len() < FOUND_MAX {
            self.found.missed.push(text());
        }
    }
}
