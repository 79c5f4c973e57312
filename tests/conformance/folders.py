"""Reads and writes the tensors of safetensors folders, without a library that could correct them."""

import json
import struct


def read(file):
    data = file.read_bytes()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:end])
    header.pop("__metadata__", None)
    return {name: (row["dtype"], row["shape"], data[end + row["data_offsets"][0] : end + row["data_offsets"][1]]) for name, row in header.items()}


def write(file, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def write_shards(folder, tensors, count=3):
    """The index is made of the shards, as a tool makes one again."""
    (folder / "model.safetensors").unlink()
    names, index = sorted(tensors), {}
    for number in range(count):
        file = f"model-{number + 1:05}-of-{count:05}.safetensors"
        share = names[number::count]
        write(folder / file, {name: tensors[name] for name in share})
        index |= dict.fromkeys(share, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return index
