#!/usr/bin/env python3
"""Writes the lists that risk.rs includes, and the list of callables that run code, from named versions.

    generate.py --keep FOLDER [--add | --instances | --dangerous] PYTHON…

Each PYTHON is an interpreter. Its standard library is probed, and torch and numpy if it has them. FOLDER keeps the answers, so
that an interrupted run goes on where it was. With --add, the lists keep what they
have from other versions, except instances.txt. With --instances, only instances.txt is written, for the names that
harmless.txt has already: a few seconds for each interpreter. With --dangerous, only dangerous.txt and native.txt are written, which
never lose a name. Python 2 is asked only for its modules. README.md says which versions the
lists are from. Needs Python 3.11.
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
    parser.add_argument("--add", action="store_true")
    parser.add_argument("--instances", action="store_true")
    parser.add_argument("--dangerous", action="store_true")
    parser.add_argument("pythons", nargs="+")
    args = parser.parse_args()
    args.keep.mkdir(parents=True, exist_ok=True)
    with open(HERE / "rules.toml", "rb") as file:
        rules = tomllib.load(file)
    (args.keep / "rules.json").write_text(json.dumps(rules))
    if args.instances or args.dangerous:
        write_known(args.keep / "harmless.json")
    if args.dangerous:
        write_dangerous(args.pythons, args.keep)
        return
    if args.instances:
        answers = [answer for python in args.pythons for answer in ask(python, args.keep, "instances")]
        versions = {answer["version"] for answer in answers if "instances" in answer}
        write_instances(rules, answers, ", ".join(sorted(versions, key=version_key)))
        return
    answers = [answer for python in args.pythons for answer in ask(python, args.keep)]
    problems = {module: names for answer in answers for module, names in answer.get("uppercase", {}).items()}
    if problems:
        sys.exit(f"risk.rs takes attributes in capitals for constants, but these are callable: {problems}")
    probed = {answer["version"] for answer in answers}
    versions = ", ".join(sorted(probed, key=version_key))
    kept = []
    if args.add:
        kept = [{"harmless": names_in(HERE / "harmless.txt"), "modules": list(names_in(HERE / "inside.txt", only_modules=True))}]
        probed |= versions_in(HERE / "harmless.txt")
    all_versions = ", ".join(sorted(probed, key=version_key))
    write_modules(rules, answers + kept, all_versions)
    write_harmless(rules, answers + kept, all_versions)
    write_instances(rules, answers, versions)
    write_aliases(rules, answers, all_versions, lines_in(HERE / "aliases.txt") if args.add else [])
    write_reaches(rules, answers, all_versions, lines_in(REACHES) if args.add else [])
    write_known(args.keep / "harmless.json")
    write_dangerous(args.pythons, args.keep)


def write_known(path):
    """The names of all lists of what is harmless, by module."""
    found = names_in(HERE / "harmless.txt")
    for module, words in names_in(HERE / "instances.txt").items():
        found.setdefault(module, []).extend(word.split("=")[0] for word in words)
    for line in lines_in(HERE / "reviewed.txt"):
        if line:
            module, name = line.split(" ")[:2]
            found.setdefault(module, []).append(name)
    path.write_text(json.dumps(found))


def lines_in(path):
    return [line for line in path.read_text().splitlines() if not line.startswith("#")]


def names_in(path, only_modules=False):
    """The names of a list that this script wrote, by module."""
    found, module = {}, ""
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            words = line.split()
            if only_modules:
                found.update(dict.fromkeys(words))
                continue
            if not line.startswith(" "):
                module, *words = words
            found.setdefault(module, []).extend(words)
    return found


def versions_in(path):
    header = [line[2:].strip() for line in path.read_text().splitlines()[2:] if line.startswith("#")]
    return {version.strip() for version in " ".join(header).split(",")}


def version_key(version):
    name, number = version.split()
    return name, [int(part) for part in number.split("+")[0].split(".")]


def ask(python, keep, mode=""):
    """The answers of one interpreter, of each package that it has; with a mode, only about instances or what is dangerous."""
    key = python.strip("/").replace("/", "-")
    version = subprocess.run([python, "-c", "import sys; print(sys.version_info[0])"], capture_output=True, text=True, check=True)
    if version.stdout.strip() == "2":
        yield json.loads(subprocess.run([python, "-c", PYTHON_2], capture_output=True, text=True, check=True).stdout)
        return
    required = [line.split()[0] for line in lines_in(HERE / "required.txt")] if mode == "dangerous" else []
    for package in ("stdlib", "numpy", "torch", *required):
        has = package == "stdlib" or subprocess.run([python, "-c", f"import {package}"], capture_output=True).returncode == 0
        kept = keep / f"{key}-{package}{'-' + mode if mode else ''}.json"
        if has and not kept.exists():
            print(f"probing {package} of {python} …", file=sys.stderr)
            with tempfile.TemporaryDirectory() as scratch:
                command = [python, "-W", "ignore", HERE / "probe.py", package, keep.resolve() / "rules.json", kept.resolve(), *([mode, keep.resolve() / "harmless.json"] if mode else [])]
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
    # Another module's object counts under the name of its definition.
    true_names = {}
    for answer in answers:
        true_names.update(answer.get("true_names", {}))
    for shown, true in true_names.items():
        (module, name), (home, true_name) = shown.split(" ", 1), true.split(" ", 1)
        if true_name not in found.get(home, ()) and name not in rules["names"].get(module, "").split():
            found.get(module, set()).discard(name)
    lines = []
    for module, names in sorted(found.items()):
        lines += wrap([module, *sorted(names)]) if names else []
    write(HERE / "harmless.txt", "The harmless names of each module: what only makes or computes data.", versions, lines)


WITHOUT_HOOKS = ("CPython 2.", "CPython 3.6", "CPython 3.7")
# Letters of which one includes the other.
STRONGER = {"N": "n", "H": "mh", "m": "h", "k": "K"}


def write_instances(rules, answers, versions):
    """A use counts if it was judged in every version that has the class."""
    found = {}
    for answer in answers:
        for module, classes in answer.get("instances", {}).items():
            for name, letters in classes.items():
                letters = set(letters) | set("".join(STRONGER.get(letter, "") for letter in letters))
                # Without a hook, every state that fits is stored, and every other one is an error.
                letters |= set("Hmhl") if {"d", "s"} <= letters else set()
                kept = found.setdefault(module, {})
                kept[name] = kept[name] & letters if name in kept else letters
    # Another module's class counts under the name of its definition.
    for answer in answers:
        for shown, true in answer.get("true_names", {}).items():
            (module, name), (home, true_name) = shown.split(" ", 1), true.split(" ", 1)
            if letters := found.get(home, {}).get(true_name):
                kept = found.setdefault(module, {})
                kept[name] = kept.get(name, letters) & letters
    for module, names in rules["refused"].items():
        for name in names.split():
            found.get(module, {}).pop(name, None)
    # Where no interpreter with audit hooks has a class, nothing can prove its uses.
    provable = {(module, name) for answer in answers if not answer["version"].startswith(WITHOUT_HOOKS)
                for table in (answer.get("instances", {}), shown_names(answer)) for module, names in table.items() for name in names}
    found = {module: {name: letters for name, letters in classes.items() if (module, name) in provable} for module, classes in found.items()}
    lines = []
    for module, classes in sorted(found.items()):
        words = [f"{name}={text}" for name, letters in sorted(classes.items()) if (text := shortest(letters))]
        lines += wrap([module, *words]) if words else []
    write(HERE / "instances.txt", "The classes of each module, with letters for what a pickle can do with their instances.", versions, lines)


def shown_names(answer):
    """The other names of classes, by module."""
    found = {}
    for name in answer.get("true_names", {}):
        module, attribute = name.split(" ", 1)
        found.setdefault(module, []).append(attribute)
    return found


def shortest(letters):
    """The letters without those that another one includes."""
    implied = set("".join(STRONGER.get(letter, "") for letter in letters)) | (set("Hmhl") if {"d", "s"} <= letters else set())
    return "".join(sorted(letters - implied))


def write_dangerous(pythons, keep):
    """What a list has once called dangerous stays so."""
    answers = [answer for python in pythons for answer in ask(python, keep, "dangerous")]
    probed = {answer["version"] for answer in answers} | versions_in(HERE / "dangerous.txt")
    versions = ", ".join(sorted(probed, key=version_key))
    found = {module: set(names) for module, names in names_in(HERE / "dangerous.txt").items()}
    for answer in answers:
        for module, names in answer.get("dangerous", {}).items():
            found.setdefault(module, set()).update(names)
    native = {*" ".join(lines_in(HERE / "native.txt")).split(), *(module for answer in answers for module in answer.get("native", ()))}
    write(HERE / "native.txt", "The modules in C, in which everything is dangerous that no list calls harmless.", versions, wrap(sorted(native)))
    # Also what advisories name, and what reaches.txt has of versions that were not probed now.
    tops = {module.split(".")[0] for module in names_in(HERE / "inside.txt", only_modules=True)}
    for line in lines_in(REACHES) + lines_in(REACHES.with_name("advisories.txt")):
        module, name = line.split(" ")[:2]
        if module.split(".")[0] in tops:
            found.setdefault(module, set()).add(name)
    # What refused.txt and native.txt have anyway is left out.
    wide = {word for line in lines_in(HERE / "refused.txt") for word in line.split()} | native
    for module, names in found.items():
        found[module] = {name for name in names if not wide.intersection([*prefixes(f"{module}.{name}"), f"{module}.{name}"])}
    lines = [line for module, names in sorted(found.items()) if names for line in wrap([module, *sorted(names)])]
    write(HERE / "dangerous.txt", "The callables of each module that reach a sink within six calls, that C has made, or that advisories name; under every name.", versions, lines)


def prefixes(dotted):
    return [dotted[:at] for at, character in enumerate(dotted) if character == "."]


def write_aliases(rules, answers, versions, kept):
    pairs = dict(line.split(" ", 1) for line in kept)
    for answer in answers:
        pairs.update(answer.get("aliases", {}))
    pairs.update({old: new for old, new in _compat_pickle.IMPORT_MAPPING.items() if old not in ("dbm",)})
    pairs.update(rules["aliases"])
    lines = [f"{old} {new}" for old, new in pairs.items()]
    names = _compat_pickle.NAME_MAPPING.items()
    lines += [f"{old[0]}.{old[1]} {new[0]}.{new[1]}" for old, new in names]
    lines += [f"exceptions.{name} builtins.{name}" for name in _compat_pickle.PYTHON2_EXCEPTIONS]
    write(HERE / "aliases.txt", "A module or a name, and the familiar one of the same object.", versions, sorted(set(lines)))


def write_reaches(rules, answers, versions, kept):
    trusted = {f"{module} {name}" for module, names in rules["trusted"].items() for name in names.split()}
    found = {}
    for answer in answers:
        for name, path in answer.get("reaches", {}).items():
            found.setdefault(name, (answer["version"], path))
    # Chains of one or two calls: what is nearest to its sink is the clearest case.
    rows = sorted((name, path[-1]) for name, (version, path) in found.items() if 1 < len(path) <= 3 and path[-1] in SINKS)
    lines = sorted({*kept, *(f"{name} {sink}" for name, sink in rows if ".test" not in name and name not in trusted)})
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
