"""Writes programs with torch.export, and tells what torch.export.load and torch.load find in a file."""

import hashlib
import warnings
import zipfile
from pathlib import Path

import torch
from line_server import serve
from torch import nn
from torch._export.serde.serialize import serialize
from torch.export.pt2_archive._package import package_pt2

warnings.simplefilter("ignore")
DTYPES = "uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128 bool bfloat16 uint16 uint32 uint64 " \
         "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu"


class Everything(nn.Module):
    """Ties, views, strides, each dtype, and constants that no state dict has."""

    def __init__(self):
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
        for name in DTYPES.split():
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


def write_old(program, path):
    """The archive of torch.export.save in PyTorch 2.6, whose parts are those of today's serializer."""
    parts = serialize(program)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("version", "8.2")
        archive.writestr("serialized_exported_program.json", parts.exported_program)
        archive.writestr("serialized_state_dict.pt", parts.state_dict)
        archive.writestr("serialized_constants.pt", parts.constants)
        archive.writestr("serialized_example_inputs.pt", parts.example_inputs)


def make(folder):
    """Writes the archives; returns what torch.export.load finds in each of the models."""
    folder = Path(folder)
    torch.export.save(exported(Everything(), 3), folder / "new.pt2")
    write_old(exported(Everything(), 3), folder / "old.pt2")
    package_pt2(str(folder / "two.pt2"), exported_programs={"model": exported(Small(3), 3), "enc": exported(Small(5), 5)})
    models = torch.export.pt2_archive._package.load_pt2(str(folder / "two.pt2")).exported_programs
    found = {name: of_program(torch.export.load(folder / f"{name}.pt2")) for name in ("new", "old")}
    return found | {name: of_program(program) for name, program in models.items()}


def make_compiled(folder):
    """Compiles a model with its weights in records, and one with them in the code."""
    torch.manual_seed(0)
    program = exported(Small(3), 3)
    disk = {"aot_inductor.package_constants_in_so": False, "aot_inductor.package_constants_on_disk_format": "pickle_weights"}
    for name, settings in (("inside", {}), ("disk", disk)):
        torch._inductor.aoti_compile_and_package(program, package_path=str(Path(folder) / f"{name}.pt2"), inductor_configs=settings)
    return of_program(program)


def load(path):
    return facts(torch.load(path, weights_only=True))


serve({"make": make, "make_compiled": make_compiled, "load": load})
