"""`batch` killed with `kill -9` at many moments: the next one goes on, each input has one result, and each output is what `convert` writes."""

import hashlib
import json
import os
import random
import signal
import subprocess
import time

from program import BINARY, CLEAN, succeed, torch2carton

KILLS = int(os.environ.get("T2C_KILLS", "200"))
INPUTS, DAMAGED, HOSTILE = 300, 5, 3
COMMAND = ["batch", "m.jsonl", "-o", "out", "--to", "safetensors", "--results", "r.jsonl", "--resume", "-q"]


def write_safetensors(path, seed):
    """A file with two tensors that no other file has."""
    noise = random.Random(seed)
    tensors, data = {}, b""
    for name, length in [("weight", noise.randrange(1 << 10, 1 << 18) * 4), ("bias", 64)]:
        tensors[name] = {"dtype": "F32", "shape": [length // 4], "data_offsets": [len(data), len(data) + length]}
        data += noise.randbytes(length)
    header = json.dumps(tensors).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


def write_inputs(folder, count=INPUTS):
    """Writes the inputs and a manifest. Returns the names of those that cannot be converted."""
    names = [f"{number:03}.safetensors" for number in range(count)]
    for number, name in enumerate(names):
        write_safetensors(folder / name, number)
    refused = random.Random(0).sample(names, DAMAGED + HOSTILE)
    for name in refused[:DAMAGED]:
        path = folder / name
        path.write_bytes(path.read_bytes()[:-7])
    for name in refused[DAMAGED:]:
        (folder / name).write_bytes(b"cposix\nsystem\n(Vtouch hit\ntR.")
    (folder / "m.jsonl").write_text("".join(json.dumps({"input": name}) + "\n" for name in names))
    return names, set(refused)


def hashes(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if not path.name.startswith(".")}


def results(folder):
    """The whole lines; a line that was cut is the last one."""
    path = folder / "r.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def test_a_killed_batch_goes_on(tmp_path, table):
    names, refused = write_inputs(tmp_path)
    local = tmp_path / "local"
    each = torch2carton("--each", "--to", "safetensors", "-o", local, "-q", *(tmp_path / name for name in names), timeout=600)
    assert each.status == 1
    expected = hashes(local)
    assert expected.keys() == set(names) - refused
    moments = random.Random(1)
    kills, finished, repeated = KILLS // 10 or 1, 0, 0
    for kill in range(kills):
        if finished == kill:  # from the start after each batch that ended
            for path in [*(tmp_path / "out").glob("*"), *tmp_path.glob("r.jsonl")]:
                path.unlink()
        before = len(results(tmp_path))
        running = subprocess.Popen([BINARY, *COMMAND, "--jobs", str(1 + kill % 2)], cwd=tmp_path, env=CLEAN, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            running.wait(moments.uniform(0, 1.5))
            finished = kill + 1
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
            running.wait()
        found = results(tmp_path)
        inputs = [line["input"] for line in found]
        assert len(set(inputs)) == len(inputs) >= before, "an input has two results"
        done = {name: value for name, value in hashes(tmp_path / "out").items()} if (tmp_path / "out").exists() else {}
        assert done.items() <= expected.items(), "an output is not whole"
        repeated += len(done) - sum(line["status"] == "ok" for line in found)
    ended = torch2carton(*COMMAND, cwd=tmp_path, timeout=600)
    assert ended.status == 1, ended
    found = {line["input"]: line for line in results(tmp_path)}
    assert found.keys() == set(names) and len(results(tmp_path)) == len(names)
    assert {name for name, line in found.items() if line["status"] == "failed"} == refused
    assert hashes(tmp_path / "out") == expected
    assert not list((tmp_path / "out").glob(".torch2carton-*")), "a temporary file is left"
    for name in names[:5]:
        if name not in refused:
            assert succeed("digest", name, cwd=tmp_path).stdout.split()[0] == found[name]["digest"]
    assert not (tmp_path / "hit").exists()
    stamps = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    again = (tmp_path / "r.jsonl").read_bytes()
    assert torch2carton(*COMMAND, cwd=tmp_path).status == 1
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == stamps, "a whole output was made again"
    assert (tmp_path / "r.jsonl").read_bytes() == again
    table(f"{kills} kills of a batch of {INPUTS} inputs: one result each; {repeated} outputs were whole before their result was written")


def test_two_batches_do_not_share_results(tmp_path):
    names, _ = write_inputs(tmp_path, 40)
    first = subprocess.Popen([BINARY, *COMMAND, "--jobs", "1"], cwd=tmp_path, env=CLEAN, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not (tmp_path / "r.jsonl").exists():
            time.sleep(0.001)
        second = torch2carton(*COMMAND, cwd=tmp_path)
        first.wait(60)
    finally:
        first.kill()
        first.wait()
    assert second.status in (1, 2), second
    assert second.status == 1 or "in use by another batch" in second.stderr
    assert len(results(tmp_path)) == len(names)
