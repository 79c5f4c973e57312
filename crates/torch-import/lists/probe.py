"""What one Python has: its modules, the names that rules.toml proposes, and the callables that reach a sink.

    probe.py PACKAGE RULES OUTPUT [MODE HARMLESS]   PACKAGE is stdlib or a package; the others are files of JSON

HARMLESS has the names of harmless.txt. With the mode `instances`, it writes only the uses of instances; with `dangerous`, only what is
dangerous, and the modules in C.

generate.py runs it once for each interpreter. It imports every module that can be imported without an effect. Python 3.6
and newer.
"""

import ast
import enum
import importlib
import inspect
import io
import json
import os
import pkgutil
import sys
import types
import warnings

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import class_uses  # noqa: E402
import reach as reach_module  # noqa: E402

# Importing these does something: opens a browser, prints, starts a program, ends the interpreter, needs a display.
SKIPPED = ("antigravity", "this", "idlelib", "turtledemo", "test", "lib2to3.tests", "tkinter.test", "unittest.__main__",
           "torch.testing._internal", "torch.utils.tensorboard", "torch.distributed.elastic.multiprocessing.subprocess_handler",
           "torch.utils.benchmark.examples", "torch.utils.bottleneck.__main__", "torch.distributed.launch", "torch.distributed.run",
           "numpy.distutils.command", "numpy.f2py.tests", "numpy.testing.tests", "torch.contrib", "torch.lib", "torch.share",
           "torch.onnx._internal.exporter._testing", "torch._inductor.kernel.vendored_templates", "torch._export.db")

# Parts of torch that compile code. Their classes are proposed by no general rule.
INTERNAL = ("torch._dynamo", "torch._inductor", "torch._functorch", "torch._export", "torch._higher_order_ops", "torch._prims",
            "torch._ops", "torch._library", "torch._decomp", "torch._logging", "torch._numpy", "torch._refs", "torch._subclasses",
            "torch._guards", "torch._vendor", "torch.fx", "torch.onnx", "torch.export", "torch.jit", "torch.package", "torch.hub",
            "torch.utils._sympy", "torch.utils.cpp_extension", "torch.utils._config_module", "torch.distributed.elastic",
            "torch.distributed.rpc", "torch.distributed.launch", "torch.distributed.run", "torch.multiprocessing",
            "torch.utils.data.datapipes", "torch.utils.benchmark", "torch.utils.bottleneck", "torch.utils.model_dump",
            "torch.utils.collect_env", "torch.monitor", "torch.testing", "numpy.f2py", "numpy.distutils", "numpy.testing", "numpy.ctypeslib")

# Methods of tensors that call their argument, read a file, or make instances of other classes.
NOT_METHODS = ("from_file", "apply_", "map_", "map2_", "_make_subclass", "_make_wrapper_subclass", "_make_dtensor", "as_subclass",
               "_make_wrapper_subclass_raw", "share_memory_", "_cdata_")


def main():
    package, rules, output = sys.argv[1:4]
    warnings.simplefilter("ignore")
    with open(rules) as file:
        rules = json.load(file)
    harmless = None
    mode = sys.argv[4] if len(sys.argv) > 4 else ""
    if mode:
        with open(sys.argv[5]) as file:
            harmless = json.load(file)
    sys.argv = [sys.argv[0]]
    probe = Probe(package, rules)
    found = {"modules": sorted(stdlib_tops()) if package == "stdlib" else [], "version": version(package)}
    if mode == "dangerous":
        found["dangerous"] = probe.dangerous(harmless)
        found["native"] = sorted(name for name in probe.native if name in probe.modules)
        write(found, output)
    if mode == "instances":
        found["instances"] = probe.instances()
        found["true_names"] = probe.true_names(harmless)
        write(found, output)
    found["harmless"] = probe.harmless()
    found["dropped"] = probe.dropped
    found["uppercase"] = probe.uppercase
    found["instances"] = probe.instances()
    found["true_names"] = probe.true_names(found["harmless"])
    found["reaches"] = probe.reaches()
    found["aliases"] = probe.aliases() if package == "stdlib" else {}
    write(found, output)


def write(found, output):
    """Writes the answer, and ends the interpreter."""
    with open(output, "w") as file:
        json.dump(found, file, indent=0, sort_keys=True)
    # Threads that some modules start must not keep the interpreter alive.
    os._exit(0)


def version(package):
    if package == "stdlib":
        return "CPython " + sys.version.split()[0]
    try:
        return package + " " + importlib.import_module(package).__version__
    except AttributeError:
        from importlib import metadata
        return package + " " + metadata.version(package)


