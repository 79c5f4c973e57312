#!/usr/bin/env python3
"""Lists the public names of all crates, each with the first sentence of its documentation.

    public_names.py [FOLDER...]

The exit status is 1 if a public item other than a field or a variant has no documentation, or if a type has the name of a
type in two other crates. `Error`, `Result` and `Problem`, the details of errors, may. Private types count, too: a search for a
name should find one idea. Needs Python's standard library and git.
"""

import collections
import re
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent.parent
ITEM = re.compile(
    r"^(?P<indent> *)(?P<public>pub )?(?:pub\([a-z ]+\) )?(?:const (?=fn)|unsafe |async )*"
    r"(?P<kind>fn|struct|enum|trait|type|const|static|mod) (?P<name>\w+)"
)
TYPES = {"struct", "enum", "trait", "type"}
COMMON = {"Error", "Problem", "Result"}


def crate_of(file):
    parts = file.split("/")
    return "torch2carton" if parts[0] == "src" else "/".join(parts[1 : parts.index("src")])


def main():
    folders = sys.argv[1:] or ["crates", "src"]
    listed = subprocess.run(["git", "ls-files", "--", *folders], cwd=TREE, check=True, capture_output=True, text=True)
    names = [name for name in listed.stdout.splitlines() if name.endswith(".rs")]
    files = [name for name in names if "src/" in name and "tests" not in name]
    crates, rows, undocumented = collections.defaultdict(set), collections.defaultdict(list), []
    for file in files:
        lines = (TREE / file).read_text(encoding="utf-8").split("#[cfg(test)]\nmod tests {")[0].split("\n")
        for number, line in enumerate(lines):
            found = ITEM.match(line)
            if not found:
                continue
            # A type inside of an item is an associated one.
            if found["kind"] in TYPES and not (found["kind"] == "type" and found["indent"]):
                crates[found["name"]].add(crate_of(file))
            if not found["public"]:
                continue
            above = number - 1
            while above >= 0 and not re.match(r"\s*(///|[};]|$)|.*[};]$", lines[above]):
                above -= 1
            documentation = []
            while above >= 0 and lines[above].strip().startswith("///"):
                documentation.insert(0, lines[above].strip()[3:].strip())
                above -= 1
            sentence = re.split(r"(?<=[.:])\s", " ".join(documentation))[0]
            if not documentation and found["kind"] != "mod":
                undocumented.append(f"{file}:{number + 1}  {found['name']}")
            rows[crate_of(file)].append(f"{found['kind']:<7}{found['name']:<32} {sentence}")
    for crate, listed in sorted(rows.items()):
        print(f"\n{crate}\n" + "\n".join(f"  {row}" for row in listed))
    repeated = {name: where for name, where in crates.items() if len(where) > 2 and name not in COMMON}
    for name, where in sorted(repeated.items()):
        print(f"{name} is a type in {', '.join(sorted(where))}", file=sys.stderr)
    for place in undocumented:
        print(f"no documentation: {place}", file=sys.stderr)
    print(f"{sum(map(len, rows.values()))} public names in {len(rows)} crates", file=sys.stderr)
    sys.exit(bool(repeated or undocumented))


if __name__ == "__main__":
    main()
