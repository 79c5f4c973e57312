"""A TorchScript archive becomes a carton that runs it: the outputs are those of the original, bit for bit.

The modules are those of workers/scripts.py, each written by torch 1.13.1, 2.0.1 and the newest, and the TorchScript files in
../shared/corpus and corpus-2. The fuser is off: it compiles a graph that is larger by our functions into other code.
"""

import hashlib
import json
import re
import zipfile
from pathlib import Path

import pytest
from carton_file import Carton
from conftest import SHARED, worker_fixture
from program import refuse, succeed, torch2carton

KINDS = re.findall(r"^(?:class|def) ([A-Z]\w*)", (Path(__file__).parent / "workers/scripts.py").read_text(), re.M)
NOT_KINDS = {"Pair", "Deep", "Inner", "Counter", "Doubled", "Tensors", "Color", "Mode", "Rate", "Step", "Plus"}
KINDS = [kind for kind in KINDS if kind not in NOT_KINDS] + ["Function", "TracedFunction"]

OVERLOADS = re.findall(r"^class (\w+)", (Path(__file__).parent / "workers/overloads.py").read_text(), re.M)
LOADS_IN_OLD = {"AllOverOneDimension", "WholeCorrection", "DefaultGradient", "Causal", "Tensors", "Reductions", "Shapes", "Losses", "Made"}


newest_script, old_script, older_script = (worker_fixture(key, "script_worker.py") for key in ("NEWEST", "OLD", "OLDER"))


@pytest.fixture(params=["older_script", "old_script", "newest_script"], ids=["saved-by-1.13.1", "saved-by-2.0.1", "saved-by-newest"])
def saver(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["old_script", "newest_script"], ids=["torch2.0.1", "torch-newest"])
def loader(request):
    return request.getfixturevalue(request.param)


def wrapped(original, folder, *flags):
    """The carton of an archive, and the archive in it."""
    carton = folder / f"{original.stem}.carton"
    outcome = succeed(original, "-o", carton, "--force", *flags)
    archive = folder / f"{original.stem}.wrapped.pt"
    archive.write_bytes(Carton(carton).read("model/model.pt"))
    return carton, archive, outcome


def test_every_kind_is_tested(newest_script):
    assert sorted(KINDS) == sorted(newest_script.ask("kinds")) and len(KINDS) >= 60


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_equal_those_of_the_original(kind, saver, old_script, newest_script, tmp_path, request):
    if kind == "Enums" and request.node.callspec.params["saver"] == "older_script":
        pytest.skip("torch 1.13.1 cannot script enumerations of Python 3.11")
    original = tmp_path / "model.pt"
    saver.ask("save", kind=kind, path=str(original))
    carton, archive, _ = wrapped(original, tmp_path, "--require-model")
    assert Carton(carton).toml["runner"]["required_framework_version"] == "=2.0"
    for torch in (old_script, newest_script):
        assert torch.ask("compare", original=str(original), wrapped=str(archive), kind=kind) == []
        assert torch.ask("same_state", original=str(original), wrapped=str(archive))
    verified = json.loads(succeed("verify", "--json", "--against", original, "--", carton).stdout)
    assert verified["ok"] and verified["code"] == "equal", verified


@pytest.fixture
def made(newest_script, tmp_path):
    """`made(kind, flags…)` saves and converts a module: the original, the carton, the archive in it, the outcome."""
    def make(kind, *flags):
        original = tmp_path / f"{kind}.pt"
        newest_script.ask("save", kind=kind, path=str(original))
        return original, *wrapped(original, tmp_path, *flags)

    return make


def ones(*shape):
    return ["float32", 1.0 if not shape else [ones(*shape[1:])[1]] * shape[0]]