def stdlib_tops():
    """The modules that this Python has without any package: its library folder, its extensions, and its built-in modules."""
    names = set(sys.builtin_module_names) | set(getattr(sys, "stdlib_module_names", ()))
    folders = [os.path.dirname(os.__file__)]
    folders += [os.path.join(folders[0], "lib-dynload")]
    for folder in folders:
        names |= {info[1] for info in pkgutil.iter_modules([folder])}
    return {name for name in names if name.isidentifier() and not name.startswith("_sysconfigdata")} - {"site-packages"}


def module_names(package):
    tops = stdlib_tops() if package == "stdlib" else [package]
    for top in sorted(tops):
        if skipped(top):
            continue
        yield top
        found = sys.modules.get(top)
        try:
            found = importlib.import_module(top)
        except BaseException:
            continue
        if hasattr(found, "__path__"):
            yield from walk(found.__path__, top)


def walk(folders, prefix):
    for info in pkgutil.iter_modules(folders):
        name = prefix + "." + info[1]
        if skipped(name) or info[1] == "__main__" or ".tests" in name:
            continue
        yield name
        if info[2]:
            yield from walk([os.path.join(folder, info[1]) for folder in folders], name)


def skipped(name):
    return any(name == word or name.startswith(word + ".") for word in SKIPPED)


def covers(patterns, module):
    return any(module == word or (word.endswith(".*") and (module == word[:-2] or module.startswith(word[:-1]))) for word in patterns)


