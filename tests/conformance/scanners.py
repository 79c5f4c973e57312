#!/usr/bin/env python3
"""Writes the tables of docs/scan.md: the verdicts of torch2carton, picklescan, fickling, modelscan and modelaudit on the same files.

    scanners.py PROGRAM [--ordinary FOLDER] [--torch PYTHON]

Needs a Python with numpy, picklescan, fickling, modelscan and modelaudit, and one with torch, which may be another. FOLDER holds what
ordinary.py wrote; without it, ordinary.py is run with the packages of the Python that has torch. The column "runs" comes from
runs.py, which loads each file under an audit hook that reports and stops what the file tries to do. The scanners load nothing.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

sys.dont_write_bytecode = True
import payloads  # noqa: E402
import runs  # noqa: E402  (after the line above, so that no __pycache__ appears in the tree)

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent
DOCUMENT = TREE / "docs/scan.md"
GADGETS = TREE / "crates/torch-import/tests/gadgets"
START, END = "<!-- scanners.py writes this part -->\n", "<!-- the end of what scanners.py writes -->\n"

STRICT = "torch2carton --deny-unknown"
# What each scanner says about a file: found, clean, or not scanned.
SCANNERS = {
    "picklescan": """
from picklescan.scanner import scan_file_path
def judge(path):
    result = scan_file_path(path)
    return "found" if result.issues_count else "not scanned" if result.scan_err or not result.scanned_files else "clean"
""",
    "fickling": """
from fickling.loader import scan_file, scan_zip_archive
def judge(path):
    zipped = open(path, "rb").read(2) == b"PK"
    results = list(scan_zip_archive(path, graceful=True).values()) if zipped else [scan_file(path, graceful=True)]
    if any(not result.is_safe for result in results):
        return "found"
    return "not scanned" if any(result.errors for result in results) else "clean"
""",
    "modelscan": """
from modelscan.modelscan import ModelScan
def judge(path):
    result = ModelScan().scan(path)
    if result["summary"]["total_issues"]:
        return "found"
    return "not scanned" if result["errors"] or not result["summary"]["scanned"]["total_scanned"] else "clean"
""",
    # Without notes of the level "info", which its own exit status does not count either.
    "modelaudit": """
os.environ["PROMPTFOO_DISABLE_TELEMETRY"] = os.environ["NO_ANALYTICS"] = "1"
from modelaudit import IssueSeverity, scan_file
def judge(path):
    result = scan_file(path)
    if any(issue.severity in (IssueSeverity.WARNING, IssueSeverity.CRITICAL) for issue in result.issues):
        return "found"
    return "clean" if result.success else "not scanned"
""",
}
# Reads paths, one a line, and prints a verdict for each; what a scanner prints itself goes to standard error.
LOOP = """
logging.disable(logging.CRITICAL)
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for line in sys.stdin:
    try:
        verdict = judge(line.strip())
    except Exception:
        verdict = "not scanned"
    print(verdict, file=answers, flush=True)
