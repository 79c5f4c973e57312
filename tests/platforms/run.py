#!/usr/bin/env python3
"""Compares the program of another system with that of this machine, on the inputs of the golden tests and the real files.

    tests/platforms/run.py x86_64-pc-windows-gnu             under wine
    tests/platforms/run.py aarch64-unknown-linux-gnu.2.17    under qemu
    tests/platforms/run.py x86_64-unknown-linux-musl         in a root that has nothing else
    tests/platforms/run.py x86_64-unknown-linux-gnu --cpu Nehalem --program target/debug/torch2carton

The program is built by deploy/cross, unless --program names it; --native is the program of this machine. Exit status, standard output,
messages, outputs and statements are the same, apart from the spelling of paths, and the other system verifies the statements of this one.
--every N takes each Nth input, --only computed or files a part of them.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import computed
from systems import ROOT, SHARED, Bare, build, system_of

GOLDEN = ["checkpoints", "hostile", "malicious", "objects", "pickles", "safetensors", "shards"]
SUFFIXES = {".pth", ".pt", ".bin", ".ckpt", ".pkl", ".safetensors", ".npz", ".carton", ".gguf"}


def inputs(every):
    golden = ROOT / "tests/golden"
    files = [path for folder in GOLDEN for path in sorted((golden / folder).rglob("*")) if path.is_file()]
    corpus = SHARED / "corpus"
    if corpus.is_dir():
        real = (path for path in sorted(corpus.rglob("*")) if path.suffix in SUFFIXES and path.is_file())
        files += [path for path in real if path.stat().st_size < 30_000_000]
    return files[::every]


def run(system, words, folder):
    """Runs the program, which may write into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    done = subprocess.run(system.command(words), env=system.environment, capture_output=True, text=True, errors="replace", timeout=600)
    # Systems without extended attributes have records of outputs.
    files = [path for path in folder.iterdir() if path.is_file() and path.name != ".torch2carton.outputs"]
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return {"status": done.returncode, "outputs": digests, "stdout": system.plain(done.stdout), "stderr": system.plain(done.stderr)}


def runs(args, folder, own):
    """Yields the arguments of each run; the program may write into `folder / "out"`."""
    out = folder / "out/output.safetensors"
    for file in inputs(args.every) if args.only != "computed" else []:
        yield from (["convert", "--quiet", file, "-o", out], ["scan", file], ["inspect", "--json", file])
    for words in computed.conversions(folder / "models")[:: args.every] if args.only != "files" else []:
        yield ["convert", "--quiet", *words, "-o", out, "--statement", out.with_suffix(".json")]
        kept = folder / "kept.safetensors"
        words += ["-o", kept, "--statement", kept.with_suffix(".json")]
        subprocess.run(own.command(["convert", "--quiet", "--force", *words]), check=True)
        yield ["verify", "--statement", kept.with_suffix(".json"), "--input", computed.MODELS, "--input", folder / "models", kept]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target")
    parser.add_argument("--program", type=Path)
    parser.add_argument("--cpu", help="a processor that qemu knows, such as Nehalem (SSSE3), Haswell (AVX2) or qemu64 (neither)")
    parser.add_argument("--native", type=Path, default=ROOT / "target/debug/torch2carton")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", choices=["computed", "files"])
    args = parser.parse_args()
    program = (args.program or build(args.target)).resolve()
    counts = Counter()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        own = Bare(args.native.resolve())
        foreign = system_of(args.target, program, Path(folder), args.cpu)
        for words in runs(args, Path(folder), own):
            expected, found = (run(system, words, Path(folder) / "out") for system in (own, foreign))
            different = [what for what in expected if expected[what] != found[what]]
            counts["different" if different else "same"] += 1
            for what in different:
                print(f"{' '.join(map(str, words))}: {what}\n  {expected[what]!r:.300}\n  {found[what]!r:.300}", flush=True)
    print(f"{args.target}: {counts['same']} runs the same, {counts['different']} different")
    sys.exit(1 if counts["different"] or not counts["same"] else 0)


main()
