"""A disk that is full, and one that loses what was written: an error that names the output, and nothing is left.

A file system on a sparse image on a small tmpfs says that it has room, and then cannot write: the kernel reports that when
the file is synced (ENOSPC or EIO). This needs the right to mount, such as root's.
"""

import json
import os
import shutil
import struct
import subprocess

import pytest
from program import succeed, torch2carton

SIZE = 30 << 20


def command(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False).returncode == 0


@pytest.fixture
def small(tmp_path):
    """An empty tmpfs of 20 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    if not command("mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(folder)):
        pytest.skip("mounting is not permitted")
    yield folder
    command("umount", str(folder))


@pytest.fixture
def failing(small, tmp_path):
    """A file system of 200 MiB on that tmpfs."""
    folder, image = tmp_path / "failing", small / "image"
    folder.mkdir()
    with open(image, "wb") as file:
        file.truncate(200 << 20)
    if not shutil.which("mkfs.ext4") or not command("mkfs.ext4", "-q", "-F", "-O", "^has_journal", str(image)):
        pytest.skip("mkfs.ext4 is not installed")
    if not command("mount", "-o", "loop", str(image), str(folder)):
        pytest.skip("mounting an image is not permitted")
    os.rmdir(folder / "lost+found")
    yield folder
    command("umount", str(folder))


@pytest.fixture
def inputs(tmp_path):
    """A checkpoint of 30 MiB, its carton, and that carton unpacked."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [SIZE], "data_offsets": [0, SIZE]}}).encode()
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + os.urandom(SIZE))
    succeed("-q", tmp_path / "m.safetensors", "-o", tmp_path / "m.carton")
    succeed("unpack", "-q", tmp_path / "m.carton", "-o", tmp_path / "unpacked")
    return tmp_path


def commands(inputs, folder):
    """Commands that write into a folder, and what their errors name."""
    yield ["m.safetensors", "-o", f"{folder}/m.carton"], folder / "m.carton"
    yield ["unpack", "m.carton", "-o", f"{folder}/out"], folder / "out"
    yield ["pack", "unpacked", "-o", f"{folder}/p.carton"], folder / "p.carton"
    shrink = ["shrink", "m.carton", "--base", "https://example.org", "--blobs", f"{folder}/blobs", "-o"]
    yield [*shrink, "s.carton"], folder / "blobs"


def files(folder):
    return [name for _, _, names in os.walk(folder) for name in names if name != "image"]


def test_a_disk_that_is_too_small(inputs, small):
    for words, _ in commands(inputs, small):
        answer = torch2carton(*words, "-q", cwd=inputs)
        assert answer.status == 1, words
        assert answer.stderr.startswith(f"error: needs 31.5 MB in {small}"), answer.stderr
        assert files(small) == [], words
    assert not (inputs / "s.carton").exists()


def test_a_disk_that_loses_what_was_written(inputs, failing):
    for words, output in commands(inputs, failing):
        answer = torch2carton(*words, "-q", cwd=inputs)
        assert answer.status == 1, words
        assert answer.stderr.startswith("error: cannot write ") and str(output) in answer.stderr, answer.stderr
        assert "No space left on device" in answer.stderr or "Input/output error" in answer.stderr, answer.stderr
        assert files(failing) == [], words
    assert not (inputs / "s.carton").exists()
    # A disk with room is written again.
    succeed("-q", inputs / "m.safetensors", "-o", inputs / "again.carton")
