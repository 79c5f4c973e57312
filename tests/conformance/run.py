#!/usr/bin/env python3
"""Checks what torch2carton writes in the programs that will read it: PyTorch 2.0.1, the newest PyTorch, the Carton client.

    run.py [--binary target/release/torch2carton] [-k EXPR] [-x] [any other argument of pytest …]

Needs Python's standard library; everything else comes into three virtual environments outside the tree (README.md
beside this file). Where one can't be made, its checks are skipped and say so; where the newest torch can't be had,
the whole suite is. Exit status 0 when nothing failed.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
import environments  # noqa: E402  (after the line above, so that no __pycache__ appears in the tree)

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--binary", type=Path, default=TREE / "target/release/torch2carton")
    arguments.add_argument("--make-only", action="store_true", help="make the environments and stop")
    arguments.add_argument("--require", action="store_true", help="an environment that can't be made is a failure")
    options, for_pytest = arguments.parse_known_args()

    pythons, missing = {}, {}
    for key, recipe in environments.ALL.items():
        start = time.monotonic()
        try:
            pythons[key] = environments.make(recipe)
            print(f"{recipe.name}: {pythons[key].parent.parent} ({time.monotonic() - start:.1f} s)", flush=True)
        except environments.CannotMake as why:
            missing[key] = f"could not make the {recipe.name} environment: {why}"
            print(f"skipped: {missing[key]}", flush=True)
    if missing and options.require:
        return 1
    if options.make_only:
        return 0
    if "NEWEST" in missing:
        print("skipped: the whole suite, for want of the newest torch", flush=True)
        return 0
    if not options.binary.is_file():
        print(f"there is no {options.binary}: run `cargo build --release` first, or give --binary", file=sys.stderr)
        return 2

    setting = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "NO_COLOR", "CLICOLOR_FORCE", "FORCE_COLOR")}
    setting |= {"PYTHONDONTWRITEBYTECODE": "1", "T2C_BINARY": str(options.binary.resolve())}
    setting |= {f"T2C_{key}": str(path) for key, path in pythons.items()}
    setting |= {f"T2C_MISSING_{key}": why for key, why in missing.items()}
    command = [pythons["NEWEST"], "-m", "pytest", "-q", "-rsfE", "-p", "no:cacheprovider", "--rootdir", HERE]
    command += ["-o", "tmp_path_retention_policy=failed", "-o", "tmp_path_retention_count=1"]  # some are gigabytes
    command += [HERE, *for_pytest]
    return subprocess.run([str(c) for c in command], env=setting, cwd=HERE).returncode


if __name__ == "__main__":
    sys.exit(main())
