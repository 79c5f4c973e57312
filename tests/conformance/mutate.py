#!/usr/bin/env python3
"""Mutates real files of a format until a time is over: a scan must call none of them clean whose loader runs what is hidden in it.

    mutate.py [FORMAT…] --binary PROGRAM [--seconds N] [--seed N] [--keep FOLDER]     a Python with torch, in which the loaders run

Every file has a canary: a call that leaves a mark if a loader makes it (`workers/judge.py` loads each file in a process and a folder
of its own). Mutations hide the call from a reader that reads otherwise than the loader does. Some mutations write what no writer
of the format writes: such a file must not be clean either, if its loader accepts it.
"""

import argparse
import base64
import collections
import io
import json
import pickle
import pickletools
import random
import re
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

sys.dont_write_bytecode = True
import payloads  # noqa: E402
import runs  # noqa: E402

RAN = "ran"  # the name of the file that a canary of TorchScript writes
ROUND = 150  # files in a scan


class File:
    """A mutated file: its bytes, the suffix that chooses its loader, and the mutations that were made, with those that no writer makes."""

    def __init__(self, data, suffix):
        self.data, self.suffix, self.steps, self.foreign = data, suffix, [], set()
        self.loader = {".json": names_code, ".yaml": has_targets, ".toml": calls_targets}.get(suffix)


# Pickles.


def numbers_as_text(chosen, number):
    """The opcodes of a whole number that an unpickler accepts, and whether a pickler writes them."""
    sign, digits = "-" if number < 0 else "", abs(number)
    return chosen.choice([
        (f"I{number}\n", False), (f"L{number}L\n", False), (f"I{sign}0{digits:o}\n", digits > 1), (f"I{sign}0x{digits:x}\n", True), (f"I {number}\n", True), (f"I{sign}00{digits}\n", True),
        (f"I{number}\0\n", True), (f"L{number}\n", False), (f"L{sign}0x{digits:x}L\n", True), (f"L {number}L\n", True), (f"I+{digits}\n" if not sign else f"I{number}\n", not sign)])


def sink(chosen):
    """Opcodes that call a program, in the ways that a pickle has."""
    text = payloads.ARGUMENT
    system = chosen.choice([b"cos\nsystem\n", payloads.name("os:system"), b"cposix\nsystem\n", payloads.name("subprocess:os.system")])
    inner = b"\x80\x02cos\nsystem\n" + text + b"\x85R."
    return chosen.choice([
        system + text + b"\x85R", system + b"(" + text + b"tR", b"(" + system + text + b"o", b"(" + text + b"ios\nsystem\n",
        payloads.call(payloads.name("builtins:getattr"), payloads.name("builtins:__import__") + payloads.short("os") + b"\x85R", payloads.short("system")) + text + b"\x85R",
        payloads.name("torch.storage:_load_from_bytes") + b"B" + struct.pack("<I", len(inner)) + inner + b"\x85R",
        payloads.name("functools:partial") + system + text + b"\x86R" + b")R", payloads.name("builtins:list") + payloads.name("builtins:map") + system + b"]" + text + b"a" + b"\x86R\x85R",
    ])


def pickle_file(chosen):
    value = {"a": [1, 2, -7, 10, 300, 2**40], "b": (1.5, None, True), "c": b"x", "s": {"d": "text", "e": [8, 64]}, "o": collections.OrderedDict(k=[9])}
    data = bytearray(pickle.dumps(value, chosen.randrange(6)))
    file = File(b"", chosen.choice([".pkl", ".pickle"]))
    places = [(op, arg, at) for op, arg, at in pickletools.genops(bytes(data))]
    places = [(op, arg, at, end) for (op, arg, at), end in zip(places, [at for _, _, at in places[1:]] + [len(data)])]
    made = bytearray()
    # FRAME says how many bytes follow, so it goes.
    places = [place for place in places if place[0].name != "FRAME"]
    target = chosen.randrange(1, len(places)) if chosen.random() < 0.8 else None
    for index, (op, arg, at, end) in enumerate(places):
        if index == target:
            made += chosen.choice([b"", b"(1", b"N0", b"K\1I0\n00"]) + sink(chosen) + b"0"
            file.steps.append("call")
        if isinstance(arg, int) and op.name.startswith(("BININT", "INT", "LONG")) and chosen.random() < 0.2:
            code, foreign = numbers_as_text(chosen, arg)
            made += code.encode()
            file.steps.append(f"number as {code!r}")
            if foreign:
                file.foreign.add("a number as no pickler writes it")
            continue
        made += data[at:end]
    file.data = bytes(made)
    for _ in range(chosen.choice([0, 0, 0, 1, 2])):
        at = chosen.randrange(len(file.data))
        new = chosen.choice([b"", b"\0", b"(", b"0", b"1", bytes([chosen.randrange(256)])])
        file.data = file.data[:at] + new + file.data[at + chosen.randrange(2):]
        file.steps.append(f"byte at {at}")
        file.foreign = set()  # it may be another file by now
    return file


# TorchScript.

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\w+|\s+|.')
SCRIPTS = []


def script_bases():
    """The records of archives that torch.jit.save writes."""
    import torch

    class Stated(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))

        def forward(self, x):
            return torch.add(x, self.weight)

        @torch.jit.export
        def __getstate__(self):
            return (self.weight, self.training)

        @torch.jit.export
        def __setstate__(self, state: tuple[torch.Tensor, bool]):
            self.weight = state[0]
            self.training = state[1]

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.layers = Stated(), torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())

        def forward(self, x, flag: bool = False):
            if flag:
                x = self.inner(x)
            return [layer(x) for layer in self.layers]

    for module in (Stated(), Outer()):
        file = io.BytesIO()
        torch.jit.save(torch.jit.script(module), file)
        with zipfile.ZipFile(file) as archive:
            SCRIPTS.append([(name, archive.read(name)) for name in archive.namelist()])


