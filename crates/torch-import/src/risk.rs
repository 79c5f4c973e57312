//! The one table of which globals are known, and which are dangerous.
//!
//! Facts: what a call of them does in CPython 3.13, PyTorch 2.15 and NumPy 2.4; the names by which Python 2 and older
//! versions knew them. Pickles resolve dotted names from protocol 4 on, so that a name may lead from a harmless
//! module to any other.

use tensor::Dtype;

use crate::rebuild::Function;

/// The risk of a global when Python's own unpickler loads the pickle that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Risk {
    /// This crate reads it, or it only makes plain data.
    Known,
    /// Nothing is known about it. It may be a class of the program that saved the file, or anything else.
    Unknown,
    /// It runs code, starts programs, looks up attributes, reads or writes files, or uses the network.
    Dangerous,
}

impl Risk {
    /// The name in listings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::Unknown => "unknown",
            Self::Dangerous => "dangerous",
        }
    }

    /// The risk of the global `module.name`.
    pub fn from_names(module: &str, name: &str) -> Self {
        if is_dangerous(module, name) {
            Self::Dangerous
        } else if is_known(module, name) {
            Self::Known
        } else {
            Self::Unknown
        }
    }
}

/// Modules in which everything is dangerous, including their submodules.
const MODULES: &[&str] = &[
    // The operating system and its programs.
    "_aix_support _osx_support _posixshmem _posixsubprocess _winapi commands multiprocessing nt os \
     pexpect platform popen2 posix psutil pty sh signal _signal subprocess sys concurrent asyncio \
     _asyncio _thread threading atexit gc resource winreg _winreg",
    // Code from text, bytes and files.
    "_frozen_importlib _frozen_importlib_external _imp imp importlib pkgutil runpy zipimport code codeop \
     _pyrepl idlelib IPython ipykernel marshal compileall py_compile site bdb cProfile _lsprof doctest \
     inspect pdb profile pydoc test timeit trace unittest lib2to3 jinja2 mako numexpr llvmlite numba cffi \
     ctypes _ctypes sympy asteval",
    // Pickles in pickles.
    "pickle _pickle cPickle pickle5 dill cloudpickle joblib shelve jsonpickle",
    // Installers.
    "distutils ensurepip pip setuptools pkg_resources venv conda",
    // Files.
    "fileinput filecmp glob linecache mmap shutil sqlite3 _sqlite3 tarfile tempfile zipfile dbm fsspec",
    // The network.
    "_socket _ssl aiohttp boto3 fabric ftplib http httplib httpx imaplib invoke nntplib paramiko poplib \
     requests select selectors smtplib socket socketserver SocketServer ssl telnetlib urllib urllib2 \
     urllib3 webbrowser xmlrpc xmlrpclib huggingface_hub gdown wget",
    // Scanners: a pickle that names one tries to disable it.
    "fickling modelscan picklescan",
    // Of NumPy and PyTorch.
    "numpy.ctypeslib numpy.distutils numpy.f2py numpy.testing numpy.lib.npyio numpy.lib._npyio_impl \
     torch._dynamo torch._inductor torch.distributed.elastic torch.distributed.launch \
     torch.distributed.launcher torch.distributed.rpc torch.distributed.run torch.hub \
     torch.multiprocessing torch.package torch.utils._config_module torch.utils.benchmark \
     torch.utils.bottleneck torch.utils.collect_env torch.utils.cpp_extension torch.utils.data.datapipes \
     torch.utils.model_dump torch.utils.model_zoo torch._appdirs torch._sources torch._ops torch.ops \
     torch.classes torch.onnx torch.utils.hipify torch.testing torch.fx.experimental torch.jit.frontend",
];

