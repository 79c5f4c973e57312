"""`torch2carton.fleet` without Ray: a cluster that loses jobs, in this process. tests/conformance/test_fleet.py has a real one."""

import functools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from conftest import write_safetensors

import torch2carton
from torch2carton import _native, fleet
from torch2carton.fleet import _driver, _ray
from torch2carton.fleet.__main__ import main


class FakeCluster:
    """Runs a job when its result is asked for. `losses` has the number of attempts of an input that are lost, before or after they wrote their output."""

    def __init__(self, request, losses=(), room=4, after=False):
        self.request, self.losses, self.room, self.after = request, dict(losses), room, after
        self.running, self.started, self.most, self.cancelled = {}, [], 0, None

    def start(self, job):
        key = len(self.started)
        self.started.append((job.input, job.cores, job.memory))
        self.running[key] = job
        self.most = max(self.most, len(self.running))
        return key

    def wait(self, keys, seconds):
        return sorted(keys, reverse=True)[:2]

    def result(self, key):
        job = self.running.pop(key)
        is_lost = self.losses.get(job.input, 0) > 0
        if is_lost and not self.after:
            self.losses[job.input] -= 1
            raise _driver.LostError("the node is gone", needs_memory=True)
        done = _driver.run_job(functools.cache(_native.BatchWorker), self.request, job.message, job.cores, os.getcwd())
        if is_lost:
            self.losses[job.input] -= 1
            raise _driver.LostError("the node is gone")
        return done

    def cancel(self, keys):
        self.cancelled = keys

    def capacity(self):
        return self.room


@pytest.fixture
def inputs(place):
    """Ten files, of which one is damaged and one hostile, and a manifest."""
    names = [f"{number}.safetensors" for number in range(10)]
    for number, name in enumerate(names):
        write_safetensors(place / name, {"number": str(number)})
    (place / names[3]).write_bytes((place / names[3]).read_bytes()[:-7])
    (place / names[5]).write_bytes(b"cposix\nsystem\n(Vtouch hit\ntR.")
    (place / "m.jsonl").write_text("".join(json.dumps({"input": name}) + "\n" for name in names))
    return names


CONVERT = ["--to", "pth", "-o", "out", "--results", "r.jsonl", "--resume"]


def drive(*arguments, lines=None, losses=(), room=4, after=False, **limits):
    """Runs a batch with the fake. Returns the lines, the driver and the cluster."""
    request = _native.batch_request(["lines" if lines is not None else "m.jsonl", *arguments])
    cluster = FakeCluster(request, losses, room, after)
    driver = fleet._open(request, lines, None, cluster, **limits)
    driver.pause = 0.01
    return [json.loads(line) for line, _ in driver.results()], driver, cluster


def test_an_address_where_no_cluster_answers_is_an_error():
    def answers(answer):
        """Starts a server that answers the first connection with these bytes, or not at all. Returns its address."""
        server = socket.create_server(("127.0.0.1", 0))

        def work():
            connection, _ = server.accept()
            with connection, server:
                connection.sendall(answer)
                connection.recv(1000)
                time.sleep(0 if answer else 3)

        threading.Thread(target=work, daemon=True).start()
        return "127.0.0.1:{}".format(server.getsockname()[1])

    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    settings = b"\0\0\0\4\0\0\0\0\0"
    for address in "auto", "local", answers(settings), "ray://" + answers(settings):
        _ray.check_answer(address, 1)
    for address in f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}", answers(b""), answers(b"HTTP/1.1 400 Bad Request\r\n"), "h:x":
        with pytest.raises(torch2carton.IoError, match=f"no cluster of Ray answers at {address}: .*--ray-address"):
            _ray.check_answer(address, 1)


def results():
    with open("r.jsonl") as file:
        return [json.loads(line) for line in file]


def test_results_are_those_of_batch(inputs):
    found, driver, _ = drive(*CONVERT)
    assert sorted(line["input"] for line in found) == inputs
    assert (driver.counts.ok, driver.counts.failed) == (8, 2)
    assert sorted(map(str, found)) == sorted(map(str, results()))
    batch = [sys.executable, "-m", "torch2carton", "batch", "m.jsonl", "--to", "pth", "-o", "local", "--results", "local.jsonl", "-q"]
    assert subprocess.run(batch, stderr=subprocess.DEVNULL).returncode == 1
    with open("local.jsonl") as file:
        local = {line["input"]: line for line in map(json.loads, file)}
    for line in found:
        other = local[line["input"]]
        assert line.keys() == other.keys()
        for member in "status", "error", "code", "digest", "bytes", "tensors":
            assert line.get(member) == other.get(member)
    assert sorted(os.listdir("out")) == sorted(os.listdir("local"))
    for name in os.listdir("out"):
        with open(f"out/{name}", "rb") as a, open(f"local/{name}", "rb") as b:
            assert a.read() == b.read()
    assert not os.path.exists("hit")


