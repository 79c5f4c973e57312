#!/usr/bin/env python3
"""Compiles every mutant of `cargo mutants` into one build and turns them on one at a time.

    pip install tree-sitter==0.26.1 tree-sitter-rust==0.24.2
    git clone . COPY && cd COPY
    switch.py rewrite LIST.json…     rewrites the sources; LIST.json is what `cargo mutants --list --json` prints
                                     (with --sample N, a sample of N mutants of each list, the same each time)
    switch.py run [--only REGEX]     builds the tests, finds which tests reach each mutant, and runs those
    switch.py report                 counts and names what survived

`a < b` becomes `(match crate::mutation_switch::at(7) { 7 => (a <= b), 8 => (a > b), _ => (a < b) })`, where `at` returns
the number in $MUTANT. A mutant that does not compile in this form (in a constant, or with `impl Trait` as its result) is
taken out again and named in `alone.txt`: `cargo mutants` tests these itself. All results are in COPY/mutants.out.
"""

import argparse
import bisect
import collections
import concurrent.futures
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CARGO = ["--config", "profile.dev.debug=0", "--config", "profile.dev.opt-level=1"]
OUT = Path("mutants.out")
SWITCH = '''//! Turns one mutant on.
#![allow(warnings)]
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
static CHOSEN: OnceLock<usize> = OnceLock::new();
static SEEN: [AtomicBool; 8192] = [const { AtomicBool::new(false) }; 8192];
pub(crate) fn at(group: usize) -> usize {
    let chosen = *CHOSEN.get_or_init(|| std::env::var("MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(0));
    if chosen == usize::MAX && !SEEN[group].swap(true, Ordering::Relaxed) {
        use std::io::Write;
        let path = std::env::var("MUTANTS_SEEN").unwrap();
        let mut file = std::fs::File::options().append(true).create(true).open(path).unwrap();
        file.write_all(format!("{group}\\n").as_bytes()).unwrap();
    }
    chosen
}
pub(crate) fn on(number: usize) -> bool {
    at(number) == number
}
'''
RECORD = str(2**64 - 1)


