"""Attacks on the verdict of a scan, by hand: each uses a class or function in a way that nobody has judged, and was once called clean,
or is near to one that was. A scan must call none of them clean. `payloads.py` composes others by a seed."""

from payloads import FUNCTION, LINEAR, LOADER, NONE, call, listed, many, mapped, name, new, persistent, short

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
