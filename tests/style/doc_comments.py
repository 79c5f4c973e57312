#!/usr/bin/env python3
"""Counts doc comments that say too little, or that open with a word that hides their subject.

    doc_comments.py [--list] [--sample N [--seed S]] [FOLDER...]

A doc comment counts as short if it has three words or fewer, and as vague if it opens with What, Which, How, Whether, Those or
It. --list prints each of them with its place, --sample prints N doc comments at random. The exit status is 1 if more than 1 %
are short, or more than 1 % are vague. Needs Python's standard library and git.
"""

import argparse
import random
import re
import subprocess
import sys
from pathlib import Path

VAGUE = {"What", "Which", "How", "Whether", "Those", "It"}
TREE = Path(__file__).resolve().parent.parent.parent


def doc_comments(path):
    """Yields each doc comment of a Rust file: the line on which it begins, its text, and the line that it documents."""
    lines = path.read_text(encoding="utf-8").split("\n")
    number = 0
    while number < len(lines):
        found = re.match(r"\s*(///|//!)(?!/)", lines[number])
        if not found:
            number += 1
            continue
        mark, first, text = found[1], number, []
        while number < len(lines) and re.match(rf"\s*{mark}(?!/)", lines[number]):
            text.append(lines[number].strip()[3:].strip())
            number += 1
        item = next((line.strip() for line in lines[number:] if line.strip() and not line.strip().startswith("#[")), "")
        yield first + 1, " ".join(text).strip(), item if mark == "///" else "the module"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", default=["crates", "src"])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    listed = subprocess.run(["git", "ls-files", "--", *options.folders], cwd=TREE, check=True, capture_output=True, text=True)
    files = [TREE / name for name in listed.stdout.splitlines() if name.endswith(".rs") and "/tests/" not in name]
    comments = [(file.relative_to(TREE), *comment) for file in files for comment in doc_comments(file)]
    short = [comment for comment in comments if len(comment[2].split()) <= 3]
    vague = [comment for comment in comments if comment[2].split(" ")[0].rstrip(",.:;") in VAGUE]
    if options.list:
        for kind, found in (("short", short), ("vague", vague)):
            for file, line, text, item in found:
                print(f"{kind}  {file}:{line}  {text}  | {item}")
    for file, line, text, item in random.Random(options.seed).sample(comments, min(options.sample, len(comments))):
        print(f"{file}:{line}  {text}  | {item}\n")
    count = max(1, len(comments))
    print(f"{len(comments)} doc comments: {len(short)} short ({len(short) / count:.1%}), {len(vague)} vague ({len(vague) / count:.1%})")
    sys.exit(100 * max(len(short), len(vague)) > count)


if __name__ == "__main__":
    main()