class File:
    """One source file with the mutants in it."""

    def __init__(self, path, mutants):
        from tree_sitter import Language, Parser
        import tree_sitter_rust

        self.path, self.source = path, subprocess.run(["git", "show", f"HEAD:{path}"], check=True, capture_output=True).stdout
        self.starts = [0] + [at + 1 for at, byte in enumerate(self.source) if byte == 10]
        self.tree = Parser(Language(tree_sitter_rust.language())).parse(self.source)
        self.by_span = collections.defaultdict(list)
        for mutant in mutants:
            start, end = (self.offset(mutant["span"][which]) for which in ("start", "end"))
            self.by_span[mutant["genre"], start, end].append(mutant)
        self.bodies = collections.defaultdict(list)
        spans = [(key, found) for key, found in self.by_span.items() if key[0] == "FnValue"]
        nodes, bodies = [self.tree.root_node], []
        while nodes:
            node = nodes.pop()
            nodes.extend(node.children)
            if node.type == "function_item":
                bodies.append(node.child_by_field_name("body"))
        for (_, start, end), found in spans:
            around = [body for body in bodies if body.start_byte <= start and end <= body.end_byte]
            self.bodies[min(around, key=lambda body: body.end_byte - body.start_byte).start_byte].extend(found)
        self.used = set()

    def offset(self, place):
        line = self.source[self.starts[place["line"] - 1]:].split(b"\n", 1)[0].decode()
        return self.starts[place["line"] - 1] + len(line[:place["column"] - 1].encode())

    def text(self, node):
        return self.source[node.start_byte:node.end_byte].decode()

    def mutants(self, genre, node):
        return self.by_span.get((genre, node.start_byte, node.end_byte), [])

    def mark(self, mutant, text):
        self.used.add(mutant["id"])
        return f"/*<{mutant['id']}*/{text}/*{mutant['id']}>*/"

    def choice(self, options, original):
        """An expression that is one of the options, or the original."""
        group = options[0][0]["id"]
        arms = "".join(f"{mutant['id']} => ({self.mark(mutant, text)}), " for mutant, text in options)
        numbers = ",".join(str(mutant["id"]) for mutant, _ in options)
        return f"/*{{{numbers}*/(match crate::mutation_switch::at({group}) {{ {arms}_ => ({original}) }})/*{numbers}}}*/"

    def emit(self, node, skip=()):
        text, at = [], node.start_byte
        for child in node.children:
            text.append(self.source[at:child.start_byte].decode())
            text.append(self.rewritten(child))
            at = child.end_byte
        text.append(self.source[at:node.end_byte].decode())
        return "".join(text)

    def rewritten(self, node):
        if node.type in ("binary_expression", "compound_assignment_expr"):
            left, operator, right = (node.child_by_field_name(name) for name in ("left", "operator", "right"))
            if found := self.mutants("BinaryOperator", operator):
                for mutant in found:
                    mutant["group"] = found[0]["id"]
                options = [(mutant, f"{self.text(left)} {mutant['replacement']} {self.text(right)}") for mutant in found]
                return self.choice(options, self.emit(node))
        if node.type == "unary_expression":
            if found := self.mutants("UnaryOperator", node.children[0]):
                found[0]["group"] = found[0]["id"]
                return self.choice([(found[0], self.text(node.children[1]))], self.emit(node))
        if node.type == "match_arm":
            pattern = node.child_by_field_name("pattern")
            condition = pattern.child_by_field_name("condition")
            found = [mutant for key in self.by_span if key[0] == "MatchArm" and key[1] == node.start_byte
                     and key[2] in (node.end_byte, node.end_byte + 1) for mutant in self.by_span[key]]
            guards = self.mutants("MatchArmGuard", condition) if condition else []
            if found or guards:
                text = self.rewritten(condition) if condition else "true"
                if guards:
                    for mutant in guards:
                        mutant["group"] = guards[0]["id"]
                    text = self.choice([(mutant, mutant["replacement"]) for mutant in guards], text)
                if found:
                    found[0]["group"] = found[0]["id"]
                    text = f"!{self.mark(found[0], 'crate::mutation_switch::on(%d)' % found[0]['id'])} && {text}"
                head = self.emit(pattern) if not condition else self.source[pattern.start_byte:condition.start_byte].decode()
                head = head if condition else head + " if "
                arrow = self.source[pattern.end_byte:node.child_by_field_name("value").start_byte].decode()
                value = node.child_by_field_name("value")
                return head + text + arrow + self.rewritten(value) + self.source[value.end_byte:node.end_byte].decode()
        if node.type in ("field_initializer", "shorthand_field_initializer"):
            found = [mutant for key in self.by_span if key[0] == "StructField" and key[1] == node.start_byte
                     for mutant in self.by_span[key]]
            base = next((child for child in node.parent.children if child.type == "base_field_initializer"), None)
            if found and base:
                found[0]["group"] = found[0]["id"]
                if node.type == "field_initializer":
                    name, value = node.child_by_field_name("field"), node.child_by_field_name("value")
                else:  # `field` means `field: field`
                    name = value = node.children[0]
                # The base may have been moved in part, so its field is cloned and not moved.
                option = f"({self.text(base)[2:]}).{self.text(name)}.clone()"
                return f"{self.text(name)}: {self.choice([(found[0], option)], self.rewritten(value))}"
        if node.type == "block" and (found := self.bodies.get(node.start_byte)):
            for mutant in found:
                mutant["group"] = found[0]["id"]
            arms = "".join(f"{mutant['id']} => return {self.mark(mutant, mutant['replacement'])}, " for mutant in found)
            body = self.emit(node)
            numbers = ",".join(str(mutant["id"]) for mutant in found)
            return f"{{/*{{{numbers}*/ match crate::mutation_switch::at({found[0]['id']}) {{ {arms}_ => {{}} }} {body[1:-1]} /*{numbers}}}*/}}"
        return self.emit(node) if node.children else self.text(node)


