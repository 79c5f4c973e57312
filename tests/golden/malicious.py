"""The files of malicious/: each holds a call, or something that only some readers take for one.

`FILES` maps a file's name to (its bytes, where the call is). The call is an `echo`: harmless, and easy to look for.
"""

import pickle
import struct
import zlib

import other_containers
import pickles as p
from hostile import W, state
from raw_zip import DEFLATED, Entry, archive

COMMAND = "echo a payload ran"
CALL = p.name("os", "system") + p.many([p.text(COMMAND)]) + p.REDUCE
PAYLOAD = p.pickle(CALL)
MAGIC = other_containers.MAGIC


def short(s):
    return b"\x8c" + bytes([len(s)]) + s.encode()


def stack_global(module, name):
    return short(module) + short(name) + b"\x93"


def proto4(body):
    return b"\x80\x04" + body + p.STOP


def call4(module, name, *args):
    return stack_global(module, name) + p.many(args) + p.REDUCE


def from_memo():
    """The names are in the memo: three kinds of opcodes store them, and three others load them."""
    stored = b"X\x02\0\0\0os\x940" + b"Vsystem\np7\n0" + short("unused") + b"r\x09\0\0\0" + b"0"
    return proto4(stored + b"h\x00" + b"g7\n" + b"\x93" + p.many([p.text(COMMAND)]) + p.REDUCE)


def set_state():
    """BUILD sets an object's `__setstate__` to the function, and the next BUILD calls it."""
    obj = p.name("argparse", "Namespace") + b")\x81"
    first = p.EMPTY_DICT + p.text("__setstate__") + p.name("os", "system") + p.SETITEM + b"b"
    return p.pickle(obj + first + p.text(COMMAND) + b"b")


def mapped():
    """`list(map(os.system, [command]))`: no opcode calls the function itself."""
    inner = p.name("builtins", "map") + p.many([p.name("os", "system"), b"](" + p.text(COMMAND) + b"e"]) + p.REDUCE
    return p.pickle(p.name("builtins", "list") + p.many([inner]) + p.REDUCE)


def attribute():
    """`getattr(__import__('os'), 'system')(command)`"""
    module = p.name("builtins", "__import__") + p.many([p.text("os")]) + p.REDUCE
    function = p.name("builtins", "getattr") + p.many([module, p.text("system")]) + p.REDUCE
    return p.pickle(function + p.many([p.text(COMMAND)]) + p.REDUCE)


def partial():
    inner = p.name("functools", "partial") + p.many([p.name("os", "system"), p.text(COMMAND)]) + p.REDUCE
    return p.pickle(inner + p.EMPTY_TUPLE + p.REDUCE)


def nested(inner):
    data = b"B" + struct.pack("<I", len(inner)) + inner
    return b"\x80\x03" + p.name("torch.storage", "_load_from_bytes") + p.many([data]) + p.REDUCE + p.STOP


def nested_text(inner, encoding="latin1"):
    """The same in the form in which protocol 2 writes bytes: latin-1 text."""
    data = p.name("_codecs", "encode") + p.many([p.text(inner.decode(encoding)), p.text(encoding)]) + p.REDUCE
    return p.pickle(p.name("torch.storage", "_load_from_bytes") + p.many([data]) + p.REDUCE)


def twice_nested():
    return nested(p.pickle(p.name("pickle", "loads") + p.many([b"C" + bytes([len(PAYLOAD)]) + PAYLOAD]) + p.REDUCE))


def strict_machine():
    """SETITEM on a list: CPython executes it as on a dict, but other readers may treat it as damage."""
    return p.pickle(b"](K\x01eK\x00K\x02s0" + CALL)