def test_each_output_has_a_statement(inputs):
    drive(*CONVERT, "--", "--statement", "statements")
    outputs = sorted(os.listdir("out"))
    assert len(outputs) == 8
    assert sorted(os.listdir("statements")) == [f"{name}.intoto.json" for name in outputs]
    for name in outputs:
        assert torch2carton.verify(f"out/{name}", statement=f"statements/{name}.intoto.json", input=inputs).ok


def test_a_restart_does_only_what_is_missing(inputs):
    drive(*CONVERT)
    os.unlink("out/1.pth")
    write_safetensors(Path("2.safetensors"), {"number": "changed"})
    before = {name: os.stat(f"out/{name}").st_mtime_ns for name in os.listdir("out")}
    found, driver, cluster = drive(*CONVERT)
    assert len(found) == len(results()) == 10
    assert sorted(input for input, *_ in cluster.started) == ["1.safetensors", "2.safetensors"]
    assert (driver.counts.ok, driver.counts.failed, driver.counts.kept) == (8, 2, 8)
    changed = {name for name in os.listdir("out") if os.stat(f"out/{name}").st_mtime_ns != before.get(name)}
    assert changed == {"1.pth", "2.pth"}


@pytest.mark.parametrize("after", [False, True])
def test_lost_jobs_are_tried_again(inputs, after):
    found, driver, cluster = drive(*CONVERT, losses={"0.safetensors": 3, "7.safetensors": 9}, after=after)
    lines = {line["input"]: line for line in found}
    assert len(found) == len(lines) == len(results()) == 10
    assert lines["0.safetensors"]["status"] == "ok"
    lost = lines["7.safetensors"]
    assert (lost["status"], lost["code"], driver.counts.lost) == ("failed", "io", 7)
    assert "was lost 4 times; the last time: the node is gone" in lost["error"]
    memory = [memory for input, _, memory in cluster.started if input == "0.safetensors"]
    assert len(memory) == 4 and (after or memory[3] == 8 * memory[0])
    found, driver, _ = drive(*CONVERT)
    assert {line["input"]: line for line in found}["7.safetensors"]["status"] == "ok"
    assert driver.counts.kept == 9


def test_jobs_are_limited(inputs):
    _, _, cluster = drive("--task", "digest", room=3)
    assert cluster.most == 3
    _, _, cluster = drive("--task", "digest", jobs=1)
    assert cluster.most == 1
    lines = [json.dumps({"input": f"https://127.0.0.1:1/{number}"}) for number in range(6)] + [json.dumps({"input": name}) for name in inputs]
    running = []

    class Watched(FakeCluster):
        def start(self, job):
            key = super().start(job)
            running.append(sum(bool(other.hosts) for other in self.running.values()))
            return key

    request = _native.batch_request(["--task", "scan", "lines"])
    driver = fleet._open(request, lines, None, Watched(request, room=8), per_host=2)
    assert len(list(driver.results())) == 16
    assert max(running) == 2


