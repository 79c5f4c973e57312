"""`torch2carton.fleet` on a Ray cluster of two nodes on this machine: workers, a node and the driver are killed."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from conftest import write_safetensors

ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402

INPUTS, DAMAGED, HOSTILE = 300, 5, 3
FLEET = [sys.executable, "-m", "torch2carton.fleet", "m.jsonl", "--to", "safetensors", "-o", "out", "--results", "r.jsonl"]


@pytest.fixture(scope="module")
def cluster():
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False})
    made.second = made.add_node(num_cpus=2, object_store_memory=100 << 20)
    yield made
    made.shutdown()


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    """The names of checkpoints, and of those that cannot be converted; the manifest is m.jsonl in the working directory."""
    monkeypatch.chdir(tmp_path)
    names = [f"{number:03}.safetensors" for number in range(INPUTS)]
    noise = random.Random(0)
    for name in names:
        size = noise.randrange(1 << 10, 1 << 18) * 4
        header = json.dumps({"weight": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
        Path(name).write_bytes(len(header).to_bytes(8, "little") + header + noise.randbytes(size))
    refused = noise.sample(names, DAMAGED + HOSTILE)
    for name in refused[:DAMAGED]:
        Path(name).write_bytes(Path(name).read_bytes()[:-7])
    for name in refused[DAMAGED:]:
        Path(name).write_bytes(b"cposix\nsystem\n(Vtouch hit\ntR.")
    Path("m.jsonl").write_text("".join(json.dumps({"input": name}) + "\n" for name in names))
    return names, set(refused)


def hashes(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in Path(folder).iterdir()}


def whole_lines():
    lines = Path("r.jsonl").read_bytes().split(b"\n")[:-1] if Path("r.jsonl").exists() else []
    return [json.loads(line) for line in lines]


def start(cluster):
    return subprocess.Popen([*FLEET, "--ray-address", cluster.address], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for_lines(count, process):
    """Waits until that many results are there."""
    end = time.monotonic() + 120
    while len(whole_lines()) < count:
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < end, "there are no results"
        time.sleep(0.02)


def workers():
    """The processes that work on a task of a fleet."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and (folder / "cmdline").read_bytes().startswith(b"ray::_run"):
                found.append(int(folder.name))
        except OSError:
            pass
    return found


def test_nothing_is_lost_or_done_twice(cluster, inputs):
    names, refused = inputs
    local = [sys.executable, "-m", "torch2carton", "batch", "m.jsonl", "--to", "safetensors", "-o", "local", "-q"]
    done = subprocess.run(local, capture_output=True, text=True)
    expected = {line["input"]: line for line in map(json.loads, done.stdout.splitlines())}
    outputs = hashes("local")
    assert outputs.keys() == set(names) - refused

    first = start(cluster)
    wait_for_lines(10, first)
    killed = 0
    while killed < 3:
        for process in workers()[:1]:
            os.kill(process, signal.SIGKILL)
            killed += 1
            time.sleep(0.3)
    wait_for_lines(40, first)
    first.kill()
    first.communicate()
    before = whole_lines()
    assert 40 <= len(before) < INPUTS, "the driver had ended before it was killed"

    second = start(cluster)
    wait_for_lines(len(before) + 20, second)
    cluster.remove_node(cluster.second, allow_graceful=False)
    assert len(whole_lines()) < INPUTS, "the driver had ended before the node was lost"
    cluster.second = cluster.add_node(num_cpus=2, object_store_memory=100 << 20)
    text, _ = second.communicate(timeout=300)
    assert second.returncode == 1, text
    assert f"{INPUTS - len(refused)} ok, {len(refused)} failed" in text

    print(f"{killed} workers, a node and the driver were killed; {len(before)} results were from before; {text.splitlines()[-1]}")
    found = whole_lines()
    assert Counter(line["input"] for line in found) == Counter(names), "an input has not one result"
    for line in found:
        for member in "status", "error", "code", "digest", "bytes", "tensors", "made_from":
            assert line.get(member) == expected[line["input"]].get(member), (member, line)
    assert hashes("out") == outputs, "an output is not that of the local run, or something partial is left"
    assert not Path("hit").exists()

    stamps = {path.name: path.stat().st_mtime_ns for path in Path("out").iterdir()}
    third = start(cluster)
    text, _ = third.communicate(timeout=300)
    assert f"{INPUTS - len(refused)} ok, {len(refused)} failed, {INPUTS} of them from before" in text
    assert {path.name: path.stat().st_mtime_ns for path in Path("out").iterdir()} == stamps, "an output was made again"
    assert sorted(map(str, whole_lines())) == sorted(map(str, found))


def test_the_function_yields_results(cluster, place):
    import torch2carton.fleet

    write_safetensors(place / "other.safetensors")
    tasks = [{"input": "model.safetensors"}, "other.safetensors", {"input": "missing"}]
    found = {line["input"]: line for line in torch2carton.fleet.run(tasks, task="digest", ray_address=cluster.address)}
    assert {input: line["status"] for input, line in found.items()} == {"model.safetensors": "ok", "other.safetensors": "ok", "missing": "failed"}
    assert found["model.safetensors"]["digest"] == found["other.safetensors"]["digest"] == torch2carton.digest("model.safetensors")
    assert not ray.is_initialized()
    with pytest.raises(torch2carton.OptionError, match="--dtyp"):
        torch2carton.fleet.run(tasks, options={"dtyp": "float16"}, ray_address=cluster.address)