EVAL = f"__import__('os').system({COMMAND!r})"
PICKLES = {
    "global_protocol_0.pkl": (f"cos\nsystem\n(S'{COMMAND}'\ntR.".encode(), "GLOBAL and REDUCE without PROTO"),
    "inst.pkl": (f"(S'{COMMAND}'\nios\nsystem\n.".encode(), "INST"),
    "obj.pkl": (f"(cos\nsystem\nS'{COMMAND}'\no.".encode(), "OBJ"),
    "python2_names.pkl": (p.pickle(p.name("__builtin__", "eval") + p.many([p.text(EVAL)]) + p.REDUCE), "a name of Python 2"),
    "newobj_ex.pkl": (
        proto4(stack_global("subprocess", "Popen") + p.many([p.text(COMMAND)]) + p.EMPTY_DICT + p.text("shell") + b"\x88s\x92"),
        "NEWOBJ_EX of a class"),
    "from_memo.pkl": (from_memo(), "STACK_GLOBAL with names from the memo"),
    "dotted.pkl": (proto4(call4("torch.serialization", "os.system", p.text(COMMAND))), "a dotted name through a harmless module"),
    "submodule.pkl": (proto4(call4("collections", "_sys.modules.get", p.text("os")) + b"0" + CALL), "a dotted name, dropped"),
    "getattr.pkl": (attribute(), "getattr of an imported module"),
    "getattr_method.pkl": (
        p.pickle(p.name("builtins", "getattr") + p.many([p.name("pathlib", "PosixPath"), p.text("write_text")]) + p.REDUCE
                 + p.many([p.name("pathlib", "PosixPath") + p.many([p.text("a payload ran")]) + p.REDUCE, p.text("")]) + p.REDUCE),
        "a method of a class that makes plain data"),
    "getattr_list.pkl": (
        p.pickle(p.name("builtins", "getattr") + p.many([p.name("m", "Outer"), p.text("Inner")]) + p.REDUCE + b"0"
                 + p.name("builtins", "map") + p.many([p.name("builtins", "getattr"), p.many([p.text("x")])]) + p.REDUCE),
        "getattr for a class inside a class, and then for something else"),
    "partial.pkl": (partial(), "functools.partial"),
    "map.pkl": (mapped(), "an argument of map"),
    "set_state.pkl": (set_state(), "BUILD sets `__setstate__`, BUILD calls it"),
    "broken_after.pkl": (p.PROTO + CALL + b"0\xff\xff", "the stream breaks after the call"),
    "broken_machine.pkl": (strict_machine(), "SETITEM on a list before the call"),
    "second_pickle.pkl": (p.pickle(p.EMPTY_DICT) + PAYLOAD, "a second pickle after STOP"),
    "nested_bytes.pkl": (nested(other_containers.legacy(root=CALL)), "a legacy checkpoint in a byte string"),
    "nested_text.pkl": (nested_text(other_containers.legacy(root=CALL)), "a legacy checkpoint in a string"),
    "nested_twice.pkl": (twice_nested(), "a pickle in a pickle in a pickle"),
    "nested_protocol_0.pkl": (
        nested(f"cos\nsystem\n(S'{COMMAND}'\ntR.".encode()), "a pickle without PROTO in a byte string"),
    "nested_utf_16.pkl": (
        nested_text(PAYLOAD, "utf-16-le"), "a pickle in a string in UTF-16"),
    "nested_state.pkl": (
        p.pickle(p.name("argparse", "Namespace") + b")\x81" + p.EMPTY_DICT + p.text("__setstate__")
                 + p.name("torch.storage", "_load_from_bytes") + p.SETITEM + b"b"
                 + p.name("builtins", "bytes") + p.many([b"](" + b"".join(map(p.integer, PAYLOAD)) + b"e"]) + p.REDUCE + b"b"),
        "a pickle as a list of numbers, loaded by BUILD"),
    "runstring.pkl": (
        proto4(call4("numpy.testing._private.utils", "runstring", p.text(EVAL), p.EMPTY_DICT)), "a function of NumPy that calls exec"),
    "collect_env.pkl": (proto4(call4("torch.utils.collect_env", "run", p.text(COMMAND))), "a function of PyTorch that starts programs"),
    "import_dotted.pkl": (
        proto4(call4("torch._utils", "_import_dotted_name", p.text("os.system")) + p.many([p.text(COMMAND)]) + p.REDUCE),
        "a function of PyTorch that imports"),
    "resolve_name.pkl": (
        proto4(call4("pkgutil", "resolve_name", p.text("os:system")) + p.many([p.text(COMMAND)]) + p.REDUCE), "a function that imports"),
    "graph_module.pkl": (
        proto4(call4("torch.fx.graph_module", "_forward_from_src", p.text(f"{EVAL}\ndef forward(): pass"), p.EMPTY_DICT)),
        "a function of PyTorch that runs source text"),
    "typing.pkl": (
        proto4(call4("typing", "get_type_hints",
                     stack_global("types", "SimpleNamespace") + b")R" + p.EMPTY_DICT + p.text("__annotations__")
                     + p.EMPTY_DICT + p.text("a") + p.text(EVAL) + p.SETITEM + p.SETITEM + b"b")),
        "annotations that are evaluated"),
}


