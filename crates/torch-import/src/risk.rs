//! Classifies globals as known to be harmless, unknown, or dangerous.
//!
//! Facts: the lists included by `lists.rs` for the standard library, torch, numpy and the packages that torch requires; the
//! effects of calls for other packages. Pickles resolve dotted names from protocol 4 on, so that a name may lead from a harmless module to any
//! other.

use std::collections::HashSet;
use std::sync::LazyLock;

use tensor::Dtype;

use crate::lists;
use crate::rebuild::RebuildFunction;

/// The risk of a global when Python's own unpickler loads the pickle that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Risk {
    /// Interpreted by this crate, or creates only plain data.
    Known,
    /// Not listed; it may be a class of the program that saved the file, or anything else.
    Unknown,
    /// Part of the standard library, torch, numpy or a package that torch requires, used in a way that nobody has judged.
    Unreviewed,
    /// Runs code, starts programs, looks up attributes, reads or writes files, or uses the network.
    Dangerous,
}

impl Risk {
    /// Returns the risk's name in listings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::Unknown => "unknown",
            Self::Unreviewed => "unreviewed",
            Self::Dangerous => "dangerous",
        }
    }

    /// Returns the risk of naming the global `module.name`; what a pickle does with it may be riskier.
    ///
    /// In the standard library, torch, numpy and the packages that torch requires, a name that is neither known to be harmless
    /// nor to be dangerous is unreviewed. In other packages, a name not known to be dangerous is unknown.
    pub fn from_names(module: &str, name: &str) -> Self {
        if is_implausible_name(module) || is_implausible_name(name) {
            Self::Dangerous
        } else if lists::is_core_module(module) {
            if is_known_core_name(module, name) {
                Self::Known
            } else if is_unresolvable_name(name) {
                Self::Unknown
            } else if is_dangerous_core_name(module, name) {
                Self::Dangerous
            } else {
                Self::Unreviewed
            }
        } else if is_listed_data(module, name) {
            Self::Known
        } else if is_dangerous_third_party_name(module, name) {
            Self::Dangerous
        } else {
            Self::Unknown
        }
    }
}

/// Returns true if a name of another package is listed as making plain data.
pub(crate) fn is_listed_data(module: &str, name: &str) -> bool {
    DATA_NAMES.contains(&(module, name))
}

/// Returns true if a global is the class with which joblib describes an array. scikit-learn bundled a copy of joblib
/// until 0.22.
pub(crate) fn is_array_wrapper((module, name): (&str, &str)) -> bool {
    name == "NumpyArrayWrapper"
        && matches!(module, "joblib.numpy_pickle" | "sklearn.externals.joblib.numpy_pickle")
}

/// Packages in which everything is dangerous, including submodules.
const PACKAGES: &str = "\
    IPython aiohttp asteval boto3 cffi cloudpickle conda dill fabric fickling gdown httpx huggingface_hub invoke \
    ipykernel joblib jsonpickle llvmlite mako modelscan numba numexpr paramiko pexpect picklescan pickle5 psutil \
    requests sh urllib3 wget";

/// Dangerous names in packages that are otherwise unknown.
const DANGEROUS_NAME_TABLE: &[(&str, &str)] = &[
    ("yaml", "load load_all full_load unsafe_load unsafe_load_all"),
    ("pandas", "eval read_pickle read_csv read_hdf"),
    ("pandas.io.pickle pandas.compat.pickle_compat", "read_pickle load loads"),
    ("scipy.io scipy.io.matlab", "loadmat"),
    ("keras.models tensorflow.keras.models keras.saving", "load_model"),
    ("torch_utils.persistence", "_reconstruct_persistent_obj"),
    ("hydra.utils", "call get_class get_method get_object instantiate"),
];

/// Maximum length in bytes of a module's or a global's name, and maximum number of dots in a global's name. Real names
/// are shorter.
const LEN_MAX: usize = 512;
const DOTS_MAX: usize = 8;

