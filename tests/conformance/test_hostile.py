"""Every file of tests/golden/hostile: refused in words, at once, in little memory, and nothing written.

The texts are pinned by the golden tests; here the whole program is run.
"""

import os
import re
import resource
import subprocess
import time

import pytest
from conftest import GOLDEN
from program import BINARY, CLEAN, listing, torch2carton

FILES = sorted(f for f in (GOLDEN / "hostile").iterdir() if f.suffix != ".md")
WHY = dict(re.findall(r"^\| `(.+?)` \| \d+ \| (.*) \|$", (GOLDEN / "hostile/README.md").read_text(), re.M))
MEMORY, SECONDS = 64 << 20, 5


def run_limited(*arguments):
    """(exit status, standard error, peak bytes, seconds); the address space is bounded, so a bomb ends in a failure."""
    start = time.monotonic()
    process = subprocess.Popen([BINARY, *arguments], env=CLEAN, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (20, 20)))
    words = process.stderr.read().decode(errors="replace")
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, words, used.ru_maxrss * 1024, time.monotonic() - start


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_conversion_is_refused(file, tmp_path):
    status, words, peak, seconds = run_limited(str(file), "-o", str(tmp_path / "out.carton"))
    assert "panicked" not in words and status >= 0, words
    assert peak <= MEMORY and seconds <= SECONDS, f"{peak >> 20} MiB, {seconds:.1f} s"
    if WHY[file.name].startswith("NOT refused") and file.suffix == ".pth":
        assert status == 0, words
        return
    assert status == 1, f"{WHY[file.name]}: exit status {status}: {words}"
    assert words.strip()
    assert listing(tmp_path) == []


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
@pytest.mark.parametrize("command", [["inspect"], ["inspect", "--json", "--sha256"], ["trace"]], ids=" ".join)
def test_looking_is_safe(command, file):
    """A look may succeed where it sees nothing wrong, but never panics, hangs or swells."""
    status, words, peak, seconds = run_limited(*command, str(file))
    assert "panicked" not in words and status in (0, 1), f"exit status {status}: {words}"
    assert peak <= MEMORY and seconds <= SECONDS, f"{peak >> 20} MiB, {seconds:.1f} s"
    assert status == 0 or words.strip()


DAMAGED_TENSORS = """short_storage missing_storage negative_size negative_stride negative_offset negative_numel past_storage_end
overflow_strides overflow_shape huge_integer rank_mismatch shape_of_text unknown_storage duplicate_name overlapping_entries
name_disagreement entry_past_end two_data_pkl no_data_pkl truncated bad_crc_pickle same_name_twice""".split()


@pytest.mark.parametrize("name", DAMAGED_TENSORS)
def test_inspect_refuses_what_the_pickle_or_the_directory_shows(name):
    outcome = torch2carton("inspect", "--json", GOLDEN / f"hostile/{name}.pth")
    assert outcome.status == 1, outcome
    assert outcome.stdout == "", "half an answer"


def test_two_tensors_of_one_name_are_refused_with_both_paths(tmp_path):
    """The key `a.b`, and `b` inside of `a`: however the paths are written, both are there."""
    outcome = torch2carton(GOLDEN / "hostile/same_name_twice.pth", "-o", tmp_path / "out.carton")
    assert outcome.status == 1 and "a.b" in outcome.stderr, outcome
    keys = re.findall(r"""[\["'`]+([^\["'`\]]*)[\]"'`]+""", outcome.stderr)
    assert "a.b" in keys and len(set(keys)) >= 2, f"both paths: {outcome}"


def test_nothing_is_executed(tmp_path):
    """A pickle whose loading would create a file: neither command creates it."""
    witness = tmp_path / "witness"
    command = f"touch {witness}".encode()
    pickle = b"\x80\x02}X\x01\x00\x00\x00acos\nsystem\n(X" + len(command).to_bytes(4, "little") + command + b"tRs."
    (tmp_path / "attack.pkl").write_bytes(pickle)
    for arguments in (["trace"], ["inspect"], ["convert"]):
        torch2carton(*arguments, tmp_path / "attack.pkl")
    assert not witness.exists()
    trace = torch2carton("trace", tmp_path / "attack.pkl")
    assert trace.status != 0 or "REDUCE" in trace.stdout