def checkpoint(*entries, **end):
    return archive([*entries, Entry("archive/version", b"3\n"), Entry("archive/data/0", W)], **end)


def pkl(data, **wrong):
    return Entry("archive/data.pkl", data, **wrong)


def unlisted():
    """A local header with the payload, before the header that the directory lists."""
    hidden = archive([pkl(PAYLOAD)])
    hidden = hidden[: hidden.index(b"PK\x01\x02")]
    return checkpoint(pkl(state()), prefix=hidden)


def polyglot():
    """A pickle in front of an archive: if the file is loaded as a pickle, it runs."""
    return checkpoint(pkl(state()), prefix=PAYLOAD)


def numpy_objects():
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    header += b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + PAYLOAD


def changed_bytearray(inner):
    """A byte array that is empty when it is made; `_load_from_bytes` is given what is appended."""
    empty = b"\x80\x05" + p.name("torch.storage", "_load_from_bytes") + b"\x96" + bytes(8)
    return empty + b"(" + b"".join(map(p.integer, inner)) + b"e" + b"\x85R" + p.STOP


def lying_comment(data):
    """An archive whose end record announces a comment that is not there."""
    return data[:-2] + struct.pack("<H", 7)


def joblib_objects():
    """`joblib.dump({'w': array})` for an array of objects, whose pickle follows its description."""
    dtype = call4("numpy", "dtype", short("O8"), b"\x89", b"\x88")
    dtype += p.many([p.integer(3), short("|"), b"N", b"N", b"N"] + [b"J\xff\xff\xff\xff"] * 2 + [p.integer(63)]) + b"b"
    state = [short("subclass"), stack_global("numpy", "ndarray"), short("shape"), p.many([p.integer(1)]),
             short("order"), short("C"), short("dtype"), dtype, short("allow_mmap"), b"\x89"]
    wrapper = stack_global("joblib.numpy_pickle", "NumpyArrayWrapper") + b")\x81" + b"}(" + b"".join(state) + b"ub"
    return b"\x80\x04" + p.EMPTY_DICT + short("w") + wrapper + PAYLOAD + p.SETITEM + p.STOP


def gzip(data):
    """A gzip file of one stored block."""
    block = b"\x01" + struct.pack("<HH", len(data), len(data) ^ 0xFFFF) + data
    return b"\x1f\x8b\x08" + bytes(6) + b"\xff" + block + struct.pack("<II", zlib.crc32(data), len(data))


LOADED = {
    "nested_zip_and_byte.pkl": (
        nested(checkpoint(pkl(PAYLOAD)) + b"\0"), "an archive in a byte string, and a byte after the archive"),
    "nested_zip_comment.pkl": (
        nested(lying_comment(checkpoint(pkl(PAYLOAD)))), "an archive in a byte string, with a wrong length of its comment"),
    "nested_python_only.pkl": (
        nested(b"I0x10\n0" + PAYLOAD[2:]), "a pickle in a byte string, with a hexadecimal number that only Python reads"),
    "changed_bytearray.pkl": (
        changed_bytearray(other_containers.legacy(root=CALL)), "a legacy checkpoint in a byte array that grows before it is loaded"),
    "objects.joblib": (joblib_objects(), "an array of Python objects in a file of joblib"),
    "packed.pkl.gz": (gzip(PAYLOAD), "a pickle that is compressed with gzip"),
    "other_case.pth": (
        checkpoint(pkl(state()), Entry("archive/DATA.PKL", PAYLOAD)), "a second data.pkl, in capital letters"),
}