def canary_statements(chosen):
    """Statements that write a file, and what of them no module that is saved has."""
    text = chosen.choice([f'"{RAN}"', '"r" "an"', '"""ran"""', "'ran'", '"r\\x61n"', '"\\162an"'])
    name = f"{chosen.choice('abgt')}{chosen.randrange(10)}"
    return chosen.choice([
        (f"torch.save(1, {text})", "a call"), (f"ops.aten.save(1, {text})", "a call"), (f"{name} = torch\n{name}.save(1, {text})", "an alias of a namespace"),
        (f"{name} = torch.save\n{name}(1, {text})", "an alias of a function"), (f"{name} = getattr\n{name}(torch, \"save\")(1, {text})", "an alias of a function"),
        (f"getattr(torch, \"save\")(1, {text})", "getattr"), (f"getattr(torch, \"sa\" \"ve\")(1, {text})", "getattr of joined texts"), (f"getattr(ops, \"aten\").save(1, {text})", "getattr"),
        (f"{name} = ops\n{name}2 = {name}.aten\n{name}2.save(1, {text})", "an alias of a namespace"), (f"(torch).save(1, {text})", "parentheses"),
        (f"getattr(getattr(ops, \"at\" \"en\"), '''save''')(1, {text})", "getattr"), (f"if True:\n  torch.save(1, {text})\nelse:\n  pass", "a call"),
        (f"{name} = [torch.save(1, {text}) for _ in [1]]", "a call"), (f"{name} = torch.add\ntorch.save(1, {text})", "an alias of a function"),
        (f"{name} = getattr(torch, \"add\")(1, 2)", "getattr"), (f"{name} = __torch__", "an alias of a namespace"), (f"{name} = torch.from_file({text}, True, 4)", "a call"), ("print(\"x\")", None)])


def respelled(chosen, statement):
    """The tokens of a statement with other blanks between them."""
    tokens, made, depth, foreign = TOKEN.findall(statement), "", 0, False
    for token in tokens:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token, 0)
        made += token
        if token in "().,[]=" and chosen.random() < 0.4:
            blank = chosen.choice([" ", "  ", "\t", "\f", "\v", "\\\n", "\\\n  ", *(["\n", " # save\n", "\n\n  "] if depth > 0 else [])])
            # A comment is read as it is, and hides nothing.
            foreign |= any(character in blank for character in "\t\f\v\\")
            made += blank
    return made, foreign


def script_file(chosen):
    records = [list(record) for record in chosen.choice(SCRIPTS)]
    file = File(b"", ".ts")
    sources = [record for record in records if record[0].endswith(".py") and b"__setstate__" in record[1]]
    record = chosen.choice(sources)
    statement, why = canary_statements(chosen)
    if why:
        file.foreign.add(why)
    lines = []
    for line in statement.split("\n"):
        line, foreign = (line, False) if chosen.random() < 0.4 else respelled(chosen, line)
        if foreign:
            file.foreign.add("blanks")
        lines.append("    " + line)
    source = record[1].decode()
    head, state, body = source.partition("def __setstate__")
    at = body.index("\n", body.index("NoneType:")) if chosen.random() < 0.5 else body.index("\n    return None")
    record[1] = (head + state + body[:at] + "\n" + "\n".join(lines) + body[at:]).encode()
    file.steps += lines
    if chosen.random() < 0.15:
        record[0] = chosen.choice([record[0].replace("__torch__", "__TORCH__"), record[0].replace(".py", ".PY"), record[0].replace("code/", "CODE/")])
        file.steps.append(f"named {record[0]}")
        file.foreign.add("capital letters")
    file.data = zipped(records)
    return file


def zipped(records, compression=zipfile.ZIP_STORED):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression) as archive:
        for name, data in records:
            archive.writestr(name, data)
    return made.getvalue()


# Zip archives of torch.save.

ARCHIVES = []


def archive_bases():
    import torch

    for value in ({"a": torch.ones(2), "b": {"c": 1}}, torch.nn.Linear(2, 2), [torch.zeros(3, dtype=torch.int64), "text"]):
        file = io.BytesIO()
        torch.save(value, file)
        with zipfile.ZipFile(file) as archive:
            ARCHIVES.append([(name, archive.read(name)) for name in archive.namelist()])


