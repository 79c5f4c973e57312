"""Pickles that change what a call took or returned: torch2carton reads what PyTorch reads, or refuses the file.

The programs are random but seeded: tensors, parameters and subclasses over two storages, whose sizes, metadata, attributes, data
and storages change before and after they are used. Both versions of PyTorch read each program, as weights only and not.
"""

import collections
import json
import random
import struct
import zipfile

import pytest
from program import torch2carton
from worker_client import WorkerError

FACTS = "name dtype shape sha256".split()
PROGRAMS = 600


class Program:
    """A pickle in protocol 2 whose objects are in the memo. They stay on the stack: PyTorch's own unpickler has no POP."""

    def __init__(self):
        self.body, self.memo = bytearray(b"\x80\x02"), 0

    def keep(self, *code):
        """Runs code that leaves one object, and returns the code that fetches it."""
        key, self.memo = self.memo, self.memo + 1
        self.body += b"".join(code) + b"q" + bytes([key])
        return b"h" + bytes([key])

    def change(self, target, *code):
        self.body += target + b"".join(code)

    def finish(self, tensors):
        entries = b"".join(text(name) + fetch for name, fetch in tensors.items())
        return bytes(self.body) + b"}(" + entries + b"u."


def text(text):
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def call(module, name, *args):
    return f"c{module}\n{name}\n".encode() + b"(" + b"".join(args) + b"tR"


def storage(key, kind="Float"):
    return b"(" + text("storage") + f"ctorch\n{kind}Storage\n".encode() + text(key) + text("cpu") + b"K\x04tQ"


HOOKS = b"ccollections\nOrderedDict\n)R"
ONES = [b"K\x01\x85", b"]K\x01a"]


def write(path, pickle):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        file.writestr("a/data.pkl", pickle)
        for key, first in ("0", 1), ("1", 5):
            file.writestr(f"a/data/{key}", struct.pack("<4f", *range(first, first + 4)))
        file.writestr("a/version", "3\n")
        file.writestr("a/byteorder", "little")


def program(random):
    """A random program: some make values that PyTorch reads in an unexpected way, most do something harmless."""
    made, tensors = Program(), {}
    storages = [made.keep(storage("0")), made.keep(storage("1"))]
    sizes = [made.keep(b"]K", bytes([size]), b"a") for size in (1, 2)] + [b"K\x02\x85", b"K\x03\x85"]
    dicts = [made.keep(b"}"), made.keep(b"}" + text("neg") + b"\x89s"), made.keep(HOOKS)]
    attributes = [made.keep(b"}"), made.keep(b"ccollections\nOrderedDict\n)R"), made.keep(b"}" + text("tag") + b"K\x07s")]

    def any_storage():
        return random.choice(storages + [storage("0"), storage("1")])

    def new_tensor():
        metadata = random.choice([b"", b"", b"N", *dicts])
        return call("torch._utils", "_rebuild_tensor_v2", any_storage(), b"K", bytes([random.randrange(2)]), random.choice(sizes),
                    random.choice(ONES), b"\x89", HOOKS, metadata)

    def any_tensor():
        return random.choice([*tensors.values()] * 3 + [new_tensor()])

    def attribute_state():
        return random.choice([*attributes, b"N", b"(N" + random.choice(attributes) + b"t", b"}" + text("data") + any_tensor() + b"s"])

    def change():
        kind = random.randrange(9)
        target = random.choice([*tensors.values()])
        if kind == 0:
            made.change(target, b"(", any_storage(), b"K\x01", random.choice(sizes), random.choice(ONES), b"tb")
        elif kind == 1:
            made.change(target, b"(", any_tensor(), b"N\x89N\x89tb")
        elif kind == 2:
            made.change(target, b"\x89\x89N\x87b")
        elif kind == 3:
            made.change(random.choice(sizes[:2]), b"K\x01a" if random.random() < 0.3 else b"(e")
        elif kind == 4:
            made.change(random.choice(dicts), text(random.choice(["neg", "conj"])), random.choice([b"\x88", b"\x89"]), b"s")
        elif kind == 5:
            name = random.choice(["data", "tag", "requires_grad", "real", "grad"])
            value = {"tag": b"K\x01", "requires_grad": b"\x89", "grad": b"N"}.get(name) or any_tensor()
            made.change(random.choice(attributes), text(name), value, b"s")
        elif kind == 6 and random.random() < 0.2:
            made.change(random.choice([target, *storages]), b"K\x00G", struct.pack(">d", 9), b"s")
        elif kind == 7 and random.random() < 0.2:
            made.change(random.choice([target, *storages]), random.choice([b"}b", b"Na", b"(Ne", b"N\x88\x86b"]))

    tensors["t0"] = made.keep(new_tensor())
    for number in range(1, random.randrange(3, 8)):
        kind = random.randrange(8)
        if kind < 3:
            code = new_tensor()
        elif kind == 3:
            code = call("torch._utils", "_rebuild_parameter", any_tensor(), b"\x89", HOOKS)
        elif kind == 4:
            code = call("torch._utils", "_rebuild_parameter_with_state", any_tensor(), b"\x89", HOOKS, attribute_state())
        elif kind == 5:
            inner = b"ctorch._utils\n_rebuild_parameter\nctorch.nn.parameter\nParameter\n(" + any_tensor() + b"\x89" + HOOKS + b"t"
            code = call("torch._tensor", "_rebuild_from_type" + random.choice(["", "_v2"]), inner, attribute_state())
        elif kind == 6:
            code = b"ctorch.nn.parameter\nParameter\n" + random.choice([b")", any_tensor() + b"\x89\x86"]) + b"\x81"
            code += random.choice([b"(" + any_tensor() + b"N\x89N\x89tb", b"\x89\x89N\x87b", b""])
        else:
            code = call("torch._tensor", "_rebuild_from_type_v2", b"ctorch._utils\n_rebuild_tensor_v2\nctorch\nTensor\n(" + any_storage(),
                        b"K\x00", random.choice(sizes), random.choice(ONES), b"\x89" + HOOKS + b"t", attribute_state())
        tensors[f"t{number}"] = made.keep(code)
        for _ in range(random.randrange(2)):
            change()
    return made.finish(tensors)


