"""`inspect --json` lists what torch reads, for the suite's checkpoints and the golden ones."""

import hashlib
import json

import pytest
from checkpoints import WEIGHTS
from conftest import GOLDEN
from program import succeed
from worker_client import WorkerError

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