/// Parts of names that are dangerous in any module: attributes that lead from any module to all others, and calls
/// without harmless namesakes.
const SEGMENTS: &str = "\
    __bases__ __base__ __builtin__ __builtins__ __call__ __class__ __code__ __closure__ __dict__ __func__ \
    __getattr__ __getattribute__ __globals__ __import__ __loader__ __mro__ __self__ __spec__ __subclasses__ \
    __wrapped__ _exec_with_source builtins call_command check_call check_output cpp_extension ctypes dlopen \
    eval exec exec_command execfile execl execle execlp execv execve execvp execvpe fork forkpty getoutput \
    getstatusoutput import_module importlib load_library load_module marshal nt os pickle popen Popen posix \
    posix_spawn read_pickle rmtree run_cell run_code run_module run_path runcode runctx runpy runsource \
    runstring shutil socket spawnl spawnv startfile subprocess sys system unsafe_load urlopen urlretrieve \
    webbrowser";

/// Methods of classes of the standard library, torch and numpy that use files or the memory of other processes, whatever
/// the class.
const METHODS: [&str; 23] = [
    "_new_shared_cuda",
    "_new_shared_fd_cpu",
    "_new_shared_filename_cpu",
    "_new_with_file",
    "_set_from_file",
    "_write_file",
    "chmod",
    "exec_module",
    "extractall",
    "from_file",
    "hardlink_to",
    "lchmod",
    "link_to",
    "mkdir",
    "read_bytes",
    "read_text",
    "rmdir",
    "symlink_to",
    "tofile",
    "touch",
    "unlink",
    "write_bytes",
    "write_text",
];

/// Names outside the standard library, torch and numpy that create plain data.
const DATA_NAME_TABLE: &[(&str, &str)] = &[
    (
        "omegaconf.dictconfig omegaconf.listconfig omegaconf.base omegaconf.nodes",
        "\
        AnyNode BooleanNode BytesNode ContainerMetadata DictConfig EnumNode FloatNode IntegerNode ListConfig \
        Metadata PathNode StringNode",
    ),
    ("joblib.numpy_pickle joblib.numpy_pickle_compat", "NDArrayWrapper NumpyArrayWrapper ZNDArrayWrapper"),
];

static DANGEROUS_PACKAGES: LazyLock<HashSet<&str>> = LazyLock::new(|| PACKAGES.split(' ').collect());
static DANGEROUS_NAMES: LazyLock<HashSet<(&str, &str)>> = LazyLock::new(|| pairs(DANGEROUS_NAME_TABLE));
static DANGEROUS_PARTS: LazyLock<HashSet<&str>> = LazyLock::new(|| SEGMENTS.split(' ').collect());
static DATA_NAMES: LazyLock<HashSet<(&str, &str)>> = LazyLock::new(|| pairs(DATA_NAME_TABLE));

fn pairs(table: &[(&'static str, &'static str)]) -> HashSet<(&'static str, &'static str)> {
    let rows =
        table.iter().flat_map(|(modules, names)| modules.split(' ').map(move |module| (module, *names)));
    rows.flat_map(|(module, names)| names.split(' ').map(move |name| (module, name))).collect()
}

/// Returns true if a name is implausible: real names are short, without spaces or control characters.
fn is_implausible_name(text: &str) -> bool {
    let is_strange = |c: char| c.is_control() || c.is_whitespace();
    text.is_empty()
        || text.len() > LEN_MAX
        || text.matches('.').count() > DOTS_MAX
        || text.chars().any(is_strange)
}

/// Returns true if no attribute of a module has the name, so that Python's lookup fails. Python 2 wrote `?` for an
/// object without a name.
pub(crate) fn is_unresolvable_name(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_punctuation() && byte != b'_' && byte != b'.')
}

