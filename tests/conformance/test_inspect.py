"""`inspect --json` lists what torch reads, for the suite's checkpoints and the golden ones."""

import hashlib
import json

import pytest
from checkpoints import WEIGHTS
from conftest import GOLDEN
from program import succeed
from worker_client import WorkerError
from sparse import needs_sparse, sparse

FIELDS = "name dtype shape stride storage_offset storage nbytes".split()


def inspect(path, *flags):
    return json.loads(succeed("inspect", "--json", *flags, path).stdout)


def assert_agrees(path, torch, trusted=False):
    wanted = torch.ask("describe_checkpoint", path=str(path), trusted=trusted)["tensors"]
    got = inspect(path, "--sha256")["tensors"]
    assert [t["name"] for t in got] == [t["name"] for t in wanted], "names, in the file's order"
    for ours, theirs in zip(got, wanted):
        assert {f: ours.get(f) for f in [*FIELDS, "sha256"]} == theirs


@pytest.mark.parametrize("saver", ["newest", "old"], ids=["saved-by-newest", "saved-by-2.0.1"])
@pytest.mark.parametrize("kind", WEIGHTS)
def test_own_checkpoints(kind, saver, request, tmp_path):
    torch = request.getfixturevalue(saver)
    path = tmp_path / f"{kind}.pth"
    torch.ask("make", kind=kind, path=str(path))
    assert_agrees(path, torch)


# PyTorch 2.15 reads neither: the first has no root folder, the second no record `version`.
BEYOND_TORCH = {"rootless.pth", "zip_in_root.pth"}


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("checkpoints/**/*.pth")), ids=lambda p: str(p.relative_to(GOLDEN / "checkpoints")))
def test_golden_checkpoints(path, newest):
    if path.name in BEYOND_TORCH:
        with pytest.raises(WorkerError):
            newest.ask("describe_checkpoint", path=str(path))
        assert inspect(path)["tensors"]
    else:
        assert_agrees(path, newest, trusted=True)


def test_json_has_the_documented_members(saved):
    path = saved("sharing")
    answer = inspect(path)
    assert list(answer)[:2] == ["schema_version", "file"] and answer["schema_version"] == 1 and answer["file"] == str(path)
    assert set(answer) == {
        "schema_version", "file", "format", "nbytes", "tensors", "globals", "risks", "value_count", "parameters", "bytes_by_dtype",
        "left_out", "left_out_count", "notes"}
    assert answer["nbytes"] == path.stat().st_size and [answer[m] for m in ("left_out", "left_out_count", "notes")] == [[], 0, []]
    assert answer["parameters"] == sum(answer["bytes_by_dtype"].values()) // 4 and set(answer["bytes_by_dtype"]) == {"float32"}
    assert isinstance(answer["format"], str) and isinstance(answer["globals"], list)
    assert answer["risks"] == dict.fromkeys(answer["globals"], "known")
    for tensor in answer["tensors"]:
        assert set(FIELDS) <= set(tensor) <= {*FIELDS, "sha256", "note"}, tensor
        assert tensor.get("sha256") is None, "a hash without --sha256"
    hashed = inspect(path, "--sha256")["tensors"]
    assert [{f: t[f] for f in FIELDS} for t in hashed] == [{f: t[f] for f in FIELDS} for t in answer["tensors"]]
    assert all(len(t["sha256"]) == 64 for t in hashed)


def test_globals_are_named(saved):
    named = json.dumps(inspect(saved("module_state"))["globals"])
    for name in ("_rebuild_tensor_v2", "OrderedDict", "FloatStorage"):
        assert name in named


def test_a_huge_expanded_view_has_a_note_instead_of_a_hash(tmp_path, newest):
    path = tmp_path / "expanded.pth"
    newest.ask("make_expanded", path=str(path), rows=1 << 20, columns=1 << 12)  # 16 GiB of one float
    (tensor,) = inspect(path, "--sha256")["tensors"]
    assert tensor["shape"] == [1 << 20, 1 << 12] and tensor["nbytes"] == 1 << 34
    assert tensor["sha256"] is None and tensor["note"]


def test_a_small_expanded_view_is_hashed(tmp_path, newest):
    path = tmp_path / "expanded.pth"
    newest.ask("make_expanded", path=str(path), rows=1 << 8, columns=1 << 10)
    (tensor,) = inspect(path, "--sha256")["tensors"]
    assert tensor["sha256"] == hashlib.sha256(b"\0\0\x80\x3f" * (1 << 18)).hexdigest()


def test_the_table_shows_names_shapes_and_totals(saved):
    """The layout of the table may change, but it must show these facts."""
    text = succeed("inspect", saved("llama_bfloat16")).stdout
    for word in ("tok_embeddings.weight", "layers.1.feed_forward.w2.weight", "bfloat16", "96", "192"):
        assert word in text, text
    parameters = 2 * 96 * 64 + 64 + 2 * (4 * 64 * 64 + 3 * 64 * 192 + 2 * 64) + 8
    assert any(form in text for form in (f"{parameters / 1e3:.2f} K", f"{parameters / 1e3:.2f} k", f"{parameters:,}", str(parameters))), text


@needs_sparse
def test_the_table_of_llama_3_1_8b(tmp_path):
    """The real layout, 16 GB of holes."""
    shape = "--layers 32 --dim 4096 --kv-dim 1024 --ff 14336 --vocab 128256".split()
    path = sparse(tmp_path / "consolidated.00.pth", "--llama", *shape)
    text = succeed("inspect", path).stdout
    assert "8.03 B" in text and "291" in text and "[128256, 4096]" in text
    for word in ("container", "tensors", "parameters", "bfloat16", "globals"):
        assert word in text.split("ffn_norm")[-1], f"{word} is not in the summary after the table"


def test_single_shards_can_be_inspected(saved, tmp_path):
    for i in range(2):
        saved("dtypes", f"consolidated.{i:02}.pth")
    assert len(inspect(tmp_path / "consolidated.01.pth")["tensors"]) == 12
