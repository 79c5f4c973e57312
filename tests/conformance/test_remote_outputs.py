"""Outputs in buckets: they are what is written to a disk, whole or not there, and nothing is left after an error."""

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.parse
import zipfile

import pytest
import torch
from program import BINARY, CLEAN, refuse, succeed
from served import Handler, running
from test_remote import SECRET, WORKER, folder, free_port, moto, serving  # noqa: F401  (fixtures)

# Beyond one part of 8 MiB, so that an upload has several.
LARGE, SMALL = 5_000_000, 1000


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")
    torch.manual_seed(30)
    for name, numel in ("large", LARGE), ("small", SMALL):
        torch.save({"a.weight": torch.randn(numel), "b.weight": torch.randn(7, 3)}, root / f"{name}.pth")
    with zipfile.ZipFile(root / "large.pth") as archive:
        start = archive.getinfo("large/data/0").header_offset
    damaged = bytearray((root / "large.pth").read_bytes())
    damaged[start + 15_000_000] ^= 1
    (root / "damaged.pth").write_bytes(damaged)
    return root


class Store:
    """A bucket, seen by the service's own client."""

    def __init__(self, address, env, worker):
        self.address, self.env, self.worker = address, env, worker

    def __call__(self, *arguments):
        return json.loads(self.worker(*arguments))

    def get(self, name):
        return bytes.fromhex(self("get", name))


