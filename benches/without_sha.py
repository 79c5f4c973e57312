#!/usr/bin/env python3
"""Builds a program whose ring does not find the processor's SHA extensions, for benches/convert.py --without-sha on a machine that has them.

    without_sha.py FOLDER

Copies the last commit and ring's sources into FOLDER, changes the line of ring that looks for the extensions, and prints the path of
the program. TORCH2CARTON_WITHOUT=sha makes it hash with ring. Needs Python's standard library.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from whole_process import TREE

FINDS_SHA = "if check(extended_features_ebx, 29) {"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1]).resolve()
    tree, ring = folder / "tree", folder / "ring"
    for copy in (tree, ring):
        shutil.rmtree(copy, ignore_errors=True)
    tree.mkdir(parents=True)
    commit = subprocess.run(["git", "archive", "HEAD"], cwd=TREE, check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-x"], cwd=tree, input=commit, check=True)
    listed = subprocess.run(["cargo", "metadata", "--format-version", "1", "--locked"], cwd=tree, check=True, stdout=subprocess.PIPE).stdout
    manifest = next(package["manifest_path"] for package in json.loads(listed)["packages"] if package["name"] == "ring")
    shutil.copytree(Path(manifest).parent, ring)
    source = ring / "src/cpu/intel.rs"
    text = source.read_text()
    if text.count(FINDS_SHA) != 1:
        sys.exit(f"{source}: not one line `{FINDS_SHA}`; see how this version of ring looks for SHA extensions")
    source.write_text(text.replace(FINDS_SHA, "if false {"))
    patch = f"patch.crates-io.ring.path={json.dumps(str(ring))}"
    command = ["cargo", "build", "--release", "--config", patch, "--target-dir", folder / "target", "--bin", "torch2carton"]
    subprocess.run(command, cwd=tree, check=True)
    print(folder / "target/release/torch2carton")


if __name__ == "__main__":
    main()