def archive_file(chosen):
    records = list(chosen.choice(ARCHIVES))
    file = File(b"", ".pt")
    root = records[0][0].partition("/")[0]
    bad = b"\x80\x02" + sink(chosen) + b"."
    for _ in range(chosen.choice([1, 1, 2])):
        step = chosen.randrange(9)
        at = next((i for i, (name, _) in enumerate(records) if name.lower().endswith("/data.pkl")), 0)
        name = records[at][0]
        if step == 0:
            records[at] = (name, bad)
        elif step == 1:
            case = chosen.choice([name.upper(), name.replace("data.pkl", "Data.pkl"), name.replace("data.pkl", "DATA.PKL"), name.replace(root, root.upper())])
            records.insert(chosen.choice([at, at + 1, len(records)]), (case, bad))
            file.foreign.add("capital letters")
        elif step == 2:
            records.insert(chosen.choice([at, at + 1]), (name, bad))
            file.foreign.add("two records of a name")
        elif step == 3:
            records.append((f"{root}/{chosen.choice(['data/extra', 'extra.pkl', 'data.pkl/x', 'code/__torch__.py', '.data/extern_modules'])}", bad))
        elif step == 4:
            records.insert(0, (f"{chosen.choice(['other', root + 'x', root + '/' + root])}/data.pkl", bad))
            file.foreign.add("a second root")
        elif step == 5:
            records.append((f"{root}/{chosen.choice(['constants.pkl', 'CONSTANTS.PKL', 'Constants.pkl'])}", chosen.choice([bad, b"\x80\x02)."])))
        elif step == 6:
            records[at] = (chosen.choice([name.upper(), name.replace("data.pkl", "DATA.pkl")]), chosen.choice([bad, records[at][1]]))
            file.foreign.add("capital letters")
        elif step == 7:
            records.append((f"{root}/.{chosen.choice(['data', 'DATA'])}/{chosen.choice(['extern_modules', 'EXTERN_MODULES'])}", b"os\n"))
        file.steps.append(f"archive {step}")
    data = bytearray(zipped(records, chosen.choice([zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])))
    for _ in range(chosen.choice([0, 0, 1])):
        step = chosen.randrange(4)
        if step == 0:
            data[0:0] = chosen.choice([b"\0" * 64, bad, b"#!/bin/sh\n"])
            file.foreign.add("bytes before the archive")
        elif step == 1:
            data += chosen.choice([b"\0" * 8, bad])
            file.foreign.add("bytes after the archive")
        else:
            headers = [m.start() for m in re.finditer(rb"PK\x03\x04|PK\x01\x02|PK\x05\x06", bytes(data))]
            data[min(chosen.choice(headers) + chosen.randrange(4, 46), len(data) - 1)] ^= 1 << chosen.randrange(8)
            file.foreign = set()
        file.steps.append(f"bytes {step}")
    file.data = bytes(data)
    return file


# Tar archives of PyTorch 0.1, and files of other formats that are one as well.


def tar_header(chosen, name, size, kind=b"0", start=b"", magic=b"ustar\x0000"):
    """A header with a checksum that tarfile accepts; `start` are the first bytes, in place of a part of the name."""
    block = bytearray(512)
    block[:len(name)] = name
    if start:
        block[:100] = (start + b"a" * 100)[:100]
    block[100:108], block[108:116], block[116:124] = b"0000644\0", b"0000000\0", b"0000000\0"
    block[124:136] = chosen.choice([b"%011o\0" % size, b"%011o " % size, b"%11o\0" % size, b"\x80" + size.to_bytes(11, "big")]) if not start else b"%011o " % size
    block[136:148], block[156:157], block[257:265] = b"00000000000\0", kind, magic
    if start.startswith(b"\x08") or b"__metadata__" in start:
        block = bytearray(byte or 0x20 for byte in block)
    block[148:156] = b" " * 8
    signed = chosen.random() < 0.3
    total = sum(byte - 256 if signed and byte > 127 else byte for byte in block)
    block[148:156] = (b"%06o\0 " if not start else b"%06o  ") % (total % 0o1000000)
    return bytes(block)


def tar_member(chosen, name, data, **more):
    return tar_header(chosen, name, len(data), **more) + data + b"\0" * (-len(data) % 512)


def tar_members(pickled):
    info = pickle.dumps({"protocol_version": 1000, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}, 2)
    return [[b"sys_info", info], [b"storages", pickle.dumps(0, 2) + pickle.dumps([], 2)], [b"tensors", pickle.dumps(0, 2)], [b"pickle", pickled]]


def tar_file(chosen):
    good, bad = pickle.dumps({"a": [1, 2]}, 2), b"\x80\x02" + sink(chosen) + b"."
    members = tar_members(bad)
    hidden = members[:]
    file = File(b"", chosen.choice([".pth", ".pt", ".tar"]))
    step = chosen.randrange(11)
    blocks = []
    magic = chosen.choice([b"ustar\x0000", b"ustar\x0000", b"ustar  \0", b"\0" * 8, b"abcdefgh"])
    if magic[:5] != b"ustar":
        file.foreign.add("a magic")
    if step == 0:
        chosen.shuffle(hidden)
    elif step == 1:
        hidden.insert(chosen.randrange(len(hidden) + 1), [b"pickle", good])
        file.foreign.add("two members of a name")
    elif step == 2:
        blocks = [tar_member(chosen, b"pax", b"%d size=%d\n" % (12, chosen.choice([0, 512, 10]))[:12], kind=chosen.choice([b"g", b"x"]))]
        file.foreign.add("a pax header")
    elif step == 3:
        blocks = [tar_member(chosen, b"././@LongLink", chosen.choice([b"sys_info\0", b"pickle\0"]), kind=chosen.choice([b"L", b"K"]))]
        file.foreign.add("a long name")
    elif step == 4:
        hidden[-1] = [chosen.choice([b"./pickle", b"pickle/", b"/pickle", b"x/../pickle"]), bad]
        file.foreign.add("another path")
    elif step == 5:
        at = chosen.randrange(4)
        name, data = hidden[at]
        blocks = [tar_member(chosen, *member) for member in hidden[:at]]
        blocks += [tar_member(chosen, name, data, magic=magic, kind=chosen.choice([b"\0", b"7", b"S", b"9"]))]
        hidden = hidden[at + 1:]
        file.foreign.add("a kind of member")
    elif step == 6:
        blocks = [tar_member(chosen, b"extra", bad)]
        file.foreign.add("another member")
    elif step in (7, 8):
        # The first header starts as a file of another format does.
        start = chosen.choice([b"\x80\x02}q\0.", b"\x80\x04}\x94.", b"}.", b"N.", b"\x93NUMPY\x01\0v\0{'descr': '<f4', 'fortran_order': False, 'shape': (0,)}", b"]."])
        blocks = [tar_member(chosen, b"", b"", start=start, magic=magic)]
        file.suffix = chosen.choice([".pth", ".pt", ".bin"])
        file.foreign.add("two formats")
    elif step == 9:
        blocks = [safetensors_start(chosen)]
        file.suffix = ".pt"
        file.foreign.add("two formats")
    else:
        blocks = [tar_member(chosen, b"pickle", good), b"\0" * 512]
        file.foreign.add("an empty block")
    body = b"".join(blocks) + b"".join(tar_member(chosen, *member, magic=magic) for member in hidden) + b"\0" * 1024
    if step == 9:
        body = closed_safetensors(body)
    file.data, file.steps = body, [f"tar {step}"]
    return file


