#!/usr/bin/env python3
"""Imports each module whose names the lists call harmless: a pickle that names one imports the module.

    judged_imports.py [--sample N] PYTHON…

Each PYTHON imports the modules under the audit hook of workers/guard.py. The exit status is 1 if an import starts a program, writes, opens
a socket, or does not end.
"""

import argparse
import json
import random
import subprocess
import sys

from judged_uses import HERE, LISTS


def modules():
    found = set()
    for name in ("harmless.txt", "instances.txt", "reviewed.txt"):
        lines = (LISTS / name).read_text().splitlines()
        found.update(line.split(" ", 1)[0] for line in lines if line and not line.startswith(("#", " ")))
    return sorted(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, help="import only this many modules, chosen by a seed")
    parser.add_argument("pythons", nargs="+")
    options = parser.parse_args()
    chosen = modules()
    if options.sample:
        chosen = random.Random(22).sample(chosen, min(options.sample, len(chosen)))
    faults = 0
    for python in options.pythons:
        worker = subprocess.run([python, "-B", HERE / "workers/import_worker.py"], input="\n".join(["import_control", *chosen]) + "\n", capture_output=True, text=True, cwd="/")
        answers = [json.loads(line) for line in worker.stdout.splitlines()]
        assert len(answers) == len(chosen) + 1, worker.stderr[-2000:]
        assert answers[0]["events"], "the hook does not see what workers/import_control.py starts"
        print(python, len(chosen), "modules,", sum(answer["error"] is None for answer in answers[1:]), "imported")
        for module, answer in zip(chosen, answers[1:], strict=True):
            if answer["events"]:
                faults += 1
                print("RUNS", module, answer["events"])
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