/// Names that are dangerous in modules that are not.
const NAMES: &[(&str, &str)] = &[
    (
        "builtins __builtin__ __builtins__",
        "\
        __build_class__ __import__ apply breakpoint compile delattr eval exec execfile exit file filter \
        getattr globals help input locals map open quit raw_input reduce reload setattr type vars",
    ),
    ("functools _functools", "partial partialmethod reduce cached_property singledispatch"),
    ("itertools", "starmap accumulate takewhile dropwhile filterfalse groupby"),
    ("operator _operator", "attrgetter itemgetter methodcaller call __call__"),
    (
        "types",
        "\
        CodeType FunctionType LambdaType MethodType ModuleType new_class DynamicClassAttribute",
    ),
    ("io _io _pyio", "FileIO open open_code OpenWrapper"),
    ("codecs", "open"),
    ("_codecs codecs", "lookup register"),
    ("typing", "get_type_hints ForwardRef _eval_type"),
    ("dataclasses", "make_dataclass"),
    ("logging", "FileHandler basicConfig"),
    ("uuid", "_get_command_stdout _popen getnode uuid1"),
    ("copyreg copy_reg", "pickle constructor add_extension"),
    ("weakref", "finalize"),
    ("yaml", "load load_all full_load unsafe_load unsafe_load_all"),
    ("pandas", "eval read_pickle read_csv read_hdf"),
    ("pandas.io.pickle pandas.compat.pickle_compat", "read_pickle load loads"),
    (
        "\
        numpy numpy.core.multiarray numpy._core.multiarray numpy.core.memmap numpy._core.memmap",
        "\
        DataSource fromfile genfromtxt load loadtxt memmap save savetxt savez vectorize apply_along_axis \
        fromfunction",
    ),
    ("scipy.io scipy.io.matlab", "loadmat"),
    ("keras.models tensorflow.keras.models keras.saving", "load_model"),
    ("hydra.utils", "call get_class get_method get_object instantiate"),
    (
        "\
        torch torch.serialization torch.jit torch.jit._serialization torch._jit_internal torch._C \
        torch._C._jit",
        "\
        _legacy_load _load compile import_ir_module import_ir_module_from_buffer load save script \
        CompilationUnit PyTorchFileReader PyTorchFileWriter from_file _open_file _import_dotted_name \
        _rebuild_unbox",
    ),
    ("torch.storage", "_share_memory_lock _new_shared"),
    ("torch._utils", "_import_dotted_name"),
    (
        "torch.jit._script torch.jit.unsupported_tensor_ops torch.jit._builtins",
        "execWrapper script _recursive_compile_class",
    ),
    (
        "torch.fx.graph_module torch.fx._lazy_graph_module torch.fx.graph torch.fx",
        "\
        _deserialize_graph_module _exec_with_source _forward_from_src _method_from_src \
        reduce_deploy_graph_module reduce_graph_module reduce_package_graph_module _make_graph_module",
    ),
    ("torch.utils.data.dataloader torch.utils.data._utils.worker", "_worker_loop"),
    ("torch.ao.quantization.fx", "eval"),
];

/// The most bytes in the name of a module or global, and the most dots in that of a global. Real names are shorter.
const LEN_MAX: usize = 512;
const DOTS_MAX: usize = 8;

/// Parts that a name must not contain, whatever its module: attributes that lead from any module to all others, and
/// calls without harmless namesakes.
const SEGMENTS: &str = "\
    __bases__ __base__ __builtin__ __builtins__ __call__ __class__ __code__ __closure__ __dict__ __func__ \
    __getattr__ __getattribute__ __globals__ __import__ __loader__ __mro__ __self__ __spec__ __subclasses__ \
    __wrapped__ _exec_with_source builtins call_command check_call check_output cpp_extension ctypes dlopen \
    eval exec exec_command execfile execl execle execlp execv execve execvp execvpe fork forkpty getoutput \
    getstatusoutput import_module importlib load_library load_module marshal nt os pickle popen Popen posix \
    posix_spawn read_pickle rmtree run_cell run_code run_module run_path runcode runctx runpy runsource \
    runstring shutil socket spawnl spawnv startfile subprocess sys system unsafe_load urlopen urlretrieve \
    webbrowser";