def safetensors_start(chosen):
    head = tar_header(chosen, b"", 512, start=struct.pack("<Q", 1016) + b'{"__metadata__":{"x":"')
    return head + b'"},"t":{"dtype":"U8","shape":[%12d],"data_offsets":[0,%12d]}}'.ljust(512)


def closed_safetensors(body):
    """Fills in the number of bytes after the header. It has a fixed width, so the second block keeps its size."""
    length = len(body) - 1024
    return body[:512] + (body[512:1024].replace(b"%12d", b"%12d" % length)) .ljust(512)[:512] + body[1024:]


# Documents: configurations that name Python code, and YAML whose values are called.


def json_file(chosen):
    """A configuration that names the code in a file next to it."""
    key = chosen.choice(["auto_map", "auto_map", "custom_pipelines", "_class_name"])
    value = {"auto_map": {"AutoModel": "code.Model"}, "custom_pipelines": {"a": {"impl": "code.Model", "pt": ["AutoModel"]}}, "_class_name": ["code", "Model"]}[key]
    document = {"model_type": "llama", "hidden_size": 8}
    other = {"x": 0}
    step = chosen.randrange(10)
    text = None
    if step == 0:
        other["x"] = chosen.choice([float("nan"), float("inf"), -float("inf")])
    elif step == 1:
        text = '"x": 1e999, '
    elif step == 2:
        text = '"x": "\\ud800", '
    elif step == 3:
        text = '"x": ' + "[" * 200 + "]" * 200 + ", "
    elif step == 4:
        other["x"] = "a" * chosen.choice([1 << 20, 1 << 21])
    elif step == 5:
        text = f'"{key}": {{}}, '
    elif step == 6:
        other["x"] = 10 ** chosen.choice([20, 400])
    elif step == 7:
        text = '"x": "a\\u0000\\ud83d\\ude00", '
    whole = json.dumps(document | other)[1:-1]
    named = f'"{escaped(chosen, key)}": ' + json.dumps(value)
    made = "{" + (text or "") + (f"{whole}, {named}" if chosen.random() < 0.5 else f"{named}, {whole}") + "}"
    if step == 8:
        made = chosen.choice(["\n\t ", " " * (1 << 20)]) + made
    file = File(made.encode(chosen.choice(["utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-32"]) if step == 9 else "utf-8", "surrogatepass"), ".json")
    file.steps = [f"json {step} {key}"]
    return file


def escaped(chosen, text):
    return "".join(f"\\u{ord(c):04x}" if chosen.random() < 0.1 else c for c in text)


def yaml_file(chosen):
    """A document whose `_target_` is called by Hydra, or whose tag PyYAML's full loader calls."""
    target = chosen.choice(["os.system", "builtins.eval", "subprocess.getoutput", "pip.main", "torch.hub.load"])
    key = chosen.choice(["_target_", '"_target_"', "'_target_'", '"_targ\\u0065t_"', '"\\x5ftarget_"', "? _target_\n  ", "!!str _target_", "&k _target_"])
    value = chosen.choice([target, f'"{target}"', f"'{target}'", f">-\n    {target}", f"|-\n    {target}", f"&a {target}", f"!!str {target}", "${x}", '"' + target.replace("o", "\\x6f") + '"'])
    body = chosen.choice([
        f"x: {target}\nmodel:\n  {key}: {value}\n", f"x: {target}\nmodel: {{{key.strip()}: {target}}}\n" if not key.startswith("?") else f"x: {target}\nm:\n  {key}: {value}\n",
        f"x: {target}\nbase: &b\n  {key}: {value}\nmodel:\n  <<: *b\n", f"%YAML 1.1\n---\nx: {target}\nm:\n - {key}: {value}\n",
        "m: !!python/object/apply:os.system ['echo']\n", "m: !!python/name:os.system\n", "%TAG ! tag:yaml.org,2002:python/\n---\nm: !object/apply:os.system ['echo']\n",
        f"x: {target}\n---\nm:\n  {key}: {value}\n", f"x: {target}\nm: [1, {{'_target_': {target}}}]\n",
        *(f'x: {name}\na: "_tar"\nb: "get_: {target}"\nm: "${{{chosen.choice(["", " "])}{resolver}:{text}}}"\n' for name in ("create", "decode") for resolver in (f"oc.{name}", "oc.${x}")
          for text in (f"'{{_target_: {target}}}'", "'{'${a}${b}'}'"))])
    file = File(body.encode(chosen.choice(["utf-8", "utf-8", "utf-8", "utf-16"])), ".yaml")
    file.steps = [body]
    return file


