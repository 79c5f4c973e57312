#!/usr/bin/env python3
"""Makes hostile files of at most 5 MB from a seed, and measures what each command needs for them.

    bombs.py --binary target/release/torch2carton [--count 1000] [--seed 1] [--first 0] [--all-commands] [--keep FOLDER]

Prints a line for each command that needs more than 300 MB of memory or 5 seconds of processor time, and the largest
figures at the end. `trace` prints a listing as long as its input asks for, so only its memory counts. The exit status is 1 if
a command needs too much memory, panics, or takes more than a minute of processor time. Needs Python's standard library.
"""

import argparse
import bz2
import gzip
import io
import json
import lzma
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path

SIZE, MEMORY, SECONDS, STOP, DISK = 5_000_000, 300_000_000, 5.0, 60, 1_500_000_000

MAGIC = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
META = b"ctorch._utils\n_rebuild_meta_tensor_no_storage\n(ctorch\nfloat32\n))\x89tR"


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value


def number(value):
    return b"\x8a\x08" + struct.pack("<q", value)


def tensor(key, count, shape, stride, offset=0):
    """A view of a storage of `count` floats."""
    storage = b"(" + text(b"storage") + b"ctorch\nFloatStorage\n" + text(key) + text(b"cpu") + number(count) + b"tQ"
    sizes, strides = (b"(" + b"".join(map(number, values)) + b"t" for values in (shape, stride))
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(offset) + sizes + strides + b"\x89ccollections\nOrderedDict\n)RtR"


UNITS = [
    b"N", b"}", b"]", b"]Na", b"}NNs", b")", b"(t", b"(Nl", b"(NNd", b"\x8f", b"\x8f(N\x90", b"K\x01", b"J\x01\x02\x03\x04",
    b"G\0\0\0\0\0\0\0\0", b"N\x85", b"]\x94", b"N)R", b"N)RNb", b"N)RNbNNsNa", b"c\n\n", b"cos\nsystem\n", b"c__main__\nC\n)\x81}b",
    b"(i\n\n", b"P\n", b"P\nNa", b"NQ", b"\x82\x01", b"\x97", b"V\xff\n", b"V\\u0041\n", b"\x8c\x03\xed\xa0\x80", b"S'\\x41'\n",
    b"U\x01a0", b"]0N", b"I1\n", b"L123456789012345678901234567890L\n", b"F1.5\n", b"X\x02\0\0\0ab", b"X\x20\0\0\0" + b"k" * 32,
    META, b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"h\0", b"h\0h\0\x86", b"}h\0h\0s", b"]h\0a",
]
SHARED = [b"N", b"]", b"](" + b"K\x01" * 1000 + b"e", b"}(" + b"".join(b"J" + struct.pack("<I", i) + b"K\x01" for i in range(1000)) + b"u",
          META, b"X" + struct.pack("<I", 100_000) + b"k" * 100_000, b"c__main__\nC\n)\x81}(X\x01\0\0\0aK\x01ub"]


