"""Judges what a pickle can do with instances of a class, by the class's structure: which methods run, and who wrote them.

instances.txt holds the answers as letters, which `../src/lists/class_traits.rs` explains. A letter is given only if everything
that runs is Python's own, written in C, or a method that rules.toml has reviewed. Runs in Python 3.6 and newer.
"""

import collections
import enum
import inspect
import types
import typing

# Built-in types whose methods in C store data, hash it and compare it.
DATA = (object, list, dict, set, frozenset, tuple, int, float, complex, str, bytes, bytearray, bool, collections.OrderedDict,
        collections.deque, collections.defaultdict)
# Names of Python's own classes that only mark others.
MARKERS = {"typing.Generic", "typing.Protocol", "typing_extensions.Protocol", "abc.ABC", "enum.Enum", "enum.IntEnum", "enum.Flag", "enum.IntFlag",
           "enum.StrEnum", "enum.ReprEnum", "collections.abc.Hashable", "collections.abc.Sized", "collections.abc.Iterable", "collections.abc.Container",
           "collections.abc.Collection", "collections.abc.Callable", "collections.abc.Iterator", "collections.abc.Reversible"}
METACLASSES = {"type", "ABCMeta", "EnumMeta", "EnumType", "_ProtocolMeta", "GenericMeta", "NamedTupleMeta", "_CountedMeta", "_TemplateMetaclass"}
# Methods that neither the unpickler nor a reviewed function calls.
NOT_CALLED = set("__init__ __new__ __setstate__ __getstate__ __reduce__ __reduce_ex__ __getnewargs__ __getnewargs_ex__ __getinitargs__ "
                 "__init_subclass__ __class_getitem__ __copy__ __deepcopy__ __post_init__ __dir__ __sizeof__ __subclasshook__ "
                 "__subclasscheck__ __instancecheck__ __doc__ __replace__ __set_name__ __orig_bases__ __parameters__".split())