def cargo(*arguments):
    return ["cargo", arguments[0], *CARGO, *arguments[1:]]


def rewrite(lists, count):
    mutants = []
    for path in lists:
        found = json.loads(Path(path).read_text())
        chosen = random.Random(0).sample(range(len(found)), min(count or len(found), len(found)))
        mutants += [found[index] for index in sorted(chosen)]
    for number, mutant in enumerate(mutants, 1):
        mutant["id"] = number
        mutant.pop("diff", None)
    manifest = subprocess.run(["git", "show", "HEAD:Cargo.toml"], check=True, capture_output=True, text=True).stdout
    manifest = manifest.replace('"deny"', '"allow"').replace('level = "warn"', 'level = "allow"')
    lints = "[workspace.lints.rust]\n"
    quiet = 'arithmetic_overflow = "allow"\nunconditional_panic = "allow"\n'
    Path("Cargo.toml").write_text(manifest.replace(lints, lints + quiet))
    packages = sorted({mutant["package"] for mutant in mutants})
    for package in packages:
        source = next(iter([*Path("crates").glob(package), *Path("crates").glob(f"*/{package}")])) / "src"
        (source / "mutation_switch.rs").write_text(SWITCH)
        entry = subprocess.run(["git", "show", f"HEAD:{source}/lib.rs"], check=True, capture_output=True, text=True).stdout
        (source / "lib.rs").write_text(entry + "\nmod mutation_switch;\n")
    alone = set()
    files = collections.defaultdict(list)
    for mutant in mutants:
        files[mutant["file"]].append(mutant)
    while True:
        print(f"{len(mutants) - len(alone)} mutants in one build, {len(alone)} alone", flush=True)
        for path, found in files.items():
            file = File(path, [mutant for mutant in found if mutant["id"] not in alone])
            text = file.rewritten(file.tree.root_node)
            text = file.source[:file.tree.root_node.start_byte].decode() + text
            Path(path).write_text(text + ("\nmod mutation_switch;\n" if path.endswith("src/lib.rs") else ""))
            alone |= {mutant["id"] for mutant in found} - file.used
        errors = set()
        for package in packages:
            checked = subprocess.run(cargo("check", "-p", package, "--message-format=json"), capture_output=True, text=True)
            for line in checked.stdout.splitlines():
                message = json.loads(line).get("message") if line.startswith("{") else None
                if message and message["level"] == "error":
                    errors |= blamed(message)
            if checked.returncode and not errors:
                sys.exit(checked.stderr)
            if errors:
                break
        if not errors:
            break
        alone |= errors
    OUT.mkdir(exist_ok=True)
    (OUT / "mutants.json").write_text(json.dumps(mutants, indent=1))
    (OUT / "alone.txt").write_text("".join(f"{mutant['name']}\n" for mutant in mutants if mutant["id"] in alone))
    (OUT / "alone.json").write_text(json.dumps(sorted(alone)))