def toml_file(chosen):
    """A document whose `_target_` is called by Hydra, in the notations that TOML has for keys, texts and tables."""
    target = chosen.choice(["os.system", "builtins.eval", "subprocess.getoutput", "pip.main", "torch.hub.load"])
    spelled = "".join(chosen.choice([f"\\u{ord(c):04x}", f"\\U{ord(c):08X}"]) if chosen.random() < 0.2 else c for c in target)
    at = chosen.randrange(1, len(target))
    value = chosen.choice([f'"{target}"', f"'{target}'", f'"{spelled}"', f'"""{target}"""', f"'''{target}'''", f'"""\n{target}"""', f"'''\n{target}'''",
                           f'"""{target[:at]}\\\n   {target[at:]}"""', f'"""\\\n\n {spelled}\\\n"""'])
    key = chosen.choice(["_target_", '"_target_"', "'_target_'", '"_targ\\u0065t_"', '"\\U0000005ftarget_"'])
    blank = chosen.choice(["", " ", "\t", "  "])
    path = chosen.choice(["m", '"a.b"', "'m]'", "m.n", f"m{blank}.{blank}n", '"\\u006d"', "1"])
    entry = f"{key}{blank}={blank}{value}{chosen.choice(['', ' # x', blank])}"
    before = chosen.choice(["", "# a\n", "x = 1979-05-27T07:32:00Z\n", "x = [1, [2, 'a'],\n # b\n]\n", 'x = """a\n[m]\n"""\n', "x = '''a\\'''\n", "x.y = nan\nz = -0x_1\n", "x = 0xdead_beef\n", 'x = """""a"""\n', "x = '''a'''''\n"])
    body = before + chosen.choice([
        f"[{path}]\n{entry}\n", f"[[{path}]]\n{entry}\n", f"{entry}\n", f"{path}.{entry}\n", f"{path} = {{{blank}{entry.split(' #')[0]}{blank}}}\n", f"[{blank}{path}{blank}]\n{entry}\n",
        f"{path} = [1, {{ a.b = {{ {entry.split(' #')[0]} }} }}]\n", f"[{path}]\na = 1\n[{path}.z]\n{entry}", f"[[{path}]]\n[[{path}]]\n{entry}\n", f"[[{path}]]\n[{path}.{key}]\n{entry}\n"])
    file = File(body.replace("\n", chosen.choice(["\n", "\n", "\r\n"])).encode(chosen.choice(["utf-8"] * 4 + ["utf-8-sig"])), ".toml")
    file.steps = [body]
    return file


def hocon_file(chosen):
    """A document whose `_target_` is called by Hydra, in the notations that HOCON has for keys, texts, objects and what is put together."""
    target = chosen.choice(["os.system", "builtins.eval", "subprocess.getoutput", "pip.main", "torch.hub.load"])
    at = chosen.randrange(1, len(target))
    head, tail = target[:at], target[at:]
    blank = chosen.choice(["", " ", "\t", "  "])
    value = chosen.choice([target, f'"{target}"', f'"""{target}"""', f'"{head}""{tail}"', f'{head}"{tail}"', f'"{head}"{tail}', f'${{x}}"{tail}"', f'"{head}"${{y}}', "${z}", f"${{?none}}{target}",
                           f'"""{head}"""{tail}', f"{target} // a", f"{target} # a", f"{target}{blank}"])
    key = chosen.choice(["_target_", '"_target_"', '"""_target_"""', " _target_"])
    separator = chosen.choice(["=", ":", " = ", " : ", "\n=\n", " # a\n: ", "=\n// b\n"])
    entry = f"{key}{separator}{value}"
    before = f"x = {head}\ny = \"{tail}\"\nz = {target}\n" if "$" in value else chosen.choice(["", "# a {\n", "// b\n", "a = [1, 2\n 3]\n", "a { b = 1, c : [] }\n", "a += 1\n", 'a = """b\n}"""\n', "a-b c = d e\n"])
    body = before + chosen.choice([
        f"m {{ {entry}\n}}\n", f"m = {{ {entry}\n}}\n", f"m.{key.strip()}{separator}{value}\n" if key.strip() == "_target_" else f"{entry}\n", f"m = [1, {{ {entry}\n }}]\n", f"{entry}\n",
        f"m {{ a = 1 }}\nm {{ {entry}\n }}\n", f"m = {{ a = 1 }} {{ {entry}\n }}\n", f"m\n{{\n{entry}\n}}", f"a.b.c {{ d.e {{ {entry}\n }} }}\n", f"m : [ {{a : 1}} ] [ {{ {entry}\n }} ]\n"])
    if not before and chosen.random() < 0.3:
        body = "{" + body + "}"
    file = File(body.replace("\n", chosen.choice(["\n", "\n", "\r\n"])).encode(chosen.choice(["utf-8"] * 4 + ["utf-8-sig"])), chosen.choice([".hocon", ".conf"]))
    file.loader, file.steps = loads_hocon, [body]
    return file


def loads_hocon(path):
    """Whether pyhocon finds something that is called."""
    from pyhocon import ConfigFactory

    try:
        return has_target([ConfigFactory.parse_file(str(path)).as_plain_ordered_dict()])
    except Exception:  # pyhocon and pyparsing have many
        return False


# Templates of chats: an attribute of the interpreter that a sandbox is asked for.


def name_of_attribute(chosen, name):
    """An expression of Jinja whose value is a name with underscores."""
    escaped = "".join(chosen.choice([f"\\x{ord(c):02x}", f"\\u{ord(c):04x}", f"\\{ord(c):03o}"]) if chosen.random() < 0.3 else c for c in name)
    at = chosen.randrange(1, len(name))
    quote = chosen.choice("'\"")
    return chosen.choice([f"{quote}{name}{quote}", f"{quote}{escaped}{quote}", f"'{name[:at]}' \"{name[at:]}\"", f"'{name[:at]}' ~ '{name[at:]}'", f"'{name[:at]}' + '{name[at:]}'",
                          f"'_' * 2 ~ '{name[2:]}'", f"'%c%c{name[2:]}' % (95, 95)", f"'%c%c{name[2:]}'|format(95, 95)", f"['{name[:at]}', '{name[at:]}']|join", f"'{name.replace('_', '-')}'|replace('-', '_')",
                          f"'{name[::-1]}'|reverse", f"('{name.upper()}')|lower"])