@pytest.mark.parametrize("kind, inputs, message", [
    ("TwoTensors", {"a": ones(3)}, "the input b is missing"),
    ("TwoTensors", {}, "the input a is missing"),
    ("TwoTensors", {"a": ones(3), "b": ones(3), "c": ones(3)}, "there is no input c; the inputs are a, b"),
    ("OneTensor", {"y": ones(3)}, "there is no input y; the only one is x"),
    ("NoArguments", {"y": ones(3)}, "there is no input y; the module takes none"),
    ("Int", {"x": ones(3), "times": ones()}, "the input times has floating-point numbers, expected integers"),
    ("Int", {"x": ones(3), "times": ["int64", [1, 2]]}, "the input times has the shape [2], expected one number"),
    ("Float", {"x": ones(3), "scale": ["complex64", 1.0]}, "the input scale has complex numbers, expected real ones"),
    ("IntList", {"x": ones(3), "shape": ["int64", [[3]]]}, "the input shape has the shape [1, 1], expected one dimension"),
    ("TensorList", {}, "the input xs_0 is missing"),
    ("TensorList", {"xs_0": ones(3), "xs_2": ones(3)}, "there is no input xs_2; the only one is xs_0 and so on"),
    ("OptionalTuple", {"x": ones(2), "hx_0": ones(2)}, "the input hx_1 is missing"),
    ("TensorTuple", {"x": ones(2)}, "the input state_0 is missing"),
    ("NamedTupleArgument", {"pair_left": ones(2)}, "the input pair_right is missing"),
])
def test_wrong_inputs_are_returned_as_an_error(kind, inputs, message, made, old_script, newest_script):
    _, _, archive, _ = made(kind)
    for torch in (old_script, newest_script):
        assert torch.ask("call", wrapped=str(archive), inputs=inputs) == {"error": message}
    _, _, archive, _ = made(kind, "--errors", "raise")
    for torch in (old_script, newest_script):
        assert message in torch.ask("call", wrapped=str(archive), inputs=inputs)["raised"]


def test_the_signature_is_what_the_runner_calls(made, loader):
    _, _, archive, _ = made("OneTensor")
    signature, takes = loader.ask("signature", path=str(archive))
    assert "Any inputs) -> " in signature and signature.endswith("Dict(str, Any)"), signature
    assert takes == [True, True]


def test_inputs_are_declared_checked_and_cast(made, loader):
    _, carton, archive, outcome = made("OptionalTensor", "--input", "x=float16[batch, 3]", "--input", "mask=bool[batch,3]")
    assert "does not list" not in outcome.stderr
    x, mask = Carton(carton).toml["input"]
    assert (x["name"], x["dtype"], x["shape"]) == ("x", "float32", ["batch", 3])
    assert (mask["name"], mask["dtype"]) == ("mask", "uint8") and mask["internal_name"] if "internal_name" in mask else True

    def call(**inputs):
        return loader.ask("call", wrapped=str(archive), inputs=inputs)

    assert call(x=ones(2, 3)) == {"output": ["float32", [2, 3]]}
    assert call(x=ones(2, 3), mask=["uint8", [[1, 0, 1]] * 2]) == {"output": ["float32", [2, 3]]}
    assert call(x=ones(2, 4)) == {"error": "the input x has the shape [2, 4], expected float32[batch, 3]"}
    assert call(x=ones(3)) == {"error": "the input x has the shape [3], expected float32[batch, 3]"}
    assert call(x=["int64", [[1, 2, 3]]]) == {"error": "the input x is int64, expected float32[batch, 3]"}


def test_complex_tensors_are_passed_as_pairs(made, loader):
    _, carton, archive, _ = made("AnyDtype", "--input", "t=complex64[batch, 3]")
    assert [(i["name"], i["dtype"], i["shape"]) for i in Carton(carton).toml["input"]] == [("t", "float32", ["batch", 3, 2])]

    def call(*shape):
        return loader.ask("call", wrapped=str(archive), inputs={"t": ones(*shape)})

    assert call(4, 3, 2) == {"output": ["float32", [4, 3, 2]]}
    assert call(4, 3) == {"error": "the input t has the shape [4, 3], expected float32[batch, 3, 2]"}
    values = [[0.1, -2.0], [3.0, 4.0]]
    _, _, archive, _ = made("AnyDtype", "--input", "t=complex128[2]")
    doubled = loader.ask("call", wrapped=str(archive), inputs={"t": ["float64", values]}, values=True)
    assert doubled == {"output": [[2 * part for part in value] for value in values]}


def case(script, folder, kind, dtype="float32"):
    path = folder / f"{kind.replace(' ', '_')}-{dtype}.pt"
    script.ask("save_case", kind=kind, path=str(path), dtype=dtype)
    return path