/// Whether `word` is one of the words of a list.
fn lists(list: &str, word: &str) -> bool {
    list.split(' ').any(|listed| listed == word)
}

fn is_dangerous(module: &str, name: &str) -> bool {
    // Real names are short, and have no spaces or control characters.
    let odd = |text: &str| {
        text.is_empty() || text.len() > LEN_MAX || text.chars().any(|c| c.is_control() || c.is_whitespace())
    };
    if odd(module) || odd(name) || name.split('.').any(leads_on) {
        return true;
    }
    // A part that starts with two underscores belongs to the interpreter.
    if name.contains('.') && name.split('.').any(|part| part.starts_with("__")) {
        return true;
    }
    if name.matches('.').count() > DOTS_MAX || is_dangerous_path(module, name) {
        return true;
    }
    // A module's attributes are modules too: `torch.nn.modules.module` has `torch.hub.load`.
    let mut rest = name;
    while let Some((first, after)) = rest.split_once('.') {
        if is_dangerous_path(first, after) {
            return true;
        }
        rest = after;
    }
    false
}

/// Whether a dotted name is dangerous from this module on: `torch` and `hub.load` are `torch.hub` and `load`.
fn is_dangerous_path(module: &str, name: &str) -> bool {
    let (mut module, mut rest) = (module.to_owned(), name);
    loop {
        let (first, after) = rest.split_once('.').unwrap_or((rest, ""));
        let listed = |(modules, names): &(&str, &str)| lists(modules, &module) && lists(names, first);
        if is_dangerous_module(&module) || NAMES.iter().any(listed) {
            return true;
        }
        module = [&module, ".", first].concat();
        if after.is_empty() {
            return is_dangerous_module(&module);
        }
        rest = after;
    }
}

/// Whether a part of a name leads to other modules; modules import them as `_os` too.
fn leads_on(part: &str) -> bool {
    lists(SEGMENTS, part) || lists(SEGMENTS, part.trim_start_matches('_'))
}

/// Whether a module is listed, or is a submodule of one that is.
fn is_dangerous_module(module: &str) -> bool {
    let parents = module.match_indices('.').filter_map(|(at, _)| module.get(..at));
    parents.chain([module]).any(|parent| MODULES.iter().any(|list| lists(list, parent)))
}

