"""The folders of shards/: sets of files that are not a checkpoint together, each for one reason.

`FOLDERS` maps a folder's name to (its files, what is wrong). Two shards of a model of width 4 with one layer's worth of
Meta's names; sizes are chosen so that every rule of the split has a tensor.
"""

import json
import struct

import other_containers
import pickles as p
from raw_zip import Entry, archive

DIM, HIDDEN, VOCAB = 4, 8, 6
PARAMS = json.dumps({"dim": DIM, "n_layers": 1, "n_heads": 2, "vocab_size": VOCAB}).encode()
# name: the shape of a shard's part
SHAPES = {
    "tok_embeddings.weight": (VOCAB, DIM // 2),
    "norm.weight": (DIM,),
    "layers.0.attention.wq.weight": (DIM // 2, DIM),
    "layers.0.attention.wo.weight": (DIM, DIM // 2),
    "layers.0.feed_forward.w2.weight": (DIM, HIDDEN // 2),
}


def shard(shapes=SHAPES, cls="FloatStorage", first=0.0, damaged=None):
    """A zip checkpoint with these tensors. Every value is different, but copies are the same in all shards."""
    entries, items = [], {}
    for i, (name, shape) in enumerate(shapes.items()):
        count = other_containers.numel(shape)
        start = 0.0 if name == "norm.weight" and first < 1000 else first
        code = {"FloatStorage": "f", "DoubleStorage": "d"}[cls]
        data = struct.pack(f"<{count}{code}", *(start + n for n in range(count)))
        items[name] = p.tensor(p.storage(count, ("torch", cls), str(i)), shape, other_containers.strides(shape))
        entries.append(Entry(f"consolidated/data/{i}", data, crc=0x12345678 if name == damaged else None))
    return archive([Entry("consolidated/data.pkl", p.pickle(p.dictionary(items))), *entries])


def pair(second, first=None, **more):
    files = {"consolidated.00.pth": first or shard(), "consolidated.01.pth": second, "params.json": PARAMS}
    return files | {name: data for name, data in more.items() if data is not None}


def without(name):
    return {n: s for n, s in SHAPES.items() if n != name}


def with_index(files, **weight_map):
    return files | {"pytorch_model.bin.index.json": json.dumps({"metadata": {}, "weight_map": weight_map}).encode()}


A, B = shard({"a": (2,)}), shard({"b": (2,)}, first=5.0)
SET = {"pytorch_model-00001-of-00002.bin": A, "pytorch_model-00002-of-00002.bin": B}
ONE, TWO = SET

FOLDERS = {
    "missing": ({"consolidated.00.pth": shard(), "params.json": PARAMS}, "one of two shards is missing"),
    "extra": (pair(shard(first=100.0)) | {"consolidated.02.pth": shard(first=200.0)}, "a third shard of two"),
    "duplicate": (pair(shard()), "the second shard is a copy of the first"),
    "gap": ({"consolidated.00.pth": shard(), "consolidated.02.pth": shard(), "params.json": PARAMS}, "number 1 is missing"),
    "lacks": (pair(shard(without("norm.weight"))), "the second shard lacks a tensor"),
    "more": (pair(shard(SHAPES | {"layers.0.ffn_norm.weight": (DIM,)})), "the second shard has one more tensor"),
    "shape": (pair(shard(SHAPES | {"layers.0.attention.wo.weight": (DIM, 1)})), "parts of two shapes"),
    "dtype": (pair(shard(cls="DoubleStorage")), "parts of two dtypes"),
    "copies": (pair(shard(first=1000.0)), "copies of a norm differ"),
    "stranger": (pair(shard({"vision.weight": (2, 2)}), shard({"vision.weight": (2, 2)})), "the tensor is not one of LLaMA's"),
    "split": (
        pair(*[shard(SHAPES | {"layers.0.attention.wo.weight": (3, 2)})] * 2), "a part with a shape that no model of this width has"),
    "params": (pair(shard()) | {"params.json": b"{"}, "params.json is not JSON"),
    "damaged_rows": (pair(shard(first=100.0, damaged="layers.0.attention.wq.weight")), "a wrong checksum, split along dimension 0"),
    "damaged_columns": (pair(shard(first=100.0, damaged="layers.0.attention.wo.weight")), "a wrong checksum, split along dimension 1"),
    "damaged_copy": (pair(shard(first=100.0), shard(damaged="norm.weight")), "a wrong checksum of a copy"),
    "index_missing": (with_index(SET, a=ONE, b=TWO, c=TWO), "the index lists a tensor that does not exist"),
    "index_other": (with_index(SET, a=TWO, b=TWO), "the index has a tensor in another file"),
    "index_unlisted": (with_index(SET, a=ONE), "a file is not in the index"),
    "index_short": (with_index({ONE: shard({"a": (2,), "b": (2,)}), TWO: shard({"c": (2,)})}, a=ONE, c=TWO), "a tensor is not in the index"),
    "index_leads_out": (with_index(SET, a="../" + ONE), "the index leads out of the folder"),
    "index_no_file": (with_index({ONE: A}, a=ONE, b=TWO), "the index names a file that does not exist"),
    "twice": ({ONE: A, TWO: A}, "two files hold one tensor"),
    "of_three": ({ONE.replace("of-00002", "of-00003"): A, TWO.replace("of-00002", "of-00003"): B}, "two of three files"),
}
FILES = {f"{folder}/{name}": (data, why) for folder, (files, why) in FOLDERS.items() for name, data in files.items()}


def index():
    rows = "".join(f"| `{name}` | {why} |\n" for name, (_, why) in sorted(FOLDERS.items()))
    return f"""# Sets of files that must be refused

`generate.py --hostile` makes these folders and this list from `shard_sets.py`.

| folder | what is wrong |
|---|---|
{rows}"""
