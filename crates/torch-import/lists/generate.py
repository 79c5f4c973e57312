#!/usr/bin/env python3
"""Writes the lists that risk.rs includes, and the list of callables that run code, from named versions.

    generate.py --keep FOLDER PYTHON…

Each PYTHON is an interpreter. Its standard library is probed, and torch and numpy if it has them. FOLDER keeps the answers, so
that an interrupted run goes on where it was. Python 2 is asked only for its modules. README.md says which versions the lists
are from. Needs Python 3.11.
"""

import _compat_pickle
import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
REACHES = HERE.parent / "tests/gadgets/reaches.txt"
WIDTH = 118

# What reaches.txt counts as running, importing or unpickling.
SINKS = set("builtins.exec builtins.eval builtins.compile builtins.__import__ importlib.import_module importlib.reload marshal.loads "
            "marshal.load _pickle.load _pickle.loads pickle._Unpickler _pickle.Unpickler pickle._load pickle._loads runpy.run_path "
            "runpy.run_module imp.load_source torch.serialization.load torch.jit._serialization.load".split())

PYTHON_2 = """
import json, os, pkgutil, sys
folder = os.path.dirname(os.__file__)
names = set(sys.builtin_module_names) | set(info[1] for info in pkgutil.iter_modules([folder, folder + "/lib-dynload"]))
print(json.dumps({"version": "CPython " + sys.version.split()[0], "modules": sorted(names)}))
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("pythons", nargs="+")
    args = parser.parse_args()
    args.keep.mkdir(parents=True, exist_ok=True)
    with open(HERE / "rules.toml", "rb") as file:
        rules = tomllib.load(file)
    (args.keep / "rules.json").write_text(json.dumps(rules))
    answers = [answer for python in args.pythons for answer in ask(python, args.keep)]
    problems = {module: names for answer in answers for module, names in answer.get("uppercase", {}).items()}
    if problems:
        sys.exit(f"risk.rs takes attributes in capitals for constants, but these are callable: {problems}")
    versions = ", ".join(sorted({answer["version"] for answer in answers}, key=version_key))
    write_modules(rules, answers, versions)
    write_harmless(rules, answers, versions)
    write_aliases(rules, answers, versions)
    write_reaches(rules, answers, versions)


def version_key(version):
    name, number = version.split()
    return name, [int(part) for part in number.split("+")[0].split(".")]


def ask(python, keep):
    """The answers of one interpreter, of each package that it has."""
    key = python.strip("/").replace("/", "-")
    version = subprocess.run([python, "-c", "import sys; print(sys.version_info[0])"], capture_output=True, text=True, check=True)
    if version.stdout.strip() == "2":
        yield json.loads(subprocess.run([python, "-c", PYTHON_2], capture_output=True, text=True, check=True).stdout)
        return
    for package in ("stdlib", "numpy", "torch"):
        has = package == "stdlib" or subprocess.run([python, "-c", f"import {package}"], capture_output=True).returncode == 0
        kept = keep / f"{key}-{package}.json"
        if has and not kept.exists():
            print(f"probing {package} of {python} …", file=sys.stderr)
            with tempfile.TemporaryDirectory() as scratch:
                command = [python, "-W", "ignore", HERE / "probe.py", package, keep.resolve() / "rules.json", kept.resolve()]
                done = subprocess.run(command, cwd=scratch, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900)
            if done.returncode != 0:
                sys.exit(f"{python}: {package}: {done.stderr[-2000:]}")
        if has:
            yield json.loads(kept.read_text())


def write_modules(rules, answers, versions):
    words = set().union(*(answer["modules"] for answer in answers))
    for modules in rules["elsewhere"].values():
        words |= set(modules.split())
    words -= {"__main__"}
    write(HERE / "inside.txt", "The modules and packages of the standard library, torch and numpy.", versions, wrap(sorted(words)))


def write_harmless(rules, answers, versions):
    found = {}
    by_hand = [{module: names.split() for module, names in rules[part].items()} for part in ("names", "removed")]
    for table in [answer.get("harmless", {}) for answer in answers] + by_hand:
        for module, names in table.items():
            found.setdefault(module, set()).update(names)
    # A name that one version drops is dropped in all.
    for answer in answers:
        for dotted in answer.get("dropped", {}):
            for module in prefixes(dotted):
                found.get(module, set()).discard(dotted[len(module) + 1 :])
    for module, names in rules["refused"].items():
        found.get(module, set()).difference_update(names.split())
    lines = []
    for module, names in sorted(found.items()):
        lines += wrap([module, *sorted(names)]) if names else []
    write(HERE / "harmless.txt", "The harmless names of each module: what only makes or computes data.", versions, lines)


def prefixes(dotted):
    return [dotted[:at] for at, character in enumerate(dotted) if character == "."]


def write_aliases(rules, answers, versions):
    pairs = {}
    for answer in answers:
        pairs.update(answer.get("aliases", {}))
    pairs.update({old: new for old, new in _compat_pickle.IMPORT_MAPPING.items() if old not in ("dbm",)})
    pairs.update(rules["aliases"])
    lines = [f"{old} {new}" for old, new in pairs.items()]
    names = _compat_pickle.NAME_MAPPING.items()
    lines += [f"{old[0]}.{old[1]} {new[0]}.{new[1]}" for old, new in names]
    lines += [f"exceptions.{name} builtins.{name}" for name in _compat_pickle.PYTHON2_EXCEPTIONS]
    write(HERE / "aliases.txt", "A module or a name, and the familiar one of the same object.", versions, sorted(set(lines)))


def write_reaches(rules, answers, versions):
    trusted = {f"{module} {name}" for module, names in rules["trusted"].items() for name in names.split()}
    found = {}
    for answer in answers:
        for name, path in answer.get("reaches", {}).items():
            found.setdefault(name, (answer["version"], path))
    # Chains of one or two calls: what is nearest to its sink is the clearest case.
    rows = sorted((name, path[-1]) for name, (version, path) in found.items() if 1 < len(path) <= 3 and path[-1] in SINKS)
    lines = [f"{name} {sink}" for name, sink in rows if ".test" not in name and name not in trusted]
    write(REACHES, "A module, a callable of it, and the sink that its source reaches in one or two calls.", versions, lines)


def wrap(words):
    """Lines of words; all but the first are indented."""
    lines, line = [], words[0]
    for word in words[1:]:
        if len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line = " "
        line += " " + word
    return [*lines, line]


def write(path, title, versions, lines):
    header = ["# " + title, "# Written by crates/torch-import/lists/generate.py from", *("#   " + line.strip() for line in wrap(versions.split(" ")))]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(header + lines) + "\n")
    print(f"{path.name}: {len(lines)} lines", file=sys.stderr)


if __name__ == "__main__":
    main()
