"""The verbs: convert, inspect, scan, trace, verify, run, and the command line."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import needs_torch, torch

import torch2carton


def test_diff_and_digest(place):
    torch2carton.convert("model.safetensors", "half.safetensors", dtype="float16", digest=True)
    found = torch2carton.diff("model.safetensors", "half.safetensors", no_values=True)
    assert found and not found.same and found.counts["dtype"] == 2
    assert {tuple(row["changes"]) for row in found.tensors} == {("dtype",)}
    assert len(torch2carton.diff("model.safetensors", "half.safetensors", no_values=True, limit=1).tensors) == 1
    renamed = torch2carton.convert("model.safetensors", "renamed.safetensors", rename={"^weight$": "w"})
    changes = torch2carton.diff("model.safetensors", renamed.output, no_values=True).tensors
    assert [(row["changes"], row["b"]["name"]) for row in changes] == [(["renamed"], "w")]
    assert torch2carton.diff("model.safetensors", renamed.output, include="bias", no_values=True).same
    digest = torch2carton.digest("model.safetensors")
    assert len(digest) == 64 and digest != torch2carton.digest("half.safetensors")
    assert torch2carton.digest("model.safetensors", include="bias") == torch2carton.digest("renamed.safetensors", exclude="w")
    assert torch2carton.verify("half.safetensors", against="model.safetensors", dtype="float16").ok
    assert torch2carton.verify("renamed.safetensors", against="model.safetensors", rename={"^weight$": "w"}).ok
    assert not torch2carton.verify("renamed.safetensors", against="model.safetensors").ok
    with pytest.raises(torch2carton.OptionError):
        torch2carton.diff("model.safetensors", "half.safetensors", tolerance=-1)


def test_convert_inspect_and_verify(place):
    done = torch2carton.convert("model.safetensors", "model.carton", license="MIT", rename={"^weight": "w"})
    assert done.to == "carton" and done.tensors == 2 and done.written
    assert [row["name"] for row in torch2carton.inspect(done.output).tensors] == ["w", "bias"]
    carton = torch2carton.open("model.carton")
    assert isinstance(carton, torch2carton.Carton) and carton.config["license"] == "MIT" and list(carton) == ["w", "bias"]
    assert carton.verify().ok and torch2carton.verify("model.carton")
    data = bytearray((place / "model.carton").read_bytes())
    data[len(data) // 2] ^= 1
    (place / "model.carton").write_bytes(data)
    assert not torch2carton.verify("model.carton").ok


def test_a_conversion_is_repeated_by_its_statement(place):
    done = torch2carton.convert("model.safetensors", "out.safetensors", statement="out.json")
    assert done.report["statement"] == "out.json"
    assert torch2carton.verify("out.safetensors", statement="out.json", input=place).ok
    data = bytearray((place / "out.safetensors").read_bytes())
    data[-1] ^= 1
    (place / "out.safetensors").write_bytes(data)
    found = torch2carton.verify("out.safetensors", statement="out.json", input=["model.safetensors"])
    assert not found and found.findings == [{"file": "out.safetensors", "offset": len(data) - 1, "what": "differs"}]
    (place / "empty").mkdir()
    with pytest.raises(torch2carton.InputError, match="model.safetensors"):
        torch2carton.verify("out.safetensors", statement="out.json", input="empty")


def test_flags_are_checked(place):
    with pytest.raises(torch2carton.OptionError, match="dtype"):
        torch2carton.convert("model.safetensors", "x.safetensors", dtype="nonsense")
    with pytest.raises(torch2carton.OptionError, match="license"):
        torch2carton.convert("model.safetensors", "x.safetensors", license="MIT")
    with pytest.raises(TypeError):
        torch2carton.convert("model.safetensors", absent=1)
    with pytest.raises(FileNotFoundError):
        torch2carton.convert("absent.pt", "x.safetensors")
    assert not (place / "x.safetensors").exists()


def test_every_flag_of_convert_is_a_keyword():
    import inspect

    text = subprocess.run(
        [sys.executable, "-m", "torch2carton", "convert", "--help"], capture_output=True, text=True, check=True
    ).stdout
    import re

    flags = {flag.replace("-", "_") for flag in re.findall(r"--([a-z][a-z-]+)", text.split("Examples:")[0])}
    known = set(inspect.signature(torch2carton.convert).parameters)
    of_the_command = {"output", "json", "quiet", "color", "help"}
    of_batches = {"each", "resume", "checksum", "jobs", "results", "files_from"}
    of_addresses = {"allow_http", "cache", "offline", "timeout"}  # the package reads local files
    assert flags - known == (of_the_command | of_batches | of_addresses) & flags


def test_statistics(place):
    import math
    import struct

    checkpoint = torch2carton.open("model.safetensors")
    weight = checkpoint["weight"].stats(histogram=True)
    assert (weight.count, weight.min, weight.max, weight.mean, weight.zeros) == (6, 0.0, 5.0, 2.5, 1)
    assert weight.std == math.sqrt(35 / 12) and weight.nan == weight.inf == 0
    assert sum(weight.histogram.counts) == 6 and (weight.histogram.min, weight.histogram.max) == (0.0, 5.0)
    assert checkpoint["weight"][1].stats().mean == 4.0 and checkpoint["weight"][5:].stats().min is None
    seen = []
    found = checkpoint.stats(progress=lambda *step: seen.append(step))
    assert list(found) == ["weight", "bias"] and found["bias"].zeros == 2 and found["weight"].histogram is None
    data = bytearray((place / "model.safetensors").read_bytes())
    data[-32:-24] = struct.pack("<2f", math.nan, -math.inf)
    special = torch2carton.open(bytes(data)).stats()["weight"]
    assert (special.nan, special.inf) == (1, 1) and math.isnan(special.min) and math.isnan(special.mean)
    header = b'{"c":{"dtype":"C64","shape":[2],"data_offsets":[0,16]}}'
    complex64 = torch2carton.open(len(header).to_bytes(8, "little") + header + struct.pack("<4f", 1, 2, 3, 4))
    assert complex64["c"].stats().mean == 2 + 3j


def test_modules(place):
    assert torch2carton.open("model.safetensors").modules() == "weight: float32 (2, 3), 24 B\nbias: float32 (2,), 8 B"
    rename = {"^weight$": "layers.0.a.w", "^bias$": "layers.1.a.b"}
    torch2carton.convert("model.safetensors", "deep.safetensors", rename=rename)
    lines = torch2carton.open("deep.safetensors").modules().splitlines()
    assert lines[0] == "layers: float32, 2 tensors, 32 B" and len(lines) == 3
    assert torch2carton.open("deep.safetensors").modules(depth=1) == lines[0]


def test_report_is_a_page(place):
    page = torch2carton.open("model.safetensors").report(stats=True)
    assert page.html.startswith("<!doctype html>") and page.title == "model.safetensors"
    page.save("page.html")
    assert (place / "page.html").read_text() == page.html
    shown = page._repr_html_()
    assert shown.startswith("<iframe sandbox") and "<script" not in shown and shown.count("<") == 2
    traced = torch2carton.report("data.pkl", trace=range(2, 5))
    assert traced.html != torch2carton.report("data.pkl").html
    torch2carton.convert("model.safetensors", "half.safetensors", dtype="float16")
    assert torch2carton.report("model.safetensors", "half.safetensors").title == "model.safetensors and half.safetensors"
    with pytest.raises(TypeError):
        torch2carton.report("model.safetensors", "half.safetensors", stats=True)
    with pytest.raises(ValueError, match="range"):
        torch2carton.report("data.pkl", trace=range(0, 9, 2))
    with pytest.raises(FileNotFoundError):
        torch2carton.report("absent.pt")
    page = torch2carton.open((place / "model.safetensors").read_bytes()).report(stats=True)
    assert page.title == "bytes" and "weight" in page.html


def test_scan(place):
    assert torch2carton.scan("model.safetensors")
    result = torch2carton.scan(["evil.pkl", "model.safetensors"])
    assert result.verdict == "unsafe" and not result and len(result.files) == 2
    assert result.files[0].findings == ("os.system('echo executed > executed') at offset 0x29",)
    assert result.files[0].globals == {"os.system": "dangerous"} and not (place / "executed").exists()
    with pytest.raises(torch2carton.NotFoundError, match="absent.pt"):
        torch2carton.scan(["model.safetensors", "absent.pt"])


def test_python_code_that_a_configuration_names_is_a_finding_if_it_is_denied(place):
    folder = place / "model"
    folder.mkdir()
    (folder / "modeling_x.py").write_text("")
    (folder / "config.json").write_text('{"auto_map": {"AutoModel": "modeling_x.X"}}')
    scan = torch2carton.scan(folder)
    assert scan.status == 3 and not scan.ok and scan.verdict == "unknown" and scan.files[0].findings == ()
    denied = torch2carton.scan(folder, deny_unknown=True)
    assert denied.status == 1 and denied.files[0].findings == ("modeling_x.X of modeling_x.py",)


def test_unknown_globals_are_findings_if_they_are_denied(place):
    (place / "unknown.pkl").write_bytes(b"cmy_project.models\nNet\n(tR.")
    assert torch2carton.scan("unknown.pkl").status == 3 and torch2carton.scan("unknown.pkl").verdict == "unknown"
    denied = torch2carton.scan("unknown.pkl", deny_unknown=True)
    assert not denied.ok and "my_project.models.Net" in denied.files[0].findings[0]


def test_trace_is_an_iterator(place):
    steps = list(torch2carton.trace("data.pkl"))
    assert steps[0].opcode == "PROTO" and steps[-1].opcode == "STOP" and steps[0].offset == 0
    assert len(list(torch2carton.trace("data.pkl", limit=3))) == 3
    next(torch2carton.trace("data.pkl"))  # the rest is dropped
    with pytest.raises(FileNotFoundError):
        list(torch2carton.trace("absent.pkl"))


def big(place, megabytes):
    path = place / "big.safetensors"
    header = b'{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (megabytes << 20, megabytes << 20)
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + (megabytes << 20))
    return path


def test_progress_is_reported_and_can_cancel(place):
    path = big(place, 600)
    seen = []
    torch2carton.convert(path, "out.safetensors", progress=lambda *step: seen.append(step))
    assert seen and all(step[2] <= (step[3] or step[2]) for step in seen)
    os.remove("out.safetensors")

    def stop(*step):
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="^stop$"):
        torch2carton.convert(path, "out.safetensors", progress=stop)
    assert sorted(os.listdir()) == sorted(set(os.listdir()) - {"out.safetensors"})
    with pytest.raises(TypeError):
        torch2carton.convert(path, "out.safetensors", progress=3)


class Bar:
    def __init__(self, **options):
        self.n, self.total, self.is_closed = 0, None, False
        made.append(self)

    def update(self, count):
        self.n += count

    def reset(self, total=None):
        self.n, self.total = 0, total

    def set_description(self, text, refresh=True):
        self.text = text

    def close(self):
        self.is_closed = True


made = []


def test_progress_takes_a_bar(place):
    bar = Bar()
    torch2carton.convert(big(place, 600), "out.safetensors", progress=bar)
    assert bar.n > 0 and bar.text.startswith("write")


def test_progress_takes_tqdm_and_its_bars(place):
    tqdm = pytest.importorskip("tqdm").tqdm
    path, text = big(place, 600), io.StringIO()
    with tqdm(unit="B", file=text) as bar:
        torch2carton.convert(path, "out.safetensors", progress=bar)
        assert bar.n > 0 and bar.total
    assert "write" in text.getvalue()
    torch2carton.convert(path, "again.safetensors", progress=tqdm)


def test_a_bar_that_a_call_makes_is_closed(place):
    made.clear()
    torch2carton.scan("evil.pkl", progress=Bar)
    list(torch2carton.trace("data.pkl", progress=Bar))
    with pytest.raises(torch2carton.NotFoundError):
        torch2carton.inspect("absent.pt", progress=Bar)
    assert len(made) == 3 and all(bar.is_closed for bar in made)
    given = Bar()
    list(torch2carton.trace("data.pkl", progress=given))
    assert not given.is_closed, "it is the caller's"


def test_a_scan_of_no_files_is_refused(place):
    for paths in ([], (), iter([])):
        with pytest.raises(torch2carton.OptionError, match="at least one path"):
            torch2carton.scan(paths)


def test_progress_of_a_trace_and_of_a_run(place, llama):
    seen = []
    offsets = [step.offset for step in torch2carton.trace("data.pkl", progress=lambda *step: seen.append(step))]
    assert seen[0] == ("data.pkl", "trace", 0, None) and seen[-1] == ("data.pkl", "trace", offsets[-1], None)
    seen.clear()
    torch2carton.run(llama, [1, 2, 3], verify=True, progress=lambda *step: seen.append(step))
    size = os.path.getsize(llama)
    assert seen and all(step[:2] == ("llama.carton", "verify") for step in seen)
    assert all(0 < step[2] <= step[3] <= size for step in seen) and seen[-1][2] == seen[-1][3]
    with pytest.raises(TypeError):
        torch2carton.run(llama, [1], progress=3)


def test_ctrl_c_cancels_and_leaves_nothing(place):
    path = big(place, 1500)
    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    before = set(os.listdir())
    with pytest.raises(KeyboardInterrupt):
        while True:
            torch2carton.convert(path, "out.safetensors", force=True)
            os.remove("out.safetensors")
    timer.join()
    assert set(os.listdir()) - {"out.safetensors"} == before


def test_ctrl_c_stops_a_copy(place):
    path = big(place, 1000)
    with open(path, "r+b") as file:
        for place_of_byte in (os.path.getsize(path) - (1000 << 20), os.path.getsize(path) - 1):
            file.seek(place_of_byte)
            file.write(b"\1")
    weight = torch2carton.open(path)["w"]

    def interrupt(target):
        while not target[0]:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    # The copy may end before the signal comes, but not each time.
    for _ in range(10):
        target = bytearray(weight.nbytes)
        thread = threading.Thread(target=interrupt, args=(target,))
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            weight.read_into(target)
            thread.join()
            time.sleep(1)
        thread.join()
        if not target[-1]:
            return
    raise AssertionError("each copy went on to its end")


def test_other_threads_run_during_work(place):
    path = big(place, 300)
    count, done = 0, threading.Event()

    def tick():
        nonlocal count
        while not done.is_set():
            count += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    torch2carton.open(path)["w"].sha256()
    done.set()
    thread.join()
    assert count > 5


def command(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "torch2carton", *arguments], capture_output=True, text=True, **options)


def test_the_command_line_is_inside(place):
    done = command("inspect", "model.safetensors")
    assert done.returncode == 0 and "weight" in done.stdout
    assert command("scan", "evil.pkl").returncode == 1 and command("nonsense").returncode == 2
    assert torch2carton.__version__ in command("--version").stdout
    piped = f"{sys.executable} -m torch2carton trace data.pkl | head -n1"
    done = subprocess.run(piped, shell=True, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""


def test_the_command_line_ends_by_ctrl_c(place):
    path = big(place, 3000)
    arguments = [sys.executable, "-m", "torch2carton", str(path), "-o", "out.safetensors"]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode in (-signal.SIGINT, 130, 0)
    if process.returncode:
        assert not [name for name in os.listdir() if name not in ("big.safetensors", *BEFORE)]


BEFORE = ("model.safetensors", "model.pt", "evil.pkl", "data.pkl")


def test_run(llama):
    first = torch2carton.run(llama, [1, 2, 3], max_tokens=4)
    assert len(first.tokens) == 4 and first.ended == "max_tokens" and first.prompt_tokens == (1, 2, 3)
    assert first.candidates[0].id == first.tokens[0]
    assert max(first.logits) == pytest.approx(first.candidates[0].logit)
    again = torch2carton.run(torch2carton.open(llama), [1, 2, 3], max_tokens=4, temperature=0.5, seed=1)
    assert again == torch2carton.run(llama, [1, 2, 3], max_tokens=4, temperature=0.5, seed=1)
    with pytest.raises(torch2carton.Error):
        torch2carton.run(llama, [10**6])


def test_a_carton_of_weights_does_not_run(place):
    torch2carton.convert("model.safetensors", "model.carton")
    with pytest.raises(torch2carton.Error, match="model.carton"):
        torch2carton.run("model.carton", [1])


@needs_torch
def test_transformers_loads_a_bin_folder(place):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, vocab_size=32
    )
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    (place / "hf").mkdir()
    torch.save(model.state_dict(), place / "hf" / "pytorch_model.bin")
    config.save_pretrained(place / "hf")
    state = torch2carton.load_file(place / "hf")
    auto = transformers.AutoModelForCausalLM
    try:
        again = auto.from_pretrained(None, config=config, state_dict=state).eval()
    except TypeError as error:
        # transformers 4.53 and later ask whether None is a folder, 4.51 does not. The class that it would choose takes None.
        if "NoneType" not in str(error) or tuple(map(int, transformers.__version__.split(".")[:2])) < (4, 52):
            raise
        again = auto._model_mapping[type(config)].from_pretrained(None, config=config, state_dict=state).eval()
    tokens = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, again(tokens).logits)