def template_file(chosen):
    name = chosen.choice(["__class__", "__init__", "__globals__", "__subclasses__", "__mro__"])
    subject = chosen.choice(["messages", "cycler", "''", "messages[0]", "(1, 2)", "namespace", "x"])
    blank = chosen.choice(["", " ", "\n"])
    text = name_of_attribute(chosen, name)
    use = chosen.choice([f"{subject}{blank}.{blank}{name}", f"{subject}{blank}[{blank}{text}{blank}]", f"{subject}{blank}|{blank}attr{blank}({blank}{text}{blank})", f"[{subject}]|map(attribute={text})|list",
                         f"[{subject}]|selectattr({text})|list", f"[{subject}]|groupby({text})", f"[{subject}]|sum(attribute={text})", f"[{subject}]|sort(attribute={text})|list"])
    opening = chosen.choice(["{{", "{{-", "{{+"])
    code = chosen.choice([f"{opening} {use} }}}}", f"{{% set y = {use} %}}", f"{{%- if {use} %}}a{{% endif %}}", f"{{% for y in [{use}] %}}{{% endfor %}}", f"{{{{ 'a' if {use} else 'b' }}}}",
                          f"{{% macro f() %}}{{{{ {use} }}}}{{% endmacro %}}{{{{ f() }}}}", f"{{% filter upper %}}{{{{ {use} }}}}{{% endfilter %}}"])
    before = chosen.choice(["", "{% for m in messages %}{{ m['role'] }}{% endfor %}", "{# {{ ' #}", "{% raw -%}{{ ' {%- endraw %}", "{{ '}}' }}", "{{ \"{%\" }}", "{% raw %}{% if %}{% endraw %}", "{% set x = namespace(a=1) %}"])
    suffix = chosen.choice([".jinja", ".json"])
    text = before + code + chosen.choice(["", "\n", "{# a #}"])
    file = File((text if suffix == ".jinja" else json.dumps({"chat_template": text})).encode(), suffix)
    file.loader, file.steps = asks_for_hidden_attribute, [text]
    return file


def asks_for_hidden_attribute(path):
    """Whether Jinja's sandbox is asked for an attribute with two underscores, as in `transformers`."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    asked = []

    class Watched(ImmutableSandboxedEnvironment):
        def is_safe_attribute(self, subject, attribute, value):
            asked.append(str(attribute))
            return super().is_safe_attribute(subject, attribute, value)

    text = path.read_text()
    environment = Watched(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    try:
        template = environment.from_string(json.loads(text)["chat_template"] if path.suffix == ".json" else text)
        template.render(messages=[{"role": "user", "content": "a"}])
    except Exception:  # what the sandbox refuses, and what is not a template
        pass
    return any(name.startswith("__") for name in asked)


# msgpack: maps with a pickle in them, with headers of any width.


def packed(chosen, value, file):
    """An object of msgpack whose numbers and lengths may be wider than a packer makes them."""
    def head(short, most, codes, length):
        widths = [(code, width) for code, width in codes if length < 1 << 8 * width]
        if short is not None and length <= most and chosen.random() < 0.6:
            return bytes([short | length])
        code, width = chosen.choice(widths)
        return bytes([code]) + length.to_bytes(width, "big")

    if isinstance(value, dict):
        pairs = list(value.items())
        if chosen.random() < 0.1:
            pairs.insert(chosen.randrange(len(pairs) + 1), (chosen.choice(list(value)), 1) if value else (1, 1))
        return head(0x80, 15, [(0xDE, 2), (0xDF, 4)], len(pairs)) + b"".join(packed(chosen, it, file) for pair in pairs for it in pair)
    if isinstance(value, list):
        return head(0x90, 15, [(0xDC, 2), (0xDD, 4)], len(value)) + b"".join(packed(chosen, it, file) for it in value)
    if isinstance(value, (str, bytes)):
        data = value.encode() if isinstance(value, str) else value
        if chosen.random() < 0.1 and isinstance(value, bytes):
            kind = chosen.choice([0xFF, 1, 2, 3, 4, 5, 42, 127])
            file.steps.append(f"extension {kind}")
            return head(None, 0, [(0xC7, 1), (0xC8, 2), (0xC9, 4)], len(data)) + bytes([kind]) + data
        if isinstance(value, str) or chosen.random() < 0.3:  # older packers write bytes as texts
            return head(0xA0, 31, [(0xD9, 1), (0xDA, 2), (0xDB, 4)], len(data)) + data
        return head(None, 0, [(0xC4, 1), (0xC5, 2), (0xC6, 4)], len(data)) + data
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, int) and not isinstance(value, bool):
        return bytes([value]) if value < 128 and chosen.random() < 0.5 else b"\xcf" + struct.pack(">Q", value)
    return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]


def msgpack_file(chosen):
    file = File(b"", chosen.choice([".msgpack", ".msgpck", ".bin", "", ".dat"]))
    file.loader = unpickles_msgpack
    bad = b"\x80\x02" + sink(chosen) + b"."
    array = {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [2], b"data": b"\0" * 8}
    inner = chosen.choice([
        array | {b"kind": b"O", b"data": bad}, array | {b"type": chosen.choice([[["a", "O"]], {"names": ["a"], "formats": ["O"]}, "|O", "i4,O"])}, array | {b"data": bad}, {"shims": [packed(chosen, {"config": {}, "state": bad}, file)]}, [1, bad], {"a": {"b": [{"c": bad}]}}, {bad: 1}, bad.decode("latin-1"),
        {"x": packed(chosen, [packed(chosen, {"y": bad}, file)], file)}, bad])
    value = {"params": {"w": array, "n": chosen.randrange(1000), "f": 1.5, "t": "text", "l": [None, True, 300]}, "state": inner}
    if chosen.random() < 0.2:
        value = inner
    if chosen.random() < 0.1:
        value = [inner] * 40
    file.data = packed(chosen, value, file)
    step = chosen.randrange(10)
    if step == 0:
        file.data += chosen.choice([b"\0", b"\xc1", packed(chosen, {"a": 1}, file), bad])
        file.foreign.add("bytes after the object")
    elif step == 1:
        file.data = packed(chosen, chosen.choice([1, "text", None, [], {}]), file) + file.data
        file.foreign.add("several objects in a row")
    elif step == 2:
        at = chosen.randrange(len(file.data))
        file.data = file.data[:at] + bytes([chosen.randrange(256)]) + file.data[at + 1:]
    file.steps.append(f"msgpack {step}")
    return file


class Reached(Exception):
    """An unpickler reached the name of a global."""


class Watch(pickle.Unpickler):
    def find_class(self, module, name):
        raise Reached


def is_unpickled(data):
    try:
        Watch(io.BytesIO(data)).load()
    except Reached:
        return True
    except Exception:  # a file can cause any
        return False
    return False


def unpickles_msgpack(path):
    """Whether a program that unpacks the file, as a stream and in older packers' way, finds a pickle that calls something."""
    import msgpack

    found = False
    for raw in (False, True):
        unpacker = msgpack.Unpacker(raw=raw, strict_map_key=False, object_pairs_hook=lambda pairs: [part for pair in pairs for part in pair])
        unpacker.feed(path.read_bytes())
        try:
            work = list(unpacker)
        except Exception:  # msgpack has several, and texts that are not UTF-8
            continue
        found |= makes_objects(path, raw)
        depth = {id(it): 0 for it in work}
        while work and not found:
            node = work.pop()
            if isinstance(node, (list, tuple)) and not isinstance(node, msgpack.ExtType):
                work += node
                continue
            data = node.data if isinstance(node, msgpack.ExtType) else node.encode("latin-1", "replace") if isinstance(node, str) else node
            if isinstance(data, bytes) and data:
                found = is_unpickled(data)
                level = depth.get(id(node), 0)
                if level < 4 and (0x80 <= data[0] <= 0x9F or data[0] >= 0xDC):
                    try:
                        inside = msgpack.unpackb(data, raw=raw, strict_map_key=False, object_pairs_hook=lambda pairs: [part for pair in pairs for part in pair])
                        depth[id(inside)] = level + 1
                        work.append(inside)
                    except Exception:
                        pass
    return found