def test_texts_are_taken_as_they_are_or_as_bytes(old_script, newest_script, loader, tmp_path):
    _, archive, _ = wrapped(case(newest_script, tmp_path, "texts"), tmp_path)

    def call(**inputs):
        return loader.ask("call", wrapped=str(archive), inputs=inputs)

    assert call(x=ones(3)) == {"value": ["float32", []], "reduction": "sum"}
    assert call(x=ones(3), reduction="mean", note="") == {"value": ["float32", []], "reduction": "mean"}
    assert call(x=ones(3), reduction="né", note="\n") == {"value": ["float32", [3]], "reduction": "né\n"}
    assert call(x=ones(3), reduction=["uint8", list("né".encode())]) == {"value": ["float32", [3]], "reduction": "né"}
    assert call(x="mean") == {"error": "the input x is a text, expected a tensor"}
    assert call(y="mean", x=ones(3)) == {"error": "there is no input y; the inputs are x, reduction, note"}
    assert call(reduction="mean") == {"error": "the input x is missing"}
    assert call(x=ones(3), reduction=["int64", [1]]) == {"error": "the input reduction is int64, expected a text or its bytes as uint8"}
    assert call() == {"error": "the input x is missing"}


@pytest.mark.parametrize("kind", ["narrow", "traced narrow"])
def test_float16_weights_are_widened_on_a_cpu(kind, newest_script, loader, tmp_path):
    original = case(newest_script, tmp_path, kind, "float16")
    for flags in ([], ["--input", "x=float16[batch,2,4]"], ["--input", "x=float32[batch,2,4]"]):
        _, archive, outcome = wrapped(original, tmp_path, *flags)
        assert "note: the code has float16" not in outcome.stderr
        found = loader.ask("widened", original=str(original), wrapped=str(archive))
        assert max(found["far"][:3]) < 1e-5 and found["names"] and found["dtypes"] == ["torch.float32"], found


def test_float16_in_the_code_and_bfloat16_weights_are_noted(newest_script, old_script, tmp_path):
    _, _, outcome = wrapped(case(newest_script, tmp_path, "casts", "float16"), tmp_path)
    assert "the code has float16 tensors that cannot be widened" in outcome.stderr
    original = case(newest_script, tmp_path, "narrow", "bfloat16")
    _, archive, outcome = wrapped(original, tmp_path)
    assert "Carton passes no bfloat16 tensors: a call fails unless the code casts the input `x`; `--input x=bfloat16[batch,3]`" in outcome.stderr
    x = ["float32", [[[1.0] * 4] * 2]]
    assert "raised" in old_script.ask("call", wrapped=str(archive), inputs={"x": x})
    _, archive, outcome = wrapped(original, tmp_path, "--input", "x=bfloat16[batch,2,4]")
    assert "bfloat16 tensors" not in outcome.stderr
    assert old_script.ask("call", wrapped=str(archive), inputs={"x": x}) == {"output": ["float32", [1, 2, 4]]}
    wrong = old_script.ask("call", wrapped=str(archive), inputs={"x": ["int64", [[[1]]]]})
    assert wrong == {"error": "the input x has the shape [1, 1, 1], expected float32[batch, 2, 4]"} or "is int64, expected float32[batch, 2, 4]" in wrong["error"]


@pytest.mark.parametrize("kind, dtype", [("casts", "float8_e4m3fn"), ("casts", "uint16"), ("casts", "uint32"), ("branch", "float8_e5m2")])
def test_dtypes_that_pytorch_2_0_lacks_raise_the_required_version(kind, dtype, newest_script, old_script, tmp_path):
    original = case(newest_script, tmp_path, kind, dtype)
    carton, _, outcome = wrapped(original, tmp_path)
    assert Carton(carton).toml["runner"]["required_framework_version"] == ">=2.15"
    assert f"PyTorch 2.0 does not have the dtype `{dtype}`" in outcome.stderr


@pytest.mark.parametrize("saver", ["old_script", "newest_script"])
def test_what_optimize_for_inference_made_is_refused(saver, request, old_script, newest_script, tmp_path):
    original = case(request.getfixturevalue(saver), tmp_path, "optimized")
    assert "required keyword attribute 'value' is undefined" in old_script.ask("can_run", original=str(original))
    refused = refuse(original).stderr
    assert "`prim::ConstantMKLDNNTensor`" in refused and "torch.jit.optimize_for_inference" in refused


