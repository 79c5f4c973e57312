"""Loads bytes with CPython's two unpicklers and with joblib's way of reading arrays, and counts how often they call `marked.call`.

`marked` is a module that this worker makes up. Its only function counts. Nothing else that the bytes name has an effect: the
modules that may be imported are `marked` and those that the test's own pickles use.
"""

import base64
import copyreg
import io
import pickle
import signal
import sys
import types

from line_server import serve

calls = []
marked = types.ModuleType("marked")
marked.call = lambda *args, **kwargs: calls.append(args)


class Anything:
    """Accepts what a pickle does to an object."""

    def __new__(cls, *args, **kwargs):
        calls.append(args)
        return object.__new__(cls)

    def append(self, item): pass
    def extend(self, items): pass
    def add(self, item): pass
    def __setitem__(self, key, value): pass
    def __setstate__(self, state): pass


marked.Anything = Anything
sys.modules["marked"] = marked
copyreg.add_extension("marked", "call", 200)
ALLOWED = {"marked", "collections", "builtins", "_codecs"}


def allowed(module, name, find):
    if module not in ALLOWED or module == "builtins" and name not in ("bytes", "bytearray", "list", "dict"):
        raise pickle.UnpicklingError(f"{module}.{name} is not a part of this test")
    return find(module, name)


class C(pickle.Unpickler):
    def find_class(self, module, name):
        return allowed(module, name, super().find_class)

    def persistent_load(self, pid):
        return pid


class Python(pickle._Unpickler):
    def find_class(self, module, name):
        return allowed(module, name, super().find_class)

    def persistent_load(self, pid):
        return pid


def load(data):
    """For each unpickler: how often `data` called something of `marked`."""
    data, counts = base64.b64decode(data), {}
    for unpickler in (C, Python):
        calls.clear()
        signal.alarm(10)
        try:
            unpickler(io.BytesIO(data), buffers=[b"", b"ab"]).load()
        except BaseException:  # random bytes can cause any exception
            pass
        signal.alarm(0)
        counts[unpickler.__name__] = len(calls)
    return counts


def load_all(pickles):
    return [load(data) for data in pickles]


serve({"load": load_all})