/// Returns true if a name of another package leads to a function that runs code.
fn is_dangerous_third_party_name(module: &str, name: &str) -> bool {
    let package = module.split('.').next().unwrap_or(module);
    if DANGEROUS_PACKAGES.contains(package) || name.split('.').any(leads_to_other_modules) {
        return true;
    }
    let first = name.split('.').next().unwrap_or(name);
    if DANGEROUS_NAMES.contains(&(module, first)) {
        return true;
    }
    // Names that start with two underscores belong to the interpreter.
    if name.contains('.') && name.split('.').any(|part| part.starts_with("__")) {
        return true;
    }
    // A module's attributes include the modules that it imports: `mylib.net` may have `torch.hub.load`.
    leads_out(name)
}

/// Returns true if a name of the standard library, torch or numpy that is not known leads to code that runs, to
/// programs, files or the network, or looks up attributes.
fn is_dangerous_core_name(module: &str, name: &str) -> bool {
    if lists::is_dangerous_core_name(module, name) || lists::is_refused(&[module, ".", name].concat()) {
        return true;
    }
    let (module, name) = lists::resolve_alias(module, name).unwrap_or((module, name));
    let path = [module, ".", name].concat();
    if lists::is_refused(&path)
        || path.split('.').any(leads_to_other_modules)
        || name.split('.').any(|part| METHODS.contains(&part))
        || lists::is_core_module(name)
    {
        return true;
    }
    let Some((class, _)) = name.split_once('.') else { return false };
    // A member of a class may be named; anything else that a dot leads to is an attribute that was looked up.
    let is_member = class.trim_start_matches('_').starts_with(|c: char| c.is_ascii_uppercase());
    !is_member || name.split('.').any(|part| part.starts_with("__")) || leads_out(name)
}

/// Returns true if a dotted name has a part from which the rest is a dangerous name of a module.
fn leads_out(name: &str) -> bool {
    let starts = name.match_indices('.').map(|(at, _)| at.saturating_add(1));
    std::iter::once(0).chain(starts).filter_map(|at| name.get(at..)?.split_once('.')).any(|(first, rest)| {
        DANGEROUS_PACKAGES.contains(first)
            || (lists::is_core_module(first) && !is_known_core_name(first, rest))
    })
}

/// Returns true if a part of a name leads to other modules, also under an alias such as `_os`.
fn leads_to_other_modules(part: &str) -> bool {
    DANGEROUS_PARTS.contains(part) || DANGEROUS_PARTS.contains(part.trim_start_matches('_'))
}

/// Returns true if a name of the standard library, torch or numpy is known to be harmless.
fn is_known_core_name(module: &str, name: &str) -> bool {
    lists::is_harmless_core_name(module, name)
        || lists::class_traits(module, name).is_some()
        || lists::reviewed(module, name).is_some()
        || RebuildFunction::from_names(module, name).is_some_and(|function| function != RebuildFunction::UnsupportedRebuild)
        || (matches!(module, "torch" | "torch.cuda")
            && (Dtype::from_storage_class(name).is_some() || Dtype::from_name(name).is_some()))
        || (module == "torch.jit._pickle" && (name.starts_with("build_") || name == "restore_type_tag"))
        // A constant of a harmless class, such as a member of an enumeration.
        || name.rsplit_once('.').is_some_and(|(class, constant)| is_constant(constant) && lists::is_harmless_core_name(module, class))
        // Python finds some objects of torch through the first module that has imported torch.
        || (MODULES_WITH_TORCH.contains(&module) && name.strip_prefix("torch.").is_some_and(|name| lists::is_harmless_core_name("torch", name)))
}

/// Modules that have `torch` as an attribute, and that `import torch` imports itself: the import of another one may start programs.
const MODULES_WITH_TORCH: [&str; 8] = [
    "torch._tensor",
    "torch._utils",
    "torch._utils_internal",
    "torch.functional",
    "torch.overrides",
    "torch.serialization",
    "torch.storage",
    "torch.tensor",
];