def makes_objects(path, raw):
    """Whether msgpack-numpy makes an array of objects, for whose addresses it takes bytes."""
    import msgpack
    import msgpack_numpy
    import numpy

    found = []

    def look(node):
        described = {str(key, "latin-1") if isinstance(key, bytes) else key: value for key, value in node.items()}
        if "nd" in described and "type" in described:
            found.append(numpy.dtype(msgpack_numpy._unpack_dtype(described["type"])).hasobject)
        return node

    unpacker = msgpack.Unpacker(raw=raw, strict_map_key=False, object_hook=look)
    unpacker.feed(path.read_bytes())
    try:
        for _ in unpacker:
            pass
    except Exception:  # msgpack and NumPy have several
        pass
    return any(found)


# HDF5, which is not read: whatever h5py opens must not be clean.

HDF5_FILES = []


def hdf5_bases():
    import h5py

    layer = json.dumps({"class_name": "Lambda", "config": {"function": ["4wEAAAA=", None, None]}})
    for block in (0, 512, 1024, 4096):
        for version in ("earliest", "latest", "v108"):
            made = io.BytesIO()
            options = {"userblock_size": block} if block else {}
            with h5py.File(made, "w", libver=(version, "latest"), **options) as file:
                file.attrs["model_config"] = layer
                file["w"] = [1.0, 2.0]
            HDF5_FILES.append((block, made.getvalue()))


def hdf5_file(chosen):
    block, data = chosen.choice(HDF5_FILES)
    file = File(data, chosen.choice([".h5", ".hdf5", ".keras", ".dat", "", ".weights", ".nc", ".mat", ".txt", ".md"]))
    file.loader = opens_hdf5
    text = b'{"__metadata__":{}}'
    start = chosen.choice([b"", b"\x89PNG\r\n\x1a\n", b"%PDF-1.7\n", struct.pack("<Q", len(text)) + text, b"\x80\x02}.", b"\x7fELF", b"GGUF\3\0\0\0", b"# A model\n" * 40, b"PK\3\4", b"\x81\xa1a\1", b"{}", b"PAR1",
                           b"\x93NUMPY\1\0", b"\x1f\x8b\x08", b"DIRC", tar_header(chosen, b"a", 0)])[:block]
    file.data = start + data[len(start):]
    for _ in range(chosen.choice([0, 0, 1])):
        step = chosen.randrange(3)
        if step == 0:
            file.data += chosen.choice([b"\0" * 64, b"PK\5\6" + b"\0" * 18, b"PAR1"])
        elif step == 1:
            at = chosen.randrange(len(file.data))
            file.data = file.data[:at] + bytes([file.data[at] ^ 1 << chosen.randrange(8)]) + file.data[at + 1:]
        else:
            file.data = b" " * chosen.choice([512, 1024, 100, 2048]) + file.data
        file.steps.append(f"hdf5 {step}")
    file.steps.append(f"block of {block} with {start[:8]!r}")
    return file