class Judge(object):
    def __init__(self, rules, has_source):
        self.hooks = {name: letter for letter, names in rules.get("hooks", {}).items() for name in names.split()}
        self.comparisons = set(name for names in rules.get("comparisons", {}).values() for name in names.split())
        self.constructors = {name: letter for letter, names in rules.get("constructors", {}).items() for name in names.split()}
        self.has_source = has_source

    def letters(self, cls):
        """The uses for which the class is judged, as letters; empty if there is none."""
        if type(cls).__name__ not in METACLASSES or not all(self.is_understood(base) for base in cls.__mro__):
            return ""
        if self.in_python(cls, "__getattribute__") or self.in_python(cls, "__del__"):
            return ""
        if issubclass(cls, enum.Enum):
            return "ekp" if len(cls) and self.is_plain_enum(cls) else ""
        found = ""
        found += self.constructor_letter(cls)
        found += self.state_letters(cls)
        if issubclass(cls, BaseException):
            return found + ("x" if self.is_plain_exception(cls) else "")
        methods = [self.lookup(cls, word) for word in ("extend", "append", "add")]
        if not issubclass(cls, (set, frozenset)) and any(method is not None for method in methods) and not any(is_python(method) for method in methods):
            found += "a"
        if self.lookup(cls, "__setitem__") is not None and not self.in_python(cls, "__setitem__"):
            found += "i"
        found += self.hash_letter(cls)
        if self.is_passive(cls):
            found += "p"
        return found

    def is_understood(self, base):
        """Whether a class of the order of resolution is Python's own data type, or is written in Python."""
        if base in DATA or issubclass(base, enum.Enum) or (issubclass(base, BaseException) and base.__module__ == "builtins"):
            return True
        name = base.__module__ + "." + base.__qualname__
        return name in MARKERS or base.__module__ == "collections.abc" or self.has_source(base) or is_named_tuple(base) or has_own_function(base)

    def lookup(self, cls, name):
        return inspect.getattr_static(cls, name, None)

    def in_python(self, cls, name):
        found = self.lookup(cls, name)
        return is_python(found) and not is_marker(found)

    def constructor_letter(self, cls):
        new = getattr(self.lookup(cls, "__new__"), "__func__", self.lookup(cls, "__new__"))
        if not is_python(new) or is_marker(new):
            return "N" if new is object.__new__ or is_marker(new) else "n"
        if any(is_named_tuple(base) and getattr(vars(base).get("__new__"), "__func__", vars(base).get("__new__")) is new for base in cls.__mro__):
            return "N"
        return self.constructors.get("{}.{}".format(new.__module__, new.__qualname__), "")

    def state_letters(self, cls):
        setters = self.in_python(cls, "__setattr__") or any(has_python_setter(value) for base in cls.__mro__ for value in vars(base).values())
        # `torch.load` compares what it loads with a number.
        if isinstance(self.lookup(cls, "__dict__"), property) or not self.is_compared_plainly(cls):
            return ""
        hook = self.lookup(cls, "__setstate__")
        if hook is None:
            if self.in_python(cls, "__getattr__"):
                return ""
            return "d" if setters else "ds"
        if is_python(hook):
            function = getattr(hook, "__func__", hook)
            return self.hooks.get("{}.{}".format(function.__module__, function.__qualname__), "")
        # The state of an exception is set attribute by attribute, in C, where `args` reads its value.
        return "h" if issubclass(cls, BaseException) and not setters else ""

    def is_compared_plainly(self, cls):
        """Whether a comparison calls nothing that a state has put into the attributes."""
        parts = [getattr(part, "__func__", part) for part in (self.lookup(cls, "__eq__"), self.lookup(cls, "__ne__"))]
        return all(not is_python(part) or is_generated(part) or "{}.{}".format(part.__module__, part.__qualname__) in self.comparisons for part in parts)

    def is_plain_exception(self, cls):
        return not (self.in_python(cls, "__init__") or self.in_python(cls, "__new__") or self.in_python(cls, "__setattr__"))

    def is_plain_enum(self, cls):
        """Whether a call with a value only looks the value up."""
        missing = getattr(self.lookup(cls, "_missing_"), "__func__", None)
        return missing is None or missing.__module__ == "enum"

    def hash_letter(self, cls):
        hashed, equal = self.lookup(cls, "__hash__"), self.lookup(cls, "__eq__")
        if hashed is None:
            return ""
        if is_python(hashed) or is_python(equal):
            return "K" if all(not is_python(part) or is_generated(part) for part in (hashed, equal)) else ""
        return "K" if issubclass(cls, (tuple, frozenset)) else "k"

    def is_passive(self, cls):
        """Whether functions can read an instance as the built-in value that it is."""
        kinds = [base for base in DATA[1:] if issubclass(cls, base)]
        if not kinds:
            return False
        reserved = set().union(*(dir(kind) for kind in kinds)) - NOT_CALLED
        for base in cls.__mro__:
            if base in DATA or base.__module__ in ("typing", "abc", "collections.abc"):
                continue
            for name, value in vars(base).items():
                if name in NOT_CALLED or (name.startswith("__") and not callable(value) and not isinstance(value, property)):
                    continue
                # Errors print what they are about.
                if name == "__repr__" and (is_generated(value) or getattr(value, "__module__", "").startswith(("collections", "namedtuple_"))
                                           and is_named_tuple(base)):
                    continue
                if (name in reserved or name.startswith("__")) and (is_python(value) or isinstance(value, property)):
                    return False
        return True


def is_python(part):
    """Whether a member of a class is code in Python, or wraps some."""
    part = getattr(part, "__func__", part)
    if isinstance(part, property):
        return True
    if part is None or isinstance(part, (types.BuiltinFunctionType, type(list.append), type(object.__hash__), type(int.real), types.MemberDescriptorType)):
        return False
    return isinstance(part, types.FunctionType) or isinstance(inspect.getattr_static(type(part), "__call__", None), types.FunctionType)


def is_marker(part):
    """Whether a function is one of typing's, such as `Generic.__new__` of old versions."""
    return getattr(part, "__module__", None) in ("typing", "typing_extensions", "enum")


def is_generated(part):
    """Whether a dataclass made the method."""
    code = getattr(getattr(part, "__func__", part), "__code__", None)
    return not is_python(part) or (code is not None and code.co_filename == "<string>") or getattr(part, "__qualname__", "").startswith("__create_fn__")


def has_own_function(cls):
    """Whether the body of the class in Python has a function: a package may show the class under its own name."""
    return any(isinstance(value, types.FunctionType) and value.__qualname__ == cls.__qualname__ + "." + name for name, value in vars(cls).items())


def is_named_tuple(cls):
    new = vars(cls).get("__new__")
    new = getattr(new, "__func__", new)
    if not issubclass(cls, tuple) or not isinstance(getattr(cls, "_fields", None), tuple):
        return False
    return isinstance(new, types.FunctionType) and (new.__module__.startswith("namedtuple_") or new.__code__.co_filename.startswith(("<string>", "<namedtuple")))


def has_python_setter(value):
    """Whether an assignment to the attribute runs code in Python."""
    if isinstance(value, property):
        return value.fset is not None
    return isinstance(inspect.getattr_static(type(value), "__set__", None), types.FunctionType)
