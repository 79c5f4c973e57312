"""--torch newest: dtypes that the newest torch loads and Carton's torch 2.0.1 does not."""

import tomllib

import pytest
from carton_file import Carton
from program import refuse, succeed

FACTS = "name dtype shape stride storage_offset storage nbytes sha256".split()
TOO_NEW = "uint16 uint32 uint64 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2".split()


@pytest.fixture(scope="module")
def made(tmp_path_factory, newest):
    folder = tmp_path_factory.mktemp("newest")
    newest.ask("make", kind="newer_dtypes", path=str(folder / "small.pth"))
    succeed(folder / "small.pth", "--torch", "newest")
    (folder / "model.pt").write_bytes(Carton(folder / "small.carton").read("model/model.pt"))
    return folder


def test_the_newest_torch_loads_the_same_bits(made, newest):
    wanted = newest.ask("describe_checkpoint", path=str(made / "small.pth"))["tensors"]
    found = newest.ask("describe_archive", path=str(made / "model.pt"))["tensors"]
    assert {t["dtype"] for t in found} >= set(TOO_NEW)
    assert [{f: t[f] for f in FACTS} for t in found] == [{f: t[f] for f in FACTS} for t in wanted]


def test_forward_returns_dtypes_that_carton_has(made, newest):
    assert newest.ask("compare_outputs", archive=str(made / "model.pt"), checkpoint=str(made / "small.pth")) == []
    config = tomllib.loads(Carton(made / "small.carton").read("carton.toml").decode())
    assert config["runner"]["required_framework_version"] == ">=2.15"
    dtypes = {output["name"]: output["dtype"] for output in config["output"]}
    assert {dtypes[name] for name in TOO_NEW} == {"uint16", "uint32", "uint64", "float32", "uint8"}


def test_without_the_flag_the_error_suggests_it(made, old):
    outcome = refuse(made / "small.pth", "-o", made / "refused.carton")
    assert "tensor `uint16`: PyTorch 2.0, which Carton runs, cannot load uint16; --torch newest" in outcome.stderr
    assert not (made / "refused.carton").exists()
    # The refusal is necessary: torch 2.0.1 does not have storages of these dtypes.
    with pytest.raises(Exception, match="UInt16Storage|unknown torch global|Unpickler"):
        old.ask("describe_archive", path=str(made / "model.pt"))


def test_excluding_them_makes_the_flag_unnecessary(made, old):
    excluded = [word for name in [*TOO_NEW, "part"] for word in ("--exclude", name)]
    succeed(made / "small.pth", *excluded, "-o", made / "rest.carton")
    (made / "rest.pt").write_bytes(Carton(made / "rest.carton").read("model/model.pt"))
    assert [t["name"] for t in old.ask("describe_archive", path=str(made / "rest.pt"))["tensors"]] == ["float32"]
