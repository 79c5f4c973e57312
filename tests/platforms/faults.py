#!/usr/bin/env python3
"""Converts 4 GB with the program of another system, kills it, fills its disk, and takes its right to write; nothing torn is left.

    tests/platforms/faults.py x86_64-pc-windows-gnu [--program PATH] [--native PATH]

The program is built by deploy/cross, unless --program names it; --native is the program of this machine, whose outputs have the same bytes.
Needs 14 GB of disk and 3 GB of memory, for a disk that is full. Run by root, the program without rights belongs to another user.
"""

import argparse
import contextlib
import filecmp
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from systems import ROOT, SHARED, Bare, build, system_of

SPARSE = SHARED / "tools/make_sparse_pth.py"  # makes archives whose tensors are holes
LEFT = re.compile(r"\.torch2carton-.*\.partial|\.torch2carton\.outputs")
NOBODY = 65534
# The disk has room when the program starts, and fills up while it is written.
DISK = 1 << 30


def model(path, size):
    subprocess.run([sys.executable, SPARSE, path, "--size", size, "--tensors", "8", "--fill", "edge"], check=True, stdout=subprocess.DEVNULL)
    return path


def start(system, words, **how):
    return subprocess.Popen(system.command(words), env=system.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **how)


def conversion(source, target):
    return ["convert", "--quiet", "--force", source, "-o", target]


def written(folder):
    """Bytes that the unfinished files of a folder have so far."""
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir() if path.name.endswith(".partial"))


def stopped_while_writing(system, source, target):
    """Starts a conversion, and stops it once a part of its output is on the disk."""
    process = start(system, conversion(source, target))
    while not written(target.parent):
        if process.poll() is not None:
            sys.exit(f"error: the conversion ended before it was stopped: {process.communicate()[0]}")
        time.sleep(0.001)
    process.send_signal(signal.SIGSTOP)
    return process


def fill(disk):
    with (disk / "filler").open("ab", buffering=0) as file:
        for size in 1 << 20, 1 << 12:
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass


def check(what, holds):
    print(f"{'ok' if holds else 'FAILED'}: {what}", flush=True)
    return holds


def large(system, own, folder):
    """4 GB have the same bytes, and a kill while they are written leaves the file that was there."""
    source, expected, target = model(folder / "large.pth", "4.1G"), folder / "expected.safetensors", folder / "out/large.safetensors"
    subprocess.run(own.command(conversion(source, expected)), check=True)
    target.parent.mkdir()
    target.write_bytes(b"an earlier file")
    process = stopped_while_writing(system, source, target)
    process.kill()
    process.wait()
    time.sleep(1)  # the server of wine closes the files of a program that has ended
    others = [path.name for path in target.parent.iterdir() if path != target]
    yield check(f"a kill leaves the earlier file, and {others}", target.read_bytes() == b"an earlier file" and all(map(LEFT.fullmatch, others)))
    began = time.monotonic()
    process = start(system, conversion(source, target))
    output = process.communicate()[0]
    size, took = source.stat().st_size, time.monotonic() - began
    yield check(f"{size} bytes are converted after it, in {took:.1f} s {output}", process.returncode == 0 and filecmp.cmp(expected, target, shallow=False))
    for path in (source, expected, target):
        path.unlink()


def full_disk(system, own, folder):
    """A disk that fills up while it is written, and one that is full before: an error and the earlier file, or the whole new one."""
    source, expected, disk = model(folder / "model.pth", "700M"), folder / "expected.safetensors", folder / "disk"
    subprocess.run(own.command(conversion(source, expected)), check=True)
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", disk], check=True)
    try:
        target = disk / "model.safetensors"
        for when in "while it is written", "before":
            target.write_bytes(b"an earlier file")
            if when == "before":
                fill(disk)
                process = start(system, conversion(source, target))
            else:
                process = stopped_while_writing(system, source, target)
                fill(disk)
                process.send_signal(signal.SIGCONT)
            output = process.communicate()[0].strip()
            names = sorted(path.name for path in disk.iterdir())
            clean = all(re.fullmatch(r"model\.safetensors|filler|\.torch2carton\.outputs", name) for name in names)
            whole = target.read_bytes() == b"an earlier file" if process.returncode else filecmp.cmp(expected, target, shallow=False)
            yield check(f"a disk that is full {when}: status {process.returncode}, {names}, {output}", process.returncode in (0, 1) and whole and clean)
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def no_right(system, folder, home):
    """A folder that the user may not write to is an error, and gets no file."""
    source, closed = model(folder / "small.pth", "10M"), folder / "closed"
    closed.mkdir(mode=0o555)
    user = {}
    if os.geteuid() == 0:
        for path in [home, *home.rglob("*")]:
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    process = start(system, conversion(source, closed / "model.safetensors"), **user)
    output = process.communicate()[0]
    refused = process.returncode == 1 and "error: cannot write into" in output and not list(closed.iterdir())
    yield check(f"no right to write: status {process.returncode}, {output.strip()}", refused)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target")
    parser.add_argument("--program", type=Path)
    parser.add_argument("--own-mounts", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--native", type=Path, default=ROOT / "target/debug/torch2carton")
    args = parser.parse_args()
    if not SPARSE.is_file():
        print(f"skipped: there is no {SPARSE.name}")
        return
    is_root = os.geteuid() == 0
    if is_root and "--own-mounts" not in sys.argv:
        os.execvp("unshare", ["unshare", "--mount", sys.executable, *sys.argv, "--own-mounts"])
    program = (args.program or build(args.target)).resolve()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder, homes = Path(name), (Path(name) / "home", Path(name) / "other")
        folder.chmod(0o755)
        for home in homes:
            home.mkdir()
        system, other = (system_of(args.target, shutil.copy(program, home / program.name), home, empty_root=False) for home in homes)
        own = Bare(args.native.resolve())
        results = [*large(system, own, folder), *no_right(other, folder, homes[1])]
        if is_root:
            results += full_disk(system, own, folder)
        else:
            print("skipped: only root makes a disk that is full")
    sys.exit(0 if all(results) else 1)


main()