/// Names of modules that make plain data.
const DATA: &[(&str, &str)] = &[
    (
        "collections _collections",
        "ChainMap Counter OrderedDict UserDict UserList UserString defaultdict deque",
    ),
    (
        "builtins __builtin__",
        "\
        Ellipsis NoneType bool bytearray bytes complex dict float frozenset int list long object range set \
        slice str tuple unicode xrange",
    ),
    ("copyreg copy_reg", "__newobj__ __newobj_ex__ _reconstructor"),
    ("_codecs", "encode"),
    ("argparse", "Namespace"),
    ("types", "NoneType SimpleNamespace"),
    ("datetime", "date datetime time timedelta timezone"),
    ("decimal _decimal _pydecimal", "Decimal"),
    ("fractions", "Fraction"),
    ("uuid", "SafeUUID UUID"),
    ("pathlib pathlib._local", "Path PosixPath PurePath PurePosixPath PureWindowsPath WindowsPath"),
    ("typing", "Any Callable Dict List Optional Set Tuple Union"),
    ("numpy.core.multiarray numpy._core.multiarray", "_reconstruct scalar"),
    ("numpy.core.numeric numpy._core.numeric", "_frombuffer"),
    (
        "numpy",
        "\
        bool bool_ complex128 complex64 dtype float16 float32 float64 int16 int32 int64 int8 ndarray str_ \
        bytes_ uint16 uint32 uint64 uint8",
    ),
    ("numpy.random._pickle", "__bit_generator_ctor __generator_ctor __randomstate_ctor"),
    ("numpy.random._mt19937", "MT19937"),
    ("numpy.random._pcg64", "PCG64 PCG64DXSM"),
    (
        "torch",
        "\
        Generator Size Tensor device dtype finfo layout memory_format channels_last channels_last_3d \
        contiguous_format preserve_format per_channel_affine per_channel_affine_float_qparams \
        per_channel_symmetric per_tensor_affine per_tensor_symmetric sparse_bsc sparse_bsr sparse_coo \
        sparse_csc sparse_csr strided UntypedStorage bits16 bits1x8 bits2x4 bits4x2 bits8",
    ),
    ("torch._C", "_disabled_torch_function_impl"),
    ("torch._tensor", "Tensor"),
    ("torch.storage", "TypedStorage UntypedStorage _load_from_bytes"),
    ("torch.serialization", "_get_layout"),
    ("torch.nn.parameter", "Buffer Parameter UninitializedBuffer UninitializedParameter"),
    ("torch.distributed.device_mesh torch.distributed._mesh_layout", "DeviceMesh _FlatLayout _MeshLayout"),
    (
        "\
        torch.distributed.tensor torch.distributed._tensor torch.distributed.tensor._api \
        torch.distributed._tensor.api",
        "DTensor",
    ),
    (
        "\
        torch.distributed.tensor._dtensor_spec torch.distributed._tensor.placement_types",
        "DTensorSpec ShardOrderEntry TensorMeta",
    ),
    (
        "\
        torch.distributed.tensor.placement_types torch.distributed._tensor.placement_types",
        "Partial Placement Replicate Shard _Partial _StridedShard",
    ),
    ("torch.utils.hooks", "RemovableHandle unserializable_hook"),
    (
        "omegaconf.dictconfig omegaconf.listconfig omegaconf.base omegaconf.nodes",
        "\
        AnyNode BooleanNode BytesNode ContainerMetadata DictConfig EnumNode FloatNode IntegerNode ListConfig \
        Metadata PathNode StringNode",
    ),
];

/// Packages whose classes only store their state when a pickle makes them.
const CLASSES: &[&str] = &["torch.nn.modules.", "torch.optim.", "torch.distributions."];

fn is_known(module: &str, name: &str) -> bool {
    DATA.iter().any(|(modules, names)| lists(modules, module) && lists(names, name))
        || (matches!(module, "torch" | "torch.cuda")
            && (Dtype::from_storage_class(name).is_some() || Dtype::from_name(name).is_some()))
        || Function::from_names(module, name).is_some_and(|function| function != Function::Unread)
        // Classes of a TorchScript archive's own code, which Python never imports.
        || module == "__torch__" || module.starts_with("__torch__.")
        || (module == "torch.jit._pickle" && (name.starts_with("build_") || name == "restore_type_tag"))
        || (CLASSES.iter().any(|package| module.starts_with(package)) && is_class(name))
        || (matches!(module, "numpy.dtypes") && name.ends_with("DType") && is_class(name))
}

/// Whether a name is a single identifier in the style of Python's classes.
pub(crate) fn is_class(name: &str) -> bool {
    let name = name.strip_prefix('_').unwrap_or(name);
    name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
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
            ("torch.optim.adam", "Adam"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("_codecs", "encode"),
            ("__builtin__", "set"),
            ("pathlib", "PosixPath"),
            ("__torch__.net", "Net"),
        ] {
            assert_eq!(Risk::from_names(module, name), Risk::Known, "{module} {name}");
        }
    }

    #[test]
    fn other_names_are_unknown() {
        for (module, name) in [
            ("__main__", "Net"),
            ("torch._utils", "_rebuild_something_new"),
            ("torch.nn.modules.module", "Module.forward"),
            ("torch.nn.modules.module", "register_module_backward_hook"),
            ("collections", "abc"),
            ("osx.system_info", "Osx"),
        ] {
            assert_eq!(Risk::from_names(module, name), Risk::Unknown, "{module} {name}");
        }
    }
}
