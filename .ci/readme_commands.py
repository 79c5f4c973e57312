#!/usr/bin/env python3
"""Runs the commands in the section "Two commands" of README.md, exactly as they are printed there.

    readme_commands.py [--print] [NUMBER]    runs all in order, or number NUMBER, counted from 1
"""

import re
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent


def commands():
    section = re.search(r"^## Two commands\n(.*?)(?=^## )", (TREE / "README.md").read_text(), re.M | re.S)
    return re.findall(r"^```sh\n(.*?)^```", section[1], re.M | re.S) if section else []


def main():
    chosen = commands()
    if len(chosen) != 2:
        sys.exit(f'README.md, section "Two commands": expected 2 blocks of sh, found {len(chosen)}')
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    for number in numbers or range(1, len(chosen) + 1):
        command = chosen[number - 1].strip()
        print(f"$ {command}", flush=True)
        if "--print" not in sys.argv:
            status = subprocess.run(["bash", "-c", command], cwd=TREE, stdin=subprocess.DEVNULL).returncode
            if status != 0:
                sys.exit(f"README.md, command {number}: exit status {status}")


if __name__ == "__main__":
    main()