def blamed(message):
    """The mutants that a message of the compiler is about: the one that it points into, or all of the smallest choice."""
    found = set()
    for span in sorted(message["spans"], key=lambda span: not span["is_primary"]):
        if found and not span["is_primary"]:
            break
        while span["expansion"] and not Path(span["file_name"]).exists():  # in a macro of the standard library
            span = {**span["expansion"]["span"], "is_primary": span["is_primary"]}
        text = Path(span["file_name"]).read_bytes()
        best = None
        for match in re.finditer(rb"/\*<(\d+)\*/", text):
            end = text.find(b"/*%s>*/" % match[1], match.end())
            if match.start() <= span["byte_start"] and span["byte_end"] <= end:
                best = min(filter(None, (best, (end - match.start(), [int(match[1])]))))
        if best is None:
            for match in re.finditer(rb"/\*\{([\d,]+)\*/", text):
                end = text.find(b"/*%s}*/" % match[1], match.end())
                if match.start() <= span["byte_start"] and span["byte_end"] <= end:
                    best = min(filter(None, (best, (end - match.start(), [int(part) for part in match[1].split(b",")]))))
        if best is None:  # an error about something that only encloses choices: those on its lines
            first, last = span["byte_start"], span["byte_end"]
            found |= {int(number) for number in re.findall(rb"/\*<(\d+)\*/", text[first:last])}
        else:
            found |= set(best[1])
        if not found and (message["code"] or {}).get("code") == "E0004":  # arms of this match, which need to be there
            line = text.rfind(b"\n", 0, span["byte_start"]) + 1
            indent = re.match(rb" *", text[line:])[0]
            last = re.search(rb"^%s\}" % indent, text[span["byte_end"]:], re.M)
            found |= {int(number) for number in re.findall(rb"switch::on\((\d+)\)", text[line:span["byte_end"] + last.end()])}
        # The result type of a function, such as `impl Iterator<Item = T>`: what a mutant returns has another type.
        if not found and (body := re.match(rb"[^{;]*\{/\*\{([\d,]+)\*/", text[span["byte_end"]:])):
            found |= {int(part) for part in body[1].split(b",")}
    if not found:
        sys.exit(message["rendered"])
    return found


