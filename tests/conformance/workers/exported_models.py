"""Models that torch.export takes, in the newest PyTorch and in older ones, and facts on the tensors of a program.

`exported_models.py FOLDER` writes the archives of this PyTorch, and what its torch.export.load finds in them: so were the files in
`crates/torch-import/tests/exported` made, by PyTorch 2.6.0 and 2.9.1.
"""

import hashlib
import json
import sys
from pathlib import Path

import torch
from torch import nn

DTYPES = "uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128 bool bfloat16 uint16 uint32 uint64 " \
         "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu"


class Everything(nn.Module):
    """Ties, views, strides, each dtype, and constants that no state dict has."""

    def __init__(self, dtypes=DTYPES):
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.tied = nn.Linear(3, 4), nn.Linear(3, 4)
        self.tied.weight = self.fc.weight
        self.transposed = nn.Parameter(torch.randn(5, 3).t())
        whole = torch.arange(24.0)
        self.register_buffer("second", whole[12:].view(3, 4))
        self.register_buffer("first", whole[:10:3])
        self.register_buffer("expanded", torch.ones(1).expand(4))
        self.register_buffer("empty", torch.empty(0, 3, dtype=torch.bfloat16))
        self.register_buffer("scalar", torch.tensor(3))
        self.register_buffer("step", torch.arange(6.0), persistent=False)
        self.constant = torch.full((2,), 7.0)
        for name in dtypes.split():
            bits = torch.randint(0, 2 if name == "bool" else 256, (64,), dtype=torch.uint8)
            self.register_buffer(f"dtypes_{name}", bits.view(getattr(torch, name)))

    def forward(self, x):
        return self.fc(x) + self.tied(x) + self.step.sum() + self.constant.sum() + torch.tensor([1.0, 2.0]).sum()


class Small(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.fc = nn.Linear(size, 2)

    def forward(self, x):
        return self.fc(x)


def exported(module, size):
    return torch.export.export(module, (torch.randn(2, size),), dynamic_shapes=({0: torch.export.Dim("batch")},))


def facts(tensors):
    def fact(tensor):
        tensor = tensor.detach()
        flat = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)
        data = flat.view(-1).view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "stride": list(tensor.stride()),
                "storage": tensor.untyped_storage().data_ptr() if tensor.numel() else 0, "sha256": hashlib.sha256(data).hexdigest()}

    found = {name: fact(tensor) for name, tensor in tensors.items()}
    groups = {}
    for one in found.values():
        one["storage"] = groups.setdefault(one["storage"], len(groups))
    return found


def of_program(program):
    return facts(program.state_dict | {name: it for name, it in program.constants.items() if isinstance(it, torch.Tensor)})


def write_archives(folder):
    from torch._export.serde.serialize import _TORCH_TO_SERIALIZE_DTYPE as numbered

    version = torch.__version__.split("+")[0]
    dtypes = " ".join(name for name in DTYPES.split() if getattr(torch, name, None) in numbered)
    path = Path(folder, f"torch-{version}.pt2")
    torch.export.save(exported(Everything(dtypes), 3), path)
    facts = of_program(torch.export.load(path))
    rows = (f" {json.dumps(name)}: {json.dumps([fact[key] for key in ('dtype', 'shape', 'stride', 'sha256')])}" for name, fact in sorted(facts.items()))
    path.with_suffix(".json").write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    write_archives(sys.argv[1])
