"""Random objects and random pickle programs: `inspect` lists what torch reads from them, or refuses them for a listed reason.

The seeds are fixed, so a failure repeats. T2C_DIFFERENTIAL sets the number of seeds, and T2C_DIFFERENTIAL_START the first one:

    T2C_DIFFERENTIAL=5000 tests/conformance/run.py test_differential.py
"""

import collections
import json
import os
import re

import pytest
from conftest import worker
from program import torch2carton
from test_matrix import difference

COUNT = int(os.environ.get("T2C_DIFFERENTIAL", 400))
START = int(os.environ.get("T2C_DIFFERENTIAL_START", 0))
BATCH = 50

# Why an object that torch reads may be refused.
REFUSED = [
    r"two tensors have the name `",  # `inspect` tells tensors apart by name: the keys 1 and '1', or a tensor `a.b` and a dict `a`
]
# A program may be refused for any reason: no torch writes it. It must not be read as something else.


@pytest.fixture(scope="module", params=["NEWEST", "OLD"])
def torch(request):
    process = worker(request.param, "differential_worker.py")
    yield process
    process.close()


def inspected(paths):
    """By path, our report or the text of our error."""
    answer = torch2carton("inspect", "--all", "--json", "--sha256", *paths, timeout=600)
    found = {report["file"]: report for report in map(json.loads, answer.stdout.splitlines()) if "error" not in report}
    for path in set(paths) - found.keys():
        line = re.search(rf"^error: {re.escape(path)}: (.*)$", answer.stderr, re.M)
        assert line, f"{path} has neither a report nor an error: {answer.stderr[-2000:]}"
        found[path] = line[1]
    return found


def batches(kind, torch, folder):
    """(seed, what torch made and read, our report or error) for every seed that torch could save."""
    for first in range(START, START + COUNT, BATCH):
        seeds = list(range(first, min(first + BATCH, START + COUNT)))
        made = [file for file in torch.ask(kind, seeds=seeds, folder=str(folder)) if "path" in file]
        found = inspected([file["path"] for file in made])
        for file in made:
            yield file["seed"], file, found[file["path"]]
            os.unlink(file["path"])


def value_difference(report, wanted):
    """None, or the first number or text that is missing or different."""
    ours = collections.Counter(json.dumps([value["path"], value["type"], value["value"]]) for value in report["values"])
    for row in wanted:
        if not ours[json.dumps(row)]:
            return f"the value {row} is not among {[value for value in report['values'] if value['path'] == row[0]]}"
        ours[json.dumps(row)] -= 1
    return None


def comparable(rows):
    """The rows with their storages numbered again, without those of tensors that have no elements.

    PyTorch 2.0.1 gives two such tensors of one storage two storages.
    """
    storages = {}
    for row in rows:
        storage = row.get("storage")
        numbered = None if storage is None or not row.get("nbytes") else storages.setdefault(storage, len(storages))
        yield row | ({"storage": numbered} if "storage" in row else {})


def compare(ours, theirs):
    """None, or the first difference between two lists of rows."""
    if len(ours) == len(theirs):
        ours = [row | ({"storage": None} if wanted["storage"] is None else {}) for row, wanted in zip(ours, theirs)]
    return difference([*comparable(ours)], [*comparable(theirs)])


def report(wrong):
    """The first few differences; the seeds say how to repeat them."""
    return "\n".join([f"{len(wrong)} of {COUNT} seeds differ", *(f"seed {seed}: {why[:600]}" for seed, why in [*wrong.items()][:12])])


def test_random_objects_are_read_as_torch_reads_them(torch, tmp_path, table):
    counts, wrong = collections.Counter(), {}
    for seed, file, ours in batches("objects", torch, tmp_path):
        (read,) = file["reads"]
        if "rows" not in read:
            counts["unreadable for torch"] += 1
            continue
        if isinstance(ours, str):
            counts["refused"] += 1
            if not any(re.search(reason, ours) for reason in REFUSED):
                wrong[seed] = f"refused: {ours}"
            continue
        counts["read"] += 1
        counts["tensors"] += len(ours["tensors"])
        counts["values"] += len(file["values"])
        if why := compare(ours["tensors"], read["rows"]) or value_difference(ours, file["values"]):
            wrong[seed] = why
    table(f"differential, objects, seeds {START} to {START + COUNT - 1}: {dict(counts)}")
    assert counts["read"] > COUNT // 2
    assert not wrong, report(wrong)


def test_random_programs_are_read_as_torch_reads_them_or_refused(torch, tmp_path, table):
    counts, wrong = collections.Counter(), {}
    for seed, file, ours in batches("programs", torch, tmp_path):
        theirs = [read["rows"] for read in file["reads"] if "rows" in read]
        if not theirs:
            counts["unreadable for torch" if not isinstance(ours, str) else "refused by both"] += 1
        elif isinstance(ours, str):
            counts["refused"] += 1
        else:
            counts["read"] += 1
            # Torch reads some programs in two ways, depending on whether it trusts the file.
            differences = [compare(ours["tensors"], rows) for rows in theirs]
            if all(differences):
                wrong[seed] = differences[0]
    table(f"differential, programs, seeds {START} to {START + COUNT - 1}: {dict(counts)}")
    assert counts["read"] > COUNT // 20
    assert not wrong, report(wrong)
