"""If Python calls something when it loads a pickle, a scan names it or says that it did not read to the end.

The pickles are random, and made of instructions that CPython accepts although no pickler writes them. Each is scanned as a
file, as a file without an extension, and as bytes that are given to `torch.storage._load_from_bytes`.
"""

import base64
import json
import random
import struct
import sys

import pytest
from conftest import GOLDEN, worker_fixture
from program import torch2carton

sys.path.insert(0, str(GOLDEN))
import pickles as p  # noqa: E402

CALLS = [
    b"cmarked\ncall\n)R", b"cmarked\ncall\n(K\x01tR", b"(imarked\ncall\n", b"(cmarked\ncall\nK\x01o", b"\x8c\x06marked\x8c\x04call\x93)R",
    b"cmarked\nAnything\n)\x81", b"cmarked\nAnything\n)}\x92", b"\x82\xc8)R", b"cmarked\ncall\n]R", b"cmarked\ncall\n(K\x01lR", b"(imarked\ncallx",
]
VALUES = [
    b"N", b"]", b"}", b")", b"\x8f", b"K\x01", b"K\x00", b"M\x01\x01", b"J\xff\xff\xff\xff", b"I1\n", b"I01\n", b"I0x1f\n", b"I0b11\n", b"I0o17\n",
    b"I017\n", b"I+1\n", b"I\0\n", b"L017L\n", b"F 1.5\n", b"F1e999\n", b"I 5 \n", b"I1_0\n", b"I7\0abc\n", b"I+3\n", b"L5L\n", b"L0x10L\n", b"L0xffL\n", b"L-0b1\n", b"L1" + b"0" * 4400 + b"L\n",
    b"L0x1" + b"0" * 4400 + b"L\n", b"F1.5\n", b"F1e3\n", b"F1\0x\n", b"Finf\n", b"F1_0.0\n", b"G\x3f\xf0\0\0\0\0\0\0", b"\x8a\x01\x05", b"\x8a\x00",
    b"\x8b\x02\0\0\0\x01\x01", b"S'a'\n", b'S"a"\n', b"S'\\x41'\n", b"S'\\777'\n", b"U\x01a", b"T\x01\0\0\0a", b"X\x01\0\0\0a",
    b"X\x03\0\0\0\xed\xa0\x80", b"X\x06\0\0\0\xed\xa0\x80\xed\xb0\x80", b"Va\n", b"V\\u0041\n", b"V\\ud800\n", b"V\\\\u12\n", b"V\xe9\n", b"C\x01a",
    b"B\x01\0\0\0a", b"\x8e\x01\0\0\0\0\0\0\0a", b"\x96\x02\0\0\0\0\0\0\0ab", b"\x96\0\0\0\0\0\0\0\0", b"\x97", b"\x88", b"\x89", b"Ppid\n",
    b"K\x01Q", b"cmarked\nAnything\n)\x81", b"cbuiltins\nbytearray\nC\x01a\x85R", b"ccollections\nOrderedDict\n)R", b"(K\x01l", b"(K\x01K\x02d",
    b"(K\x01t", b"(\x91", b"K\x01\x85", b"NN\x86", b"N}\x86", b"NNN\x87", b"cmarked\nAnything\n",
]
CHANGES = [
    b"0", b"1", b"2", b"(", b"(0", b"(1", b"(K\x011", b"p0\n", b"p00\n", b"p01\n", b"p5\n", b"p-1\n", b"p1_0\n", b"p 3\n", b"p4\0x\n",
    b"p18446744073709551616\n", b"q\x01", b"q\xff", b"r\x02\0\0\0", b"\x94", b"g0\n", b"g00\n", b"g01\n", b"g5\n", b"g10\n", b"g3\n", b"g4\n",
    b"g18446744073709551616\n", b"h\x01", b"h\xff", b"j\x02\0\0\0", b"a", b"e", b"(e", b"(K\x01e", b"(K\x01K\x02e", b"s", b"u", b"(u", b"K\x00K\x05s",
    b"(K\x00K\x05u", b"(K\x00u", b"\x90", b"(\x90", b"(K\x01\x90", b"b", b"Nb", b"}b", b")b", b"]b", b"K\x00b", b"NN\x86b", b"N}\x86b", b"}}\x86b",
    b"\x98", b"Q", b"R", b")R", b"\x81", b"\x92", b"\x93", b"t", b"l", b"d", b"\x85", b"\x86", b"\x87", b"o", b"K\x07a", b"\x80\x00", b"\x80\x02", b"\x80\x05", b"\x80\x06",
    b"\x95\0\0\0\0\0\0\0\0", b"\x95\x03\0\0\0\0\0\0\0", b"\x95\xff\xff\0\0\0\0\0\0", b"\x82\x01", b"\x84\xff\xff\xff\xff", b"\x83\xc8\0",
]


