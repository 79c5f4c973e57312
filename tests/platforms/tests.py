#!/usr/bin/env python3
"""Runs tests of the crates on another system, but for the exceptions below.

    tests/platforms/tests.py x86_64-pc-windows-gnu [CRATE...]             under wine
    tests/platforms/tests.py aarch64-unknown-linux-gnu.2.17 [CRATE...]    under qemu
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from systems import AARCH64, ROOT, WINE, wine_environment

# Those whose code depends on the system or the processor; the other crates take longer to build than their tests tell.
CRATES = ["byte-source", "output", "zip-format", "carton-format", "kernels", "tensor", "pickle-vm"]
# Names of tests that a system cannot pass, and why.
EXCEPTIONS = {
    "x86_64-pc-windows-gnu": {
        "unfinished_files_and_folders_are_removed": "what is open keeps its name until the program ends",
        "cpython": "there is no Python under wine",
    },
    "aarch64-unknown-linux-gnu.2.17": {},
}


def main():
    target, crates = sys.argv[1], sys.argv[2:] or CRATES
    triple = target.removesuffix(".2.17")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        environment = os.environ.copy()
        if "windows" in target:
            # insta would ask cargo where the snapshots are.
            environment |= {"INSTA_WORKSPACE_ROOT": f"Z:{ROOT}"} | wine_environment(Path(name))
        runner = [WINE] if "windows" in target else AARCH64
        environment[f"CARGO_TARGET_{triple.upper().replace('-', '_')}_RUNNER"] = " ".join(runner)
        words = [word for crate in crates for word in ("-p", crate)]
        skips = [word for test in EXCEPTIONS[target] for word in ("--skip", test)]
        command = [ROOT / "deploy/cross", target, "test", "--locked", "--no-fail-fast", "--lib", "--tests", *words, "--", "--quiet", *skips]
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, errors="replace")
    print(done.stdout)
    passed, failed = (sum(map(int, re.findall(rf"(\d+) {word}", done.stdout))) for word in ("passed", "failed"))
    print(f"{target}: {passed} tests passed, {failed} failed; left out: {', '.join(EXCEPTIONS[target]) or 'none'}")
    sys.exit(done.returncode or not passed)


main()
