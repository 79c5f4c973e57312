#!/usr/bin/env python3
"""Writes the table of accuracy in docs/models.md from what the checks of models print.

    run.py test_models.py test_forward.py >FIGURES
    accuracy.py FIGURES
"""

import re
import sys
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parent.parent.parent / "docs/models.md"
DTYPES = ["float32", "bfloat16", "float16", "float64"]
HEAD = f"| kind | {' | '.join(DTYPES)} |\n|{'---|' * 5}\n"
RUNNERS = ["2.0.1", "newest", "reference", "CPU forward"]


def read(lines):
    """The figures of each kind, by dtype and runner."""
    kinds = {}
    for line in lines:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) < 6 or cells[1] not in DTYPES:
            continue
        kind, dtype, runner = cells[:3]
        found = kinds.setdefault(kind, {}).setdefault(dtype, {})
        if runner == "CPU forward":
            found[runner] = cells[3]
        elif runner == "2.0.1":
            found[runner] = cells[4]
        else:
            found["newest"], found["reference"] = cells[4:6]
    return kinds


def main():
    kinds = read(Path(sys.argv[1]).read_text().splitlines())
    row = lambda found: " · ".join(found.get(runner, "-") for runner in RUNNERS)
    table = "".join(f"| {kind} | {' | '.join(row(found.get(dtype, {})) for dtype in DTYPES)} |\n" for kind, found in kinds.items())
    text, count = re.subn(re.escape(HEAD) + r"(\|.*\n)*", lambda _: HEAD + table, DOCUMENT.read_text())
    if count != 1 or not kinds:
        sys.exit(f"error: {len(kinds)} kinds, and {count} tables in {DOCUMENT.name}")
    DOCUMENT.write_text(text)


if __name__ == "__main__":
    main()
