#!/usr/bin/env python3
"""Records what a build of the program makes of the files here, and compares two records: for changes that must keep outputs and texts.

    record.py record OUT.json --binary target/release/torch2carton [--shared ../shared] [--only TEXT]
    record.py compare BEFORE.json AFTER.json

A record has the SHA-256 of each file that conversions write, what each reading verb prints, all notes and errors, and the requests
of inputs at addresses; times, ports and temporary folders are left out. The inputs are those of the tests, and those of corpus and
corpus-2 in the --shared folder if they are there. `compare` prints each kind of difference once, with its count, for review.
The exit status is 1 if outputs, exit statuses or runs differ, and 0 if only texts do. Needs Python's standard library.
"""

import argparse
import hashlib
import http.server
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent.parent
GOLDEN = TREE / "tests/golden"
# Each folder with the inputs of one kind; what lies directly in it is an input, or each file below it.
FLAT = [(GOLDEN, name) for name in ("checkpoints", "hostile", "malicious", "objects", "pickles", "scripts", "shards")]
FLAT += [(TREE / "crates/model/quantization/tests", "models"), (TREE / "crates/import/open/tests", "data")]
TARGETS = {"carton": "x.carton", "safetensors": "x.safetensors", "pth": "x.pth", "triton": "models"}
SOURCES = {"corpus", "corpus-2"}
CONVERT = "convert --json --no-sync -o out/x."


class Recorder:
    def __init__(self, binary, scratch):
        self.binary, self.scratch, self.runs = str(binary.resolve()), scratch, {}

    def run(self, key, cwd, out, *arguments):
        """Runs the program, records it as `key`, and returns whether it succeeded. Files below `out` are its outputs."""
        before, env = files(out), {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(self.scratch)}
        done = subprocess.run([self.binary, *map(str, arguments)], cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=600)
        texts = [text.decode(errors="replace").replace(str(out), "OUT").replace(str(self.scratch), "TMP") for text in (done.stdout, done.stderr)]
        outputs = {name: digest for name, digest in files(out).items() if before.get(name) != digest}
        assert key not in self.runs, f"{key} is recorded twice"
        self.runs[key] = {"status": done.returncode, "stdout": normal(texts[0]), "stderr": normal(texts[1]), "outputs": outputs}
        return done.returncode == 0