class Probe(object):
    def __init__(self, package, rules):
        self.package, self.rules, self.dropped, self.uppercase = package, rules, {}, {}
        self.modules, self.sources = {}, {}
        stdout, stderr = sys.stdout, sys.stderr
        for name in module_names(package):
            try:
                sys.stdout = sys.stderr = io.StringIO()
                self.modules[name] = importlib.import_module(name)
            except BaseException:
                continue
            finally:
                sys.stdout, sys.stderr = stdout, stderr
        # Modules that only C code makes: torch._C._nn.
        for name, module in list(sys.modules.items()):
            if isinstance(module, types.ModuleType) and name.split(".")[0] == package and not skipped(name):
                self.modules.setdefault(name, module)
        tops = {name.split(".")[0] for name in self.modules}
        if package != "stdlib":
            tops.add("numpy")
        self.tops = tops
        self.native = {name for name, module in list(sys.modules.items()) if is_native(module)}
        self.search = reach_module.Reach(6, tops)

    def is_ours(self, obj):
        names = reach_module.qualified(obj)
        return names is not None and names[0].split(".")[0] in self.tops

    # Harmless names.

    def harmless(self):
        found = {}
        for name, module in sorted(self.modules.items()):
            try:
                attributes = sorted(vars(module).items())
            except Exception:
                continue
            names = set()
            for attribute, value in attributes:
                if self.is_proposed(name, attribute, value):
                    names |= self.kept(name, attribute, value)
            if name in ("torch", "torch.cuda", "torch.sparse", "torch.cuda.sparse"):
                names |= {word for word, value in attributes if word.endswith(("Storage", "Tensor")) and callable(value) and word[:1].isupper()}
            names |= {word for word in self.rules["names"].get(name, "").split() if has(module, word)}
            for word in self.rules["methods"].get(name, "").split():
                names |= {word + "." + method for method in dir(getattr(module, word)) if not method.startswith("_")}
            names -= set(self.rules["refused"].get(name, "").split()) | set(self.rules["refused"]["*"].split())
            if names:
                found[name] = sorted(names)
        if self.package == "torch":
            functions = importlib.import_module("torch")._C
            for holder in ("_VariableFunctionsClass", "_VariableFunctions", "TensorBase", "_TensorBase"):
                cls = getattr(functions, holder, None)
                if isinstance(cls, type):
                    members = {holder + "." + word for word in dir(cls) if is_method_of_tensors(cls, word)}
                    refused = set(self.rules["refused"].get("torch._C", "").split())
                    found.setdefault("torch._C", [])
                    found["torch._C"] = sorted(set(found["torch._C"]) | (members - refused))
        return found

    def is_proposed(self, module, name, value):
        if name.startswith("__") or isinstance(value, types.ModuleType):
            return False
        if isinstance(value, enum.Enum):
            return pickles_by_name(value)
        if isinstance(value, type):
            if issubclass(value, type):
                return False
            if value.__module__ == module or is_reexport(self, module, name, value):
                if module.startswith(INTERNAL) or (module.startswith("torch._") and not covers(self.rules["classes"], module)):
                    return False
                return is_plain_kind(value) or ((self.package != "torch" or self.has_source(value)) and (
                    covers(self.rules["classes"], value.__module__) or covers(self.rules["classes"], module)))
            return False
        if is_ufunc(value):
            return self.package == "numpy" and "_tests" not in module and not module.startswith(INTERNAL)
        if isinstance(value, (types.FunctionType, types.BuiltinFunctionType)) or type(value).__name__ in ("_ArrayFunctionDispatcher", "boolean_dispatch"):
            home = getattr(value, "__module__", None)
            if module == "torch":
                return type(getattr(value, "__self__", None)) is type and value.__self__.__name__.startswith("_VariableFunctions")
            if module in ("torch._C._nn", "torch._C._special", "torch._C._linalg", "torch._C._fft", "torch._C._sparse", "torch._C._nested"):
                return not name.startswith("_parse")
            if name.startswith("_") and module not in ("torch.nn.functional", "torch.nn.modules.utils"):
                return False
            if not covers(self.rules["functions"], module):
                return False
            return home in (None, module, "_" + module) or covers(self.rules["functions"], home) or is_public(self, module, name)
        # The special forms of typing, and constants such as numpy.newaxis, have no type that a pickle could call.
        if module == "typing":
            return type(value).__module__ == "typing"
        return type(value).__name__ in ("dtype", "layout", "memory_format", "qscheme") and self.package == "torch"

    def has_source(self, cls):
        """Whether a class is written in Python, so that its methods can be read. Classes of C++ claim modules that are."""
        module = cls.__module__
        if module not in self.sources:
            try:
                tree = ast.parse(inspect.getsource(sys.modules[module]))
            except (OSError, TypeError, KeyError, SyntaxError):
                tree = ast.parse("")
            self.sources[module] = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        return cls.__name__ in self.sources[module]

    def kept(self, module, name, value):
        """The name, and the names of the classes in a class, without those that reach a sink."""
        refused = self.rules["refused"].get(module, "").split() + self.rules["refused"]["*"].split()
        if name in refused:
            return set()
        if isinstance(value, enum.Enum) or not callable(value):
            return {name}
        trusted = name in self.rules["trusted"].get(module, "").split()
        if isinstance(value, type) and issubclass(value, BaseException):
            trusted = trusted or not any(isinstance(inspect.getattr_static(value, word, None), types.FunctionType)
                                         for word in ("__init__", "__new__", "__setstate__", "__reduce__"))
        path = None if trusted else self.search.of(value, itself=not (isinstance(value, type) and is_plain_kind(value)))
        if path:
            self.dropped[module + "." + name] = " → ".join(path)
            return set()
        names = {name}
        if isinstance(value, type):
            self.note_uppercase(module, name, value)
            for inner, member in sorted(vars(value).items()):
                if isinstance(member, type) and not issubclass(member, type) and member.__qualname__ == value.__qualname__ + "." + inner:
                    names |= {name + "." + rest for rest in self.kept(module, inner, member)}
        return names

    def note_uppercase(self, module, name, cls):
        """An attribute in capitals of a harmless class is taken for a constant; these are callable instead."""
        for word in dir(cls):
            if word.isupper():
                member = inspect.getattr_static(cls, word, None)
                if isinstance(member, (types.FunctionType, types.BuiltinFunctionType, classmethod, staticmethod)):
                    self.uppercase.setdefault(module, []).append(name + "." + word)

    # What a pickle can do with instances.

    def instances(self):
        """The judged classes of each module, under the names that pickles use, with the letters of their uses."""
        judge, found = class_uses.Judge(self.rules, self.has_source), {}
        for name, module in sorted(self.modules.items()):
            if name.startswith(INTERNAL) or not isinstance(name, str):
                continue
            for attribute, value in sorted(vars(module).items()):
                if not isinstance(value, type) or value.__module__ != name or value.__qualname__ != attribute or attribute.startswith("__"):
                    continue
                if is_plain_kind(value) or covers(self.rules["classes"], name):
                    self.judge_class(judge, name, value, found)
                else:
                    # It may be a plain kind in another version.
                    found.setdefault(name, {})[attribute] = ""
        return found

    def judge_class(self, judge, module, cls, found):
        found.setdefault(module, {})[cls.__qualname__] = judge.letters(cls)
        for inner, member in sorted(vars(cls).items()):
            if isinstance(member, type) and member.__module__ == module and member.__qualname__ == cls.__qualname__ + "." + inner:
                self.judge_class(judge, module, member, found)

    def true_names(self, harmless):
        """The module and name under which an object was defined, for each harmless name that is another one's."""
        found = {}
        for module, names in harmless.items():
            for name in names:
                value = vars(self.modules[module]).get(name) if module in self.modules else None
                if isinstance(value, (type, types.FunctionType)) and "<" not in value.__qualname__:
                    true = "{} {}".format(value.__module__, value.__qualname__)
                    if true != "{} {}".format(module, name):
                        found["{} {}".format(module, name)] = true
        return found

    def dangerous(self, harmless):
        """The callables of each module whose source reaches a sink within six calls, and functions in C that are not harmless, under
        every name that an attribute of a module or of its classes gives them."""
        found, fine = {}, set()
        for name, names in harmless.items():
            members = vars(sys.modules[name]) if name in sys.modules else {}
            fine |= {id(members[word]) for word in names if word in members}
        for name, module in sorted(self.modules.items()):
            names = set()
            for attribute, value in sorted(vars(module).items()):
                if id(value) in fine or attribute in harmless.get(name, ()):
                    continue
                if self.is_dangerous(value):
                    names.add(attribute)
                elif isinstance(value, type) and value.__module__ == name:
                    members = [(word, getattr(member, "__func__", member)) for word, member in vars(value).items()]
                    names |= {attribute + "." + word for word, member in members
                              if reach_module.qualified(member) != (name, attribute + "." + word) and is_sink(member)}
            if names:
                found[name] = sorted(names)
        return found

    def is_dangerous(self, value):
        kinds = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodDescriptorType, types.WrapperDescriptorType)
        names = reach_module.qualified(value) if isinstance(value, kinds) else None
        if names is None:
            return False
        if is_sink(value) or (names[0] in self.native and not isinstance(value, types.FunctionType)):
            return True
        return isinstance(value, (type, types.FunctionType)) and not (isinstance(value, type) and is_plain_kind(value)) and bool(self.search.of(value))

    # Callables that reach a sink.

    def reaches(self):
        search, found = reach_module.Reach(3, self.tops), {}
        for module_name, module in sorted(self.modules.items()):
            for name, value in sorted(vars(module).items()):
                if not isinstance(value, (type, types.FunctionType)) or value.__module__ != module_name or "<" in value.__qualname__:
                    continue
                candidates = [(name, value)]
                if isinstance(value, type):
                    for inner, member in sorted(vars(value).items()):
                        if isinstance(member, (staticmethod, classmethod)):
                            member = member.__func__
                        if isinstance(member, types.FunctionType):
                            candidates.append((name + "." + inner, member))
                for full, candidate in candidates:
                    path = search.of(candidate, others=False)
                    if path:
                        found[module_name + " " + full] = path
        return found

    # Aliases.

    def aliases(self):
        """The public module of each private one that has mostly the same objects."""
        found = {}
        for private, module in sorted(self.modules.items()):
            if "." in private or not (private.startswith("_") or private in ("posix", "nt", "posixpath", "ntpath", "cPickle")):
                continue
            objects = {name: value for name, value in vars(module).items() if callable(value) and not name.startswith("__")}
            best = None
            for public, other in sorted(self.modules.items()):
                if public.startswith("_") or "._" in public or public.startswith(("test", "idlelib", "distutils")) or public == private:
                    continue
                same = sum(vars(other).get(name) is value for name, value in objects.items())
                if same and (best is None or same > best[0]):
                    best = (same, public)
            if best and best[0] * 2 > len(objects):
                found[private] = best[1]
        return found