"""


# It takes minutes for an ordinary file.
SLOW, FAST_ONLY = "modelaudit", ("ordinary: what",)


def scan(program, group, files, jobs):
    """The verdicts of each scanner, in the order of the files. A scanner runs in several processes, because one of them mostly waits."""
    found = {"torch2carton": ours(program, files), STRICT: ours(program, files, strict=True)}
    shares = [share for share in (files[job::jobs] for job in range(jobs)) if share]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(jobs) as pool:
        for name, judge in SCANNERS.items():
            if name == SLOW and group.startswith(FAST_ONLY):
                continue
            command = [sys.executable, "-W", "ignore", "-c", "import logging, os, sys\n" + judge + LOOP]
            verdicts = {}
            for share, lines in zip(shares, pool.map(lambda share: lines_of(command, share, scratch), shares)):
                assert len(lines) == len(share), f"{name} stopped at {share[len(lines)]}"
                verdicts |= dict(zip(share, lines))
            found[name] = [verdicts[file] for file in files]
    return found


def lines_of(command, files, folder):
    paths = "".join(f"{file}\n" for file in files)
    return subprocess.run(command, input=paths, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder).stdout.splitlines()


def ours(program, files, strict=False):
    """With `strict`, unknown files count as found, as they do for the exit status with --deny-unknown."""
    words = {"unsafe": "found", "unknown": "found" if strict else "clean", "incomplete": "not scanned", "not_a_checkpoint": "not scanned"}
    verdicts = {}
    for start in range(0, len(files), 500):
        done = subprocess.run([program, "scan", "--json", *files[start : start + 500]], capture_output=True, text=True)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        verdicts |= {line["file"]: words.get(line["verdict"], line["verdict"]) for line in lines}
    return [verdicts.get(str(file), "not scanned") for file in files]


def gadgets(folder, name):
    """Three lists of pickles, each of which calls a callable of the list with one text: by its name, and through a module of
    torch that may have imported its module."""
    lines = (GADGETS / f"{name}.txt").read_text().splitlines()
    pairs = dict.fromkeys(tuple(line.split()[:2]) for line in lines if not line.startswith("#"))
    forms = {"`GLOBAL`": by_global, "`STACK_GLOBAL`": by_stack, "a dotted name": lambda module, name: by_stack("torch.serialization", f"{module}.{name}")}
    made = {}
    for number, (form, write) in enumerate(forms.items()):
        made[form] = []
        for index, (module, callable_name) in enumerate(pairs):
            made[form].append(folder / f"{name}-{number}-{index}.pkl")
            made[form][-1].write_bytes(write(module, callable_name))
    return made


def by_global(module, name):
    return f"\x80\x02c{module}\n{name}\nX\x02\0\0\0id\x85R.".encode("latin-1")


def by_stack(module, name):
    return b"\x80\x04" + b"".join(b"\x8c" + bytes([len(text)]) + text.encode() for text in (module, name)) + b"\x93\x8c\x02id\x85R."


def ordinary(folder, python):
    if not folder.is_dir():
        folder.mkdir()
        subprocess.run([python, "-W", "ignore", HERE / "ordinary.py", folder], stdout=subprocess.DEVNULL, check=True)
    return sorted(file for file in folder.iterdir() if file.is_file())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("--ordinary", type=Path)
    parser.add_argument("--torch", default=sys.executable)
    parser.add_argument("--jobs", type=int, default=8)
    args = parser.parse_args()
    program = args.program.resolve()
    names = ["torch2carton", STRICT, *SCANNERS]
    malicious = sorted(file for file in (TREE / "tests/golden/malicious").iterdir() if file.suffix != ".md")
    with tempfile.TemporaryDirectory() as scratch:
        groups = {"files of `tests/golden/malicious`": malicious}
        for name, words in (("advisories", "callables of advisories"), ("reaches", "callables that reach exec, eval, import or unpickle")):
            groups |= {f"{words}, {form}": files for form, files in gadgets(Path(scratch), name).items()}
        payloads.write(Path(scratch) / "payloads")
        groups["composed payloads (`payloads.py`)"] = sorted((Path(scratch) / "payloads").iterdir())
        groups["ordinary: `tests/golden/checkpoints`"] = sorted(
            file for file in (TREE / "tests/golden/checkpoints").rglob("*") if file.is_file() and file.suffix not in (".json", ".model"))
        groups["ordinary: what `ordinary.py` writes"] = ordinary((args.ordinary or Path(scratch) / "ordinary").resolve(), args.torch)
        verdicts = {}
        for group, files in groups.items():
            print(f"{group}: {len(files)} files", file=sys.stderr)
            verdicts[group] = scan(program, group, files, args.jobs)

    counts = lambda verdicts: " / ".join(str(Counter(verdicts)[verdict]) for verdict in ("found", "clean", "not scanned"))  # noqa: E731
    summary = [[group, str(len(groups[group])), *(counts(found[name]) if name in found else "–" for name in names)] for group, found in verdicts.items()]
    judged = runs.judged(malicious, args.torch)
    each = verdicts["files of `tests/golden/malicious`"]
    rows = [[f"`{file.name}`", runs.runs(judged[file]), *(each[name][at].replace("found", "**found**") for name in names)]
            for at, file in enumerate(malicious)]
    versions = ", ".join(f"{name} {version(name)}" for name in SCANNERS)
    text = f"Written with {versions}. The cells of the first table are found / clean / not scanned.\n\n"
    text += table([["files", "number", *names], *summary]) + "\n" + table([["file", "runs", *names], *rows])
    before, start, rest = DOCUMENT.read_text().partition(START)
    assert start and END in rest, f"{DOCUMENT} has no part for the tables"
    DOCUMENT.write_text(before + START + "\n" + text + "\n" + END + rest.partition(END)[2])


def table(rows):
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [rows[0], ["---"] * len(rows[0]), *rows[1:]])


if __name__ == "__main__":
    main()
