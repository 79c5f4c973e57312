"""Checkpoints that the program writes: `torch.load(weights_only=True)` of the newest torch and of 2.0.1 reads the tensors of the source.

The facts of the source are what its own loader reads, or, for the collected files, what their loaders read when they were collected.
"""

import csv
import json

import matrix
import pytest
from conftest import SHARED
from program import torch2carton

FACTS = "dtype shape stride nbytes sha256".split()


def comparable(rows):
    """The facts of tensors, and for each the first tensor that shares its storage."""
    first = {}
    return [[row["name"], row["storage_offset"], *(row[fact] for fact in FACTS), first.setdefault(row["storage"], row["name"])] for row in rows]


def convert(source, output):
    """The report; None if a checkpoint of plain tensors cannot hold the tensors, or no output can."""
    options = source, "--allow-dangerous", "--json", "-o"
    outcome = torch2carton(*options, output)
    if outcome.status:
        is_whole = torch2carton(*options, output.with_suffix(".carton"), "--torch", "newest", "--dry-run").status == 0
        assert not is_whole or "a checkpoint of plain tensors cannot hold" in outcome.stderr, outcome
        return None
    return json.loads(outcome.stdout)


def listed(file):
    outcome = torch2carton("inspect", "--json", "--sha256", file)
    assert outcome.status == 0, outcome
    return json.loads(outcome.stdout)["tensors"]


def written(path, source):
    """What `inspect` lists for the output. The source has each tensor, under this name or one that ends in it.

    A storage of which few bytes are used is cut, so the offset can be another one.
    """
    rows = listed(path)
    theirs = {(row["name"], *map(str, (row[fact] for fact in FACTS))) for row in listed(source) if row["storage"] is not None}
    names = {name for name, *_ in theirs}
    for row in rows:
        same = [name for name in names if name == row["name"] or name.endswith(f".{row['name']}")] or [""]
        facts = [str(row[fact]) for fact in FACTS]
        assert any((name, *facts) in theirs for name in same), row
    return rows


def assert_both_read(matrix_workers, path, rows, report):
    """The newest torch reads all of `rows`, and so does 2.0.1 unless the program says that it cannot."""
    is_newer = any(note.startswith("PyTorch 2.0 cannot load ") for note in report["notes"])
    for key in ("NEWEST", "OLD"):
        answer = matrix_workers(key).ask("weights_only", path=str(path))
        if key == "OLD" and is_newer:
            assert "_rebuild_tensor_v3" in answer["error"], answer
            continue
        assert "rows" in answer, (key, answer)
        assert comparable(answer["rows"]) == comparable(rows), key


OBJECTS = matrix.OBJECTS | matrix.FOR_OUTPUT


@pytest.mark.parametrize("group, name", [(group, name) for group, named in OBJECTS.items() for name in named])
def test_objects(group, name, matrix_workers, tmp_path):
    made = matrix_workers("NEWEST").ask("make", group=group, name=name, writers=["zip, protocol 2"], folder=str(tmp_path))
    if "cannot" in made or not any("rows" in file.get("read", ()) for file in made["files"]):
        pytest.skip("this torch cannot make the object, or cannot read what it wrote")
    (file,) = made["files"]
    if report := convert(file["path"], tmp_path / "out.pth"):
        assert_both_read(matrix_workers, tmp_path / "out.pth", written(tmp_path / "out.pth", file["path"]), report)


def collected():
    """The files of both corpora, and for each the facts that are known of its tensors: dtype, shape and hash."""
    files = {}
    if (listed := SHARED / "corpus/PROVENANCE.tsv").is_file():
        with open(listed, newline="") as rows:
            for row in csv.DictReader(rows, delimiter="\t", quoting=csv.QUOTE_NONE):
                expected = json.loads((SHARED / f"corpus/expected/{row['file']}.json").read_text())["tensors"]
                files[f"corpus/{row['file']}"] = {
                    name: [fact["dtype"], fact["shape"], fact["sha256"]] for name, fact in expected.items() if "sha256" in fact}
    if (listed := SHARED / "corpus-2/expected.json").is_file():
        files |= {f"corpus-2/{file}": expected for file, expected in json.loads(listed.read_text()).items()}
    return files


COLLECTED = collected()


@pytest.mark.parametrize("file", COLLECTED)
def test_collected_files(file, matrix_workers, tmp_path):
    """Only what the program wrote is loaded here, never a collected file."""
    report = convert(SHARED / file, tmp_path / "out.pth")
    if report is None:
        pytest.skip("its tensors cannot be in a checkpoint")
    rows = written(tmp_path / "out.pth", SHARED / file)
    for row in rows:
        if wanted := COLLECTED[file].get(row["name"]):
            assert [row["dtype"], row["shape"], row["sha256"]] == wanted, row["name"]
    assert_both_read(matrix_workers, tmp_path / "out.pth", rows, report)
