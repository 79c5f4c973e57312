"""Writes programs with torch.export, and tells what torch.export.load and torch.load find in a file."""

import warnings
import zipfile
from pathlib import Path

import torch
from exported_models import Everything, Small, exported, facts, of_program
from line_server import serve
from torch._export.serde.serialize import serialize
from torch.export.pt2_archive._package import package_pt2

warnings.simplefilter("ignore")


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