@pytest.fixture
def store(moto, tmp_path):  # noqa: F811
    port = moto.rpartition(":")[2]
    bucket = f"out-{time.monotonic_ns()}"

    def worker(*arguments):
        command = [os.environ["T2C_BUCKETS"], WORKER, *arguments[:1], port, bucket, *arguments[1:]]
        return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout

    worker("create")
    env = {"AWS_ENDPOINT_URL": moto, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
    return Store(f"s3://{bucket}", env, worker)


@pytest.mark.parametrize("name", ["small", "large"])
@pytest.mark.parametrize("output", ["x.safetensors", "x.pth", "x.carton"])
def test_an_output_is_the_local_one(store, checkpoints, tmp_path, name, output):
    source = checkpoints / f"{name}.pth"
    succeed("convert", source, "-o", tmp_path / output)
    succeed("convert", source, "-o", f"{store.address}/a/{output}", "--allow-http", env=store.env)
    assert store.get(f"a/{output}") == (tmp_path / output).read_bytes()
    # It is replaced, because it has the mark of this program.
    succeed("convert", source, "-o", f"{store.address}/a/{output}", "--allow-http", env=store.env)
    assert store("list") == [f"a/{output}"] and store("uploads") == []


@pytest.mark.parametrize("name", ["small", "large"])
def test_what_others_wrote_stays(store, checkpoints, name):
    source, target = checkpoints / f"{name}.pth", f"{store.address}/x.safetensors"
    store("put", "x.safetensors", "theirs")
    run = ["convert", source, "-o", target, "--allow-http"]
    assert "was not written by torch2carton" in refuse(*run, env=store.env).stderr
    assert "exists" in refuse(*run, "--no-clobber", env=store.env).stderr
    assert store.get("x.safetensors") == b"theirs"
    succeed(*run, "--force", env=store.env)
    assert len(store.get("x.safetensors")) > 4 * SMALL
    assert "exists" in refuse(*run, "--no-clobber", env=store.env).stderr
    assert store("uploads") == []


def test_a_damaged_input_leaves_nothing(store, checkpoints):
    target = f"{store.address}/x.safetensors"
    refuse("convert", checkpoints / "damaged.pth", "-o", target, "--allow-http", env=store.env)
    assert store("list") == [] and store("uploads") == []


class Stalling(Handler):
    """Sends ranges of a file, but of its middle only after `go` is set."""

    def do_GET(self):
        body = self.server.body
        if 12_000_000 < self.asked_range(len(body))[1] < len(body):
            self.server.reached.set()
            self.server.go.wait(60)
        self.answer_range(body, ETag='"1"')


@pytest.fixture
def stalling(checkpoints):
    body = (checkpoints / "large.pth").read_bytes()
    with running(Stalling, body=body, go=threading.Event(), reached=threading.Event()) as server:
        yield server
        server.go.set()


def start(store, stalling, *flags):
    source, target = f"http://127.0.0.1:{stalling.port}/large.pth", f"{store.address}/x.safetensors"
    command = [BINARY, "convert", "--allow-http", source, "-o", target, *flags]
    process = subprocess.Popen(list(map(str, command)), env=CLEAN | store.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    assert stalling.reached.wait(60)
    return process


def wait_for_upload(store):
    for _ in range(100):
        if store("uploads"):
            return
        time.sleep(0.1)
    raise AssertionError("no upload was started")


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_leaves_nothing(store, stalling):
    process = start(store, stalling)
    wait_for_upload(store)
    before = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.wait(10)
    assert time.monotonic() - before < 2
    assert store("list") == [] and store("uploads") == []


@pytest.mark.parametrize("flag", [[], ["--no-clobber"]])
def test_what_comes_meanwhile_stays(store, stalling, flag):
    process = start(store, stalling, *flag)
    store("put", "x.safetensors", "theirs")
    stalling.go.set()
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 1 and "x.safetensors" in error, error
    assert store.get("x.safetensors") == b"theirs" and store("uploads") == []


def test_folders_and_batches(store, checkpoints, tmp_path):
    split = ["--max-shard-size", "8MB", "--allow-http"]
    succeed("convert", checkpoints / "large.pth", "-o", tmp_path / "folder", *split)
    succeed("convert", checkpoints / "large.pth", "-o", f"{store.address}/folder", *split, env=store.env)
    for path in (tmp_path / "folder").iterdir():
        assert store.get(f"folder/{path.name}") == path.read_bytes()
    other = refuse("convert", checkpoints / "small.pth", "-o", f"{store.address}/folder", "--to", "safetensors", "--allow-http", env=store.env)
    assert "model-0000" in other.stderr, other
    inputs = [checkpoints / "large.pth", checkpoints / "small.pth"]
    succeed("convert", "--each", *inputs, "-o", f"{store.address}/each/", "--to", "pth", "--allow-http", env=store.env)
    assert {"each/large.pth", "each/small.pth"} <= set(store("list"))
    lines = [json.dumps({"input": str(path), "options": {"allow-http": True}}) for path in inputs]
    each = ["convert", "--each", "--resume", *inputs, "-o", f"{store.address}/each/", "--to", "pth", "--allow-http"]
    assert "0 converted, 2 skipped" in succeed(*each, env=store.env).stderr
    store("delete", "each/small.pth")
    assert "1 converted, 1 skipped" in succeed(*each, "--checksum", env=store.env).stderr
    # Another checkpoint in the place of the output.
    succeed("convert", checkpoints / "small.pth", "-o", f"{store.address}/each/large.pth", "--allow-http", env=store.env)
    assert "1 converted, 1 skipped" in succeed(*each, env=store.env).stderr
    store("put", "each/small.pth", "theirs")
    assert "was not written by torch2carton" in refuse(*each, env=store.env).stderr
    assert store.get("each/small.pth") == b"theirs"
    (tmp_path / "m.jsonl").write_text("\n".join(lines))
    results = tmp_path / "results.jsonl"
    run = ["batch", tmp_path / "m.jsonl", "-o", f"{store.address}/batch", "--to", "safetensors", "--results", results]
    succeed(*run, env=store.env)
    first = results.read_text()
    outputs = [json.loads(line)["output"] for line in first.splitlines()]
    assert sorted(outputs) == [f"{store.address}/batch/{name}.safetensors" for name in ("large", "small")]
    succeed(*run, "--resume", "--checksum", env=store.env)
    assert results.read_text() == first
    store("delete", "batch/small.safetensors")
    succeed(*run, "--resume", env=store.env)
    assert "batch/small.safetensors" in store("list") and len(results.read_text().splitlines()) == 2


def test_models_for_triton(store, tmp_path):
    for name in "a", "b":
        torch.jit.script(torch.nn.Linear(3, 2)).save(tmp_path / f"{name}.pt")
    run = ["--to", "triton", "--allow-http", "--input", "input=float32[batch,3]", "--output-type", "output=float32[batch,2]"]
    succeed("convert", tmp_path / "a.pt", "-o", tmp_path / "models", *run)
    succeed("convert", tmp_path / "a.pt", "-o", f"{store.address}/models", *run, env=store.env)
    for path in (tmp_path / "models").rglob("*"):
        if path.is_file():
            assert store.get(f"models/{path.relative_to(tmp_path / 'models').as_posix()}") == path.read_bytes()
    assert sorted(store("list")) == ["models/a/1/model.pt", "models/a/config.pbtxt"]
    succeed("convert", "--each", tmp_path / "a.pt", tmp_path / "b.pt", "-o", f"{store.address}/models", *run, env=store.env)
    assert {"models/b/1/model.pt", "models/b/config.pbtxt"} <= set(store("list"))
    assert "exists" in refuse("convert", tmp_path / "a.pt", "-o", f"{store.address}/models", "--no-clobber", *run, env=store.env).stderr
    assert "models/a" in refuse("convert", tmp_path / "b.pt", "-o", f"{store.address}/models/a", *run, status=(2,), env=store.env).stderr
    store("put", "models/c/config.pbtxt", "theirs")
    assert "c/config.pbtxt" in refuse("convert", tmp_path / "a.pt", "--name", "c", "-o", f"{store.address}/models", *run, env=store.env).stderr
    assert store.get("models/c/config.pbtxt") == b"theirs" and "models/c/1/model.pt" not in store("list")


class Google(Handler):
    """Multipart uploads of Google's XML interface, as far as they are used here."""

    def handle_request(self):
        url = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(url.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        objects, uploads = self.server.objects, self.server.uploads
        self.server.requests.append((self.command, sorted(query)))
        existing = objects.get(path)
        wanted = self.headers.get("x-goog-if-generation-match")
        is_refused = wanted is not None and wanted != (str(existing["generation"]) if existing else "0")
        metadata = {k.lower(): v for k, v in self.headers.items() if k.lower().startswith("x-goog-meta-")}
        if wanted is not None and {"uploads", "uploadId"} & query.keys():
            return self.answer(400, b"<Error><Code>NotImplemented</Code></Error>")

        def store(data, metadata):
            generation = len(self.server.requests)
            objects[path] = {"data": data, "generation": generation, "metadata": metadata}
            return {"ETag": f'"{generation}"', "x_goog_generation": str(generation)}

        if self.command in ("GET", "HEAD"):
            if existing is None:
                return self.answer(404)
            return self.answer(200, existing["data"], ETag=f'"{existing["generation"]}"', x_goog_generation=str(existing["generation"]),
                               Last_Modified="Thu, 01 Jan 2026 00:00:00 GMT", **existing["metadata"])
        if self.command == "POST" and "uploads" in query:
            upload = f"u{len(self.server.requests)}"
            uploads[upload] = {"parts": {}, "metadata": metadata}
            return self.answer(200, f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>".encode())
        if self.command == "PUT" and "partNumber" in query:
            if self.server.fails:
                return self.answer(403)
            uploads[query["uploadId"]]["parts"][int(query["partNumber"])] = body
            return self.answer(200, ETag=f'"p{query["partNumber"]}"')
        if source := self.headers.get("x-goog-copy-source"):
            self.server.copying.set()
            if self.server.while_copying:
                # Another program, between the last look and the copy.
                self.server.while_copying(path)
            existing = objects.get(path)
            if wanted is not None and wanted != (str(existing["generation"]) if existing else "0"):
                return self.answer(412)
            if (original := objects.get("/" + urllib.parse.unquote(source))) is None:
                return self.answer(404)
            headers = store(original["data"], original["metadata"])
            if self.server.loses_answers:
                self.server.loses_answers -= 1
                self.close_connection = True
                return self.connection.shutdown(socket.SHUT_RDWR)
            return self.answer(200, b"<CopyObjectResult></CopyObjectResult>", **headers)
        if is_refused:
            return self.answer(412)
        if self.command == "POST":
            upload = uploads.pop(query["uploadId"])
            numbers = list(map(int, re.findall(rb"<PartNumber>(\d+)", body)))
            assert numbers == sorted(upload["parts"])
            headers = store(b"".join(upload["parts"][number] for number in numbers), upload["metadata"])
            answer = f"<CompleteMultipartUploadResult><ETag>{headers['ETag']}</ETag></CompleteMultipartUploadResult>"
            return self.answer(200, answer.encode(), **headers)
        if self.command == "PUT":
            return self.answer(200, **store(body, metadata))
        if self.command == "DELETE" and "uploadId" in query:
            uploads.pop(query["uploadId"])
            return self.answer(204)
        if self.command == "DELETE":
            if self.server.keeps:
                return self.answer(403)
            return self.answer(204 if objects.pop(path, None) else 404)
        return self.answer(400)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_request


@pytest.fixture
def google():
    state = {"objects": {}, "uploads": {}, "requests": [], "fails": False, "keeps": False, "loses_answers": 0, "while_copying": None}
    with running(Google, copying=threading.Event(), **state) as server:
        yield server


def google_env(google):
    return {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{google.port}"}


def test_google(google, checkpoints, tmp_path):
    env = google_env(google)
    for name in "small", "large":
        source, target = checkpoints / f"{name}.pth", f"gs://models/{name}.safetensors"
        succeed("convert", source, "-o", tmp_path / f"{name}.safetensors")
        run = ["convert", source, "-o", target, "--allow-http"]
        succeed(*run, "--no-clobber", env=env)
        assert google.objects[f"/models/{name}.safetensors"]["data"] == (tmp_path / f"{name}.safetensors").read_bytes()
        assert "exists" in refuse(*run, "--no-clobber", env=env).stderr
        succeed(*run, env=env)
        succeed(*run, "--force", env=env)
    assert google.uploads == {} and sorted(google.objects) == ["/models/large.safetensors", "/models/small.safetensors"]
    google.fails = True
    error = refuse("convert", checkpoints / "large.pth", "-o", "gs://models/new.pth", "--allow-http", env=env).stderr
    assert "GOOGLE_APPLICATION_CREDENTIALS" in error, error
    assert google.uploads == {} and "/models/new.pth" not in google.objects


def test_google_keeps_what_another_program_writes_meanwhile(google, checkpoints):
    env, path = google_env(google), "/models/a/x.pth"
    run = ["convert", checkpoints / "large.pth", "-o", "gs://models/a/x.pth", "--allow-http"]
    theirs = {"data": b"theirs", "generation": 7, "metadata": {}}
    google.while_copying = lambda copied: google.objects.update({copied: theirs})
    assert "exists" in refuse(*run, "--no-clobber", env=env).stderr
    assert google.objects == {path: theirs} and google.uploads == {}
    # What is there is ours, and is replaced by theirs while we replace it.
    google.objects.clear()
    google.while_copying = None
    succeed(*run, env=env)
    google.while_copying = lambda copied: google.objects.update({copied: theirs})
    assert "--force" in refuse(*run, env=env).stderr
    assert google.objects == {path: theirs}
    succeed(*run, "--force", env=env)
    assert sorted(google.objects) == [path] and len(google.objects[path]["data"]) > SMALL


def test_google_loses_the_answer_to_a_copy(google, checkpoints):
    google.loses_answers = 1
    succeed("convert", checkpoints / "large.pth", "-o", "gs://models/x.pth", "--allow-http", "--no-clobber", env=google_env(google))
    assert sorted(google.objects) == ["/models/x.pth"]


def test_google_lets_nobody_delete(google, checkpoints):
    google.keeps = True
    error = refuse("convert", checkpoints / "large.pth", "-o", "gs://models/x.pth", "--allow-http", env=google_env(google)).stderr
    (left,) = google.objects.keys() - {"/models/x.pth"}
    assert f"the temporary object gs:/{left} cannot be deleted" in error and "it is complete" in error, error


def test_ctrl_c_while_google_copies(google, checkpoints):
    google.while_copying = lambda _: time.sleep(20)
    command = [BINARY, "convert", checkpoints / "large.pth", "-o", "gs://models/x.pth", "--allow-http"]
    process = subprocess.Popen(command, env=CLEAN | google_env(google), stderr=subprocess.PIPE)
    assert google.copying.wait(60)
    assert len(google.objects) == 1
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.wait(timeout=20)
    assert time.monotonic() - start < 2, "Ctrl-C ends it at once"
    assert process.returncode in (130, -signal.SIGINT) and google.objects == {} and google.uploads == {}