def is_native(module):
    """Whether a module has no source in Python."""
    return isinstance(module, types.ModuleType) and not hasattr(module, "__path__") and not str(getattr(module, "__file__", None) or "").endswith(".py")


def is_sink(value):
    return isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)) and bool(reach_module.listed(reach_module.CODE, value) or reach_module.listed(reach_module.OTHER, value))


def has(module, dotted):
    for part in dotted.split("."):
        if not hasattr(module, part):
            return False
        module = getattr(module, part)
    return True


def is_public(probe, module, name):
    exported = getattr(probe.modules[module], "__all__", None)
    return not name.startswith("_") if exported is None else name in exported


def is_reexport(probe, module, name, value):
    """Whether a package shows a class of its own under a shorter name, as torch.nn does."""
    home = value.__module__
    return isinstance(home, str) and home.split(".")[0].lstrip("_") == module.split(".")[0].lstrip("_") and is_public(probe, module, name) and (
        module.count(".") < home.count(".") or home.startswith("_") or covers(probe.rules["classes"], module))


def is_ufunc(value):
    return type(value).__name__ == "ufunc" and type(value).__module__ == "numpy"


def is_method_of_tensors(cls, word):
    if word.startswith("__") or word in NOT_METHODS:
        return False
    return type(inspect.getattr_static(cls, word, None)).__name__ in ("builtin_function_or_method", "method_descriptor", "staticmethod", "classmethod_descriptor")


def pickles_by_name(member):
    """Whether a pickle names the member as an attribute of its module, as it does for signal.SIGINT in some versions."""
    try:
        return isinstance(member.__reduce_ex__(2), str)
    except Exception:
        return False


def is_plain_kind(cls):
    """Enumerations, exceptions, named tuples and dataclasses: their construction stores what it is given."""
    return (issubclass(cls, (enum.Enum, BaseException))
            or (issubclass(cls, tuple) and (hasattr(cls, "_fields") or hasattr(cls, "n_sequence_fields")))
            or ("__dataclass_fields__" in vars(cls)))


if __name__ == "__main__":
    main()