@pytest.mark.parametrize("kind, names, found", [
    ("OneTensor", "scores", ["scores"]),
    ("TwoResults", "sum,positive", ["positive", "sum"]),
    ("NamedTupleResult", "a,b", ["a", "b"]),
    ("ListResult", "a,b", ["a", "b", "output_2"]),
    ("DeepResult", "deep,pair,rest", ["deep_count", "deep_pair_left", "deep_pair_right", "deep_rest_0", "deep_rest_1", "deep_table_k", "rest_0_0",
                                      "rest_0_1"]),
])
def test_outputs_get_the_names_that_are_given(kind, names, found, made, loader):
    _, _, archive, _ = made(kind, "--output-names", names)
    x = ones(4, 3) if kind == "OneTensor" else ones(3)
    assert sorted(loader.ask("call", wrapped=str(archive), inputs={"x": x})) == found


def test_a_module_of_dicts_is_kept_as_it_is(made, loader):
    original, carton, archive, _ = made("DictOnly", "--no-wrap")
    assert archive.read_bytes() == original.read_bytes()
    assert sorted(loader.ask("call", wrapped=str(archive), inputs={"a": ones(2)})) == ["out a", "sum"]
    verified = json.loads(succeed("verify", "--json", "--against", original, "--", carton).stdout)
    assert verified["ok"]


def test_weights_have_no_code(made, newest):
    original, carton, archive, outcome = made("Attributes", "--arch", "weights")
    assert "the file's own code is not kept" in outcome.stderr
    assert "module    weights" in outcome.stdout + outcome.stderr
    assert "Dict(str, Tensor)" in newest.ask("describe_archive", path=str(archive))["signature"]
    assert Carton(carton).toml["output"]
    verified = json.loads(succeed("verify", "--json", "--against", original, "--", carton).stdout)
    assert verified["ok"] and verified["tensors_compared"] == 4, verified  # two buffers, and a list of two tensors


@pytest.mark.parametrize("kind", OVERLOADS)
def test_the_required_version_is_one_that_loads_it(kind, old_script, newest_script, tmp_path):
    original = tmp_path / "model.pt"
    newest_script.ask("save_overload", kind=kind, path=str(original))
    carton, archive, outcome = wrapped(original, tmp_path)
    required = Carton(carton).toml["runner"]["required_framework_version"]
    why = old_script.ask("can_run", original=str(original))
    if why is None:
        assert required == "=2.0" and "PyTorch 2.0 does not" not in outcome.stderr
        assert old_script.ask("can_run", original=str(archive)) is None
    else:
        operator = re.search("aten::\\w+", why)[0]
        assert required == ">=2.15" and f"note: PyTorch 2.0 does not have the operator `{operator}" in outcome.stderr
        assert newest_script.ask("can_run", original=str(archive)) is None
    assert (why is None) == (kind in LOADS_IN_OLD)


def test_code_that_writes_files_is_refused(newest_script, tmp_path):
    original = tmp_path / "model.pt"
    newest_script.ask("save_dangerous", path=str(original))
    refused = refuse(original).stderr
    assert "its code in code/__torch__" in refused and "uses `torch.ops.aten.save`, which can read or write files" in refused
    wrapped(original, tmp_path, "--allow-dangerous")
    scan = torch2carton("scan", original)
    assert scan.status == 1 and re.search(r"dangerous\s+torch\.save\(.* of `model/code/", scan.stdout), scan


@pytest.mark.parametrize("kind", ["Convolutions", "IntWithDefault", "NamedTupleResult"])
def test_lite_files_run_from_their_source_text(kind, saver, old_script, newest_script, tmp_path):
    original = tmp_path / "model.ptl"
    saver.ask("save_lite", kind=kind, path=str(original))
    carton, archive, outcome = wrapped(original, tmp_path, "--require-model")
    assert "mobile" in outcome.stderr + outcome.stdout
    with zipfile.ZipFile(archive) as file:
        assert not [name for name in file.namelist() if "bytecode" in name]
    for torch in (old_script, newest_script):
        assert torch.ask("compare", original=str(original), wrapped=str(archive), kind=kind) == []
        assert torch.ask("same_state", original=str(original), wrapped=str(archive))
    assert json.loads(succeed("verify", "--json", "--against", original, "--", carton).stdout)["code"] == "equal"
    bytecode = tmp_path / "bytecode.ptl"
    with zipfile.ZipFile(original) as file, zipfile.ZipFile(bytecode, "w") as out:
        for info in file.infolist():
            if "/code/" not in info.filename:
                out.writestr(info, file.read(info))
    assert "the archive has bytecode for mobile devices and no source text" in refuse(bytecode).stderr
    if kind == "Convolutions":
        assert "weights" in succeed(bytecode, "-o", tmp_path / "weights.carton", "--arch", "weights", "--json").stdout


