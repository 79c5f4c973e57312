"""Splits checkpoints into files as Meta and Hugging Face do, with real torch."""

import collections
import json
import sys
from pathlib import Path

import torch
from line_server import serve

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import checkpoints  # noqa: E402

ROWS, COLUMNS = ("wq", "wk", "wv", "w1", "w3", "output"), ("wo", "w2")
HEAD = checkpoints.LLAMA_PARAMS["dim"] // checkpoints.LLAMA_PARAMS["n_heads"]


def parts(name, tensor, count, embeddings):
    """The parts of a tensor in `count` shards. Asserts that torch.cat merges them into the tensor."""
    module = name.split(".")[-2]
    if tensor.dim() == 1:
        return [tensor] * count
    dim = embeddings if module == "tok_embeddings" else 0 if module in ROWS else 1 if module in COLUMNS else None
    if module in ("wk", "wv") and (heads := tensor.shape[0] // HEAD) < count:  # a head has several copies
        pieces = tensor.split(HEAD)
        return [pieces[i * heads // count] for i in range(count)]
    pieces = tensor.chunk(count, dim)
    assert len(pieces) == count and torch.equal(torch.cat(pieces, dim), tensor)
    return pieces


def meta(kind, folder, count, embeddings=1, whole=None):
    state = checkpoints.MAKERS[kind]()
    shards = [collections.OrderedDict() for _ in range(count)]
    for name, tensor in state.items():
        for shard, part in zip(shards, parts(name, tensor, count, embeddings)):
            shard[name] = part.clone()
    for number, shard in enumerate(shards):
        torch.save(shard, Path(folder) / f"consolidated.{number:02}.pth")
    if whole:
        torch.save(collections.OrderedDict(state), whole)


def hugging_face(kind, folder, count, safe=False, index=True, whole=None):
    state = {name: tensor.contiguous() for name, tensor in checkpoints.MAKERS[kind]().items()}
    stem, extension = ("model", "safetensors") if safe else ("pytorch_model", "bin")
    names, weight_map = list(state), {}
    for number in range(count):
        file = f"{stem}-{number + 1:05}-of-{count:05}.{extension}"
        mine = names[number * len(names) // count:(number + 1) * len(names) // count]
        weight_map |= dict.fromkeys(mine, file)
        save({name: state[name] for name in mine}, Path(folder) / file, safe)
    if index:
        text = json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map}, sort_keys=True)
        (Path(folder) / f"{stem}.{extension}.index.json").write_text(text)
    if whole:
        save(state, whole, safe)


def save(state, path, safe):
    if safe:
        from safetensors.torch import save_file
        save_file(state, path)
    else:
        torch.save(state, path)


if __name__ == "__main__":
    serve({f.__name__: f for f in (meta, hugging_face)})