def loaded(torch, path, trusted):
    """The facts of what PyTorch reads; None if it refuses the file."""
    try:
        described = torch.ask("describe_checkpoint", path=str(path), trusted=trusted)
    except WorkerError:
        return None
    return [{f: t[f] for f in FACTS} for t in described["tensors"]]


def test_a_changed_object_is_read_as_pytorch_reads_it_or_refused(tmp_path, old, newest):
    outcomes = collections.Counter()
    for seed in range(PROGRAMS):
        path = tmp_path / f"{seed}.pt"
        write(path, program(random.Random(seed)))
        outcome = torch2carton("inspect", "--json", "--sha256", path)
        wanted = [loaded(torch, path, trusted) for torch in (old, newest) for trusted in (True, False)]
        if outcome.status == 0:
            found = [{f: t[f] for f in FACTS} for t in json.loads(outcome.stdout)["tensors"]]
            for (name, facts) in zip(["2.0.1", "2.0.1, weights only", "newest", "newest, weights only"], wanted):
                assert facts in (None, found), f"program {seed} ({path}), PyTorch {name}"
        outcomes[outcome.status == 0, any(facts is not None for facts in wanted)] += 1
        path.unlink()
    read, refused = outcomes[True, True], outcomes[False, True]
    print(f"of {PROGRAMS} programs, PyTorch reads {read + refused}, of which {refused} are refused")
    assert read > PROGRAMS / 4, outcomes


@pytest.mark.parametrize("view", ["uint16", "uint32", "float8_e5m2", "empty", "empty as others", "past the end"])
def test_storages_under_several_dtypes_and_empty_views(view, tmp_path, newest):
    wanted = newest.ask("make_views", path=str(tmp_path / "views.pt"), view=view)
    outcome = torch2carton("inspect", "--json", "--sha256", tmp_path / "views.pt")
    assert outcome.status == 0, outcome
    assert [{f: t[f] for f in FACTS} for t in json.loads(outcome.stdout)["tensors"]] == [{f: t[f] for f in FACTS} for t in wanted]
