"""`kill -9` at many moments of a conversion of a gigabyte: the output is there as a whole, is the older one, or is not there."""

import hashlib
import os
import random
import signal
import subprocess
import time

import pytest
from program import BINARY, CLEAN, succeed

KILLS = int(os.environ.get("T2C_KILLS", "200"))
SIZE, TENSORS = 1 << 30, 64


def write_checkpoint(path):
    """A safetensors file whose blocks all differ, so that no part of a carton can be taken for another."""
    length = SIZE // TENSORS
    tensors = (f'"t{i}":{{"dtype":"U8","shape":[{length}],"data_offsets":[{i * length},{(i + 1) * length}]}}' for i in range(TENSORS))
    header = ("{" + ",".join(tensors) + "}").encode()
    noise = random.Random(1).randbytes(1 << 20)
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for block in range(SIZE >> 20):
            file.write(block.to_bytes(8, "little") + noise[8:])


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def partial(folder):
    """The temporary file, and how many bytes it has."""
    for path in folder.glob(".torch2carton-*.partial"):
        try:
            return path, path.stat().st_size
        except FileNotFoundError:
            pass
    return None, 0


def kill_at(folder, moment, total):
    """Starts a conversion and kills it once its output has this part of all bytes; above 1, some milliseconds later. Returns whether
    it had ended before."""
    earlier, _ = partial(folder)
    running = subprocess.Popen([BINARY, "m.safetensors", "-q", "--force"], cwd=folder, env=CLEAN, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        while running.poll() is None:
            path, size = partial(folder)
            if path and path != earlier and size >= min(moment, 1) * total:
                break
            time.sleep(0.002)  # the conversion needs both cores
        if moment > 1:
            time.sleep((moment - 1) / 10)
        ended = running.poll() is not None
        running.send_signal(signal.SIGKILL)
        error = running.communicate(timeout=60)[1].decode()
        assert running.returncode in (0, -signal.SIGKILL), error
        return ended
    finally:
        running.kill()
        running.wait()


@pytest.mark.parametrize("before", ["nothing", "an older carton"])
def test_no_moment_leaves_a_torn_output(before, tmp_path, table):
    checkpoint, target = tmp_path / "m.safetensors", tmp_path / "m.carton"
    write_checkpoint(checkpoint)
    succeed(checkpoint, "-q", timeout=600)
    whole, total, source = sha256(target), target.stat().st_size, sha256(checkpoint)
    older = b"an older carton"
    found = {"absent": 0, "older": 0, "whole": 0}
    kills, left, ended = KILLS // 2, 0, 0
    # Most moments are while bytes are written, more of them early, because these take less time. The last tenth is while the file
    # is synced and renamed, and the first is before all of them.
    moments = [(i / kills) ** 2 for i in range(kills * 9 // 10)]
    moments += [1 + i / kills for i in range(kills - len(moments))]
    random.Random(2).shuffle(moments)
    for moment in moments:
        target.unlink(missing_ok=True)
        if before != "nothing":
            target.write_bytes(older)
        ended += kill_at(tmp_path, moment, total)
        if not target.exists():
            state = "absent"
        elif target.stat().st_size == len(older):
            assert target.read_bytes() == older, f"at {moment}: the older carton was changed"
            state = "older"
        else:
            assert sha256(target) == whole, f"at {moment}: a torn output of {target.stat().st_size} of {total} bytes"
            state = "whole"
        assert state != ("absent" if before != "nothing" else "older"), f"at {moment}: {state}"
        found[state] += 1
        # What the run before left is gone; this one leaves at most one file, which says whose it is.
        names = {p.name for p in tmp_path.iterdir()} - {"m.safetensors", "m.carton"}
        assert len(names) <= 1 and all(n.startswith(".torch2carton-") and n.endswith(".partial") for n in names), f"at {moment}: {names}"
        left += len(names)
    assert left > 0, "no kill came while the output was written"
    succeed(checkpoint, "-q", "--force", timeout=600)
    assert (sha256(target), sha256(checkpoint)) == (whole, source)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.carton", "m.safetensors"]
    counts = ", ".join(f"{count} {state}" for state, count in found.items() if count)
    table(f"{kills} kills, {before} before: {counts}; {left} left a temporary file; {ended} runs had ended")
