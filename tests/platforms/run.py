#!/usr/bin/env python3
"""Compares the program of another system with that of this machine, on the inputs of the golden tests and the real files.

    tests/platforms/run.py x86_64-pc-windows-gnu             under wine
    tests/platforms/run.py aarch64-unknown-linux-gnu.2.17    under qemu
    tests/platforms/run.py x86_64-unknown-linux-musl         in an empty root (as the super user)

The program is built by deploy/cross, unless --program names it; --native is the program of this machine. Exit status, standard output,
messages and outputs are the same, apart from the spelling of paths. --every N takes each Nth input.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
GOLDEN = ["checkpoints", "hostile", "malicious", "objects", "pickles", "safetensors", "shards"]
SUFFIXES = {".pth", ".pt", ".bin", ".ckpt", ".pkl", ".safetensors", ".npz", ".carton", ".gguf"}
# Rust imports a function of this DLL that old versions of wine lack; it is forwarded to the one that they have.
PRNG = """#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T len) { return SystemFunction036(data, (ULONG)len); }
"""


def build(target):
    subprocess.run([ROOT / "deploy/cross", target, "build", "--locked", "--bin", "torch2carton"], check=True, cwd=ROOT)
    folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / target.removesuffix(".2.17") / "debug"
    return folder / ("torch2carton.exe" if "windows" in target else "torch2carton")


class Windows:
    """The program under wine, which shows the root of this machine as the drive Z:."""

    def __init__(self, program, folder):
        self.program = folder / "torch2carton.exe"
        shutil.copyfile(program, self.program)
        (folder / "prng.c").write_text(PRNG)
        dll = folder / "bcryptprimitives.dll"
        subprocess.run(["x86_64-w64-mingw32-gcc", "-shared", "-o", dll, folder / "prng.c", "-ladvapi32"], check=True)
        self.wine = shutil.which("wine64") or "/usr/lib/wine/wine64"
        self.environment = os.environ | {"WINEPREFIX": str(folder / "prefix"), "WINEDEBUG": "-all"}

    def command(self, words):
        return [self.wine, self.program, *(self.path(word) if isinstance(word, Path) else word for word in words)]

    def path(self, path):
        return "Z:" + str(path).replace("/", "\\")

    def plain(self, text):
        lines = (line for line in text.splitlines(keepends=True) if not line.startswith("wine:"))
        return Emulated.plain(self, "".join(lines).replace("\r\n", "\n")).replace("Z:/", "/")


class Emulated:
    """A program of another processor under qemu."""

    environment = os.environ

    def __init__(self, program, folder):
        self.prefix = ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu", program]

    def command(self, words):
        return [*self.prefix, *words]

    def plain(self, text):
        # Systems have their own quotes.
        return re.sub(r"\\+", "/", text).replace('"', "'")


class Bare(Emulated):
    """A static program, without a system around it."""

    def __init__(self, program, folder):
        self.prefix = [program]


def inputs(every):
    golden = ROOT / "tests/golden"
    files = [path for folder in GOLDEN for path in sorted((golden / folder).rglob("*")) if path.is_file()]
    corpus = ROOT.parent / "shared/corpus"
    if corpus.is_dir():
        real = (path for path in sorted(corpus.rglob("*")) if path.suffix in SUFFIXES and path.is_file())
        files += [path for path in real if path.stat().st_size < 30_000_000]
    return files[::every]


def run(system, words, output):
    if output.is_dir():
        shutil.rmtree(output)
    output.unlink(missing_ok=True)
    done = subprocess.run(system.command(words), env=system.environment, capture_output=True, text=True, errors="replace", timeout=600)
    digest = hashlib.sha256(output.read_bytes()).hexdigest() if output.is_file() else None
    return {"status": done.returncode, "output": digest, "stdout": system.plain(done.stdout), "stderr": system.plain(done.stderr)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target")
    parser.add_argument("--program", type=Path)
    parser.add_argument("--native", type=Path, default=ROOT / "target/debug/torch2carton")
    parser.add_argument("--every", type=int, default=1)
    args = parser.parse_args()
    program = (args.program or build(args.target)).resolve()
    kind = Windows if "windows" in args.target else Emulated if args.target.startswith("aarch64") else Bare
    counts = Counter()
    with tempfile.TemporaryDirectory() as folder:
        foreign, own = kind(program, Path(folder)), Bare(args.native.resolve(), None)
        output = Path(folder) / "output.safetensors"
        for file in inputs(args.every):
            for words in (["convert", "--quiet", file, "-o", output], ["scan", file], ["inspect", "--json", file]):
                expected, found = run(own, words, output), run(foreign, words, output)
                different = [what for what in expected if expected[what] != found[what]]
                counts["different" if different else "same"] += 1
                for what in different:
                    print(f"{words[0]} {file}: {what}\n  {expected[what]!r:.300}\n  {found[what]!r:.300}", flush=True)
    print(f"{args.target}: {counts['same']} runs the same, {counts['different']} different")
    sys.exit(1 if counts["different"] or not counts["same"] else 0)


main()
