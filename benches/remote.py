#!/usr/bin/env python3
"""Files at addresses: requests, bytes and seconds of `inspect` and `scan`, and how fast a conversion from an address is.

    benches/remote.py DIR [--binary target/release/torch2carton] [--megabytes 1000] [--latency 0 50 200] [--peer hf-fetch-model]

Makes the inputs in DIR; large ones have holes, so they need little room. A server on this machine answers as a web server,
as the Hub and as S3 do, after the latency, and counts. The conversion is compared with the one of the local file, and with
`curl -o` and a conversion of the copy; its memory is the peak that the system reports. --peer is the program `hf-fetch-model`
with its endpoint changed to http://127.0.0.1:PORT of --port.
"""

import argparse
import http.server
import json
import os
import re
import statistics
import struct
import subprocess
import threading
import time
import urllib.parse
import zlib
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, root, port):
        super().__init__(("127.0.0.1", port), Handler)
        self.root, self.latency, self.lock, self.requests, self.sent = root, 0.0, threading.Lock(), 0, 0

    def handle_error(self, *_):
        """Prints nothing: a client may close a connection that it no longer needs."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def text(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in (headers | {"Content-Length": len(body)}).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        server, url = self.server, urllib.parse.urlsplit(self.path)
        time.sleep(server.latency)
        with server.lock:
            server.requests += 1
        path, root = urllib.parse.unquote(url.path), server.root
        if found := re.fullmatch(r"/api/models/o/([^/]+)(?:/revision/[^/]+)?", path):
            files = sorted(file for file in (root / found[1]).iterdir())
            siblings = [{"rfilename": file.name, "size": file.stat().st_size} for file in files]
            return self.text(200, json.dumps({"id": f"o/{found[1]}", "sha": COMMIT, "siblings": siblings}).encode())
        if found := re.fullmatch(r"/o/([^/]+)/resolve/[^/]+/(.+)", path):
            # The Hub redirects to the files of its store.
            location = f"http://127.0.0.1:{server.server_address[1]}/{found[1]}/{found[2]}"
            size = str((root / found[1] / found[2]).stat().st_size)
            return self.text(302, Location=location, X_Repo_Commit=COMMIT, X_Linked_Size=size, ETag='"1"')
        query = dict(urllib.parse.parse_qsl(url.query))
        if "list-type" in query:
            return self.listing(path.strip("/"), query.get("prefix", ""))
        path = root / path.strip("/").removeprefix("bucket/")
        if not path.is_file():
            return self.text(404)
        length = path.stat().st_size
        start, end = 0, length
        if wanted := self.headers.get("range"):
            first, last = wanted.removeprefix("bytes=").split("-")
            start = int(first) if first else max(0, length - int(last))
            end = min(int(last) + 1, length) if first and last else length
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(end - start))
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{length}")
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.flush()
        with server.lock:
            server.sent += end - start
        with path.open("rb") as file:
            try:
                while start < end:
                    # As much as the kernel takes: each further call waits for the interpreter's lock.
                    start += os.sendfile(self.connection.fileno(), file.fileno(), start, end - start)
            except OSError:
                self.close_connection = True

    do_HEAD = do_GET

    def listing(self, bucket, prefix):
        items = [file for file in sorted(self.server.root.rglob("*")) if file.is_file()]
        items = [(file.relative_to(self.server.root).as_posix(), file.stat().st_size) for file in items]
        contents = "".join(f"<Contents><Key>{name}</Key><Size>{size}</Size><ETag>&quot;1&quot;</ETag>"
                           "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
                           for name, size in items if name.startswith(prefix))
        self.text(200, f"<ListBucketResult><Name>{bucket}</Name><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>".encode())


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value):
    return b"J" + struct.pack("<i", value) if value < 1 << 31 else b"\x8a\x08" + struct.pack("<q", value)


def root_pickle(tensors, legacy=False):
    """The pickle of a dict of float16 tensors of one dimension, each with its own storage."""
    parts = [b"\x80\x02}("]
    for key, (name, numel) in enumerate(tensors):
        storage = b"(" + text("storage") + b"ctorch\nHalfStorage\n" + text(str(key)) + text("cpu") + number(numel) + (b"N" if legacy else b"") + b"tQ"
        parts.append(text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\0" + number(numel) + b"\x85K\1\x85\x89"
                     b"ccollections\nOrderedDict\n)RtR")
    return b"".join([*parts, b"u."])


def write_zip(path, tensors, filled=False):
    """Writes the archive of `torch.save`. Unless they are filled, storages are holes, whose checksums are wrong."""
    entries = []
    with path.open("wb") as out:
        def add(name, content, length):
            offset = out.tell()
            padding = -(offset + 30 + len(name) + 4) % 64
            crc = zlib.crc32(content) if content is not None else 0
            out.write(struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 45, 0, 0, 0, 0x21, crc, 0xffffffff, 0xffffffff, len(name), 4 + padding + 20))
            out.write(name.encode() + struct.pack("<HHQQ", 1, 16, length, length) + struct.pack("<HH", 0x4246, padding) + b"Z" * padding)
            if content is None:
                out.seek(length, os.SEEK_CUR)
            else:
                out.write(content)
            entries.append((name, crc, length, offset))
        pickle = root_pickle(tensors)
        add("m/data.pkl", pickle, len(pickle))
        add("m/byteorder", b"little", 6)
        for key, (_, numel) in enumerate(tensors):
            add(f"m/data/{key}", os.urandom(2 * numel) if filled else None, 2 * numel)
        add("m/version", b"3\n", 2)
        start = out.tell()
        for name, crc, length, offset in entries:
            out.write(struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 45, 45, 0, 0, 0, 0x21, crc, 0xffffffff, 0xffffffff, len(name), 28, 0, 0, 0, 0, 0xffffffff))
            out.write(name.encode() + struct.pack("<HHQQQ", 1, 24, length, length, offset))
        size, end = out.tell() - start, out.tell()
        out.write(struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, len(entries), len(entries), size, start))
        out.write(struct.pack("<4sIQI", b"PK\6\7", 0, end, 1))
        out.write(struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0xffff, 0xffff, 0xffffffff, 0xffffffff, 0))


def write_legacy(path, tensors):
    long = 0x1950a86a20f9469cfc6c.to_bytes(10, "little")
    information = b"\x80\x02}(" + text("protocol_version") + number(1001) + text("little_endian") + b"\x88" + text("type_sizes") + b"}u."
    keys = b"\x80\x02](" + b"".join(text(str(key)) for key in range(len(tensors))) + b"e."
    with path.open("wb") as out:
        out.write(b"\x80\x02\x8a\x0a" + long + b"." + b"\x80\x02" + number(1001) + b"." + information + root_pickle(tensors, True) + keys)
        for _, numel in tensors:
            out.write(struct.pack("<q", numel))
            out.seek(2 * numel, os.SEEK_CUR)
        out.truncate()


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, numel in tensors:
        header[name] = {"dtype": "F16", "shape": [numel], "data_offsets": [at, at + 2 * numel]}
        at += 2 * numel
    header = json.dumps(header).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as out:
        out.write(struct.pack("<Q", len(header)) + header)
        out.truncate(out.tell() + at)


def tensors(count, nbytes):
    """`count` tensors with names as long as those of a language model, `nbytes` bytes in all."""
    return [(f"model.layers.{n // 9}.self_attn.projection_{n % 9}.weight", nbytes // count // 2) for n in range(count)]


def write_shards(folder, write, ending, base):
    folder.mkdir(exist_ok=True)
    parts = [tensors(724, 140_000_000_000)[n::8] for n in range(8)]
    names = [f"{base}-{n + 1:05}-of-00008.{ending}" for n in range(8)]
    for name, part in zip(names, parts):
        write(folder / name, part)
    weight_map = {tensor: name for name, part in zip(names, parts) for tensor, _ in part}
    index = {"metadata": {"total_size": 140_000_000_000}, "weight_map": weight_map}
    (folder / f"{base}.{ending}.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text('{"model_type": "x"}')


def make(root):
    large, small = tensors(724, 140_000_000_000), tensors(30, 100_000)
    for path in root / "zip/pytorch_model.bin", root / "hub/model.pth":
        path.parent.mkdir(parents=True, exist_ok=True)
        write_zip(path, large)
    (root / "hubst").mkdir(exist_ok=True)
    write_safetensors(root / "hubst/model.safetensors", large)
    write_legacy(root / "zip/legacy.pth", large)
    write_zip(root / "zip/many.pth", tensors(5000, 40_000_000_000))
    write_zip(root / "zip/small.pth", small)
    write_shards(root / "shards", write_safetensors, "safetensors", "model")
    write_shards(root / "binshards", write_zip, "bin", "pytorch_model")
    at = "http://127.0.0.1:{port}"
    return [
        ("zip, 724 tensors, 140 GB", f"{at}/zip/pytorch_model.bin"),
        ("the same on the Hub", "hf://o/hub/model.pth"),
        ("the same in S3", "s3://bucket/zip/pytorch_model.bin"),
        ("zip, 5000 tensors, 40 GB", f"{at}/zip/many.pth"),
        ("before PyTorch 1.6, 724 tensors, 140 GB", f"{at}/zip/legacy.pth"),
        ("zip, 100 kB", f"{at}/zip/small.pth"),
        ("safetensors on the Hub, 140 GB", "hf://o/hubst/model.safetensors"),
        ("8 shards, safetensors, index", f"{at}/shards/model.safetensors.index.json"),
        ("8 shards, zip, repository of the Hub", "hf://o/binshards"),
        ("8 shards, zip, prefix in S3", "s3://bucket/binshards"),
    ]


def measure(command, env, statuses=(0,)):
    """Returns the seconds and the peak of memory in MiB of a command."""
    start = time.monotonic()
    process = subprocess.Popen(list(map(str, command)), env=os.environ | env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    error = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) in statuses, f"{command}: {error[-2000:]}"
    return time.monotonic() - start, usage.ru_maxrss / 1024


def list_files(server, options, env):
    kinds = [(name, address.format(port=server.server_address[1])) for name, address in make(server.root)]
    runs = [("inspect", [options.binary, "inspect", "--allow-http"]), ("scan", [options.binary, "scan", "--allow-http"])]
    seconds = " | ".join(f"s at {latency:.0f} ms" for latency in options.latency)
    print(f"| input | command | requests | kB | {seconds} |\n|---|---|--:|--:|{'--:|' * len(options.latency)}")
    for name, address in kinds:
        for command, words in runs[: 1 if address.endswith(".index.json") else 2]:  # of an index, nothing is scanned
            row(server, options, env, (name, f"`{command}`"), [*words, address])
    if options.peer:
        for repository, file in ("hub", "model.pth"), ("hubst", "model.safetensors"):
            row(server, options, env, (f"{file} on the Hub", "`hf-fetch-model inspect`"), [options.peer, "inspect", f"o/{repository}", file])


def row(server, options, env, names, command):
    times = []
    for latency in options.latency:
        server.latency = latency / 1000
        server.requests = server.sent = 0
        times.append(measure(command, env, (0, 2))[0])
    server.latency = 0
    columns = [*names, str(server.requests), f"{server.sent / 1000:,.0f}", *(f"{second:.2f}" for second in times)]
    print(f"| {' | '.join(columns)} |", flush=True)


def convert(server, options, env):
    """Compares conversions of a file of random bytes, from a warm cache."""
    source, copy = server.root / "converted.pth", server.root / "copy.pth"
    write_zip(source, tensors(200, options.megabytes * 1_000_000), filled=True)
    address = f"http://127.0.0.1:{server.server_address[1]}/converted.pth"
    print(f"\n| {options.megabytes} MB | least seconds | median | peak of memory |\n|---|--:|--:|--:|")
    for extension in "safetensors", "carton":
        output = server.root / f"out.{extension}"
        words = [options.binary, "convert", "--quiet", "--force", "--allow-http", "-o", output]
        runs = {
            f"local, into {extension}": [[*words, source]],
            f"from the address, into {extension}": [[*words, address]],
            f"`curl -o`, then local, into {extension}": [["curl", "-s", "-o", copy, address], [*words, copy]],
            "`curl -o /dev/null`": [["curl", "-s", "-o", "/dev/null", address]],
        }
        times, peaks = {name: [] for name in runs}, dict.fromkeys(runs, 0.0)
        for _ in range(options.runs):
            for name, commands in runs.items():
                output.unlink(missing_ok=True)
                copy.unlink(missing_ok=True)
                measured = [measure(command, env) for command in commands]
                times[name].append(sum(seconds for seconds, _ in measured))
                peaks[name] = max(peaks[name], measured[-1][1])
        for name in runs:
            print(f"| {name} | {min(times[name]):.2f} | {statistics.median(times[name]):.2f} | {peaks[name]:.0f} MiB |", flush=True)
        output.unlink(missing_ok=True)
    for path in source, copy:
        path.unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--binary", type=Path, default=Path(__file__).parent.parent / "target/release/torch2carton")
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--latency", type=float, nargs="+", default=[0, 50, 200])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--only", choices=["list", "convert"])
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    options.binary = options.binary.resolve()
    server = Server(options.folder.resolve(), options.port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    env = {"HF_ENDPOINT": endpoint, "AWS_ENDPOINT_URL": endpoint, "AWS_SKIP_SIGNATURE": "true", "AWS_REGION": "us-east-1", "HF_TOKEN": ""}
    if options.only != "convert":
        list_files(server, options, env)
    if options.only != "list":
        convert(server, options, env)


if __name__ == "__main__":
    main()
