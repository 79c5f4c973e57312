"""A scan calls none of the payloads clean that a seed composes of a pickle's primitives."""

import json
from collections import Counter

import payloads
from attacks import ATTACKS, CHECKPOINTS
from program import torch2carton


def verdicts(folder):
    scans = [json.loads(line) for line in torch2carton("scan", "--json", folder).stdout.splitlines()]
    return {scan["file"].rpartition("/")[2]: scan["verdict"] for scan in scans}


def test_composed_payloads_are_found(tmp_path):
    steps = payloads.write(tmp_path / "files", count=200)
    found = verdicts(tmp_path / "files")
    assert len(found) == 200 + len(payloads.FOUND)
    missed = {file: steps.get(file) for file, verdict in found.items() if verdict not in ("unknown", "unsafe")}
    assert missed == {}
    # Most of them also name something that is dangerous by itself.
    assert Counter(found.values())["unsafe"] > 150


def test_attacks_by_hand_are_found(tmp_path):
    for title, body in ATTACKS.items():
        (tmp_path / f"{title}.pkl").write_bytes(payloads.PROTO + body + b".")
    missed = {file: verdict for file, verdict in verdicts(tmp_path).items() if verdict not in ("unknown", "unsafe")}
    assert missed == {}


def test_checkpoints_by_hand_are_found_or_not_read(tmp_path):
    for title, data in CHECKPOINTS.items():
        (tmp_path / f"{title}.pth").write_bytes(data)
    missed = {file: verdict for file, verdict in verdicts(tmp_path).items() if verdict not in ("unknown", "unsafe", "incomplete")}
    assert missed == {}


def test_unknown_payloads_fail_with_deny_unknown(tmp_path):
    payloads.write(tmp_path / "files", count=1)
    for file, verdict in verdicts(tmp_path / "files").items():
        plain = torch2carton("scan", tmp_path / "files" / file).status
        strict = torch2carton("scan", "--deny-unknown", tmp_path / "files" / file).status
        assert (plain, strict) == {"unknown": (0, 1), "unsafe": (1, 1)}[verdict], file