def real(name):
    found = sorted(SHARED.glob(name))
    return found[0] if found else None


NCNN = "corpus-2/Tencent__ncnn"
YOLO = "corpus-2/ultralytics__yolov5/*/info/test/test/cpp"
XY = [["x", ["float32", [3]]], ["y", ["float32", [3]]]]
F32 = "float32"
# Sizes that the weights fit: xnnpack reads past the end of others.
REAL = {
    "corpus/LaurentMazare__ocaml-torch/src/tests/foo.pt": XY,
    "corpus/LaurentMazare__ocaml-torch/src/tests/foo2.pt": XY,
    "corpus/LaurentMazare__tch-rs/tests/foo.pt": XY,
    "corpus/LaurentMazare__tch-rs/tests/foo1.pt": XY,
    "corpus/LaurentMazare__tch-rs/tests/foo2.pt": XY,
    "corpus/LaurentMazare__tch-rs/tests/foo4.pt": [["x", [1.5, 2.5, 3]]],
    "corpus/LaurentMazare__tch-rs/tests/foo5.pt": [["xs", ["texts", "éa", "b"]]],
    "corpus/dotnet__TorchSharp/test/TorchSharpTest/exported.method.dat": XY,
    "corpus/dotnet__TorchSharp/test/TorchSharpTest/func.script.dat": XY,
    "corpus/mlverse__torch/tests/testthat/assets/linear.pt": [["x", [F32, [2, 10]]]],
    "corpus/snakers4__silero-vad/src/silero_vad/data/silero_vad.jit": [["x", [F32, [1, 512]]], ["sr", 16000]],
    "corpus/triton-inference-server__server/qa/*/*/model.pt":
        [["delay_itrs", ["int64", [1]]], ["seq_start", ["int64", [1]]], ["seq_id", ["int64", [1]]], ["seq_state_in", ["int64", [1]]]],
    "corpus-2/RowanG1*/app/src/main/assets/model.ptl": [["x_cat", ["int64", [1, 1]]], ["x_cont", [F32, [4, 3]]]],
    "corpus-2/euxcet*/app/src/main/assets/dynamic.ptl": [["x", [F32, [1, 6, 1, 200]]]],
    "corpus-2/euxcet*/app/src/main/assets/model.ptl": [["x", [F32, [1, 6, 1, 380]]]],
    "corpus-2/euxcet*/app/src/main/assets/gesture.ptl": [["x", [F32, [1, 6, 100]]]],
    "corpus-2/euxcet*/app/src/main/assets/move.ptl": [["x", [F32, [1, 100, 6]]], ["hx", None]],
    "corpus-2/rizki*/app/src/main/assets/model.ptl": [["x", [F32, [2, 5]]]],
    "corpus-2/rizki*/app/src/main/assets/model2.ptl": [["x", [F32, [2, 6]]]],
    "corpus-2/pytorch__android*/*/app/src/main/assets/asl.ptl": [["x", [F32, [1, 3, 200, 200]]]],
    "corpus-2/pytorch__ios*/*/*/NLP/model/reddit.pt": [["byte_input", ["uint8", [1, 7]]]],
    "corpus-2/apple__coremltools/coremltools/converters/torch/test/testdata/DemoNet.pt": [["input", [F32, [1, 3, 64, 64]]]],
    "corpus-2/apple__coremltools/coremltools/converters/torch/test/testdata/DemoNet_reloaded.pt": [["input", [F32, [1, 1, 64, 64]]]],
    f"{YOLO}/lite_interpreter_runtime/to_be_profiled_module.ptl": XY,
    f"{YOLO}/lite_interpreter_runtime/light_model.ptl": [],
    f"{YOLO}/jit/script_module_v4.ptl": [["y", 3]],
    f"{YOLO}/jit/script_module_v5.ptl": [["y", 3]],
    f"{YOLO}/jit/script_module_v6.ptl": [["y", 3]],
    f"{NCNN}/Generate_3d_model/output/3d_net.pt": [["x", [F32, [1, 3, 9, 10, 11]]]],
    f"{NCNN}/tools/pnnx/tests/test_F_pairwise_distance.pt": [["x", [F32, [12, 128]]], ["y", [F32, [12, 128]]]],
    "corpus-2/deepmodeling__deepmd-kit/source/tests/infer/deeppot_sea.pth": [["coord", [F32, [1, 6, 3]]], ["atype", ["int64", [1, 6]]]],
}
# Operators and classes that this version lacks: those of another library, and of mobile devices, which the newest has no more.
LACKS = {"old_script": "deepmd::", "newest_script": "deepmd::|torch.classes.xnnpack"}


