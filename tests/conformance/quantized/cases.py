"""Quantized models of a few small tensors, and the numbers that each method's own library computes from them.

Runs in the environment `QUANTIZED` of environments.py, with T2C_QUANTIZED_SOURCES as the folder `sources` in it. `cases.py FOLDER` writes the fixtures that the Rust tests read: for
each case a folder with the model, and `expected.json` with shape, dtype and SHA-256 of each tensor of the result.
`cases.py FOLDER --seed N` makes other numbers and other shapes, for the checks of test_dequantize.py, with the tensors
themselves in `expected.safetensors`.
"""

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # functions that transformers has compiled compute as written

import torch
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).resolve().parent))
CASES = {}


class Model:
    """A quantized model under construction: documents, stored tensors and expected numbers."""

    def __init__(self, method=None, dtype="bfloat16"):
        self.dtype = getattr(torch, dtype)
        self.config = {"model_type": "quantized", "torch_dtype": dtype}
        if method is not None:
            self.config["quantization_config"] = method
        self.documents, self.stored, self.expected = {}, {}, {}
        self.shards = 1
        self.pickled = None  # tensors for `torch.save` in place of the stored ones
        self.pickled_name = "pytorch_model.bin"
        self.file = None  # bytes of a file of `torch.save`

    def add(self, name, numbers, **stored):
        """A quantized tensor: its parts by suffixes after the module, and its numbers as the library returns them."""
        for part, tensor in stored.items():
            self.stored[f"{name}.{part}"] = tensor.contiguous().clone()
        self.expected[f"{name}.weight"] = numbers.detach().to(self.dtype).contiguous().clone()

    def plain(self, name, tensor):
        self.stored[name] = self.expected[name] = tensor.contiguous()

    def drop(self, name, tensor):
        """A stored tensor that the result does not have."""
        self.stored[name] = tensor.contiguous()


def case(function):
    CASES[function.__name__] = function
    return function


def write(folder, model, whole):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(model.config, indent=1) + "\n")
    for name, document in model.documents.items():
        (folder / name).write_text(json.dumps(document, indent=1) + "\n")
    names = sorted(model.stored)
    if model.file is not None:
        (folder / "pytorch_model.bin").write_bytes(model.file)
    elif model.pickled is not None:
        torch.save(model.pickled, folder / model.pickled_name)
    elif model.shards == 1:
        save_file(model.stored, folder / "model.safetensors")
    else:  # the parts of one tensor are in different files
        index = {}
        for number in range(model.shards):
            file = f"model-{number + 1:05}-of-{model.shards:05}.safetensors"
            part = {name: model.stored[name] for name in names[number::model.shards]}
            save_file(part, folder / file)
            index.update(dict.fromkeys(part, file))
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}) + "\n")
    expected = {name: describe(tensor) for name, tensor in sorted(model.expected.items())}
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in expected.items())
    (folder / "expected.json").write_text("{\n" + lines + "\n}\n")
    if whole:
        (folder / "expected").mkdir(exist_ok=True)
        save_file(model.expected, folder / "expected" / "numbers.safetensors")


def describe(tensor):
    raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), hashlib.sha256(raw).hexdigest()]


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--case", action="append", help="only this case; repeatable")
    options = arguments.parse_args()
    import schemes, neighbours  # noqa: F401, E401  (add the cases)

    for name, make in CASES.items():
        if options.case and name not in options.case:
            continue
        torch.manual_seed(options.seed)
        try:
            write(options.folder / name, make(options.seed), whole=options.seed != 0)
        except Exception as error:
            raise RuntimeError(f"case {name}") from error
    print(*CASES)


if __name__ == "__main__":
    sys.modules["cases"] = sys.modules["__main__"]
    main()