def test_the_module_is_found_from_the_package():
    code = "import sys, torch2carton; assert 'torch2carton.fleet' not in sys.modules; torch2carton.fleet.run; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_command_line(inputs, monkeypatch, capsys):
    opened = []

    def open_fake(request, lines, address, **limits):
        opened.append((json.loads(request), address, limits))
        return fleet_open(request, lines, address, FakeCluster(request), **limits)

    fleet_open = fleet._open
    monkeypatch.setattr("torch2carton.fleet.__main__._open", open_fake)
    words = ["--task", "convert", "--to=pth", "-o", "out", "--jobs", "3", "--ray-address", "auto", "--results", "r.jsonl", "m.jsonl", "--", "--dtype", "float16"]
    assert main(words) == 1
    request, address, limits = opened[0]
    assert (request["manifest"], request["options"], request["resume"]) == ("m.jsonl", {"dtype": "float16"}, True)
    assert (address, limits) == ("auto", {"jobs": 3, "per_host": 8, "retries": 3})
    text = capsys.readouterr().err
    assert "8 ok, 2 failed, 0 of them from before" in text and text.count("error: ") == 2
    assert len(results()) == 10
    monkeypatch.setattr(sys, "stdin", [json.dumps({"input": inputs[0]}) + "\n"])
    assert main(["--task", "digest", "-q", "-"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["input"] == inputs[0] and not printed.err
    assert main(["--task", "digest", "missing.jsonl"]) == 2
    assert "missing.jsonl" in capsys.readouterr().err


def test_large_inputs_ask_for_more():
    small = _driver.make_job("a", "", 1000, 16 << 20)
    large = _driver.make_job("a", "", 1 << 30, 300 << 20)
    assert (small.cores, small.memory) == (1, 256 << 20)
    assert (large.cores, large.memory) == (2, 512 << 20)
    assert _driver.make_job("hf://a/b/c.bin", "", 0, 0).hosts == ("huggingface.co",)
    assert _driver.make_job("https://example.org:8/c.bin", "", 0, 0).hosts == ("example.org",)


def test_lines_come_from_a_queue(inputs):
    first_result = threading.Event()

    def queue():
        yield json.dumps({"input": inputs[0]})
        assert first_result.wait(10), "a result waits for the next line"
        yield "\n"
        yield json.dumps({"input": inputs[1]})

    request = _native.batch_request(["--task", "inspect", "lines"])
    driver = fleet._open(request, queue(), None, FakeCluster(request))
    found = []
    for line, _ in driver.results():
        found.append(json.loads(line)["input"])
        first_result.set()
    assert found == inputs[:2]

    def broken():
        yield json.dumps({"input": inputs[0]})
        raise RuntimeError("the queue is gone")

    driver = fleet._open(request, broken(), None, FakeCluster(request))
    with pytest.raises(RuntimeError, match="the queue is gone"):
        list(driver.results())


def test_wrong_lines_are_refused(inputs):
    with pytest.raises(torch2carton.InputError, match="lines, line 2: the input 0.safetensors is already in line 1"):
        drive("--task", "scan", lines=[json.dumps({"input": inputs[0]})] * 2)
    with pytest.raises(torch2carton.OptionError, match="--tsk"):
        drive("--tsk", "scan")
    with open("m.jsonl", "a") as file:
        file.write('{"ouput": "a"}\n')
    with pytest.raises(torch2carton.InputError, match=r"m\.jsonl, line 11: .*unknown field `ouput`"):
        drive(*CONVERT)
    assert not os.path.exists("out") and not os.path.exists("r.jsonl") or not results()


def test_an_abandoned_generator_ends_its_jobs(inputs):
    request = _native.batch_request([*CONVERT, "m.jsonl"])
    cluster = FakeCluster(request)
    running = fleet._open(request, None, None, cluster).results()
    next(running)
    running.close()
    assert cluster.cancelled
    found, driver, _ = drive(*CONVERT)
    assert len(found) == len(results()) == 10 and driver.counts.kept >= 1


def test_two_drivers_do_not_share_results(inputs):
    request = _native.batch_request([*CONVERT, "m.jsonl"])
    running = fleet._open(request, None, None, FakeCluster(request)).results()
    next(running)
    with pytest.raises(torch2carton.IoError, match="in use by another batch"):
        drive(*CONVERT)
    running.close()


def test_without_ray(inputs, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(torch2carton.MissingPackageError, match=r"pip install 'ray>=2.9'"):
        fleet.run(["a"])
    assert main(["m.jsonl"]) == 2
    assert "pip install" in capsys.readouterr().err


class Checker(HTMLParser):
    """Collects the tags of a page and its text."""

    def __init__(self):
        super().__init__()
        self.tags, self.text = set(), ""

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        assert not any(name in ("src", "href") or name.startswith("on") for name, _ in attributes)

    def handle_data(self, data):
        self.text += data


def test_report(inputs, capsys):
    evil = "<script>alert(1)</script>\u202e.safetensors"
    write_safetensors(Path(evil.replace("/", "_")))
    line = json.dumps({"input": evil.replace("/", "_")}) + "\n"
    with open("m.jsonl", "a") as file:
        file.write(line + json.dumps({"input": "<img src=x onerror=alert(2)>"}) + "\n")
    drive("--task", "scan", "--results", "r.jsonl", "--resume")
    with open("r.jsonl", "a") as file:
        file.write('{"input": "cut')
    assert main(["report", "r.jsonl", "-o", "page.html"]) == 0
    page = Checker()
    with open("page.html", encoding="utf-8") as file:
        page.feed(file.read())
    assert page.tags <= {"html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "table", "thead", "tbody", "tr", "th", "td", "span", "br"}
    assert "unsafe inputs5.safetensors" in page.text
    assert "12 inputs" in page.text and "unsafe" in page.text and "clean" in page.text
    assert "<script>alert(1)<_script>\\u202e.safetensors" in page.text
    assert "1 groups of inputs have the same tensors; 8 inputs are copies of others" in page.text
    assert not [name for name in os.listdir(".") if name.startswith(".torch2carton")]
    with open("wrong.jsonl", "w") as file:
        file.write('{"input": 1}\n')
    assert main(["report", "wrong.jsonl"]) == 1
    assert "wrong.jsonl, line 1: it is not a result" in capsys.readouterr().err
    assert not os.path.exists("report.html")