def opens_hdf5(path):
    """Whether h5py finds the configuration of Keras."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            return "Lambda" in str(file.attrs.get("model_config", ""))
    except Exception:  # HDF5 has many
        return False


FORMATS = {"pickle": (pickle_file, None), "torchscript": (script_file, script_bases), "zip": (archive_file, archive_bases), "tar": (tar_file, None),
           "json": (json_file, None), "yaml": (yaml_file, None), "toml": (toml_file, None), "hocon": (hocon_file, None), "template": (template_file, None), "msgpack": (msgpack_file, None), "hdf5": (hdf5_file, hdf5_bases)}
# Those whose packages a Python with torch need not have.
NEEDS = {"hocon": "LOADERS", "msgpack": "LOADERS", "hdf5": "LOADERS"}


def scanned(binary, folder):
    """`{file: verdict}`; a file that a folder's scan does not mention counts as clean."""
    done = subprocess.run([binary, "scan", "--json", "--all", folder], capture_output=True, text=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {one["file"]: one["verdict"] for one in found}


def loads(files, made):
    """What the loaders of some files do: `{file: kind of outcome}`, with the loaders that run nothing in this process."""
    loaded = {path: ("stopped" if made[path].loader(path) else "refused") for path in files if made[path].loader}
    others = [path for path in files if not made[path].loader]
    return loaded | ({path: answer["outcome"] for path, answer in runs.judged(others).items()} if others else {})


def names_code(path):
    """Whether transformers or diffusers finds the name of the code in a configuration: they read it as UTF-8."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return any(document.get(key) for key in ("auto_map", "custom_pipelines", "_class_name"))
    except (ValueError, RecursionError):
        return False


def resolved_targets(path):
    """Whether OmegaConf, if it is installed, finds something that is called once it has resolved all interpolations."""
    try:
        from omegaconf import OmegaConf
    except ImportError:
        return False
    try:
        work = [OmegaConf.to_container(OmegaConf.load(path), resolve=True)]
    except Exception:  # OmegaConf, its parser and PyYAML have many
        return False
    return has_target(work)


def calls_targets(path):
    """Whether Python's reader of TOML finds something that is called."""
    try:
        import tomllib
    except ImportError:  # before Python 3.11
        import tomli as tomllib

    try:
        return has_target([tomllib.loads(path.read_bytes().decode())])
    except ValueError:
        return False


def has_target(work):
    """Whether a dict in these values has a `_target_`."""
    while work:
        node = work.pop()
        if isinstance(node, dict) and "_target_" in node:
            return True
        work += node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
    return False


def has_targets(path):
    """Whether OmegaConf, or PyYAML with its full loader, finds something that is called."""
    import yaml

    if resolved_targets(path):
        return True
    try:
        documents = list(yaml.compose_all(path.read_bytes()))
    except (yaml.YAMLError, UnicodeError):
        return False
    work, seen = documents, set()
    while work:
        node = work.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if node.tag.startswith("tag:yaml.org,2002:python/"):
            return True
        if isinstance(node, yaml.MappingNode):
            work += [part for pair in node.value for part in pair]
            if any(key.value == "_target_" for key, _ in node.value):
                return True
        elif isinstance(node, yaml.SequenceNode):
            work += node.value
    return False


def attack(name, binary, seconds, seed, keep=None):
    """Mutates files of one format for some seconds. Returns counts, and the files that a scan calls clean and that run or are foreign."""
    make, prepare = FORMATS[name]
    if prepare:
        prepare()
    chosen, counts, failed, end = random.Random(f"{name} {seed}"), collections.Counter(), [], time.monotonic() + seconds
    while counts["files"] == 0 or time.monotonic() < end:
        with tempfile.TemporaryDirectory() as scratch:
            made = {}
            for number in range(ROUND):
                file = make(chosen)
                place = Path(scratch, str(number))
                place.mkdir()
                if file.suffix == ".json":
                    (place / "code.py").write_text("class Model: pass\n")
                path = place / (("config" if file.suffix in (".json", ".yaml", ".toml") else "file") + file.suffix)
                path.write_bytes(file.data)
                made[path] = file
            verdicts = scanned(binary, scratch)
            silent = [path for path in made if verdicts.get(str(path), "skipped") in ("clean", "skipped")]
            outcomes = loads([*silent, *chosen.sample(sorted(made.keys() - set(silent)), min(30, len(made) - len(silent)))], made)
            counts["files"] += len(made)
            counts["clean"] += len(silent)
            for path, outcome in outcomes.items():
                file = made[path]
                counts[outcome] += 1
                runs_it = outcome in ("stopped", "wrote", "crashed")
                if path in silent and (runs_it or (outcome == "loaded" and file.foreign)):
                    failed.append((file, outcome))
                    counts["failed"] += 1
                    if keep:
                        Path(keep).mkdir(parents=True, exist_ok=True)
                        Path(keep, f"{name}-{len(failed)}{file.suffix}").write_bytes(file.data)
    return counts, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=", ".join(FORMATS))
    parser.add_argument("--binary", required=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", help="a folder for the files that were missed")
    options = parser.parse_args()
    status = 0
    for name in options.formats or FORMATS:
        counts, failed = attack(name, options.binary, options.seconds, options.seed, options.keep)
        print(name, dict(counts), flush=True)
        for file, outcome in failed[:10]:
            print("  missed:", outcome, file.steps, sorted(file.foreign), base64.b64encode(file.data[:60]))
        status |= bool(failed)
    return status


if __name__ == "__main__":
    sys.exit(main())