def files(folder):
    """The SHA-256 of each file below a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def normal(text):
    """The text without times and ports."""
    text = re.sub(r'"seconds":[\d.e+-]+', '"seconds":0', text)
    text = re.sub(r"\bin [\d.]+ (m?s|min)\b", "in N s", text)
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)


def record_input(recorder, root, name):
    """All verbs and conversions of one input, which is `name` in the folder `root`."""
    path, key = root / name, f"{root.name}/{name}" if root.name in SOURCES else name
    out = Path(tempfile.mkdtemp(dir=recorder.scratch))
    run = lambda what, *arguments: recorder.run(f"{key}: {what}", root, out, *arguments)  # noqa: E731
    for verb in ("inspect --json --sha256 --all", "scan --json --all", "digest --json"):
        run(verb, *verb.split(), name)
    if name.startswith(("checkpoints/", "pickles/")) and path.is_file():
        run("trace", "trace", name)
        run("trace --json", "trace", "--json", name)
    made = set()
    for target, output in TARGETS.items():
        if run(f"to {target}", "convert", "--no-sync", name, "--to", target, "-o", out / output):
            made.add(target)
    if "carton" in made:
        run("verify", "verify", "--json", out / "x.carton", "--against", name)
        run("inspect carton", "inspect", "--json", out / "x.carton")
    if "safetensors" in made:
        run("diff", "diff", "--json", name, out / "x.safetensors")
    own = root.name not in SOURCES and not name.startswith(("hostile/", "malicious/"))
    flags = {"dtype": ["--dtype", "bfloat16"], "dequantize": ["--dequantize"]}
    if own and "safetensors" in made:
        flags |= {"average": ["--average", out / "x.safetensors"], "add": ["--add", f"{out / 'x.safetensors'}=0.5"]}
    for what, extra in flags.items():
        for target, output in TARGETS.items():
            if target in made if own else target == "safetensors" and made:
                run(f"{what} to {target}", "convert", "--no-sync", "--json", name, *extra, "--to", target, "-o", out / what / output)
    if any(((path if path.is_dir() else path.parent) / document).is_file() for document in ("config.json", "params.json")):
        for layout in ("hf", "meta"):
            for target in ("safetensors", "pth"):
                run(f"names {layout} to {target}", "convert", "--no-sync", "--json", name, "--names", layout, "--to", target, "-o", out / layout / target)
    shutil.rmtree(out)


def inputs(shared):
    for root, folder in FLAT:
        for path in sorted((root / folder).iterdir()):
            for found in sorted(path.rglob("*.*")) if path.is_dir() and folder == "objects" else [path]:
                if found.suffix != ".md":
                    yield root, found.relative_to(root).as_posix()
    for name in sorted(SOURCES):
        for path in sorted((shared / name).glob("*/**/*")):
            if path.is_file() and not path.is_relative_to(shared / name / "expected"):
                yield shared / name, path.relative_to(shared / name).as_posix()


def write_views(path, shapes):
    """A checkpoint whose tensors all repeat one number, so that models have their true sizes in small files."""
    text = lambda value: b"X" + struct.pack("<I", len(value)) + value.encode()  # noqa: E731
    ints = lambda values: b"(" + b"".join(b"J" + struct.pack("<i", value) for value in values) + b"t"  # noqa: E731
    body = []
    for index, (name, shape) in enumerate(shapes):
        storage = b"(" + text("storage") + b"ctorch\nBFloat16Storage\n" + text(str(index)) + text("cpu") + b"K\x01tQ"
        body.append(text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\0" + ints(shape) + ints([0] * len(shape)) + b"\x89}tR")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", b"\x80\x02}(" + b"".join(body) + b"u.")
        archive.writestr("m/version", b"3\n")
        for index in range(len(shapes)):
            archive.writestr(f"m/data/{index}", struct.pack("<H", 0x3F80 + index % 64))


def write_safetensors(path, tensors):
    """`tensors`: (name, shape) of float32, whose numbers count up."""
    header, data = {}, b""
    for name, shape in tensors:
        count = shape[0] * shape[1]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack(f"<{count}f", *((index % 31) / 64 for index in range(count)))
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_made(folder):
    """Writes a checkpoint for each published configuration of a decoder, and returns their names."""
    for source in sorted((TREE / "crates/model/decoder/tests/models").glob("*.json")):
        model = json.loads(source.read_text())
        config = model["config"]
        experts = max(config.get("num_local_experts", 1), config.get("num_experts", 1))
        shapes = [(name.replace("{}", str(layer)).replace("{e}", str(expert)), shape) for name, shape in model["tensors"].items()
                  for layer in range(config["num_hidden_layers"] if "{}" in name else 1) for expert in range(experts if "{e}" in name else 1)]
        below = folder / source.stem
        below.mkdir(parents=True)
        (below / "config.json").write_text(json.dumps(config))
        write_views(below / "pytorch_model.bin", shapes)
    return sorted(path.name for path in folder.iterdir())


def record_made(recorder, root, name):
    out = Path(tempfile.mkdtemp(dir=recorder.scratch))
    for target, output in (("carton", "x.carton"), ("triton", "models")):
        recorder.run(f"decoder {name}: to {target}", root, out, "convert", "--no-sync", "--json", name, "--to", target, "-o", out / output)
    shutil.rmtree(out)


def record_merges(recorder, folder):
    """An adapter on the LLaMA of the tests, with each target."""
    out = folder / "out"
    out.mkdir(parents=True)
    run = lambda what, *arguments: recorder.run(f"merge: {what}", folder, out, *arguments)  # noqa: E731
    run("base", "convert", "--no-sync", GOLDEN / "checkpoints/llama_tiny", "--names", "hf", "-o", out / "base")
    run("shards", "convert", "--no-sync", GOLDEN / "checkpoints/llama_tiny", "--names", "hf", "--max-shard-size", "300B", "-o", out / "shards")
    listed = subprocess.run([recorder.binary, "inspect", "--json", out / "base"], capture_output=True, check=True)
    shapes = {tensor["name"]: tensor["shape"] for tensor in json.loads(listed.stdout)["tensors"]}
    adapted = [(f"base_model.model.{name[:-7]}", shape) for name, shape in shapes.items() if name.endswith(("q_proj.weight", "down_proj.weight"))]
    factors = [(f"{module}.lora_{half}.weight", size) for module, (rows, columns) in adapted for half, size in (("A", [2, columns]), ("B", [rows, 2]))]
    (folder / "lora").mkdir()
    write_safetensors(folder / "lora/adapter_model.safetensors", factors)
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "down_proj"]}
    (folder / "lora/adapter_config.json").write_text(json.dumps(settings))
    for target, output in TARGETS.items():
        run(f"to {target}", "convert", "--no-sync", "--json", out / "base", "--merge", "lora", "--to", target, "-o", out / "merged" / output)
    return out


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves the files of `folder` with ranges, and keeps a line and the length of each answer."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = self.server.folder / self.path.lstrip("/")
        data = path.read_bytes() if path.is_file() else b""
        status, wanted, whole = 200 if path.is_file() else 404, self.headers.get("Range"), len(data)
        headers = {"ETag": f'"{hashlib.sha256(data).hexdigest()[:16]}"', "Accept-Ranges": "bytes"} if path.is_file() else {}
        if wanted and status == 200:
            first, last = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted).groups()
            start = int(first) if first else max(whole - int(last), 0)
            end = min(int(last), whole - 1) if first and last else whole - 1
            if start < whole:
                status, data, headers["Content-Range"] = 206, data[start : end + 1], f"bytes {start}-{end}/{whole}"
            else:
                status, data, headers["Content-Range"] = 416, b"", f"bytes */{whole}"
        self.server.seen.append((f"{self.command} {self.path} {wanted or 'whole'}: {status}", len(data) if self.command == "GET" else 0))
        self.send_response(status)
        for name, value in (headers | {"Content-Length": len(data)}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    do_HEAD = do_GET

    def log_message(self, *arguments):
        pass


def record_remote(recorder, folder, shards):
    """Requests and bytes of a few files at addresses."""
    served = folder / "served"
    shutil.copytree(GOLDEN / "checkpoints", served / "checkpoints")
    shutil.copytree(shards, served / "shards")
    write_safetensors(served / "large.safetensors", [(f"t{index}", [256, 256]) for index in range(12)])
    recorder.run("remote: large.pth", served, served, "convert", "--no-sync", "large.safetensors", "-o", "large.pth")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.folder, server.seen, server.handle_error = served, [], lambda *_: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    names = [f"checkpoints/{name}" for name in ("plain.pth", "legacy.pth", "tar.pth", "deflated.pth", "plain.safetensors", "llama_tiny/consolidated.00.pth")]
    for name in [*names, "large.pth", "large.safetensors", "shards/model.safetensors.index.json", "missing.pth"]:
        for verb in ("inspect --json", "scan --json", f"{CONVERT}carton", f"{CONVERT}safetensors"):
            shutil.rmtree(folder / "out", ignore_errors=True)
            (folder / "out").mkdir()
            server.seen.clear()
            key, address = f"remote {name}: {verb}", f"http://127.0.0.1:{server.server_port}/{name}"
            # What requests a failure has sent by its end depends on the time.
            if recorder.run(key, folder, folder / "out", *verb.split(), "--allow-http", address):
                requests = "\n".join(sorted(line for line, _ in server.seen))
                recorder.runs[key] |= {"requests": requests, "bytes": str(sum(size for _, size in server.seen))}
    server.shutdown()


def record(options):
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as scratch:
        scratch = Path(scratch)
        recorder = Recorder(options.binary, scratch)
        made = write_made(scratch / "made")
        tasks = [(record_made, scratch / "made", name) for name in made]
        tasks += [(record_input, root, name) for root, name in inputs(options.shared)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda task: task[0](recorder, *task[1:]), [task for task in tasks if options.only in task[2]]))
        if not options.only:
            out = record_merges(recorder, scratch / "merges")
            record_remote(recorder, scratch / "remote", out / "shards")
    options.out.write_text(json.dumps(dict(sorted(recorder.runs.items())), indent=0, ensure_ascii=False))
    print(f"{len(recorder.runs)} runs")
    return 0


def lines(name, text):
    """The facts of a text: its lines, or the members of its JSON objects, with counters instead of indexes."""
    found = defaultdict(list)

    def walk(path, value):
        if isinstance(value, dict):
            for member, inner in value.items():
                walk(f"{path}.{member}", inner)
        elif isinstance(value, list):
            for inner in value:
                walk(f"{path}[]", inner)
        else:
            found[path].append(json.dumps(value, ensure_ascii=False))

    for line in text.splitlines():
        try:
            walk(name, json.loads(line) if line.startswith("{") else line)
        except ValueError:
            found[name].append(line)
    return found


def compare(options):
    before, after = (json.loads(path.read_text()) for path in (options.before, options.after))
    kinds = defaultdict(list)
    for key in sorted(before.keys() | after.keys()):
        if key not in before or key not in after:
            kinds["FAIL only in " + ("AFTER" if key in after else "BEFORE")].append(key)
            continue
        old, new = before[key], after[key]
        if old["status"] != new["status"]:
            kinds[f"FAIL exit status {old['status']} -> {new['status']}"].append(key)
        for name in sorted(old["outputs"].keys() | new["outputs"].keys()):
            if old["outputs"].get(name) != new["outputs"].get(name):
                what = "is new" if name not in old["outputs"] else "differs" if name in new["outputs"] else "is missing"
                kinds[f"FAIL output {name} {what}"].append(key)
        for part in ("stdout", "stderr", "requests", "bytes"):
            texts = lines(part, old.get(part, "")), lines(part, new.get(part, ""))
            for path in sorted(texts[0].keys() | texts[1].keys()):
                gone, come = texts[0].get(path, []), texts[1].get(path, [])
                if gone != come:
                    kept = set(gone) & set(come)
                    shown = [f"- {path}: {line[:300]}" for line in gone if line not in kept][:5]
                    shown += [f"+ {path}: {line[:300]}" for line in come if line not in kept][:5]
                    kinds["\n".join(shown) or f"{path}: the order or count differs"].append(key)
    for kind, keys in sorted(kinds.items(), key=lambda item: (not item[0].startswith("FAIL"), -len(item[1]))):
        print(f"{kind}\n    {len(keys)} ×, such as {keys[0]}")
    failures = sum(kind.startswith("FAIL") for kind in kinds)
    print(f"{len(before)} runs, {len(kinds)} kinds of differences, {failures} of them in outputs, exit statuses or runs")
    return int(failures > 0)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = arguments.add_subparsers(required=True)
    recording = verbs.add_parser("record")
    recording.add_argument("out", type=Path)
    recording.add_argument("--binary", type=Path, required=True)
    recording.add_argument("--shared", type=Path, default=TREE.parent / "shared")
    recording.add_argument("--only", default="", help="only the inputs whose name has this text")
    recording.set_defaults(do=record)
    comparing = verbs.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.set_defaults(do=compare)
    options = arguments.parse_args()
    return options.do(options)


if __name__ == "__main__":
    sys.exit(main())
