"""Follows what a Python callable calls, in the source of the packages that are installed, and says which sinks it reaches.

Calls are resolved through the objects themselves: a name through the function's globals, an attribute through modules and
classes, `self.name` through the class. What is not resolved, such as a call of an argument, is not followed: an argument
in a pickle is an object of the pickle, and is judged there. Runs in Python 3.6 and newer.
"""

import ast
import builtins
import inspect
import textwrap
import types

# What runs or imports code that its arguments choose. A pickle that reaches one of these runs what it likes.
CODE = {
    "builtins": "exec eval compile __import__ execfile",
    "importlib": "*", "importlib._bootstrap": "*", "_frozen_importlib": "*", "_frozen_importlib_external": "*", "_imp": "*",
    "imp": "*", "importlib.util": "*", "importlib.machinery": "*", "pkgutil": "*", "runpy": "*", "zipimport": "*",
    "code": "*", "codeop": "*", "marshal": "load loads",
    "pickle": "load loads Unpickler _Unpickler _load _loads", "_pickle": "load loads Unpickler", "shelve": "*", "dill": "*",
    "torch.serialization": "load _load _legacy_load", "torch.jit._serialization": "load", "torch.package": "*",
    "ctypes": "*", "_ctypes": "*", "torch.jit._script": "script", "torch.hub": "*",
}
# What else no harmless name may reach: processes, files, the network, the interpreter's state.
OTHER = {
    "builtins": "open input breakpoint exit quit",
    "os": "*", "posix": "*", "nt": "*", "subprocess": "*", "_posixsubprocess": "*", "pty": "*", "io": "open FileIO open_code",
    "_io": "open FileIO open_code", "socket": "*", "_socket": "*", "ssl": "*", "_ssl": "*", "shutil": "*", "tempfile": "*",
    "webbrowser": "*", "urllib.request": "*", "http.client": "*", "ftplib": "*", "smtplib": "*", "multiprocessing": "*",
    "multiprocessing.context": "*", "threading": "Thread Timer", "_thread": "start_new_thread", "signal": "*", "mmap": "*",
    "sys": "exit setprofile settrace setrecursionlimit addaudithook", "atexit": "*", "zipfile": "*", "tarfile": "*",
    "gzip": "*", "bz2": "*", "lzma": "*", "sqlite3": "*", "glob": "*", "linecache": "*", "gc": "*", "pdb": "*", "bdb": "*",
    "torch.serialization": "save", "torch.jit": "*", "torch._dynamo": "*", "torch._inductor": "*",
    "torch.utils.cpp_extension": "*", "torch.multiprocessing": "*",
    "numpy.lib.npyio": "*", "numpy.lib._npyio_impl": "*", "numpy.lib.format": "*", "numpy.lib._format_impl": "*",
}
# Methods that read or write files, or start something, whatever object they belong to. A path can be in a pickle.
METHODS = set("unlink rmdir write_text write_bytes read_text read_bytes symlink_to hardlink_to touch chmod exec_module "
              "load_module extractall popen system tofile".split())
# Of `os`, what only computes.
PURE = set("getppid fspath fsencode fsdecode cpu_count getpid urandom sysconf get_exec_path environ getenv _get_exports_list".split())


# Of the modules with a "*", what only asks or marks.
MARKS = set("is_tracing is_mangled is_scripting annotate clear_lru_cache nonstrict_trace allow_in_graph is_compiling _unwrap_optional "
            # These look for a library on Windows, and take no argument.
            "find_cudnn_windows_lib find_cuda_windows_lib".split())


def qualified(obj):
    """(module, name) of a function or class, or None."""
    module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
    if not isinstance(name, str):
        return None
    return (module if isinstance(module, str) else "builtins"), name


def listed(table, obj):
    names = qualified(obj)
    if names is None or not callable(obj):
        return None
    module, name = names
    while module:
        words = table.get(module)
        if words and (words == "*" or name.split(".")[0] in words.split()) and not (
                name in MARKS or (module in ("os", "posix") and name in PURE)):
            return names[0] + "." + name
        module = module.rpartition(".")[0] if table.get(module.rpartition(".")[0]) == "*" else ""
    return None


