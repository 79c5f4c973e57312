"""Makes the pickles of this folder, each with the output of `python3 -m pickletools` in a file next to it.

    python3 tests/golden/pickles/generate.py

CPython's own picklers write them, where they can; what they no longer write (Python 2's strings and instances, lengths that
need eight bytes) is put together by hand. All 68 opcodes are in at least one. The output does not change from run to run.
"""

import collections
import copyreg
import io
import pathlib
import pickle
import pickletools
import struct
import sys
import types

FOLDER = pathlib.Path(__file__).parent


# A module of classes that no reader of the pickles can import.

model = types.ModuleType("model")
sys.modules["model"] = model


def of_model(cls):
    cls.__module__ = "model"
    setattr(model, cls.__name__, cls)
    return cls


@of_model
class Linear:
    def __init__(self, **parts):
        self.__dict__.update(parts)


@of_model
class Slots:
    __slots__ = "left", "right", "__dict__"


@of_model
class Size(tuple):
    pass


@of_model
class Named(tuple):
    def __new__(cls, *args, **kwargs):
        return tuple.__new__(cls, args)

    def __getnewargs_ex__(self):
        return tuple(self), {"name": "n"}


@of_model
class History(list):
    pass


@of_model
class Optimizer:
    """Reduces to a call with state, list items and dict items."""

    def __reduce__(self):
        return Optimizer, (1,), {"lr": 0.1}, iter(["a", "b"]), iter([("step", 7)])


for code, name in (0x42, "Linear"), (0x1234, "Slots"), (0x123456, "Size"):
    copyreg.add_extension("model", name, code)


class Stored:
    def __init__(self, pid):
        self.pid = pid


def dumps(value, protocol, buffers=None):
    """Uses the pickler that is written in Python, whose output is the same in every version."""
    out = io.BytesIO()

    class Pickler(pickle._Pickler):
        def persistent_id(self, obj):
            return obj.pid if isinstance(obj, Stored) else None

    Pickler(out, protocol, buffer_callback=None if buffers is None else buffers.append).dump(value)
    return out.getvalue()


def cycle():
    """A list that contains a tuple that contains the list: CPython drops the unfinished tuple and loads it from the memo."""
    items = []
    whole = (items, "end")
    items.append(whole)
    return whole


def state_dict():
    """A state dict as torch.save writes it, with two names for one tensor."""

    @of_model
    class Tensor:
        def __reduce__(self):
            return rebuild, (Stored(("storage", FloatStorage, "0", "cpu", 6)), 0, (2, 3), (3, 1), False, hooks)

    def rebuild():
        pass

    class FloatStorage:
        pass

    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    sys.modules.update({"torch": torch, "torch._utils": utils})
    for thing, module, name in (rebuild, utils, "_rebuild_tensor_v2"), (FloatStorage, torch, "FloatStorage"):
        thing.__module__, thing.__qualname__, thing.__name__ = module.__name__, name, name
        setattr(module, name, thing)
    hooks = collections.OrderedDict()
    tensor = Tensor()
    weights = collections.OrderedDict([("weight", tensor), ("tied", tensor)])
    weights._metadata = collections.OrderedDict([("", {"version": 1})])
    return weights


def counted(code, form, data):
    return code + struct.pack(form, len(data)) + data


SCALARS = [None, True, False, 0, 255, 256, 65536, -1, 2**31, -(2**63), 10**20, 1.5, -0.0, 1e16, 1e-05, "text"]

TEXTS = ["", "it's", 'a "quote"', "é€😀", "\ud800", "\x1b[2J\n\t\0\x7f\x9b\u202e", "back\\slash"]

SHARED = ("shared",)

PICKLES = {
    "scalars_0": dumps(SCALARS, 0),
    "scalars_2": dumps(SCALARS, 2),
    "texts_0": dumps(TEXTS, 0),
    "texts_4": dumps(TEXTS, 4),
    "containers_0": dumps([(), (1,), {"a": [], "b": {}}, (1, 2, 3, 4)], 0),
    "containers_1": dumps([(), (1,), {"a": [1], "b": {}}, (1, 2, 3, 4), {1: 2}], 1),
    "containers_4": dumps([(1,), (1, 2), (1, 2, 3), {1, 2}, set(), frozenset("a"), {"a": 1, (1, "k"): None}], 4),
    "shared_2": dumps([SHARED, SHARED, {"again": SHARED}], 2),
    "cycle_0": dumps(cycle(), 0),
    "cycle_1": dumps(cycle(), 1),
    "instances_0": dumps([Linear(weight=1), History(["loss"])], 0),
    "instances_2": dumps([Size((2, 3)), Linear(weight=1), Optimizer()], 2),
    "slots_2": dumps(next(s for s in [Slots()] if not (setattr(s, "left", 1) or setattr(s, "more", 2))), 2),
    "keyword_arguments_4": dumps(Named(1, 2), 4),
    "extensions_2": dumps([Linear, Slots, Size], 2),
    "bytes_2": dumps([b"\x00\xff", bytearray(b"ab")], 2),
    "bytes_3": dumps([b"", b"it's\x00\xff", bytes(range(256))], 3),
    "buffers_5": dumps(
        [pickle.PickleBuffer(bytearray(b"writable")), pickle.PickleBuffer(b"readonly"), bytearray(b"it's")], 5, []
    ),
    "persistent_0": dumps([Stored("weights/0"), Stored("it's")], 0),
    "persistent_2": dumps([Stored(("storage", "0")), Stored("weights/0")], 2),
    "state_dict_2": dumps(state_dict(), 2),
    # The form in which Python 2 wrote strings, longs and instances of old-style classes.
    "python2_0": b"(lp0\nS'it\\'s \\x00 \\101'\np1\naL12L\na(I1\nS'two'\nimodel\nOld\np2\n(dp3\nS'a'\nI1\nsba.",
    "python2_1": b"](" + counted(b"U", "<B", b"short\xe9") + counted(b"T", "<i", b"long") + b"(cmodel\nOld\nK\x01o}be.",
    # Opcodes for objects of gigabytes, written for small objects.
    "wide_lengths_5": b"\x80\x05("
    + counted(b"\x8d", "<Q", b"text")
    + counted(b"\x8e", "<Q", b"bytes")
    + counted(b"\x8b", "<i", (2**70).to_bytes(9, "little"))
    + counted(b"B", "<I", b"bytes")
    + b"t.",
    # No pickler copies the top of the stack, or uses memo keys of four bytes for small keys.
    "stack_and_memo_2": b"\x80\x02]r\xff\xff\xff\xffN2\x86a(K\x01K\x021j\xff\xff\xff\xff0"
    + b"K\x07r\x00\x01\x00\x00aj\x00\x01\x00\x00a(0.",
}


def main():
    seen = set()
    for name, data in PICKLES.items():
        listing = io.StringIO()
        pickletools.dis(data, listing)
        (FOLDER / f"{name}.pkl").write_bytes(data)
        (FOLDER / f"{name}.dis").write_text(listing.getvalue(), encoding="utf-8", errors="surrogatepass")
        seen.update(opcode.name for opcode, _, _ in pickletools.genops(data))
    missing = [opcode.name for opcode in pickletools.opcodes if opcode.name not in seen]
    assert not missing, missing


if __name__ == "__main__":
    main()
