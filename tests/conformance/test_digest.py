"""`digest`: the same for the same tensors in every container, and for a second implementation (digest.py)."""

import json

import digest as second
import matrix
import pytest
import torch
from conftest import SHARED
from program import succeed, torch2carton
from test_corpus import CORPUS, corpus

#: What a name of the matrix is about when its rows say too little to compute the digest from them.
COMPOUND = ("quantizer", "layout")


def ours(path, *arguments):
    """The digest, or None if the file is refused."""
    outcome = torch2carton("digest", "-q", *arguments, path)
    assert outcome.status in (0, 1), outcome
    return outcome.stdout[:64] if outcome.status == 0 else None


def converted(path, folder, *arguments):
    """The digests of all outputs that can be made of a file."""
    found = {}
    for kind in "safetensors", "pth", "carton":
        output = folder / f"converted.{kind}"
        newest = ["--torch", "newest"] if kind == "carton" else []
        made = torch2carton(path, "-q", "--digest", "--json", "--force", "-o", output, *newest, *arguments)
        if made.status == 0:
            # A carton that keeps the code of a module is selected from as such a module is.
            found[kind] = ours(output, "--key", "")
            assert json.loads(made.stdout)["digest"] == found[kind], f"{path} as {kind}"
        if kind == "safetensors" and made.status == 0:
            assert second.digest(second.safetensors_lines(output)) == found[kind], path
        if output.is_file():
            output.unlink()
    return found


@pytest.mark.parametrize("group", matrix.OBJECTS)
def test_the_type_matrix(group, newest, matrix_workers, tmp_path):
    """Each object has one digest in all containers and protocols, in all outputs, and by digest.py from torch's rows."""
    compared = 0
    for name in matrix.OBJECTS[group]:
        made = matrix_workers("NEWEST").ask("make", group=group, name=name, writers=[*matrix.SAVED], folder=str(tmp_path))
        digests = {}
        for file in made.get("files", []):
            rows = file.get("read", {}).get("rows")
            if rows is None or (name, file["writer"]) in matrix.MISREAD:
                continue
            found = ours(file["path"], "--key", "")
            if found is None:
                continue
            digests[file["writer"]] = found
            if not any(fact in row for row in rows for fact in COMPOUND) and all(row.get("sha256") for row in rows):
                lines = [second.line(row["name"] or "tensor", row["dtype"], row["shape"], row["sha256"]) for row in rows]
                assert second.digest(lines) == found, (name, file["writer"])
                compared += 1
        assert len(set(digests.values())) <= 1, (name, digests)
        if digests:
            path = next(file["path"] for file in made["files"] if file["writer"] in digests)
            for kind, found in converted(path, tmp_path, "--key", "").items():
                assert found == next(iter(digests.values())), (name, kind)
    assert compared or group not in ("dtypes", "views")


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not there")
@pytest.mark.parametrize("part", range(8))
def test_real_files(part, tmp_path):
    """Each real file that is read has one digest, and so have its outputs."""
    done = 0
    more = (path for path in sorted((SHARED / "corpus-2").rglob("*")) if path.suffix not in (".json", ".md", ".tsv"))
    for path in [*(CORPUS / row["file"] for row in corpus()), *more][part::8]:
        if not path.is_file() or path.stat().st_size > 64 << 20:
            continue
        found = ours(path)
        if found is None:
            continue
        assert {*converted(path, tmp_path).values()} <= {found}, path
        done += 1
    assert done


def test_ties_shards_and_strange_names(tmp_path):
    weight = torch.randn(40, 8)
    names = ['quote"', "back\\slash", "line\nend", "tab\t", "del\x7f", "é", "😀", "\u2028"]
    model = {"embed": weight, "head": weight} | {name: torch.full((3, 8), float(i)) for i, name in enumerate(names)}
    torch.save(model, tmp_path / "model.pth")
    expected = second.digest(
        second.line(name, "float32", tensor.shape, tensor.numpy().tobytes()) for name, tensor in model.items())
    assert ours(tmp_path / "model.pth") == expected
    succeed(tmp_path / "model.pth", "-q", "-o", tmp_path / "model.safetensors")
    assert ours(tmp_path / "model.safetensors") == expected
    assert second.digest(second.safetensors_lines(tmp_path / "model.safetensors")) == expected
    succeed(tmp_path / "model.pth", "-q", "-o", tmp_path / "shards", "--to", "safetensors", "--max-shard-size", "500B")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    assert ours(tmp_path / "shards") == expected
