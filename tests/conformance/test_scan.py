"""If a scan reports `clean`, Python loads the file and calls nothing."""

import json
import os
import random
import re
import subprocess

import pytest
import runs
from conftest import GOLDEN, worker_fixture
from program import torch2carton

FOLDERS = ("malicious", "malicious", "malicious", "hostile", "checkpoints")
FILES = [f for d in FOLDERS for f in sorted((GOLDEN / d).rglob("*")) if f.is_file() and f.suffix != ".md" and f.stat().st_size < 20000]


python = worker_fixture("NEWEST", "payload_worker.py")


def damaged(random, data):
    """The bytes with some of them changed, removed, inserted, repeated, or replaced by bytes of another file."""
    for _ in range(random.choice([1, 1, 2, 4, 16])):
        at, kind = random.randrange(len(data) + 1), random.randrange(5)
        if kind == 0 and at < len(data):
            data[at] = random.choice([0, 1, 255, 128, *b".(R0", random.randrange(256)])
        elif kind == 1:
            del data[at : at + random.randrange(8)]
        elif kind == 2:
            data[at:at] = bytes(random.randrange(256) for _ in range(random.randrange(8)))
        elif kind == 3:
            start = random.randrange(len(data) + 1)
            data[at:at] = data[start : start + random.randrange(64)]
        else:
            other = random.choice(FILES).read_bytes()
            start = random.randrange(len(other) + 1)
            data[at : at + random.randrange(20)] = other[start : start + random.randrange(200)]
    return data


def test_the_column_runs_of_the_document_is_right():
    """docs/scan.md has a row for each file of malicious/, which shows whether Python runs something when it loads the file."""
    files = [f for f in sorted((GOLDEN / "malicious").iterdir()) if f.suffix != ".md"]
    found = {file.name: runs.runs(answer) for file, answer in runs.judged(files, os.environ["T2C_NEWEST"]).items()}
    text = (GOLDEN.parent.parent / "docs/scan.md").read_text()
    column = dict(re.findall(r"^\| `(\S+)` \| (yes|no) \|", text, re.M))
    if subprocess.run([os.environ["T2C_NEWEST"], "-c", "import joblib"], capture_output=True).returncode:
        # The document is made where joblib is installed, which loads its files.
        assert (column.pop("objects.joblib"), found.pop("objects.joblib")) == ("yes", "no")
    assert column == found


def test_ordinary_files_run_nothing():
    """Otherwise the audit hook would mistake what loading itself does for a payload."""
    files = [f for f in sorted((GOLDEN / "checkpoints").iterdir()) if f.is_file()]
    answers = runs.judged(files, os.environ["T2C_NEWEST"])
    assert {file.name: answer["what"] for file, answer in answers.items() if answer["outcome"] in ("stopped", "crashed")} == {}


def test_the_stand_ins_are_reached(python):
    """Otherwise the other checks would prove nothing."""
    reached = [f.name for f in sorted((GOLDEN / "malicious").glob("*.p*")) if python.ask("calls", path=str(f))]
    assert len(reached) > 25, reached


@pytest.mark.parametrize("seed", range(4))
def test_clean_files_call_nothing(seed, tmp_path, python):
    chosen = random.Random(seed)
    for number in range(1000):
        (tmp_path / f"{number}.pth").write_bytes(damaged(chosen, bytearray(chosen.choice(FILES).read_bytes())))
    objects = [json.loads(line) for line in torch2carton("scan", "--json", tmp_path).stdout.splitlines()]
    clean = [o["file"] for o in objects if o["verdict"] == "clean"]
    assert len(objects) > 900 and clean, "no clean file is left to load"
    assert [file for file in clean if python.ask("calls", path=file)] == []