/// Returns true if a name is in the style of Python's constants. No harmless class has a callable with such a name.
fn is_constant(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_code_is_dangerous() {
        for (module, name) in [
            ("os", "system"),
            ("posix", "system"),
            ("os.path", "join"),
            ("builtins", "eval"),
            ("__builtin__", "apply"),
            ("builtins", "getattr"),
            ("torch", "load"),
            ("torch", "hub.load"),
            ("torch", "hub"),
            ("torch.serialization", "os.system"),
            ("collections", "_sys.modules"),
            ("torch.nn.modules.module", "torch.hub.load"),
            ("torch.nn.modules.linear", "Linear.__init__.__globals__"),
            ("mylib.tools", "system"),
            ("numpy.testing._private.utils", "runstring"),
            ("functools", "partial"),
            ("torch.fx.graph_module", "reduce_graph_module"),
            ("os\n", "system"),
            ("", "eval"),
            ("operator", "methodcaller"),
            ("zlib", "decompress"),
            ("torch._C", "_VariableFunctionsClass.from_file"),
            ("torch", "PyTorchFileReader"),
            ("numpy", "core._internal.sys.modules"),
            ("numpy", "__builtins__"),
            ("mylib", "torch.load"),
            ("builtins", "?.eval"),
            ("exceptions", "_"),
            // The import looks for compilers, and starts them.
            ("torch.utils.cpp_extension", "torch.Size"),
            ("torch.testing._internal.common_utils", "torch.float32"),
            ("pathlib", "PosixPath.write_text"),
            ("mpmath.libmp.backend", "exec_"),
            ("sympy.core.symbol", "var"),
            ("torch.serialization", "mpmath.libmp.exec_"),
        ] {
            assert_eq!(Risk::from_names(module, name), Risk::Dangerous, "{module} {name}");
        }
    }

    #[test]
    fn what_makes_data_is_known() {
        for (module, name) in [
            ("collections", "OrderedDict"),
            ("torch", "FloatStorage"),
            ("torch.cuda", "HalfStorage"),
            ("torch", "float8_e4m3fn"),
            ("torch", "Size"),
            ("torch._utils", "_rebuild_tensor_v2"),
            ("torch._tensor", "_rebuild_from_type_v2"),
            ("torch.nn.modules.linear", "Linear"),
            ("torch.distributed.remote_device", "_remote_device"),
            ("torch.optim.adam", "Adam"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("_codecs", "encode"),
            ("__builtin__", "set"),
            ("pathlib", "PosixPath"),
            ("torch._C", "_VariableFunctionsClass.relu"),
            ("torch._utils", "torch.channels_last"),
            ("torch.nn.functional", "relu"),
            ("signal", "Signals"),
            ("http", "HTTPStatus.OK"),
            ("_io", "BytesIO"),
            ("exceptions", "ValueError"),
            ("__builtin__", "unicode"),
        ] {
            assert_eq!(Risk::from_names(module, name), Risk::Known, "{module} {name}");
        }
    }

    #[test]
    fn what_nobody_has_judged_is_unreviewed() {
        for (module, name) in [
            ("torch.nn.modules.module", "Module.forward"),
            ("torch._utils", "_rebuild_something_new"),
            ("torch.optim._new", "Optimizer"),
        ] {
            assert_eq!(Risk::from_names(module, name), Risk::Unreviewed, "{module} {name}");
        }
    }

    #[test]
    fn other_names_are_unknown() {
        for (module, name) in [
            ("__main__", "Net"),
            ("mylib", "Config.Inner"),
            ("__torch__.net", "Net"),
            ("torchvision.models.resnet", "ResNet"),
            ("transformers.training_args", "TrainingArguments"),
            ("osx.system_info", "Osx"),
            ("exceptions", "?"),
        ] {
            assert_eq!(Risk::from_names(module, name), Risk::Unknown, "{module} {name}");
        }
    }
}
