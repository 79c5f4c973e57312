#!/usr/bin/env python3
"""Proves the lists of judged uses: loads pickles of every use, in several shapes, under an audit hook.

    judged_uses.py [--sample N | --reviewed] [--write] [--keep FOLDER] PYTHON…

PYTHON are interpreters with torch and numpy, such as the newest torch and 2.0.1, and others without, of version 3.8 and newer. For each
name of lists/reviewed.txt and instances.txt and each of its uses, workers/use_worker.py loads pickles. A use must not write, start a
program, open a socket, execute code, or import from outside of its package; it is proved if at least one pickle ran to the end in one
interpreter, and none did any of that in another. --write drops from instances.txt what is not proved, and writes the table of
lists/README.md. A use of reviewed.txt that is not proved must be in lists/unproved.txt, with the reason why it was judged all the same.
--keep keeps the answers of each interpreter in a folder, so that the interpreters can be run one after another.
"""

import argparse
import hashlib
import json
import random
import subprocess
import sys
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
LISTS = HERE.parent.parent / "crates/torch-import/lists"
START, END = "<!-- judged_uses.py writes this table -->\n", "<!-- the end of the table -->\n"

# The use that each letter stands for; see README.md of the lists.
USES = {"n": "created", "N": "created", "d": "state_dict", "s": "state_slots", "h": "state_hook", "H": "state_hook", "l": "state_hook", "m": "state_hook", "r": "state_hook", "b": "state_hook", "t": "state_hook", "g": "state_hook",
        "a": "appended", "i": "items_set", "j": "items_set", "k": "hashed", "K": "hashed", "p": "read", "e": "call", "x": "exception"}
# Reviewed names that Python cannot run alone, and why.
APART = {"torch.storage _load_from_bytes": "loads a checkpoint, which the scan reads", "torch.jit._pickle build_tensor_from_id": "is for the reader in C++",
         "torch ScriptObject": "needs a class of C++", "torch.utils._pytree treespec_leaf": "2.0.1 does not have it"}


