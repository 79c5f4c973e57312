"""Every kind of object in every container and protocol: `inspect --json` lists what torch, pickle or safetensors reads.

If torch can't read what it wrote (protocol 0), or reads it wrongly (matrix.MISREAD), both a listing and an error are accepted.
"""

import json

import matrix
import pytest
from program import torch2carton


def ours(path):
    """Our rows, or the text of the error."""
    answer = torch2carton("inspect", "--json", "--sha256", path)
    if answer.status != 0:
        assert answer.status == 1 and answer.stderr.startswith("error: "), answer
        return answer.stderr.strip().removeprefix(f"error: {path}: ")
    return json.loads(answer.stdout)["tensors"]


def difference(rows, theirs):
    """None, or the first difference between our rows and the facts in theirs."""
    if isinstance(rows, str):
        return f"refused: {rows}"
    if [row["name"] for row in rows] != [row["name"] for row in theirs]:
        return f"names {[row['name'] for row in rows]}, not {[row['name'] for row in theirs]}"
    for row, wanted in zip(rows, theirs):
        for fact, value in wanted.items():
            if row.get(fact) != value:
                return f"`{row['name']}`: {fact} {row.get(fact)}, not {value}"
    return None


def wrong(name, file):
    """None, or why the result for a file is wrong."""
    if "unwritten" in file:
        return None
    if "error" in file["read"] or (name, file["writer"]) in matrix.MISREAD:
        ours(file["path"])  # asserts that there was no panic
        return None
    return difference(ours(file["path"]), file["read"]["rows"])


@pytest.mark.parametrize("saver", ["NEWEST", "OLD"])
@pytest.mark.parametrize("group, name", [(group, name) for group, named in matrix.OBJECTS.items() for name in named])
def test_objects(group, name, saver, matrix_workers, tmp_path):
    # Only NumPy arrays are written as bare pickles too.
    ways = [*(matrix.WRITERS if name in matrix.ARRAYS else matrix.SAVED)]
    if name in matrix.SCRIPTED.get(group, ()):
        ways.append("TorchScript")
    made = matrix_workers(saver).ask("make", group=group, name=name, writers=ways, folder=str(tmp_path))
    if "cannot" in made:
        assert saver == "OLD", made["cannot"]
        pytest.skip(f"this torch cannot make the object: {made['cannot']}")
    if not any("rows" in file.get("read", ()) for file in made["files"]):
        assert saver == "OLD", made["files"]
        pytest.skip("this torch cannot write the object, or cannot read what it wrote")
    assert {file["writer"]: why for file in made["files"] if (why := wrong(name, file))} == {}


@pytest.mark.parametrize("saver", ["NEWEST", "OLD"])
@pytest.mark.parametrize("writer", matrix.ALL_WRITERS)
def test_containers(writer, saver, matrix_workers, tmp_path):
    file = matrix_workers(saver).ask("container", writer=writer, path=str(tmp_path / "model.pt"))
    if "unwritten" in file:
        assert saver == "OLD", file["unwritten"]
        pytest.skip(f"this torch cannot write the file: {file['unwritten']}")
    assert wrong(writer, file) is None
