"""The carton as a zip file: MANIFEST, alignment and CRCs."""

import zipfile

import pytest
from carton_file import Carton
from checkpoints import LLAMA_PARAMS
from program import succeed

KINDS = ["dtypes", "views", "sharing", "names", "windows", "many", "empty", "llama_bfloat16"]


@pytest.fixture(params=KINDS)
def made(request, case):
    return case(request.param, params=LLAMA_PARAMS if request.param.startswith("llama") else None)


def test_python_finds_no_damage(made):
    assert made.carton.manifest == made.carton.true_manifest()
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
