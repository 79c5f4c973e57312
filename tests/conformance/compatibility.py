#!/usr/bin/env python3
"""Writes docs/compatibility.md: what torch2carton, candle, pytorch-reader and torch.load(weights_only=True) read, measured.

    cargo build --release && cargo build --release --manifest-path benches/peers/Cargo.toml
    python3 tests/conformance/compatibility.py

The files are those of matrix.py, and of ../shared/corpus where it is there. What `torch.load(weights_only=False)` reads
(`pickle.load`, `torch.jit.load` and safetensors for their own files) is right. Needs what run.py needs.
"""

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
import environments  # noqa: E402

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent
DOCUMENT = TREE / "docs/compatibility.md"
COLUMNS = ("torch2carton", "candle", "pytorch-reader", "weights_only")
GROUPS = {
    "container": "Containers and protocols",
    "root": "Roots",
    "dtype": "Dtypes",
    "layout": "Layouts",
    "rebuild function": "Functions that make tensors",
    "special": "Special things",
    "numpy": "NumPy",
}
BARE = "zip, protocol 2"  # what torch.save writes


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--binary", type=Path, default=TREE / "target/release/torch2carton")
    arguments.add_argument("--peers", type=Path, default=TREE / "benches/peers/target/release/peers")
    options = arguments.parse_args()
    for program in (options.binary, options.peers):
        if not program.is_file():
            arguments.error(f"there is no {program}; the commands that build it are above")
    python = environments.make(environments.NEWEST)
    if os.environ.get("T2C_NEWEST") != str(python):  # this file needs torch: it goes on inside of the environment
        setting = os.environ | {"T2C_NEWEST": str(python), "T2C_BINARY": str(options.binary.resolve()), "PYTHONDONTWRITEBYTECODE": "1"}
        os.execve(python, [str(python), *sys.argv], setting)

    from conftest import worker
    torch = worker("NEWEST", "matrix_worker.py")
    with tempfile.TemporaryDirectory() as folder:
        files = generated(torch, Path(folder))
        found = read_all(options.peers, files)
        collected = corpus(torch)
        in_corpus = read_all(options.peers, collected)
    text = document(torch.ask("version"), files, found, collected, in_corpus)
    torch.close()
    DOCUMENT.write_text(text)
    print(f"wrote {DOCUMENT.relative_to(TREE)}: {len(files)} made files, {len(collected)} collected ones")


# --- The files: {"group", "name", "path", "right": rows, "weights_only": rows or words} ----------------------------------


def generated(torch, folder):
    import matrix

    files = []
    for writer in matrix.ALL_WRITERS:
        path = folder / f"{len(files)}.pt"
        files.append({"group": "container", "name": writer} | torch.ask("container", writer=writer, path=str(path)))
    for group, named in matrix.OBJECTS.items():
        for name in named:
            inside = folder / f"{len(files)}"
            inside.mkdir()
            (file,) = torch.ask("make", group=group, name=name, writers=[BARE], folder=str(inside))["files"]
            files.append({"group": group, "name": name} | file)
    judged = [file for file in files if "rows" in file.get("read", ())]
    return [file | {"right": file["read"]["rows"], "weights_only": outcome(file["weights_only"])} for file in judged]


def outcome(answer):
    return answer["rows"] if "rows" in answer else answer["error"]


def corpus(torch):
    import test_corpus

    files = []
    for row in test_corpus.corpus():
        expected, path = test_corpus.expectation(row["file"]), str(test_corpus.CORPUS / row["file"])
        right = [{"name": name} | tensor for name, tensor in expected["tensors"].items()]
        files.append({
            "group": "tensors" if right else "values" if test_corpus.is_read(expected) else "unread", "name": row["file"], "path": path,
            "right": right, "weights_only": outcome(torch.ask("weights_only", path=path))})
        if not test_corpus.is_read(expected):
            files[-1]["group"] = "unread"
    return files


# --- What each reader says: rows or words ---------------------------------------------------------------------------------


def read_all(peers, files):
    """For each file a dict of column → rows or words."""
    from test_matrix import ours

    answers = [{"torch2carton": ours(file["path"]), "weights_only": file["weights_only"]} for file in files]
    if files:
        command = [peers, "read", "--json", *(file["path"] for file in files)]
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        for line, answer in zip(lines, (answer for answer in answers for _ in range(2))):
            said = json.loads(line)
            kind, words = next((k, said[k]) for k in ("tensors", "error", "panic", "killed") if k in said)
            answer[said["peer"]] = words if kind in ("tensors", "error") else f"{kind}: {words}"
    return answers


