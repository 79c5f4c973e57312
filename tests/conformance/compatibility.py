#!/usr/bin/env python3
"""Writes docs/compatibility.md: which files torch2carton, candle, pytorch-reader and torch.load(weights_only=True) read.

    cargo build --release && cargo build --release --manifest-path benches/peers/Cargo.toml
    python3 tests/conformance/compatibility.py

The files are those of matrix.py and, if it exists, of ../shared/corpus. The reference is `torch.load(weights_only=False)`, or
`pickle.load`, `torch.jit.load` and safetensors for their own formats. Needs the same environment as run.py.
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
            arguments.error(f"{program} does not exist; the commands that build it are above")
    python = environments.make(environments.NEWEST)
    if os.environ.get("T2C_NEWEST") != str(python):  # this file needs torch, so it continues inside the environment
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
    print(f"wrote {DOCUMENT.relative_to(TREE)}: {len(files)} generated files, {len(collected)} collected files")


# --- The files: {"group", "name", "path", "right": rows, "weights_only": rows or error} ----------------------------------


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


# --- What each reader returns: rows or an error ---------------------------------------------------------------------------------


def read_all(peers, files):
    """For each file, a dict of column → rows or error text."""
    from test_matrix import ours

    answers = [{"torch2carton": ours(file["path"]), "weights_only": file["weights_only"]} for file in files]
    if files:
        command = [peers, "read", "--json", *(file["path"] for file in files)]
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        for line, answer in zip(lines, (answer for answer in answers for _ in range(2))):
            result = json.loads(line)
            kind, content = next((k, result[k]) for k in ("tensors", "error", "panic", "killed") if k in result)
            answer[result["peer"]] = content if kind in ("tensors", "error") else f"{kind}: {content}"
    return answers


def verdict(file, rows):
    """`right`, `refused`, `panics`, `leaves out 1 of 2`, or a text that starts with `wrong`."""
    if isinstance(rows, str):
        return "panics" if rows.startswith(("panic: ", "killed: ")) else "refused"
    right = {row["name"]: row for row in file["right"]}
    for row in rows:
        wanted = right.get(row["name"])
        if wanted is None:
            # The corpus' expectations do not list arrays and attributes as tensors, so an additional one is not an error.
            if file["group"] in ("tensors", "values", "unread"):
                continue
            return f"wrong: `{row['name']}` is not the name of a tensor" if row["name"] else "wrong: a tensor without a name"
        for fact in ("dtype", "shape", "sha256"):
            if fact in wanted and row.get(fact) != wanted[fact]:
                return f"wrong {'values' if fact == 'sha256' else fact}"
    lost = len(right) - len({row["name"] for row in rows} & set(right))
    return f"leaves out {lost} of {len(right)}" if lost else "right"


# --- The document --------------------------------------------------------------------------------------------------------------


def document(version, files, found, collected, in_corpus):
    manifest = (TREE / "benches/peers/Cargo.toml").read_text()
    release = lambda crate: re.search(rf'^{crate} = .*?"=([^"]+)"', manifest, re.M)[1]
    title = {
        "torch2carton": "torch2carton", "candle": f"candle {release('candle-core')}", "pytorch-reader": f"pytorch-reader {release('pytorch-reader')}",
        "weights_only": f"PyTorch {version.split('+')[0]}, `weights_only=True`"}
    heads = [title[column] for column in COLUMNS]
    out = [INTRODUCTION.format(torch=version.split("+")[0])]

    out += ["## Summary\n", *table(["", "files", *heads])]
    for group, name in GROUPS.items():
        mine = [(file, answer) for file, answer in zip(files, found) if file["group"] == group]
        out.append(line([name, str(len(mine)), *(sums(mine, column) for column in COLUMNS)]))
    out.append(line(["**All**", str(len(files)), *(sums(list(zip(files, found)), column) for column in COLUMNS)]))

    if collected:
        out += ["\n## Real files\n", "The corpus of [corpus.md](corpus.md), compared with the expectations collected there.\n", *table(["", "files", *heads])]
        for group, name in (("tensors", "with tensors"), ("values", "with other values only"), ("unread", "not read by any loader")):
            mine = [(file, answer) for file, answer in zip(collected, in_corpus) if file["group"] == group]
            out.append(line([name, str(len(mine)), *(sums(mine, column, group == "unread") for column in COLUMNS)]))

    for group, name in GROUPS.items():
        out += [f"\n## {name}\n", *table([group, *heads])]
        for file, answer in zip(files, found):
            if file["group"] == group:
                out.append(line([f"`{file['name']}`" if group in ("dtype", "rebuild function") else file["name"], *(shown(verdict(file, answer[c])) for c in COLUMNS)]))

    refused = [(file, answer["torch2carton"]) for file, answer in zip(files, found) if verdict(file, answer["torch2carton"]) != "right"]
    if refused:
        out.append("\n## Why torch2carton refuses\n")
    for file, answer in refused:
        out.append(f"- {file['name']}: `{answer if isinstance(answer, str) else verdict(file, answer)}`")
    return "\n".join(out) + "\n"


def table(heads):
    return [line(heads), line(["---"] * len(heads))]


def line(cells):
    return "| " + " | ".join(cells) + " |"


def shown(text):
    return text if text != "right" else "✓"


def sums(mine, column, unjudged=False):
    counts = collections.Counter()
    for file, answer in mine:
        text = verdict(file, answer[column])
        kind = text if text in ("right", "refused", "panics") else "incomplete" if text.startswith("leaves") else "wrong"
        counts["read" if unjudged and kind == "right" else kind] += 1
    return ", ".join(f"{counts[kind]} {kind}" for kind in ("right", "read", "incomplete", "wrong", "refused", "panics") if counts[kind])


INTRODUCTION = """\
# Which files are read

`python3 tests/conformance/compatibility.py` writes this document. It makes every file below with PyTorch {torch}, lets all
four readers read it in the same run, and compares the results. First run `cargo build --release`, and once more with
`--manifest-path benches/peers/Cargo.toml`.

- ✓, right: the names, dtypes, shapes and bytes of all tensors equal those that `torch.load(weights_only=False)` returns. For
  formats that `torch.load` does not read, `pickle.load`, `torch.jit.load` or safetensors is the reference. NumPy arrays and
  standalone storages count as tensors.
- refused: the reader returns a clear error.
- leaves out, incomplete: the listed tensors are right, but others are missing without an error.
- wrong: a name, dtype, shape or value differs without an error.
- panics: the reader panics.

The candle column shows `pickle::read_all`, and `safetensors::load` for a safetensors file. candle looks only in the dict at
the root, or in a dict whose key the caller names, and prints some of the entries that it skips. The pytorch-reader column
shows `PytorchReader::new` and all its tensors. burn, which uses pytorch-reader, reads safetensors with a different crate.
Neither treats a NumPy array or a standalone storage as a tensor. `weights_only=True` is the default of `torch.load` in
PyTorch and refuses classes that the caller did not allow. Values that are not tensors are not compared here. Unless the row
names another container, each object below is in a zip file with protocol 2, which is what `torch.save` writes.
"""

if __name__ == "__main__":
    main()