python = worker_fixture("NEWEST", "unpickle_worker.py")


def made(random):
    """A few instructions, a call, and a few more."""
    before = [random.choice(VALUES if random.random() < 0.6 else CHANGES) for _ in range(random.randrange(6))]
    after = [random.choice(VALUES if random.random() < 0.6 else CHANGES) for _ in range(random.randrange(3))]
    start = random.choice([b"", b"", b"\x80\x02", b"\x80\x04", b"\x80\x04\x95\x10\0\0\0\0\0\0\0"])
    whole = start + b"".join(before) + random.choice(CALLS) + b"".join(after) + random.choice([b".", b".", b"0.", b""])
    return whole


def loaded(data):
    """A pickle that hands `data` to torch.load."""
    given = b"B" + struct.pack("<I", len(data)) + data
    return b"\x80\x03" + p.name("torch.storage", "_load_from_bytes") + given + b"\x85R."


def scans(folder):
    """`{name: object}` of the files of a folder that a scan reports."""
    lines = torch2carton("scan", "--json", "--all", folder).stdout.splitlines()
    return {found["file"].rpartition("/")[2]: found for found in map(json.loads, lines)}


def is_silent(found):
    """Whether a scan lets a job pass without a word about `marked` and about codes that only the program knows."""
    if found is None:
        return True
    named = any(used["module"] == "marked" for one in found.get("pickles", []) for used in one["globals"])
    return found["verdict"] == "clean" and not named


@pytest.mark.parametrize("seed", range(4))
def test_what_python_calls_is_named_or_not_scanned(seed, tmp_path, python, table):
    chosen = random.Random(seed)
    pickles = [made(chosen) for _ in range(1500)]
    answers = python.ask("load", pickles=[base64.b64encode(one).decode() for one in pickles])
    for kind in ("plain", "nested", "bare"):
        (tmp_path / kind).mkdir()
    for number, one in enumerate(pickles):
        (tmp_path / "plain" / f"{number}.pkl").write_bytes(one)
        (tmp_path / "bare" / f"{number}").write_bytes(one)
        (tmp_path / "nested" / f"{number}.pkl").write_bytes(loaded(one))
    found = {kind: scans(tmp_path / kind) for kind in ("plain", "nested", "bare")}
    called = [number for number, counts in enumerate(answers) if any(counts.values())]
    refused = [number for number in called if any(one["error"] for one in found["plain"][f"{number}.pkl"].get("pickles", []))]
    assert len(called) > 300 and len(refused) > 30, (len(called), len(refused))
    names = {"plain": "{}.pkl", "nested": "{}.pkl", "bare": "{}"}
    silent = [
        (kind, pickles[number], answers[number])
        for number in called for kind, name in names.items() if is_silent(found[kind].get(name.format(number)))
    ]
    table(f"random pickles, seed {seed}: {len(called)} of {len(pickles)} call something in CPython; of these our machine refuses {len(refused)}")
    assert not silent, silent[:20]