def verdict(file, rows):
    """right, refused, panics, `leaves out 1 of 2`, or what is wrong."""
    if isinstance(rows, str):
        return "panics" if rows.startswith(("panic: ", "killed: ")) else "refused"
    right = {row["name"]: row for row in file["right"]}
    for row in rows:
        wanted = right.get(row["name"])
        if wanted is None:
            # An array or an attribute that the corpus' expectations do not count among the tensors is no mistake.
            if file["group"] in ("tensors", "values", "unread"):
                continue
            return f"wrong: `{row['name']}` is not its name" if row["name"] else "wrong: a tensor without a name"
        for fact in ("dtype", "shape", "sha256"):
            if fact in wanted and row.get(fact) != wanted[fact]:
                return f"wrong {'values' if fact == 'sha256' else fact}"
    lost = len(right) - len({row["name"] for row in rows} & set(right))
    return f"leaves out {lost} of {len(right)}" if lost else "right"


# --- The document --------------------------------------------------------------------------------------------------------------


def document(version, files, found, collected, in_corpus):
    manifest = (TREE / "benches/peers/Cargo.toml").read_text()
    of = lambda crate: re.search(rf'^{crate} = .*?"=([^"]+)"', manifest, re.M)[1]
    title = {
        "torch2carton": "torch2carton", "candle": f"candle {of('candle-core')}", "pytorch-reader": f"pytorch-reader {of('pytorch-reader')}",
        "weights_only": f"PyTorch {version.split('+')[0]}, `weights_only=True`"}
    heads = [title[column] for column in COLUMNS]
    out = [INTRODUCTION.format(torch=version.split("+")[0])]

    out += ["## In sum\n", *table(["", "files", *heads])]
    for group, name in GROUPS.items():
        mine = [(file, answer) for file, answer in zip(files, found) if file["group"] == group]
        out.append(line([name, str(len(mine)), *(sums(mine, column) for column in COLUMNS)]))
    out.append(line(["**All**", str(len(files)), *(sums(list(zip(files, found)), column) for column in COLUMNS)]))

    if collected:
        out += ["\n## Real files\n", "The corpus of [corpus.md](corpus.md), with the expectations collected there.\n", *table(["", "files", *heads])]
        for group, name in (("tensors", "with tensors"), ("values", "with other values alone"), ("unread", "that no loader reads")):
            mine = [(file, answer) for file, answer in zip(collected, in_corpus) if file["group"] == group]
            out.append(line([name, str(len(mine)), *(sums(mine, column, group == "unread") for column in COLUMNS)]))

    for group, name in GROUPS.items():
        out += [f"\n## {name}\n", *table([group, *heads])]
        for file, answer in zip(files, found):
            if file["group"] == group:
                out.append(line([f"`{file['name']}`" if group in ("dtype", "rebuild function") else file["name"], *(shown(verdict(file, answer[c])) for c in COLUMNS)]))

    out.append("\n## Why torch2carton refuses\n")
    for file, answer in zip(files, found):
        if verdict(file, answer["torch2carton"]) != "right":
            out.append(f"- {file['name']}: `{answer['torch2carton'] if isinstance(answer['torch2carton'], str) else verdict(file, answer['torch2carton'])}`")
    return "\n".join(out) + "\n"


def table(heads):
    return [line(heads), line(["---"] * len(heads))]


def line(cells):
    return "| " + " | ".join(cells) + " |"


def shown(said):
    return said if said != "right" else "✓"


def sums(mine, column, unjudged=False):
    counts = collections.Counter()
    for file, answer in mine:
        said = verdict(file, answer[column])
        kind = said if said in ("right", "refused", "panics") else "incomplete" if said.startswith("leaves") else "wrong"
        counts["read" if unjudged and kind == "right" else kind] += 1
    return ", ".join(f"{counts[kind]} {kind}" for kind in ("right", "read", "incomplete", "wrong", "refused", "panics") if counts[kind])


INTRODUCTION = """\
# What is read

Written by `python3 tests/conformance/compatibility.py`, which makes every file below with PyTorch {torch}, has all four
readers read it in one run, and compares. (Before that: `cargo build --release`, and the same with
`--manifest-path benches/peers/Cargo.toml`.)

- ✓, right: names, dtypes, shapes and bytes of all tensors are those that `torch.load(weights_only=False)` gives; for their own
  files `pickle.load`, `torch.jit.load` and safetensors are asked. NumPy arrays and storages by themselves count as tensors.
- refused: a clear error.
- leaves out, incomplete: what is listed is right, the rest is missing without an error.
- wrong: a name, dtype, shape or value is another one, without an error.
- panics: the reader ends in a panic.

candle is asked for `pickle::read_all`, and for `safetensors::load` of a safetensors file; pytorch-reader for
`PytorchReader::new` and all its tensors. candle looks in the dict at the root, or in the one under a key that the caller
names, and prints some of what it skips; burn reads safetensors with another crate than pytorch-reader; a NumPy array and a
storage by itself are no tensors to either. PyTorch's `weights_only=True` is the default of `torch.load`, and refuses classes
that were not allowed first. Values that are no tensors are not compared here. Each object below stands in a zip file of protocol 2,
as `torch.save` writes it, or in the container that the row names.
"""

if __name__ == "__main__":
    main()
