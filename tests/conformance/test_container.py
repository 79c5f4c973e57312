"""The carton as a zip file: MANIFEST, alignment, CRCs, and the same bytes each time."""

import os
import shutil
import zipfile
from pathlib import Path

import pytest
from carton_file import Carton, tomllib
from checkpoints import LLAMA_PARAMS
from program import succeed

KINDS = ["dtypes", "views", "sharing", "names", "windows", "many", "empty", "llama_bfloat16"]


@pytest.fixture(params=KINDS)
def made(request, case):
    return case(request.param, params=LLAMA_PARAMS if request.param.startswith("llama") else None)


def test_manifest_is_exact(made):
    assert made.carton.manifest == made.carton.true_manifest()


def test_entries_are_unique_and_complete(made):
    names = made.carton.names
    assert len(names) == len(set(names))
    assert {"carton.toml", "MANIFEST", "model/model.pt", "tensor_data/index.toml"} <= set(names)
    assert not [n for n in names if n.endswith("/") or n.startswith(("/", "./")) or ".." in n.split("/")]


def test_the_documents_are_valid(made):
    assert made.carton.toml["spec_version"] == 1
    assert tomllib.loads(made.carton.read("tensor_data/index.toml").decode()) == {"tensor": []}


def test_python_finds_no_damage(made):
    assert made.carton.file.testzip() is None
    assert made.carton.model().file.testzip() is None


def test_model_is_stored_and_its_storages_are_aligned_in_the_carton_file(made):
    assert made.carton.info("model/model.pt").compress_type == zipfile.ZIP_STORED
    base, model = made.carton.payload_offset("model/model.pt"), made.carton.model()
    storages = [n for n in model.names if "/data/" in n]
    assert storages
    for name in storages:
        assert model.info(name).compress_type == zipfile.ZIP_STORED, name
        assert (base + model.payload_offset(name)) % 64 == 0, f"{name} starts at byte {base + model.payload_offset(name)} of the carton"


def test_the_archive_has_what_torchscript_needs(made):
    names = made.carton.model().names
    roots = {n.split("/", 1)[0] for n in names}
    assert len(roots) == 1
    assert {"version", "data.pkl", "constants.pkl"} <= {n.split("/", 1)[1] for n in names}


def test_same_input_and_flags_give_the_same_bytes(made, tmp_path):
    """Even in another folder, with another clock, time zone, language, user and output name."""
    copy = tmp_path / made.folder.name / made.checkpoint.name
    shutil.copytree(made.folder, copy.parent, ignore=lambda _, names: [n for n in names if n.endswith((".carton", "-model.pt"))])
    os.utime(copy, (10**9, 10**9))
    first = Path(made.carton_path).read_bytes()
    settings = {"TZ": "Pacific/Auckland", "LANG": "C", "USER": "another", "SOURCE_DATE_EPOCH": "5", "HOSTNAME": "another"}
    succeed(copy, "-o", tmp_path / "other.carton", env=settings)
    assert (tmp_path / "other.carton").read_bytes() == first
    succeed(copy.name, "-o", "third.carton", cwd=copy.parent)
    assert (copy.parent / "third.carton").read_bytes() == first


def test_zip64_entries_inside(tmp_path, newest, old):
    """More than 65,535 records in model.pt: torch 2.0.1 reads them all."""
    path = tmp_path / "crowd.pth"
    newest.ask("make_many", path=str(path), count=66_000)
    succeed(path)
    carton = Carton(path.with_suffix(".carton"))
    assert carton.manifest == carton.true_manifest()
    archive = tmp_path / "model.pt"
    archive.write_bytes(carton.read("model/model.pt"))
    assert old.ask("count_and_sum", archive=str(archive)) == [66_000, sum(range(66_000))]