@pytest.mark.skipif(not SHARED.is_dir(), reason="there is no ../shared")
@pytest.mark.parametrize("name", REAL)
def test_real_files_compute_the_same(name, request, tmp_path):
    original = real(name)
    assert original, f"{name} is not there"
    assert "dangerous" not in succeed("scan", original).stdout
    before = hashlib.sha256(original.read_bytes()).hexdigest()
    carton, archive, _ = wrapped(original, tmp_path, "--require-model")
    compared = 0
    for fixture_name, lacks in LACKS.items():
        torch = request.getfixturevalue(fixture_name)
        if why := torch.ask("can_run", original=str(original)):
            assert re.search(lacks, why), why
            continue
        assert torch.ask("compare_real", original=str(original), wrapped=str(archive), arguments=REAL[name]) == []
        assert torch.ask("same_state", original=str(original), wrapped=str(archive))
        compared += 1
    assert compared >= 1
    verified = json.loads(succeed("verify", "--json", "--against", original, "--", carton).stdout)
    assert verified["ok"] and verified["code"] == "equal", verified
    assert hashlib.sha256(original.read_bytes()).hexdigest() == before


@pytest.mark.skipif(not SHARED.is_dir(), reason="there is no ../shared")
@pytest.mark.parametrize("name, message", [
    ("corpus/LaurentMazare__tch-rs/tests/foo7.pt", "the class __torch__.TorchScriptExample has no forward"),
])
def test_real_files_without_tensors_that_cannot_be_called(name, message, tmp_path):
    assert message in refuse(real(name), "-o", tmp_path / "x.carton").stderr


@pytest.mark.skipif(not SHARED.is_dir(), reason="there is no ../shared")
def test_operators_of_other_libraries_are_named(tmp_path):
    _, _, outcome = wrapped(real("corpus-2/deepmodeling__deepmd-kit/source/tests/infer/fparam_aparam_default.pth"), tmp_path)
    assert "`deepmd::tabulate_fusion_se_a`" in outcome.stderr


TRITON = {
    "Int": ["--input", "x=float32[n]", "--output-type", "output=float32[n]"],
    "IntWithDefault": ["--input", "x=float32[n]", "--input", "times=int64[]", "--output-type", "output=float32[n]"],
    "OptionalIntWithDefault": ["--input", "x=float32[n]", "--output-type", "output=float32[]"],
}


@pytest.mark.parametrize("kind", TRITON)
def test_a_model_for_triton_returns_what_the_original_returns(kind, saver, loader, tmp_path):
    original = tmp_path / "model.pt"
    saver.ask("save", kind=kind, path=str(original))
    succeed(original, "--to", "triton", "-o", tmp_path / "models", "--name", "model", *TRITON[kind])
    names = ["x", "times"] if kind.startswith("Int") else ["x"]
    path = str(tmp_path / "models/model/1/model.pt")
    assert loader.ask("positional", original=str(original), path=path, kind=kind) == [names, []]
    # The carton of the module becomes the same model.
    carton = tmp_path / "model.carton"
    succeed(original, "-o", carton)
    succeed(carton, "--to", "triton", "-o", tmp_path / "models", "--name", "again", *TRITON[kind])
    path = str(tmp_path / "models/again/1/model.pt")
    assert loader.ask("positional", original=str(original), path=path, kind=kind) == [names, []]
    refuse(original, "--to", "triton", "-o", tmp_path / "models", *TRITON[kind][:-2])