ARCHIVES = {
    "root.pth": (checkpoint(pkl(PAYLOAD)), "data.pkl itself"),
    "deflated.pth": (checkpoint(pkl(PAYLOAD, method=DEFLATED)), "a deflated data.pkl"),
    "encrypted_flag.pth": (checkpoint(pkl(PAYLOAD, flags=1)), "data.pkl is marked as encrypted but is not"),
    "wrong_crc.pth": (checkpoint(pkl(PAYLOAD, crc=0x12345678)), "data.pkl has a wrong checksum"),
    "local_name.pth": (checkpoint(pkl(PAYLOAD, local_name="archive/data.txt")), "data.pkl has another name in its local header"),
    "local_size.pth": (checkpoint(pkl(PAYLOAD, local_size=2)), "data.pkl has another size in its local header"),
    "two_names.pth": (checkpoint(pkl(state()), pkl(PAYLOAD)), "two entries are called data.pkl"),
    "two_roots.pth": (checkpoint(pkl(state()), Entry("other/data.pkl", PAYLOAD)), "two folders have a data.pkl"),
    "storage.pth": (checkpoint(pkl(state()), Entry("archive/data/1", PAYLOAD)), "a pickle among the storages"),
    "hidden_name.pth": (checkpoint(pkl(state()), Entry("archive/notes.txt", PAYLOAD)), "a pickle with the name of a text file"),
    "constants.pth": (checkpoint(pkl(state()), Entry("archive/constants.pkl", PAYLOAD)), "constants.pkl"),
    "behind_stop.pth": (checkpoint(pkl(state() + PAYLOAD)), "after STOP in data.pkl"),
    "unlisted.pth": (unlisted(), "a local header that the directory does not list"),
    "polyglot.pth": (polyglot(), "a pickle before an archive"),
    "inner_archive.zip": (archive([Entry("model/model.pt", checkpoint(pkl(PAYLOAD)))]), "a checkpoint in an archive"),
    "object_array.npy": (numpy_objects(), "a NumPy array of Python objects"),
    "object_array.npz": (archive([Entry("a.npy", numpy_objects())]), "the same in an archive"),
}


def legacy_magic():
    """The first pickle computes the magic number."""
    text = f"__import__('os').system({COMMAND!r}) or {MAGIC}"
    first = p.pickle(p.name("builtins", "eval") + p.many([p.text(text)]) + p.REDUCE)
    whole = other_containers.legacy()
    return first + whole[len(pickle.dumps(MAGIC, 2)):]


def legacy_keys():
    """The list of keys is computed: the pickle calls the payload, drops the result, and returns `['0', '1']`."""
    whole = other_containers.legacy()
    keys = pickle.dumps(["0", "1"], 2)
    return whole.replace(keys, p.PROTO + CALL + b"0" + keys[2:])


OTHERS = {
    "legacy_root.pth": (other_containers.legacy(root=CALL + b"0" + other_containers.plain_root()), "a legacy file's root object"),
    "legacy_magic.pth": (legacy_magic(), "a legacy file's magic number is computed"),
    "legacy_keys.pth": (legacy_keys(), "a legacy file's list of keys is computed"),
    "tar_root.pth": (other_containers.tar(root=CALL), "the pickle of a 0.1 archive"),
    "tar_sys_info.pth": (other_containers.tar(sys_info=PAYLOAD), "the system information of a 0.1 archive"),
    "tar_views.pth": (
        other_containers.tar(views=p.pickle(CALL + b"0]")), "a pickle between the numbers of a 0.1 archive"),
}

FILES = PICKLES | LOADED | ARCHIVES | OTHERS


def index():
    """Returns malicious/README.md: every file and where it hides its call."""
    rows = "".join(f"| `{name}` | {why} |\n" for name, (_, why) in sorted(FILES.items()))
    return f"""# Files with hidden calls

`generate.py --hostile` makes these files and this list from `malicious.py`. Most of them print `a payload ran` if Python
unpickles them; docs/scan.md lists which. `torch2carton scan` must find the call in each file.

| file | where the call is |
|---|---|
{rows}"""
