"""--cast and --dtype: every number becomes what `Tensor.to(dtype)` makes of it, in both versions of torch."""

import json
import shutil

import pytest
from carton_file import Carton, Zip
from checkpoints import LLAMA_PARAMS
from conftest import workers_fixture
from program import succeed

FLOATS = "float64 float32 float16 bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu".split()
INTEGERS = "int64 int32 int16 int8 uint64 uint32 uint16 uint8".split()
REAL = [*FLOATS, *INTEGERS, "bool"]
COMPLEX = "complex128 complex64 complex32 bcomplex32".split()

workers = workers_fixture("cast_worker.py")  # in each version of torch


@pytest.fixture(scope="module")
def numbers(tmp_path_factory, workers):
    """`numbers(dtype)` is a checkpoint with numbers of a dtype, and `numbers(dtype, to)` with those that an integer dtype has."""
    folder, made = tmp_path_factory.mktemp("numbers"), {}

    def get(dtype, only_for=None):
        if (dtype, only_for) not in made:
            path = folder / f"{dtype}-{only_for}.pth"
            workers("NEWEST").ask("make", dtype=dtype, path=str(path), only_for=only_for)
            made[dtype, only_for] = path
        return made[dtype, only_for]

    return get


def model(carton):
    archive = Carton(carton).read("model/model.pt")
    return Zip(archive)


@pytest.mark.parametrize("dtype", REAL + COMPLEX)
def test_numbers_are_those_of_pytorch(dtype, numbers, workers, tmp_path):
    newest, old = workers("NEWEST"), workers("OLD")
    known = old.ask("dtypes")
    wrong, compared = {}, 0
    for to in COMPLEX if dtype in COMPLEX else REAL:
        if to in (dtype, "bcomplex32"):  # no output can have that one
            continue
        # C++ does not define which integer a float becomes that is out of its range.
        checkpoint = numbers(dtype, to if dtype in FLOATS and to in INTEGERS else None)
        carton, found = tmp_path / "x.carton", tmp_path / "x.raw"
        done = succeed(checkpoint, "--cast", f"{dtype}={to}", "--torch", "newest", "--json", "-o", carton)
        found.write_bytes(model(carton).read("model/data/0"))
        request = {"source": str(checkpoint.with_suffix(".raw")), "dtype": dtype, "found": str(found), "to": to}
        answer = newest.ask("compare", **request)
        (row,) = json.loads(done.stdout)["casts"]
        assert (row["from"], row["to"], row["tensors"]) == (dtype, to, 1)
        first = "x" if answer["outside"] else None
        if (row["out_of_range"], row["first_out_of_range"]) != (answer["outside"], first):
            answer["differences"].append(f"{row['out_of_range']} out of range, not {answer['outside']}")
        if dtype in known and to in known:
            answer["differences"] += old.ask("compare", **request)["differences"]
        if answer["differences"]:
            wrong[to] = answer["differences"]
        compared += answer["numbers"]
    assert wrong == {}
    print(f"{dtype}: {compared} numbers")


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_a_carton_is_that_of_the_cast_checkpoint(dtype, workers, tmp_path):
    """With its views: tensors that share memory share it afterwards."""
    before, after = tmp_path / "before" / "x.pth", tmp_path / "after" / "x.pth"
    for path in (before, after):
        path.parent.mkdir()
    workers("NEWEST").ask("make_views", path=str(before))
    workers("NEWEST").ask("cast_all", path=str(before), to=str(after), dtype=dtype)
    succeed(before, "--dtype", dtype)
    succeed(after)
    assert before.with_suffix(".carton").read_bytes() == after.with_suffix(".carton").read_bytes()
    for name in ("out.safetensors", "out.pth"):
        for path, flags in ((before, ["--dtype", dtype]), (after, [])):
            succeed(path, *flags, "-o", path.with_name(name))
        assert before.with_name(name).read_bytes() == after.with_name(name).read_bytes()


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_a_model_is_that_of_the_cast_checkpoint(dtype, case, workers, tmp_path):
    """And runs like that one, which test_models.py checks."""
    made = case("llama_float32", params=LLAMA_PARAMS)
    before, after = tmp_path / "before" / "consolidated.00.pth", tmp_path / "after" / "consolidated.00.pth"
    for path in (before, after):
        path.parent.mkdir()
        shutil.copy(made.checkpoint.parent / "params.json", path.parent)
    shutil.copy(made.checkpoint, before)
    workers("NEWEST").ask("cast_all", path=str(before), to=str(after), dtype=dtype)
    for path, flags in ((before, ["--dtype", dtype]), (after, [])):
        done = succeed(path, *flags, "--name", "llama", "--require-model", "--json", "-o", path.with_suffix(".carton"))
        assert json.loads(done.stdout)["module"] == "llama"
    assert before.with_suffix(".carton").read_bytes() == after.with_suffix(".carton").read_bytes()
    succeed("verify", before.with_suffix(".carton"))