def instances():
    module = ""
    for line in (LISTS / "instances.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        words = line.split()
        if not line.startswith(" "):
            module, *words = words
        for word in words:
            name, _, letters = word.partition("=")
            for letter in letters:
                yield module, name, letter, letters


def reviewed():
    for line in (LISTS / "reviewed.txt").read_text().splitlines():
        if not line.startswith("#"):
            names, arguments, _, letters, _ = (cell.strip() for cell in line.split("|", 4))
            module, name = names.split(" ")
            # What sympy and fsspec write is in ordinary.py.
            if names in APART or "y" in letters:
                continue
            if arguments != "-":
                yield module, name, "call", letters
            for letter in letters.replace("-", "").replace("c", ""):
                yield module, name, letter, letters


def judged_without_proof():
    """The uses of reviewed.txt that no interpreter here can show."""
    for line in (LISTS / "unproved.txt").read_text().splitlines():
        if not line.startswith("#"):
            names, uses, reason = (cell.strip() for cell in line.split("|", 2))
            assert reason, line
            for use in uses.split():
                yield (*names.split(" "), use)


# Uses that the hook must stop; otherwise the others would prove nothing.
CONTROLS = [("os", "system", "call"), ("builtins", "open", "call"), ("builtins", "eval", "call"), ("socket", "socket", "call"), ("builtins", "__import__", "call"),
            ("numpy", "load", "call"), ("subprocess", "Popen", "call")]


def run(python, tasks):
    keys = ("module", "name", "use", "letters")
    lines = "".join(json.dumps(dict(zip(keys, (module, name, USES.get(letter, letter), letters), strict=True))) + "\n" for module, name, letter, letters in tasks)
    done = subprocess.run([python, "-B", "-W", "ignore", HERE / "workers/use_worker.py"], input=lines, capture_output=True, text=True, cwd="/")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(tasks), f"{python} stopped at {tasks[len(answers)]}: {done.stderr[-2000:]}"
    return answers


def kept(folder, python, tasks):
    """The answers of an interpreter, from a file if an earlier run asked it for the same uses."""
    if folder is None:
        return run(python, tasks)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (hashlib.sha256(json.dumps([python, tasks]).encode()).hexdigest()[:16] + ".json")
    if not path.exists():
        path.write_text(json.dumps(run(python, tasks)))
    return json.loads(path.read_text())


def plain(python):
    """Whether the interpreter has no torch."""
    return subprocess.run([python, "-c", "import torch"], capture_output=True).returncode != 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, help="check only this many uses, chosen by a seed")
    parser.add_argument("--reviewed", action="store_true", help="only what reviewed.txt has")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("pythons", nargs="+")
    args = parser.parse_args()
    by_hand = list(reviewed())
    tasks = by_hand if args.reviewed else by_hand + list(instances())
    if args.sample:
        tasks = random.Random(22).sample(tasks, min(args.sample, len(tasks)))
    for python in args.pythons:
        stopped = [bool(answer.get("stopped")) for answer in run(python, [(*control, "n") for control in CONTROLS if control[0] != "numpy" or not plain(python)])]
        assert all(stopped), f"{python}: the hook does not stop {list(zip(CONTROLS, stopped))}"
    # Two interpreters at a time.
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda python: kept(args.keep, python, tasks), args.pythons))
    hands = {task[:3] for task in by_hand}
    table, violations, unproved = defaultdict(Counter), [], []
    for (*task, _), *found in zip(tasks, *answers):
        task = tuple(task)
        has = [answer for answer in found if "missing" not in answer]
        row = table[USES.get(task[2], task[2])]
        row["uses"] += 1
        row["pickles"] += sum(answer["tried"] for answer in has)
        row["ran"] += sum(answer["ran"] for answer in has)
        violations += [(*task, event) for answer in has for event in answer["stopped"]]
        if any(answer["ran"] for answer in has) and not any(answer["stopped"] for answer in has):
            row["proved"] += 1
        else:
            unproved.append((*task, [answer.get("errors", answer.get("missing")) for answer in found]))
    print("use | uses | proved | pickles | ran to the end")
    for use, row in sorted(table.items()):
        print(use, row["uses"], row["proved"], row["pickles"], row["ran"], sep=" | ")
    reasons = set(judged_without_proof())
    without = [task[:2] + (USES.get(task[2], task[2]),) for task in unproved if task[:3] in hands]
    for use in without:
        if use not in reasons:
            print("NEITHER PROVED NOR IN unproved.txt", *use)
    if not args.sample:
        for use in sorted(reasons - set(without)):
            print("IN unproved.txt, BUT PROVED OR NOT LISTED", *use)
    for module, name, letter, why in unproved:
        print("unproved", "by hand" if (module, name, letter) in hands else "generated", module, name, USES.get(letter, letter), why)
    for violation in violations:
        print("VIOLATION", *violation)
    if args.write:
        dropped = {(module, name, letter) for module, name, letter, _ in unproved} | {violation[:3] for violation in violations}
        write(dropped - hands, table)
    sys.exit(1 if violations or set(without) - reasons else 0)


def write(dropped, table):
    path = LISTS / "instances.txt"
    kept = defaultdict(lambda: defaultdict(str))
    for module, name, letter, _ in instances():
        if (module, name, letter) not in dropped:
            kept[module][name] += letter
    header = [line for line in path.read_text().splitlines() if line.startswith("#")]
    sys.path.insert(0, str(LISTS))
    sys.dont_write_bytecode = True
    import generate

    lines = [line for module in sorted(kept) for line in generate.wrap([module, *(f"{name}={letters}" for name, letters in kept[module].items())])]
    path.write_text("\n".join(header + lines) + "\n")
    readme = LISTS / "README.md"
    before, start, rest = readme.read_text().partition(START)
    assert start and END in rest, f"{readme} has no part for the table"
    rows = ["| use | judged uses | proved | pickles | ran to the end |", "|---|---|---|---|---|"]
    rows += [f"| `{use}` | {row['uses']} | {row['proved']} | {row['pickles']} | {row['ran']} |" for use, row in sorted(table.items())]
    readme.write_text(before + START + "\n" + "\n".join(rows) + "\n\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
