"""Loads each pickle whose path is a line of stdin, under the hook of use_worker.py, with a class whose methods tell when they run, and a
function that tells.

    mix_worker.py MODULE CLASS MODULE FUNCTION

Prints a JSON line for each: `{"events": [event…], "error": text or null}`.
"""

import gc
import io
import json
import os
import pickle
import sys

import use_worker

# Methods that a pickle may reach: an instance is made, gets attributes, and is hashed as a key.
SPARED = ("__new__", "__init__", "__class__", "__dict__", "__weakref__", "__doc__", "__module__", "__slots__", "__getattribute__", "__del__", "__setattr__",
          "__init_subclass__", "__subclasshook__", "__class_getitem__", "__reduce__", "__reduce_ex__", "__hash__", "__orig_bases__", "__parameters__", "__annotations__", "__dir__")


def tell(cls, touched):
    """Replaces the methods of a class, also those that it does not have."""
    more = "__iter__ __len__ __bool__ __call__ __repr__ __str__ __int__ __index__ __float__ __getitem__ __contains__ __next__ __array__ __bytes__ __eq__ __ne__ __lt__ __add__ __or__ __radd__ keys items append".split()
    for method in sorted(set(vars(cls)) | set(more)):
        if method in SPARED or (not callable(vars(cls).get(method)) and method in vars(cls)):
            continue

        def told(*args, method=method, **names):
            touched.append(cls.__name__ + "." + method)
            raise use_worker.Stopped(method)

        setattr(cls, method, told)


def storage_of(fields):
    """A storage for a persistent id of `torch.save`; a class for another one."""
    import torch

    if fields[0] != "storage":
        return fields[1]
    untyped = getattr(torch, "UntypedStorage", None)
    return torch.storage.TypedStorage(wrap_storage=untyped(4 * fields[4]), dtype=torch.float32, _internal=True)


class Loader(pickle.Unpickler):
    """The unpickler of `torch.load`."""

    def persistent_load(self, fields):
        return storage_of(fields)


def load(path, cls, function):
    with open(path, "rb") as file:
        data = file.read()
    touched, stopped, error = [], [], None
    tell(cls, touched)
    # Any package may be imported: the pickle names globals of many.
    state = use_worker.watch("", stopped)
    state["packages"].update(module.split(".")[0].lstrip("_") for module in use_worker.names_of(data))
    module, name = function

    def told(*args, **names):
        touched.append("{}.{}".format(module, name))
        raise use_worker.Stopped(name)

    setattr(sys.modules[module], name, told)
    try:
        loaded = pickle.loads(data) if b"Q" not in data else Loader(io.BytesIO(data)).load()
        # `torch.load` compares the first object with a number, and what is dropped may have a finalizer.
        found = loaded == 1, loaded != 1
        del loaded, found
        gc.collect()
    except use_worker.Stopped as reason:
        error = str(reason)
    except BaseException as reason:  # noqa: B036  a pickle that does not fit the classes
        error = "{}: {}".format(type(reason).__name__, str(reason)[:80])
    found = list(touched)
    state["on"] = False
    return {"events": stopped[:5] + found[:5], "error": error}


def main():
    use_worker.prepare()
    cls, function = use_worker.resolve(*sys.argv[1:3]), sys.argv[3:5]
    use_worker.resolve(*function)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        path = line.rstrip("\n")
        # What the pickle names is imported before the hook watches.
        with open(path, "rb") as file:
            for module in use_worker.names_of(file.read()):
                try:
                    __import__(module)
                except BaseException:  # noqa: B036  this version does not have it
                    pass
        answer(path, cls, function, out)


def answer(path, cls, function, out):
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        import signal
        signal.alarm(30)
        try:
            found = load(path, cls, function)
        except BaseException as error:  # noqa: B036
            found = {"events": ["worker: " + repr(error)[:200]], "error": ""}
        os.write(send, json.dumps(found).encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    print(data.decode() or json.dumps({"events": ["the interpreter crashed, or took half a minute: {}".format(status)], "error": ""}), file=out, flush=True)


if __name__ == "__main__":
    main()