class Reach(object):
    """Searches up to `depth` levels of calls; remembers what it has found."""

    def __init__(self, depth, inside):
        self.depth, self.inside, self.trees, self.found = depth, inside, {}, {}

    def of(self, obj, others=True, itself=True):
        """The first sink that a pickle reaches through `obj`, as a path of names, or None.

        Without `itself`, `obj` is not a sink, but what it calls may be.
        """
        sink = itself and (listed(CODE, obj) or (others and listed(OTHER, obj)))
        return [sink] if sink else self.search(obj, self.depth, others, set(), PICKLED)

    def search(self, obj, depth, others, seen, methods=("__new__", "__init__", "__post_init__")):
        """The same for a call in the source, where `methods` are those of a class that run."""
        sink = methods is not PICKLED and (listed(CODE, obj) or (others and listed(OTHER, obj)))
        if sink:
            return [sink]
        names = qualified(obj)
        if depth == 0 or id(obj) in seen or (names and names[1] in MARKS):
            return None
        key = (id(obj), depth, others, methods)
        if key not in self.found:
            seen = seen | {id(obj)}
            self.found[key] = None
            for part in parts(obj, methods):
                path = self.body(part, depth, others, seen)
                if path:
                    self.found[key] = [".".join(qualified(obj) or ("", "?"))] + path
                    break
        return self.found[key]

    def body(self, function, depth, others, seen):
        function, owner = function
        names = qualified(function)
        if not isinstance(function, types.FunctionType) or not names or names[0].split(".")[0] not in self.inside:
            return None
        for chain, method, constant in self.calls(function):
            target = resolve(chain, function, owner) if chain else None
            if target is None:
                if others and method in METHODS:
                    return ["." + method]
                continue
            if target is owner:
                continue
            # `find_spec("torch_xla")` does what the source says, whatever a pickle holds.
            if constant and (listed(CODE, target) or listed(OTHER, target)):
                continue
            path = self.search(target, depth - 1, others, seen)
            if path:
                return path
        return None

    def calls(self, function):
        """What a function's source calls: a chain of names or None, the last name, and whether all arguments are constants."""
        code = function.__code__
        if code not in self.trees:
            found = []
            try:
                tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
            except (OSError, TypeError, SyntaxError, IndentationError, ValueError):
                tree = ast.Module(body=[])
            for node in ast.walk(tree):
                # Decorators ran when the function was defined.
                if hasattr(node, "decorator_list"):
                    node.decorator_list = []
            for node in ast.walk(tree):
                if isinstance(node, ast.Call):
                    found += calls_in(node)
            self.trees[code] = found
        return self.trees[code]


# Calls that only look at their arguments.
LOOKS = set("isinstance issubclass type id cast hasattr callable repr str".split())


def calls_in(node):
    """What a call calls, and its arguments, which it may call: map(eval, …), Thread(target=system)."""
    given = list(node.args) + [keyword.value for keyword in node.keywords]
    constant = bool(given) and all(isinstance(value, (ast.Constant, ast.Str, ast.Num)) for value in given)
    chain = names_of(node.func)
    found = [(chain, node.func.attr if isinstance(node.func, ast.Attribute) else "", constant)]
    if not chain or chain[-1] not in LOOKS:
        found += [(chain, "", False) for chain in map(names_of, given) if chain]
    return found


def names_of(node):
    chain = []
    while isinstance(node, ast.Attribute):
        chain.append(node.attr)
        node = node.value
    return [node.id] + chain[::-1] if isinstance(node, ast.Name) else None


def resolve(chain, function, owner):
    """The object that a chain of names means inside a function, or None."""
    first, rest = chain[0], chain[1:]
    if owner is not None and first in ("self", "cls"):
        target = owner
        if not rest:
            return owner if first == "cls" else None
    elif first == "super" or first in function.__code__.co_varnames:
        return local_import(first, chain, function)
    else:
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        try:
            target = cells[first].cell_contents if first in cells else function.__globals__[first]
        except (KeyError, ValueError):
            target = getattr(builtins, first, None)
    for name in rest:
        if not isinstance(target, (types.ModuleType, type)):
            return None
        try:
            target = inspect.getattr_static(target, name, None) if isinstance(target, type) else getattr(target, name, None)
        except Exception:
            return None
        if isinstance(target, (staticmethod, classmethod)):
            target = target.__func__
    return target if callable(target) else None


def local_import(first, chain, function):
    """A module that the function imports by itself has the name of a local variable."""
    import sys
    module = sys.modules.get(first)
    if module is None or first not in function.__code__.co_names:
        return None
    for name in chain[1:]:
        if not isinstance(module, (types.ModuleType, type)):
            return None
        module = getattr(module, name, None)
    return module if callable(module) else None


# What Python calls when a pickle calls a class, builds its state, fills it, and lets go of it.
PICKLED = ("__new__", "__init__", "__setstate__", "__setattr__", "__setitem__", "__getattr__", "__getattribute__", "__post_init__",
           "__hash__", "__eq__", "__del__", "append", "extend", "__missing__")


def parts(obj, methods):
    """The functions that run when `obj` is called, each with the class that `self` belongs to."""
    if isinstance(obj, type):
        found = []
        for name in methods:
            part = inspect.getattr_static(obj, name, None)
            part = getattr(part, "__func__", part)
            if isinstance(part, types.FunctionType):
                found += [(part, obj), (unwrapped(part), obj)]
                found += [(base, obj) for base in overridden(obj, name)]
        call = inspect.getattr_static(type(obj), "__call__", None)
        if isinstance(call, types.FunctionType):
            found.append((call, type(obj)))
        return found
    obj = getattr(obj, "__func__", obj)
    # A function of NumPy is a dispatcher that calls the implementation.
    obj = getattr(obj, "_implementation", obj)
    if isinstance(obj, types.FunctionType):
        return [(obj, None), (unwrapped(obj), None)]
    call = inspect.getattr_static(type(obj), "__call__", None)
    return [(call, type(obj))] if isinstance(call, types.FunctionType) else []


def overridden(cls, name):
    """The methods of the bases, which `super()` may call."""
    for base in cls.__mro__[1:]:
        part = vars(base).get(name)
        part = getattr(part, "__func__", part)
        if isinstance(part, types.FunctionType):
            yield part


def unwrapped(function):
    try:
        return inspect.unwrap(function)
    except ValueError:
        return function
