"""Every file of tests/golden/hostile is refused with an error, quickly, in little memory, and without writing anything.

The golden tests pin the texts. These tests measure the whole program.
"""

import re

import pytest
from conftest import GOLDEN
from program import listing, measured, torch2carton

FILES = sorted(f for f in (GOLDEN / "hostile").iterdir() if f.suffix != ".md")
WHY = dict(re.findall(r"^\| `(.+?)` \| \d+ \| (.*) \|$", (GOLDEN / "hostile/README.md").read_text(), re.M))
MEMORY, SECONDS = 64 << 20, 5


def assert_harmless(outcome):
    assert outcome.peak <= MEMORY, f"{outcome.peak >> 20} MiB"
    assert outcome.seconds <= SECONDS, f"{outcome.seconds:.1f} s"
    assert outcome.status in (0, 1), f"exit status {outcome.status}: {outcome.stderr}"
    assert outcome.status == 0 or outcome.stderr.strip(), "refused without an error text"


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_conversion_is_refused(file, tmp_path):
    outcome = measured(file, "-o", tmp_path / "out.carton")
    assert_harmless(outcome)
    if WHY[file.name].startswith("NOT refused") and file.suffix == ".pth":
        assert outcome.status == 0, outcome.stderr
    else:
        assert outcome.status == 1, f"{WHY[file.name]}: exit status {outcome.status}: {outcome.stderr}"
        assert listing(tmp_path) == []


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
@pytest.mark.parametrize("command", [["inspect"], ["inspect", "--json", "--sha256"], ["trace"]], ids=" ".join)
def test_inspect_and_trace_are_safe(command, file):
    """The command may succeed if it finds no fault, but it never panics, hangs or uses much memory."""
    assert_harmless(measured(*command, file))


DAMAGED_TENSORS = """short_storage missing_storage negative_size negative_stride negative_offset negative_numel past_storage_end
overflow_strides overflow_shape huge_integer rank_mismatch shape_of_text unknown_storage duplicate_name overlapping_entries
name_disagreement entry_past_end two_data_pkl no_data_pkl truncated bad_crc_pickle same_name_twice""".split()


@pytest.mark.parametrize("name", DAMAGED_TENSORS)
def test_inspect_refuses_faults_of_the_pickle_or_the_directory(name):
    outcome = torch2carton("inspect", "--json", GOLDEN / f"hostile/{name}.pth")
    assert outcome.status == 1, outcome
    assert outcome.stdout == "", "a partial listing"


def test_two_tensors_of_one_name_are_refused_with_both_paths(tmp_path):
    """The key `a.b`, and `b` inside `a`. However the paths are written, the error has both."""
    outcome = torch2carton(GOLDEN / "hostile/same_name_twice.pth", "-o", tmp_path / "out.carton")
    assert outcome.status == 1 and "a.b" in outcome.stderr, outcome
    keys = re.findall(r"""[\["'`]+([^\["'`\]]*)[\]"'`]+""", outcome.stderr)
    assert "a.b" in keys and len(set(keys)) >= 2, f"both paths: {outcome}"


def test_nothing_is_executed(tmp_path):
    """Loading this pickle would create a file. No command creates it."""
    witness = tmp_path / "witness"
    command = f"touch {witness}".encode()
    pickle = b"\x80\x02}X\x01\x00\x00\x00acos\nsystem\n(X" + len(command).to_bytes(4, "little") + command + b"tRs."
    (tmp_path / "attack.pkl").write_bytes(pickle)
    for arguments in (["trace"], ["inspect"], ["convert"]):
        torch2carton(*arguments, tmp_path / "attack.pkl")
    assert not witness.exists()
    trace = torch2carton("trace", tmp_path / "attack.pkl")
    assert trace.status != 0 or "REDUCE" in trace.stdout
