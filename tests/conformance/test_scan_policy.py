"""What no list has judged is never clean: each callable here writes a file when Python loads a pickle that calls it, and is of the standard
library, of torch, or of a package that torch requires."""

import json
import os
import pickle
import subprocess

import pytest
from program import torch2carton


def named(module, name):
    return f"c{module}\n{name}\n".encode()


def call(function, *parts):
    return b"".join([function, b"(", *parts, b"tR"])


def plain(value):
    return pickle.dumps(value, 2)[2:-1]


OPEN, SHELL = "open('marker', 'w')", "__import__('os').system('touch marker')"
PATH = call(named("pathlib", "PosixPath"), plain("marker"))
FACTORY = {"version": 1, "formatters": {"a": {"()": "builtins.open", "file": "marker", "mode": "w"}}}
# An object with annotations that are texts.
ANNOTATED = named("types", "SimpleNamespace") + b")R" + plain({"__annotations__": {"a": OPEN}}) + b"b"
TEMPLATE = "{{ cycler.__init__.__globals__.os.popen('touch marker').read() }}"
LOCK = call(named("filelock", "UnixFileLock"), plain("marker"))
LOCAL = call(named("fsspec.spec", "make_instance"), named("fsspec.implementations.local", "LocalFileSystem"), plain(()), plain({}))

ATTACKS = {
    "exec_ of mpmath": call(named("mpmath.libmp.backend", "exec_"), plain(OPEN)),
    "its other name": call(named("mpmath.ctx_mp_python", "exec_"), plain(OPEN)),
    "get_type_hints": call(named("typing_extensions", "get_type_hints"), ANNOTATED),
    "dictConfig": call(named("logging.config", "dictConfig"), plain(FACTORY)),
    "write_text": call(named("pathlib", "PosixPath.write_text"), PATH, plain("x")),
    "from_file": call(named("torch", "UntypedStorage.from_file"), plain("marker"), plain(True), plain(8)),
    "a writer in C": call(named("torch._C", "PyTorchFileWriter"), plain("marker")),
    "sympify": call(named("sympy.core.sympify", "sympify"), plain(SHELL)),
    "parse_expr": call(named("sympy.parsing.sympy_parser", "parse_expr"), plain(SHELL)),
    "a template": call(named("jinja2.environment", "Template.render"), call(named("jinja2.environment", "Template"), plain(TEMPLATE))),
    "a graph": call(named("networkx.readwrite.edgelist", "write_edgelist"), named("networkx.classes.graph", "Graph") + b")R", plain("marker")),
    "a lock": call(named("filelock", "UnixFileLock.acquire"), LOCK),
    "a file system": call(named("fsspec.implementations.local", "LocalFileSystem.touch"), LOCAL, plain("marker")),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_nobody_has_judged_is_unsafe(attack, tmp_path):
    (tmp_path / "a.pkl").write_bytes(b"\x80\x04" + ATTACKS[attack] + b".")
    load = "import pickle, torch, sympy\ntry: pickle.load(open('a.pkl', 'rb'))\nfinally: open('loaded', 'w')"
    subprocess.run([os.environ["T2C_NEWEST"], "-W", "ignore", "-c", load], cwd=tmp_path, capture_output=True, timeout=120)
    assert (tmp_path / "loaded").exists() and (tmp_path / "marker").exists(), "the attack does not run"
    assert json.loads(torch2carton("scan", "--json", tmp_path / "a.pkl").stdout)["verdict"] == "unsafe"