def limits():
    resource.setrlimit(resource.RLIMIT_DATA, (3 << 30, 3 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def start(binary, names, environment, timeout):
    """Runs some tests of a binary. Returns 0, a status, or 'timeout', and the seconds."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        command = [binary["path"], "--exact", *names, "-q"]
        environment = {**os.environ, "INSTA_UPDATE": "no", "INSTA_FORCE_PASS": "0", "PROPTEST_MAX_SHRINK_ITERS": "0", "TMPDIR": folder,
                       "INSTA_WORKSPACE_ROOT": os.getcwd(), "CARGO_MANIFEST_DIR": binary["folder"], "RUST_TEST_THREADS": "1",
                       "PROPTEST_RNG_SEED": "1", "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "1", **environment}
        process = subprocess.Popen(command, cwd=binary["folder"], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=limits)
        try:
            output = process.communicate(timeout=timeout)[0]
            status = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, status = process.communicate()[0], "timeout"
    return status, time.monotonic() - began, output


def build(packages):
    command = cargo("test", "--no-run", "--tests", "--message-format=json", *(f"-p{name}" for name in packages))
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if built.returncode:
        sys.exit("the tests do not build")
    binaries = []
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["profile"]["test"]:
            folder = str(Path(message["manifest_path"]).parent)
            binaries.append({"path": message["executable"], "folder": folder, "name": f"{Path(folder).name}/{message['target']['name']}"})
    return binaries


def reach(binaries):
    """What each test reaches and how long it takes: [binary, test, seconds, groups]."""
    def one(job):
        index, name = job
        with tempfile.NamedTemporaryFile() as seen:
            status, seconds, output = start(binaries[index], [name], {"MUTANT": RECORD, "MUTANTS_SEEN": seen.name}, 600)
            groups = sorted({int(line) for line in Path(seen.name).read_text().split()})
        if status != 0:
            print(f"{binaries[index]['name']} {name} fails without a mutant:\n{output.decode(errors='replace')[-1500:]}", flush=True)
            return None
        return [binaries[index]["name"], name, seconds, groups]

    jobs = []
    for index, binary in enumerate(binaries):
        listed = subprocess.run([binary["path"], "--list", "--format=terse"], cwd=binary["folder"], capture_output=True, text=True)
        jobs += [(index, line[:-6]) for line in listed.stdout.splitlines() if line.endswith(": test")]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return [row for row in pool.map(one, jobs) if row]


def run(packages, only, sample, again, which, slowest, most, jobs):
    mutants = json.loads((OUT / "mutants.json").read_text())
    alone = set(json.loads((OUT / "alone.json").read_text()))
    reached_by = OUT / "tests.json"
    if packages:
        binaries = build(packages)
        reached_by.write_text(json.dumps([binaries, reach(binaries)]))
    binaries, tests = json.loads(reached_by.read_text())
    names = {binary["name"]: binary for binary in binaries}
    print(f"{len(tests)} tests in {len(binaries)} binaries, {sum(row[2] for row in tests):.0f} s", flush=True)
    path = OUT / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {}

    def one(mutant):
        reached = collections.defaultdict(list)
        for binary, name, seconds, groups in tests:
            if seconds <= slowest and re.search(which, f"{binary} {name}") and mutant["group"] in groups:
                reached[binary].append((seconds, name))
        result, ran = "survived", 0
        for binary, found in sorted(reached.items(), key=lambda item: sum(seconds for seconds, _ in item[1])):
            found = sorted(found)[:most]
            for start_at, end in ((0, 8), (8, 24), (24, 56), (56, 1000)):  # the quick ones first: most mutants end there
                part = found[start_at:end]
                if not part:
                    continue
                ran += len(part)
                usual = sum(seconds for seconds, _ in part)
                status, _, _ = start(names[binary], [name for _, name in part], {"MUTANT": str(mutant["id"])}, 10 + 5 * usual)
                if status:
                    return mutant, "timeout" if status == "timeout" else "caught", ran, binary
        return mutant, result, ran, ""

    todo = [mutant for mutant in mutants if mutant["id"] not in alone and re.search(only, mutant["name"])
            and (again or results.get(mutant["name"], ["survived"])[0] == "survived")]
    todo = random.Random(0).sample(todo, min(sample or len(todo), len(todo)))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for count, (mutant, result, ran, where) in enumerate(pool.map(one, todo), 1):
            results[mutant["name"]] = [result, ran, where]
            if result == "survived":
                print(f"survived {ran} tests: {mutant['name']}", flush=True)
            if count % 20 == 0:
                print(f"{count} of {len(todo)}", flush=True)
                path.write_text(json.dumps(results, indent=0))
    path.write_text(json.dumps(results, indent=0))


def report():
    mutants = json.loads((OUT / "mutants.json").read_text())
    results = json.loads((OUT / "results.json").read_text())
    alone = set(json.loads((OUT / "alone.json").read_text()))
    counts = collections.defaultdict(collections.Counter)
    for mutant in mutants:
        counts[mutant["package"]]["alone" if mutant["id"] in alone else results.get(mutant["name"], ["not run"])[0]] += 1
    for package, found in counts.items():
        print(package, dict(found), "total", sum(found.values()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    rewrites = commands.add_parser("rewrite")
    rewrites.add_argument("lists", nargs="+")
    rewrites.add_argument("--sample", type=int, metavar="N", help="take a sample of N mutants of each list")
    runs = commands.add_parser("run")
    runs.add_argument("--only", default="", metavar="REGEX", help="test only these mutants")
    runs.add_argument("--sample", type=int, metavar="N", help="test only a random sample of N of these, the same each time")
    runs.add_argument("--again", action="store_true", help="also run what earlier runs caught")
    runs.add_argument("--tests", default="", metavar="REGEX", help="run only these tests, named `FOLDER/BINARY TEST`")
    runs.add_argument("--slowest", type=float, default=60.0, help="leave out tests that take longer")
    runs.add_argument("--most", type=int, default=1000, help="the most tests of a binary for each mutant; the quickest are run")
    runs.add_argument("--jobs", type=int, default=2)
    runs.add_argument("-p", dest="packages", action="append", help="build these packages' tests; default: use the last build")
    commands.add_parser("report")
    options = parser.parse_args()
    if options.command == "rewrite":
        rewrite(options.lists, options.sample)
    elif options.command == "run":
        run(options.packages, options.only, options.sample, options.again, options.tests, options.slowest, options.most, options.jobs)
    else:
        report()


if __name__ == "__main__":
    main()
