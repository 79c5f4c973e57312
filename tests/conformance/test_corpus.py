"""Real files of other projects: `inspect --json` lists what their loaders returned when the files were collected.

docs/corpus.md has a row for every file where the two differ, and for every file that no loader reads. A difference that is not
in the table fails, and so does a row whose difference no longer exists.
"""

import csv
import json
import math
import re
from pathlib import Path

import pytest
from conftest import SHARED
from program import torch2carton
from test_inspect import assert_agrees

CORPUS = SHARED / "corpus"
TABLE = Path(__file__).resolve().parent.parent.parent / "docs/corpus.md"
FIELDS = "dtype shape stride storage_offset nbytes sha256".split()
NUMPY = {
    "f8": "float64", "f4": "float32", "f2": "float16", "i8": "int64", "i4": "int32", "i2": "int16", "i1": "int8",
    "u8": "uint64", "u4": "uint32", "u2": "uint16", "u1": "uint8", "b1": "bool", "c16": "complex128", "c8": "complex64",
}


def corpus():
    """A row of PROVENANCE.tsv for every file."""
    listed = CORPUS / "PROVENANCE.tsv"
    if not listed.is_file():
        return []
    with open(listed, newline="") as rows:
        return list(csv.DictReader(rows, delimiter="\t", quoting=csv.QUOTE_NONE))


def table():
    """file → its second column in docs/corpus.md."""
    cells = [line.strip("|\n ").split(" | ") for line in open(TABLE, encoding="utf-8") if line.startswith("| `")]
    return {cell[0].strip("` "): cell[1].strip() for cell in cells}


def expectation(file):
    return json.loads((CORPUS / f"expected/{file}.json").read_text())


def is_read(expected):
    """Whether a loader read the file: torch in some way, pickle, or safetensors, which does not have a separate field."""
    return "ok" in expected.values() or (expected["container"] == "safetensors" and bool(expected["tensors"]))


def outcome(path, expected):
    """The text that docs/corpus.md needs for a file, or None if it needs no row."""
    answer = torch2carton("inspect", "--json", "--sha256", "--all", path)  # asserts that the program did not panic
    if answer.status != 0:
        assert answer.status == 1, answer
        return "refused: " + answer.stderr.strip().removeprefix(f"error: {path}: ")
    found = json.loads(answer.stdout)
    tensors = {t["name"]: t for t in found["tensors"]}
    if not is_read(expected):
        return f"lists {len(tensors)} tensors, {len(found['values'])} values"
    text = [
        *differences(tensors, expected["tensors"]),
        *arrays(tensors, expected["leaves"]),
        *values(found["values"], expected["leaves"]),
        *sharing(tensors, expected["tensors"]),
    ]
    more = [n for n in tensors if n not in expected["tensors"] and n not in expected["leaves"]]
    if more:
        text.append("also lists " + ", ".join(f"`{n}`" for n in more))
    return "; ".join(text) or None


def differences(tensors, wanted):
    for name, theirs in wanted.items():
        for field in FIELDS if name in tensors else ():
            if field in theirs and tensors[name][field] != theirs[field]:
                yield f"`{name}`: {field} {tensors[name][field]}, not {theirs[field]}"
    if lost := [n for n in wanted if n not in tensors]:
        yield f"lacks {lost}"


def arrays(tensors, leaves):
    for name, leaf in leaves.items():
        if leaf["kind"] == "ndarray":
            wanted = {f: leaf[f] for f in ("shape", "sha256", "nbytes")} | {"dtype": NUMPY[leaf["dtype"].lstrip("<>|=")]}
            size = leaf["nbytes"] // max(1, math.prod(leaf["shape"]))
            wanted["stride"] = [step // size for step in leaf["strides_bytes"]]
            ours = tensors.get(name, {})
            if {f: ours.get(f) for f in wanted} != wanted:
                yield f"array `{name}` differs"


def values(found, leaves):
    ours = {v["path"]: v.get("value") for v in found}
    for name, leaf in leaves.items():
        if leaf["kind"] in ("int", "bool", "str", "NoneType", "float"):
            value = ours.get(name, "nothing")
            if isinstance(value, dict) and "$int" in value:
                value = int(value["$int"])
            if value != leaf["value"]:
                yield f"value `{name}` is {value}, not {leaf['value']}"


def sharing(tensors, wanted):
    """Two tensors must share a storage in one listing exactly if they do in the other."""
    pairs = {(tensors[n]["storage"], t["storage_group"]) for n, t in wanted.items() if n in tensors and "storage_group" in t}
    if len({ours for ours, _ in pairs}) != len(pairs) or len({theirs for _, theirs in pairs}) != len(pairs):
        yield "different tensors share storage"


needs_corpus = pytest.mark.skipif(not corpus(), reason="there is no ../shared/corpus")


@needs_corpus
@pytest.mark.whole
@pytest.mark.parametrize("row", corpus(), ids=lambda row: row["file"])
def test_real_files(row, newest):
    path, expected = CORPUS / row["file"], expectation(row["file"])
    assert outcome(path, expected) == table().get(row["file"])
    if expected.get("weights_only_true") == "ok":  # torch loads these without executing them, so the check asks it again
        assert_agrees(path, newest)


@needs_corpus
def test_the_table_lists_only_files_of_the_corpus():
    assert set(table()) <= {row["file"] for row in corpus()}


@needs_corpus
def test_the_counts_in_the_text_are_right():
    read = [row["file"] for row in corpus() if is_read(expectation(row["file"]))]
    equal = [file for file in read if file not in table()]
    text = re.sub(r"\s+", " ", TABLE.read_text())
    assert f"{len(corpus())} files" in text
    assert f"{len(equal)} of the {len(read)} files that a loader reads are equal" in text
    assert f"{len(corpus()) - len(read)} files that no loader reads" in text


if __name__ == "__main__":  # the rows that docs/corpus.md needs; T2C_BINARY names the program
    for row in corpus():
        if text := outcome(CORPUS / row["file"], expectation(row["file"])):
            print(f"| `{row['file']}` | {text} |")