def objects(rng, size):
    """A pickle of about `size` bytes that repeats one or two pieces, between each other or inside each other."""
    head = b"\x80\x02" + rng.choice(SHARED) + b"q\x000"
    unit = rng.choice(UNITS) if rng.random() < 0.7 else rng.choice(UNITS) + rng.choice(UNITS)
    shape = rng.random()
    room = max(size - len(head), 1000)
    if shape < 0.2:
        nested = rng.choice([(b"]", b"a"), (b"}K\x01", b"s"), (b"", b"\x85"), (b"(", b"t"), (b"(", b"l"), (b"c\nf\n", b"\x85R")])
        times = room // (len(nested[0]) + len(nested[1]))
        return head + nested[0] * times + b"N" + nested[1] * times + b"."
    if shape < 0.3:
        keys, pieces = rng.randrange(1 << 32), []
        for _ in range(room // 6):
            keys = (keys * 2654435761 + 12345) & 0xFFFFFFFF
            pieces.append(b"r" + struct.pack("<I", keys))
        return head + b"N" + b"".join(pieces) + b"."
    if shape < 0.5:
        entries = b"".join(text(b"%d" % i) + rng.choice([b"h\0", b"N", META, b"]"]) for i in range(room // 20))
        return head + b"}(" + entries + b"u."
    return head + b"](" + unit * (room // len(unit)) + b"e."


def archive(records, deflate, root="archive"):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED, compresslevel=6) as file:
        for name, data in records:
            file.writestr(f"{root}/{name}" if root else name, data)
    return out.getvalue()


def bare(rng):
    return "a.pkl", objects(rng, rng.randrange(1000, SIZE))


def stored(rng):
    return "a.pth", archive([("data.pkl", objects(rng, rng.randrange(1000, SIZE - 1000))), ("version", b"3\n")], False)


def deflated(rng):
    """The pickle is up to a thousand times as long as the file."""
    size = int(1000 * 10 ** rng.uniform(1, 5))
    return "a.pth", archive([("data.pkl", objects(rng, size)), ("version", b"3\n")], True)


def padded(rng):
    """A deflated pickle next to a storage that makes the file large."""
    size = int(1000 * 10 ** rng.uniform(2, 4.7))
    records = [("data.pkl", objects(rng, size)), ("data/0", rng.randbytes(rng.randrange(SIZE * 4 // 5)))]
    return "a.pth", archive([(name, data) for name, data in records], True)


def legacy(rng):
    system = b"\x80\x02}."
    return "a.pth", MAGIC + b"\x80\x02M\xe9\x03." + system + objects(rng, rng.randrange(1000, SIZE - 1000)) + b"\x80\x02]."


def views(rng):
    """Views that expand or overlap, many or few, and storages that inflate."""
    floats = rng.choice([1, 1000, 100_000, 1_000_000])
    count = rng.choice([1, 10, 1000, 10_000])
    pieces = []
    for index in range(count):
        kind = rng.randrange(4)
        if kind == 0:
            shape, stride = [1 << rng.randrange(1, 40), floats], [0, 1]
        elif kind == 1:
            half = max(floats // 2, 1)
            shape, stride = [half, half], [1, 1]
        elif kind == 2:
            shape, stride = [floats], [1]
        else:
            shape, stride = [1] * rng.randrange(1, 200) + [floats], [0] * 199
            stride = [0] * (len(shape) - 1) + [1]
        pieces.append(text(b"%d" % index) + tensor(b"0", floats, shape, stride))
    pickle = b"\x80\x02}(" + b"".join(pieces) + b"u."
    zeros = rng.random() < 0.5
    data = b"\0" * (4 * floats) if zeros else rng.randbytes(4 * floats)
    return "a.pth", archive([("data.pkl", pickle), ("data/0", data)], zeros)


def zeros(rng):
    """Storages of zeros that deflate by a thousand."""
    floats = rng.choice([1 << 20, 1 << 24, 1 << 26])
    pickle = b"\x80\x02}(" + text(b"w") + tensor(b"0", floats, [floats], [1]) + b"u."
    return "a.pth", archive([("data.pkl", pickle), ("data/0", bytes(4 * floats))], True)


def entries(rng):
    """Tens of thousands of records, in few bytes each."""
    count = rng.randrange(1000, 40_000)
    return "a.pth", archive([("data.pkl", b"\x80\x02}.")] + [(f"data/{i}", b"") for i in range(count)], False)[:SIZE]


def script(rng):
    """TorchScript with much code."""
    line = rng.choice([b"  x = torch.add(x, 1)\n", b"  x = ((((((x))))))\n", b"  # comment\n", b"  x = " + b"(" * 500 + b"x" + b")" * 500 + b"\n",
                       b"  x = \"" + b"a" * 500 + b"\"\n", b"class A%d(Module):\n", b"  def f(self, x: Dict[str, Tuple[int, int]]) -> int:\n    return 1\n"])
    size = int(1000 * 10 ** rng.uniform(1, 4.5))
    code = b"class M(Module):\n  def forward(self, x: Tensor) -> Tensor:\n" + line * (size // len(line)) + b"  return x\n"
    pickle = b"\x80\x02c__torch__\nM\n)\x81}b."
    many = rng.choice([1, 1, 20])
    records = [("data.pkl", pickle), ("constants.pkl", b"\x80\x02)."), ("version", b"3\n")]
    records += [(f"code/__torch__{'' if i == 0 else i}.py", code) for i in range(many)]
    return "a.pt", archive(records, True)


def safetensors(rng):
    kind = rng.randrange(4)
    if kind == 0:
        header = {f"{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(rng.randrange(60_000))}
        text_ = json.dumps(header)
    elif kind == 1:
        text_ = '{"__metadata__":{' + ",".join(f'"{i}":""' for i in range(rng.randrange(300_000))) + "}}"
    elif kind == 2:
        text_ = '{"a":' + "[" * rng.randrange(10, 4_000_000)
    else:
        shape = [1] * rng.randrange(1, 1_000_000)
        text_ = json.dumps({"a": {"dtype": "U8", "shape": shape, "data_offsets": [0, 1]}})
    data = text_.encode()[: SIZE - 100]
    return "a.safetensors", struct.pack("<Q", len(data)) + data + b"\0"


def carton(rng):
    """A carton with long documents or many entries."""
    count = rng.choice([10, 1000, 30_000])
    names = [f"misc/{i}" for i in range(count)]
    manifest = "".join(f"{name}={'0' * 64}\n" for name in names).encode()
    toml = b'spec_version = 1\n[runner]\nrunner_name = "torchscript"\nrequired_framework_version = "=2.0"\nrunner_compat_version = 1\n'
    toml += rng.choice([b"", b"[[input]]\nname = \"x\"\ndtype = \"float32\"\nshape = [1]\n" * 10_000, b"a = " + b"[" * 1_000_000, b"[misc]\n" * 100])
    records = [("carton.toml", toml), ("MANIFEST", manifest)] + [(name, b"") for name in names]
    records.append(("model/model.pt", archive([("data.pkl", objects(rng, int(1000 * 10 ** rng.uniform(1, 4.8)))), ("version", b"3\n")], True)))
    return "a.carton", archive(records, rng.random() < 0.7, root="")


def tar_of(members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:", format=tarfile.PAX_FORMAT) as file:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return out.getvalue()


def tar(rng):
    """A checkpoint of PyTorch 0.1 with much of something, or an archive of NeMo."""
    empty = b"\x80\x02]."
    kind = rng.randrange(5)
    if kind == 0:
        count = rng.randrange(1000, 60_000)
        storages = b"".join(b"\x80\x02(" + text(b"%d" % i) + text(b"cpu") + b"ctorch\nFloatStorage\nt." + bytes(8) for i in range(count))
        members = [("storages", b"\x80\x02" + number(count) + b"." + storages + empty), ("tensors", b"\x80\x02K\0."), ("pickle", b"\x80\x02}.")]
    elif kind == 1:
        members = [(f"{i}", b"") for i in range(rng.randrange(100, 9000))]
    elif kind == 2:
        members = [("model_config.yaml", b"a: [" * 100_000), ("model_weights.ckpt", archive([("data.pkl", objects(rng, 4_000_000)), ("version", b"3\n")], True))]
    elif kind == 3:
        members = [("pickle", objects(rng, 2_000_000)), ("sys_info", objects(rng, 500_000)), ("storages", b"\x80\x02K\0." + empty), ("tensors", b"\x80\x02K\0.")]
    else:
        members = [("a/" * rng.randrange(1, 40_000) + "b", b"x") for _ in range(rng.randrange(1, 50))]
    data = tar_of(members)
    if rng.random() < 0.5:
        return rng.choice(["a.nemo", "a.tar.gz"]), gzip.compress(data, 1)
    return rng.choice(["a.pth", "a.nemo", "a.tar"]), data


def compressed(rng):
    """A pickle or zeros, compressed once or twice."""
    data = objects(rng, int(1000 * 10 ** rng.uniform(1, 5))) if rng.random() < 0.7 else bytes(200_000_000)
    how = rng.choice([lambda x: gzip.compress(x, 1), lambda x: zlib.compress(x, 6), lambda x: bz2.compress(x[:20_000_000]), lambda x: lzma.compress(x[:20_000_000], preset=0),
                      lambda x: gzip.compress(gzip.compress(x, 1)), lambda x: archive([("data.pkl", gzip.compress(x, 1))], True)])
    return rng.choice(["a.pkl.gz", "a.joblib", "a.bin"]), how(data)


def magic(rng):
    """The start of some format, and noise or a pickle after it."""
    start = rng.choice([b"GGUF\3\0\0\0", b"GGUF" + b"\xff" * 20, b"\x89HDF\r\n\x1a\n", b"\x93NUMPY\1\0", b"\x93NUMPY\3\0\xff\xff\xff\x7f", b"7z\xbc\xaf\x27\x1c", b"\x28\xb5\x2f\xfd",
                        b"\xfd7zXZ\0", b"BZh9", b"\x04\x22\x4d\x18", b"PK\5\6", b"PK\3\4", b"PAR1", b"\x1f\x8b\x08", b"ustar", b"lmgg", b"\x08\x07", b"\x80\x04\x95" + b"\xff" * 7 + b"\x7f",
                        struct.pack("<Q", 4_000_000), MAGIC, MAGIC + b"\x80\x02M\xe9\x03.\x80\x02}."])
    size = rng.randrange(100, SIZE - 100)
    rest = rng.choice([lambda: rng.randbytes(size), lambda: objects(rng, size), lambda: bytes(size), lambda: b"[" * size, lambda: b"PK\1\2" * (size // 4), lambda: b"(" * size])()
    return rng.choice(["a.pth", "a.bin", "a.gguf", "a.safetensors", "a.npy", "a.pkl", "a.carton"]), (start + rest)[:SIZE]


def npy(rng):
    """Arrays with long or deep headers, of objects, and archives of many."""
    header = rng.choice([lambda: b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"1," * 30_000 + b"), }",
                         lambda: b"{'descr': [" + b"".join(b"('f%d', '<f4')," % i for i in range(3000)) + b"], 'fortran_order': False, 'shape': (1,), }",
                         lambda: b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
                         lambda: b"(" * 60_000, lambda: b"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807,), }"])()
    array = b"\x93NUMPY\2\0" + struct.pack("<I", len(header)) + header + objects(rng, rng.randrange(1000, 3_000_000))
    if rng.random() < 0.5:
        return "a.npy", array
    count = rng.choice([1, 100, 20_000])
    return "a.npz", archive([(f"arr_{i}.npy", array if i == 0 else array[:100]) for i in range(count)], rng.random() < 0.5, root="")


def directory(rng):
    """As many entries as the bytes of a directory allow, some of them over each other."""
    kind, count = rng.randrange(3), rng.randrange(10_000, 65_535)
    if kind == 0:
        data = archive([(f"{i}", b"") for i in range(min(count, 50_000))], False, root="")
    else:
        name = b"archive/data.pkl" if kind == 1 else b"a"
        local = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 0, 0, 0, 0, len(name), 0) + name
        entry = struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 0, 0, 0, 0, 0, 0, len(name), 0, 0, 0, 0, 0, 0) + name
        count = min(count, (SIZE - 100_000) // len(entry))
        end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, count * len(entry), len(local), 65_535)
        data = local + entry * count + end + b"PK\5\6" * 16_383 + b"PK\5"
    return rng.choice(["a.pth", "a.carton", "a.npz"]), data


TREE = Path(__file__).resolve().parent.parent.parent
FIXTURES = ("crates/model/quantization/tests/models", "crates/model/decoder/tests/models", "crates/import/trainer-shards/tests/data")


def grown(rng, value, room):
    """A JSON value with a part of it made large, deep, negative or of another kind."""
    if isinstance(value, dict) and value and rng.random() < 0.95:
        key = rng.choice(sorted(value))
        return {**value, key: grown(rng, value[key], room)}
    if isinstance(value, list) and value and rng.random() < 0.5:
        return value * min(room // max(len(json.dumps(value)), 1), 1_000_000)
    return rng.choice([lambda: 10 ** rng.randrange(1, 30), lambda: -1, lambda: 0, lambda: 1e308, lambda: None, lambda: "x" * room, lambda: ["a"] * (room // 5), lambda: [[]] * (room // 4),
                       lambda: {str(i): i for i in range(room // 16)}, lambda: [f"re:.*a{i}.*" for i in range(room // 15)], lambda: "(a*)*" * (room // 5), lambda: True])()


def documents(rng):
    """A folder of the fixtures of other tests, with a document that has grown."""
    folder = TREE / rng.choice(FIXTURES[:2])
    chosen = rng.choice(sorted(folder.iterdir()))
    if chosen.is_file():
        config = json.loads(chosen.read_bytes())
        files = {"config.json": json.dumps(config.get("config", config)).encode(), "model.safetensors": tensors(rng, rng.randrange(10, 40_000), lambda i: f"model.layers.{i // 9}.{i}.weight")}
    else:
        files = {file.name: file.read_bytes() for file in chosen.iterdir() if file.name != "expected.json"}
    room = int(10 ** rng.uniform(1, 6))
    config = json.loads(files["config.json"])
    for _ in range(rng.randrange(1, 4)):
        config = grown(rng, config, room)
    files["config.json"] = json.dumps(config).encode()
    if rng.random() < 0.3:
        files["tokenizer.json"] = json.dumps(grown(rng, {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
                                                         "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}}, room)).encode()
    return "model", files


def tensors(rng, count, name):
    """A safetensors file of tiny tensors."""
    header = {name(i): {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(count)}
    data = json.dumps(header).encode()
    return struct.pack("<Q", len(data)) + data


def index(rng):
    """A folder with an index that names many tensors and shards."""
    count, shards_ = rng.choice([10, 10_000, 40_000]), rng.choice([1, 3, 1000])
    names = {f"layers.{i}.w": f"model-{i % shards_:05}-of-{shards_:05}.safetensors" for i in range(count)}
    if rng.random() < 0.2:
        names |= {f"x{i}": rng.choice(["../a", "/dev/zero", "model-00000-of-00001.safetensors/", "a" * 5000]) for i in range(100)}
    files = {"model.safetensors.index.json": json.dumps({"metadata": {"total_size": -1}, "weight_map": names}).encode(), "config.json": b"{}"}
    for shard in range(min(shards_, 1000)):
        held = [i for i in range(shard, count, shards_)]
        files[f"model-{shard:05}-of-{shards_:05}.safetensors"] = tensors(rng, len(held), lambda at, held=held: f"layers.{held[at]}.w")
    return "model", files


def adapter(rng):
    """A base and an adapter with thousands of tensors, patterns or names of modules."""
    count = rng.choice([10, 1000, 10_000])
    size = int(10 ** rng.uniform(0, 4.5))
    settings = {"peft_type": "LORA", "r": rng.choice([1, 0, -1, 10**9]), "lora_alpha": rng.choice([1, 1e308]), "target_modules": rng.choice([[f"m{i}" for i in range(size)], ".*(a|aa)+b", "x" * size]),
                "rank_pattern": {f"^m{i}.*a+a+a+$": 1 for i in range(rng.choice([0, size // 10]))}, "alpha_pattern": {f"m{i}": 1 for i in range(rng.choice([0, size // 10]))},
                "modules_to_save": [f"s{i}" for i in range(rng.choice([0, size]))]}
    if rng.random() < 0.3:
        # Names that differ in the places of their dots, each of which stands for any character.
        letters = lambda: "".join("." if rng.random() < 0.1 else "a" for _ in range(rng.choice([20, 100, 250])))  # noqa: E731
        settings["alpha_pattern"] = {letters(): 1 for _ in range(size // 20)}
    factors = [f"base_model.model.m{i // 2}.lora_{'AB'[i % 2]}.weight" for i in range(2 * count)]
    header, at = {}, 0
    for name in factors:
        header[name] = {"dtype": "F32", "shape": [1, 1], "data_offsets": [at, at + 4]}
        at += 4
    data = json.dumps(header).encode()
    base = {f"m{i}.weight": {"dtype": "F32", "shape": [1, 1], "data_offsets": [4 * i, 4 * i + 4]} for i in range(count)}
    base_data = json.dumps(base).encode()
    return "model", {"model.safetensors": struct.pack("<Q", len(base_data)) + base_data + bytes(4 * count), "adapter/adapter_config.json": json.dumps(settings).encode(),
                     "adapter/adapter_model.safetensors": struct.pack("<Q", len(data)) + data + bytes(at)}


def made(cls, **state):
    """An instance with a state."""
    return b"c" + cls.encode() + b"\n)\x81}(" + b"".join(text(key.encode()) + value for key, value in state.items()) + b"ub"


def distributed(rng):
    """A folder of `torch.distributed.checkpoint` with many tensors or many parts of one."""
    metadata = "torch.distributed.checkpoint.metadata\n"
    size = lambda *dims: b"ctorch\nSize\n(" + b"".join(map(number, dims)) + b"t\x85R"  # noqa: E731
    parts, count = rng.choice([(1, 3000), (10_000, 1), (20, 200), (1, 1)])
    dim = rng.choice([1, 1 << 40, 0])
    properties = made(metadata + "TensorProperties", dtype=b"ctorch\nfloat32\n", requires_grad=b"\x89", pin_memory=b"\x89")
    state, storage = [], []
    for at in range(count):
        chunks = b"](" + b"".join(made(metadata + "ChunkStorageMetadata", offsets=size(part), sizes=size(dim)) for part in range(parts)) + b"e"
        state.append(text(b"t%d" % at) + made(metadata + "TensorStorageMetadata", properties=properties, size=size(parts), chunks=chunks))
        place = made(metadata + "MetadataIndex", fqn=text(b"t%d" % at), offset=size(0), index=b"K\0")
        storage.append(place + made("torch.distributed.checkpoint.filesystem\n_StorageInfo", relative_path=text(rng.choice([b"__0_0.distcp", b"../x"])), offset=b"K\0", length=b"K\1"))
    body = made(metadata + "Metadata", state_dict_metadata=b"}(" + b"".join(state) + b"u", planner_data=b"}", storage_data=b"}(" + b"".join(storage) + b"u")
    body = b"\x80\x02" + body + b"." if rng.random() < 0.7 else objects(rng, rng.randrange(1000, SIZE // 2))
    return "model", {".metadata": body[: SIZE - 10_000], "__0_0.distcp": objects(rng, 3000)}


def fixtures(rng):
    """The files of a trainer's ranks, of which some are cut, doubled, or another hostile file."""
    folder = TREE / FIXTURES[2]
    chosen = rng.choice(sorted(path for path in folder.iterdir() if path.is_dir()))
    files = {str(path.relative_to(chosen)): path.read_bytes() for path in sorted(chosen.rglob("*")) if path.is_file()}
    for name in rng.sample(sorted(files), min(2, len(files))):
        data = files[name]
        files[name] = rng.choice([lambda: data[: rng.randrange(len(data) + 1)], lambda: data + data, lambda: objects(rng, 1_000_000), lambda: deflated(rng)[1]])()
    return "model", files


def packed(rng):
    """A folder that `pack` reads, with a long document."""
    _, data = carton(rng)
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        names = [name for name in file.namelist() if name != "MANIFEST"]
        return "model", {name: file.read(name) for name in names[:2000] + names[-1:]}


KINDS = [bare, stored, deflated, deflated, deflated, padded, legacy, views, views, zeros, entries, script, safetensors, carton,
         tar, compressed, magic, npy, directory, documents, documents, index, adapter, distributed, fixtures, packed]

ANY = [["inspect"], ["inspect", "--json", "--sha256"], ["inspect", "--all"], ["inspect", "--tree", "--stats"], ["scan"], ["scan", "--json"], ["trace"],
       ["trace", "--summary"], ["trace", "--dis"], ["trace", "--full"], ["convert", "--arch", "weights", "-o", "OUT/o.carton"], ["convert", "-o", "OUT/o.safetensors"],
       ["convert", "-o", "OUT/o.pth"], ["convert", "--arch", "weights", "--allow-dangerous", "--json", "-o", "OUT/o.carton"], ["convert", "--dequantize", "-o", "OUT/o.safetensors"],
       ["report", "--stats", "-o", "OUT/o.html"], ["diff", "FILE"], ["digest"], ["digest", "--dequantize", "--lines"]]
CARTONS = [["verify"], ["inspect"], ["unpack", "-o", "OUT/u"], ["run", "--top", "1", "--tokens", "1"], ["run", "--self-test"], ["scan"], ["shrink", "-o", "OUT/s.carton"]]
MODELS = [["convert", "-o", "OUT/o.carton"], ["convert", "--names", "meta", "-o", "OUT/o"], ["convert", "--dequantize", "-o", "OUT/o"], ["pack", "-o", "OUT/o.carton"], ["scan"]]
ADAPTERS = [["convert", "--merge", "FILE/adapter", "-o", "OUT/o.safetensors"]] * 8


def make(seed, index):
    """The kind of a file or folder, its name, its bytes or files, and the commands for it."""
    rng = random.Random(f"{seed}/{index}")
    kind = rng.choice(KINDS)
    name, data = kind(rng)
    files = data if isinstance(data, dict) else {"": data[:SIZE]}
    if sum(map(len, files.values())) > SIZE:
        files = {name: data[: SIZE // len(files)] for name, data in files.items()}
    commands = ANY + (CARTONS if name.endswith(".carton") else []) + (MODELS * 2 if isinstance(data, dict) else []) + (ADAPTERS if kind is adapter else [])
    return kind.__name__, name, files, commands, rng.choice(commands)


def limit():
    resource.setrlimit(resource.RLIMIT_CPU, (STOP, STOP))
    resource.setrlimit(resource.RLIMIT_FSIZE, (DISK, DISK))


def run(binary, command, path, out):
    """The exit status, peak memory, processor time and errors of a command."""
    out.mkdir()
    arguments = [part.replace("OUT", str(out)).replace("FILE", str(path)) for part in command]
    place = 1
    arguments.insert(place, str(path))
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen([binary, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, preexec_fn=limit)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        stderr = errors.read(4000).decode(errors="replace")
    shutil.rmtree(out)
    return process.returncode, usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime, stderr


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--binary", type=Path, required=True)
    arguments.add_argument("--count", type=int, default=1000)
    arguments.add_argument("--first", type=int, default=0)
    arguments.add_argument("--seed", default="1")
    arguments.add_argument("--all-commands", action="store_true")
    arguments.add_argument("--verbose", action="store_true", help="print every run")
    arguments.add_argument("--keep", type=Path, help="write the files into this folder and run nothing")
    options = arguments.parse_args()
    if options.keep:
        options.keep.mkdir(exist_ok=True)
    faults, slow, runs, most_memory, most_seconds = 0, 0, 0, (0, ""), (0.0, "")
    with tempfile.TemporaryDirectory() as folder:
        for index in range(options.first, options.first + options.count):
            kind, name, files, commands, chosen = make(options.seed, index)
            path = Path(options.keep or folder, f"{index}-{name}")
            for inner, data in files.items():
                place = path / inner if inner else path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(data)
            size = sum(map(len, files.values()))
            del files, data
            if options.keep:
                continue
            for command in commands if options.all_commands else [chosen]:
                status, peak, seconds, stderr = run(options.binary, command, path, Path(folder, "out"))
                what = f"{index} {kind} {size} bytes, {' '.join(command)}: {peak / 1e6:.0f} MB, {seconds:.1f} s, exit status {status}"
                runs += 1
                most_memory = max(most_memory, (peak, what))
                is_slow = seconds > SECONDS and command[0] != "trace"
                most_seconds = max(most_seconds, (seconds if command[0] != "trace" else 0, what))
                is_fault = peak > MEMORY or "panicked" in stderr or (status < 0 and command[0] != "trace")
                faults += is_fault
                slow += is_slow
                if is_fault or is_slow or options.verbose:
                    print(what, *stderr.strip().splitlines()[:2], sep="\n    ", flush=True)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    print(f"{runs} runs: {faults} faults, {slow} above {SECONDS} s\nmost memory: {most_memory[1]}\nmost time: {most_seconds[1]}")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
