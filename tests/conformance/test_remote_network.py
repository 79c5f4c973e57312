"""Requests through a proxy, with certificates of one's own, with the credentials of an instance, and Ctrl-C while a server stalls."""

import contextlib
import html
import http.server
import json
import os
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
import zlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from conftest import GOLDEN
from program import BINARY, CLEAN, refuse, succeed
from served import Server

# A host that no resolver knows: only the proxy reaches it.
HOST = "models.invalid"
SECRET = "a-secret-that-nobody-may-see"


def etag(data):
    return f'"{zlib.crc32(data):08x}"'


class Files(http.server.BaseHTTPRequestHandler):
    """Sends ranges of the files of the server, as a web server, as S3, as Google or as Azure; `seen` has the requests."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def setup(self):
        super().setup()
        self.server.connections += 1

    def do_GET(self):
        self.server.seen.append((self.command, self.path, dict(self.headers)))
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        body = self.server.answers(self) if self.server.answers else None
        data = self.server.files.get(path, self.server.files.get(path.rsplit("/", 1)[-1]))
        if body is None and data is not None:
            start, end = 0, len(data)
            if wanted := self.headers.get("range"):
                first, last = wanted.removeprefix("bytes=").split("-")
                start = int(first) if first else max(0, end - int(last))
                end = min(int(last) + 1, end) if first and last else end
            self.send_response(206 if wanted else 200)
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
            self.send_header("ETag", etag(data))
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            body = data[start:end]
        else:
            self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body or b"")

    do_HEAD = do_PUT = do_GET


class Proxy(http.server.BaseHTTPRequestHandler):
    """Connects every host with one server."""

    def log_message(self, *_):
        pass

    def do_CONNECT(self):
        self.server.seen.append((self.path, dict(self.headers)))
        with socket.create_connection(self.server.target) as server:
            self.send_response(200)
            self.end_headers()
            pair = {self.connection: server, server: self.connection}
            while True:
                for ready in select.select(list(pair), [], [])[0]:
                    data = ready.recv(1 << 16)
                    if not data:
                        self.close_connection = True
                        return
                    pair[ready].sendall(data)


@contextlib.contextmanager
def running(handler, certificate=None, **settings):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.seen, server.files, server.answers, server.connections = [], {}, None, 0
    for name, value in settings.items():
        setattr(server, name, value)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.handle_error = lambda *_: None
    server.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.pth"
    torch.save({"a": torch.arange(5_000_000, dtype=torch.float32)}, path)
    return path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A certificate authority, and the certificate and key of the server."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not on PATH")
    root = tmp_path_factory.mktemp("certificates")
    names = f"subjectAltName=DNS:{HOST},DNS:*.{HOST},DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n"
    (root / "names").write_text(names)

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=root, check=True, capture_output=True)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test", "-days", "2")
    openssl("req", *curve, "-keyout", "key.pem", "-out", "request", "-subj", f"/CN={HOST}")
    openssl("x509", "-req", "-in", "request", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "cert.pem", "-days", "2", "-extfile", "names")
    return root / "ca.pem", (root / "cert.pem", root / "key.pem")


def test_a_proxy_and_a_certificate_authority(model, certificates, tmp_path):
    authority, certificate = certificates
    local = succeed("digest", model).stdout.split()[0]
    trusted = {"SSL_CERT_FILE": authority}
    with running(Files, certificate, files={"model.pth": model.read_bytes()}) as server, \
            running(Proxy, target=("127.0.0.1", server.port)) as proxy:
        near = f"https://localhost:{server.port}/model.pth"
        assert local in succeed("digest", "--allow-http", near, env=trusted).stdout
        assert "certificate" in refuse("inspect", "--allow-http", near).stderr.lower()
        assert proxy.seen == []
        through = trusted | {"HTTPS_PROXY": f"http://user:{SECRET}@127.0.0.1:{proxy.port}"}
        far = f"https://{HOST}/model.pth"
        # The proxy is in a private network, and the host is not known here.
        assert local in succeed("digest", far, env=through).stdout
        assert proxy.seen[0][0] == f"{HOST}:443" and proxy.seen[0][1].get("Proxy-Authorization", "").startswith("Basic ")
        bucket = {"AWS_ENDPOINT_URL": f"https://{HOST}", "AWS_REGION": "r", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": SECRET}
        google = {"STORAGE_EMULATOR_HOST": f"https://{HOST}"}
        azure = {"AZURE_STORAGE_ACCOUNT_NAME": "a", "AZURE_STORAGE_ACCOUNT_KEY": "a2V5", "AZURE_STORAGE_ENDPOINT": f"https://{HOST}/a"}
        for address, env in ("s3://b/model.pth", bucket), ("gs://b/model.pth", google), ("az://b/model.pth", azure):
            del proxy.seen[:]
            assert local in succeed("digest", address, env=through | env).stdout, address
            assert proxy.seen, address
            failed = refuse("inspect", address, env=env | {"HTTPS_PROXY": through["HTTPS_PROXY"]})
            assert SECRET not in failed.stderr, failed
        # A host without a proxy; and http has a variable of its own.
        del proxy.seen[:]
        succeed("inspect", "--allow-http", near, env=through | {"NO_PROXY": "example.org, localhost"})
        with running(Files, files={"model.pth": model.read_bytes()}) as plain:
            succeed("inspect", "--allow-http", f"http://127.0.0.1:{plain.port}/model.pth", env=through)
        assert proxy.seen == []
        unreachable = refuse("inspect", far, "--timeout", "2", env=trusted | {"HTTPS_PROXY": "http://127.0.0.1:9"})
        assert "HTTPS_PROXY" in unreachable.stderr, unreachable
        refuse("inspect", near, env={"SSL_CERT_FILE": tmp_path / "none.pem"})


def test_connections_are_used_again(model, tmp_path):
    with running(Files, files={"model.pth": model.read_bytes()}) as server:
        succeed("convert", "--allow-http", f"http://127.0.0.1:{server.port}/model.pth", "-o", tmp_path / "x.safetensors")
        assert server.connections < len(server.seen), (server.connections, server.seen)
        requests, server.connections = len(server.seen), 0
        lines = [json.dumps({"input": f"http://127.0.0.1:{server.port}/{n}/model.pth", "options": {"allow-http": True}}) for n in range(8)]
        (tmp_path / "m.jsonl").write_text("\n".join(lines))
        succeed("batch", tmp_path / "m.jsonl", "--task", "digest", "--results", tmp_path / "r.jsonl")
        assert 16 <= 2 * server.connections <= len(server.seen) - requests or server.connections < 8, (server.connections, len(server.seen))


def expires():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))


def amazon_keys():
    keys = {"AccessKeyId": "AKINSTANCE", "SecretAccessKey": SECRET, "Token": "session", "Expiration": expires()}
    return json.dumps(keys | {"Code": "Success", "Type": "AWS-HMAC", "LastUpdated": expires(), "RoleArn": "r"}).encode()


def answer_metadata(handler):
    """The services of Amazon, Google and Azure that give an instance its credentials, for each as its documents say."""
    path, headers = urllib.parse.urlsplit(handler.path).path, handler.headers
    if path == "/latest/api/token" and handler.command == "PUT":
        return b"imds-token" if headers.get("X-aws-ec2-metadata-token-ttl-seconds") else None
    if path.startswith("/latest/meta-data/iam/security-credentials") and headers.get("X-aws-ec2-metadata-token") == "imds-token":
        return amazon_keys() if path.endswith("/role") else b"role"
    if path == "/container":
        return amazon_keys() if headers.get("Authorization") in (None, "container-token") else None
    if path.startswith("/computeMetadata/v1/instance/service-accounts/default/token") and headers.get("Metadata-Flavor") == "Google":
        return json.dumps({"access_token": SECRET, "expires_in": 3600, "token_type": "Bearer"}).encode()
    if path == "/msi" and (headers.get("X-IDENTITY-HEADER") or headers.get("Metadata")):
        return json.dumps({"access_token": SECRET, "expires_in": "3600", "expires_on": str(int(time.time()) + 3600), "resource": "r", "token_type": "Bearer"}).encode()
    return None


def test_credentials_of_an_instance(model, tmp_path):
    (tmp_path / "token").write_text("container-token")
    with running(Files, files={"model.pth": model.read_bytes()}) as server, running(Files, answers=answer_metadata) as metadata:
        base, at = f"http://127.0.0.1:{server.port}", f"http://127.0.0.1:{metadata.port}"
        # Neither a proxy nor --allow-http has to do with services on the machine itself.
        amazon = {"AWS_ENDPOINT_URL": base, "AWS_REGION": "r", "HOME": tmp_path, "HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": f"127.0.0.1:{server.port}"}
        container = amazon | {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{at}/container"}
        signed = "Credential=AKINSTANCE/"
        google = {"GCE_METADATA_HOST": f"127.0.0.1:{metadata.port}", "HOME": tmp_path, "GOOGLE_BASE_URL": base}
        azure = {"IDENTITY_ENDPOINT": f"{at}/msi", "IDENTITY_HEADER": "h", "AZURE_STORAGE_ACCOUNT_NAME": "a", "AZURE_STORAGE_ENDPOINT": f"{base}/a"}
        for address, env, text in [
            ("s3://b/model.pth", amazon | {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{at}/"}, signed),
            ("s3://b/model.pth", container, signed),
            ("s3://b/model.pth", container | {"AWS_CONTAINER_AUTHORIZATION_TOKEN": "container-token"}, signed),
            ("s3://b/model.pth", container | {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": tmp_path / "token"}, signed),
            ("gs://b/model.pth", google, f"Bearer {SECRET}"),
            ("az://b/model.pth", azure, f"Bearer {SECRET}"),
        ]:
            del server.seen[:], metadata.seen[:]
            done = succeed("inspect", "--allow-http", address, env=env)
            assert metadata.seen and server.seen, (address, metadata.seen)
            headers = [{name.lower(): value for name, value in headers.items()} for _, _, headers in server.seen]
            assert all(text in it.get("authorization", "") for it in headers), (address, server.seen)
            assert SECRET not in done.stdout + done.stderr
        elsewhere = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://example.org/container"}
        assert "not encrypted" in refuse("inspect", "--allow-http", "s3://b/model.pth", env=amazon | elsewhere).stderr
        # With credentials that the service refuses, none are left out.
        refused = refuse("inspect", "--allow-http", "s3://b/model.pth", env=container | {"AWS_CONTAINER_AUTHORIZATION_TOKEN": SECRET})
        assert SECRET not in refused.stderr and "AWS_CONTAINER_CREDENTIALS_FULL_URI" in refused.stderr, refused


def test_credentials_of_a_container_at_a_relative_address(model):
    alone = ["unshare", "--map-root-user", "--net"]
    if not shutil.which("unshare") or subprocess.run([*alone, "ip", "link"], capture_output=True).returncode:
        pytest.skip("the system gives no network namespace")
    worker = Path(__file__).resolve().parent / "workers" / "container_worker.py"
    done = subprocess.run([*alone, sys.executable, worker, BINARY, model], capture_output=True, text=True, check=True, timeout=60)
    found = json.loads(done.stdout)
    assert found["status"] == 0 and found["service"] == ["/v2/credentials/x"], found
    assert found["store"] and all("Credential=AKRELATIVE/" in text for text in found["store"]), found


def stall(server, part):
    """Answers a request for a byte of a part of the file only after the test."""
    size = len(server.files["model.pth"])

    def answers(handler):
        wanted = re.fullmatch(r"bytes=(\d*)-(\d+)", handler.headers.get("range", ""))
        is_edge = not wanted[1] or int(wanted[1]) == 0 or int(wanted[2]) + 1 == size
        if part == "edges" or part == "middle" and not is_edge:
            server.reached.set()
            server.go.wait(60)
        if part == "body" and not is_edge:
            handler.send_response(206)
            length = int(wanted[2]) + 1 - int(wanted[1])
            handler.send_header("Content-Range", f"bytes {wanted[1]}-{wanted[2]}/{size}")
            handler.send_header("Content-Length", str(length))
            handler.send_header("ETag", etag(server.files["model.pth"]))
            handler.end_headers()
            handler.wfile.write(server.files["model.pth"][int(wanted[1]):][:1000])
            handler.wfile.flush()
            server.reached.set()
            server.go.wait(60)
        return None

    return answers


def interrupt(command, env, reached):
    process = subprocess.Popen(list(map(str, command)), env=CLEAN | {key: str(value) for key, value in env.items()}, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert reached.wait(60), process.communicate(timeout=10)
    time.sleep(0.3)
    before = time.monotonic()
    process.send_signal(signal.SIGINT)
    error = process.communicate(timeout=60)[1]
    return time.monotonic() - before, process.returncode, error


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("part", ["edges", "middle", "body"])
def test_ctrl_c_while_an_input_stalls(model, tmp_path, part):
    with running(Files, files={"model.pth": model.read_bytes()}, reached=threading.Event(), go=threading.Event()) as server:
        server.answers = stall(server, part)
        command = [BINARY, "convert", "--allow-http", f"http://127.0.0.1:{server.port}/model.pth", "-o", tmp_path / "out/x.carton"]
        (tmp_path / "out").mkdir()
        seconds, status, error = interrupt(command, {}, server.reached)
        server.go.set()
        assert seconds < 1.5 and status == 130, (seconds, status, error)
        assert list((tmp_path / "out").iterdir()) == []


class Bucket(http.server.BaseHTTPRequestHandler):
    """Multipart uploads as S3 has them, one of whose requests stalls."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def handle_request(self):
        server, url = self.server, urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        kind = {("POST", True): "start", ("POST", False): "complete", ("PUT", False): "part"}.get((self.command, "uploads" in query))
        if kind == server.stalls and not (kind == "part" and query.get("partNumber") == "1"):
            server.reached.set()
            server.go.wait(server.seconds)
        status, answer = 200, b""
        if kind == "start":
            server.uploads.add("u1")
            answer = b"<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>"
        elif kind == "complete":
            if "u1" in server.uploads:
                server.uploads.discard("u1")
                server.objects.add(url.path)
                answer = b'<CompleteMultipartUploadResult><ETag>"1"</ETag></CompleteMultipartUploadResult>'
            else:
                status = 404
        elif self.command == "DELETE":
            server.uploads.discard("u1")
            status = 204
        elif self.command in ("GET", "HEAD"):
            status = 404
        self.send_response(status)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)
        assert len(body) >= 0

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_request


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("stalls, seconds", [("start", 0.6), ("part", 60)])
def test_ctrl_c_while_an_upload_stalls(model, stalls, seconds):
    settings = {"stalls": stalls, "seconds": seconds, "uploads": set(), "objects": set(), "reached": threading.Event(), "go": threading.Event()}
    with running(Bucket, **settings) as server:
        env = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}", "AWS_REGION": "r", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": SECRET}
        command = [BINARY, "convert", "--allow-http", model, "-o", "s3://b/x.safetensors"]
        taken, status, error = interrupt(command, env, server.reached)
        server.go.set()
        assert taken < 1.5 and status == 130, (taken, status, error)
        assert server.uploads == set() and server.objects == set()


def test_an_old_archive_is_read_in_part(tmp_path, monkeypatch):
    """The tar archive of PyTorch 0.1: its storages are not read for a listing, and nothing is copied."""
    monkeypatch.syspath_prepend(str(GOLDEN))
    import other_containers
    plain = {"a": ("FloatStorage", "F32", (4000, 2500), os.urandom(40_000_000)), "b": ("LongStorage", "I64", (3,), bytes(24)),
             "c": ("HalfStorage", "F16", (1_000_000,), os.urandom(2_000_000))}
    monkeypatch.setattr(other_containers, "PLAIN", plain)
    path = tmp_path / "old.pth"
    path.write_bytes(other_containers.tar())
    with running(Files, files={"old.pth": path.read_bytes()}) as server:
        address = f"http://127.0.0.1:{server.port}/old.pth"
        ours = json.loads(succeed("inspect", "--json", "--allow-http", address).stdout)
        traffic = ours.pop("remote")
        assert traffic["bytes"] < 4_000_000 and traffic["requests"] < 10, traffic
        theirs = json.loads(succeed("inspect", "--json", path).stdout)
        assert json.dumps(ours).replace(address, "FILE") == json.dumps(theirs).replace(str(path), "FILE")
        for output in "x.safetensors", "x.pth":
            succeed("convert", "--allow-http", address, "-o", tmp_path / output)
            succeed("convert", path, "-o", tmp_path / f"local-{output}")
            assert (tmp_path / output).read_bytes() == (tmp_path / f"local-{output}").read_bytes()
        for name in "tar.pth", "tar_view.pth":
            data = (GOLDEN / "checkpoints" / name).read_bytes()
            server.files[name] = data
            remote = f"http://127.0.0.1:{server.port}/{name}"
            assert succeed("digest", "--allow-http", remote).stdout.split()[0] == succeed("digest", GOLDEN / "checkpoints" / name).stdout.split()[0]
        for damaged in sorted((GOLDEN / "hostile").glob("tar_*.pth")):
            server.files[damaged.name] = damaged.read_bytes()
            refuse("inspect", damaged)
            refuse("inspect", "--allow-http", f"http://127.0.0.1:{server.port}/{damaged.name}")


def carton_of(model, tmp_path, name="m"):
    path = tmp_path / f"{name}.carton"
    succeed("convert", model, "-o", path)
    return path


def ask(server, path):
    response = server.request("GET", path)
    assert response.status == 200, (path, response.status, response.body)
    return json.loads(response.body)


def test_cartons_at_addresses_are_served(model, tmp_path, monkeypatch):
    carton = carton_of(model, tmp_path)
    data = carton.read_bytes()
    with running(Files, files={"m.carton": data, "model.pth": model.read_bytes()}) as files:
        base, temporary = f"http://127.0.0.1:{files.port}", tmp_path / "temporary"
        temporary.mkdir()
        monkeypatch.setitem(CLEAN, "TMPDIR", str(temporary))
        server = Server(BINARY, "serve", "--allow-http", "--port", 0, "--verify", f"{base}/m.carton?signature={SECRET}")
        try:
            sent = len(files.seen)
            assert ask(server, "/v2/models/m")["name"] == "m"
            # The copy has no name, and nothing more is requested.
            assert list(temporary.iterdir()) == [] and len(files.seen) == sent
            assert server.end() == 0 and SECRET not in server.log()
        finally:
            server.close()
        assert "is a checkpoint" in refuse("serve", "--allow-http", "--port", 0, f"{base}/model.pth").stderr
        assert "does not exist" in refuse("serve", "--allow-http", "--port", 0, f"{base}/none.carton").stderr
        assert "--allow-http" in refuse("serve", "--port", 0, f"{base}/m.carton").stderr
        assert "it is a file" in refuse("serve", "--allow-http", "--port", 0, "--repository", f"{base}/m.carton").stderr


@contextlib.contextmanager
def bucket_of(objects):
    """A bucket `b` as S3 has it, whose objects the test may change, and the environment that reads it."""

    def answers(handler):
        url = urllib.parse.urlsplit(handler.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        handler.server.files = {f"/b/{key}": data for key, data in objects.items()}
        if "list-type" not in query:
            return None
        rows = "".join(f"<Contents><Key>{key}</Key><Size>{len(data)}</Size><ETag>{html.escape(etag(data))}</ETag>"
                       "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
                       for key, data in objects.items() if key.startswith(query.get("prefix", "")))
        return f"<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode()

    with running(Files, answers=answers) as bucket:
        yield bucket, {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{bucket.port}", "AWS_REGION": "r", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": SECRET}


def test_a_folder_of_cartons_in_a_bucket_is_served_and_packed(model, tmp_path):
    """A bucket as S3 has it: two cartons, one of them in a folder deeper, and the files of an unpacked one."""
    carton = carton_of(model, tmp_path)
    succeed("unpack", carton, "-o", tmp_path / "unpacked")
    unpacked = {f"u/{path.relative_to(tmp_path / 'unpacked').as_posix()}": path.read_bytes()
                for path in (tmp_path / "unpacked").rglob("*") if path.is_file()}
    objects = {"cartons/a.carton": carton.read_bytes(), "cartons/b.carton": carton.read_bytes(), "cartons/deeper/c.carton": b"",
               "cartons/notes.txt": b"x", "empty/notes.txt": b"x"} | unpacked

    with bucket_of(objects) as (_, env):
        server = Server(BINARY, "serve", "--allow-http", "--port", 0, "s3://b/cartons", env=env)
        try:
            for name in "a", "b":
                assert ask(server, f"/v2/models/{name}")["name"] == name
            assert server.request("GET", "/v2/models/c").status == 404
        finally:
            server.close()
        assert "no packed cartons" in refuse("serve", "--allow-http", "--port", 0, "s3://b/empty", env=env).stderr
        packed = succeed("pack", "--allow-http", "s3://b/u", cwd=tmp_path, env=env)
        assert "u.carton" in packed.stderr + packed.stdout
        succeed("pack", tmp_path / "unpacked", "-o", tmp_path / "local.carton")
        assert (tmp_path / "u.carton").read_bytes() == (tmp_path / "local.carton").read_bytes()
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".torch2carton-")] == []
        succeed("pack", "--allow-http", "s3://b/u", cwd=tmp_path, env=env)
        assert "notes.txt" in refuse("pack", "--allow-http", "s3://b/empty", "-o", tmp_path / "x.carton", env=env).stderr
        del objects["u/carton.toml"]
        assert "s3://b/u" in refuse("pack", "--allow-http", "s3://b/u", "-o", tmp_path / "x.carton", env=env).stderr
        assert not (tmp_path / "x.carton").exists()


def test_a_repository_in_a_bucket_is_served(model, tmp_path):
    """Clients load what was added to the bucket since, and unload it; a version that is not there any more goes."""
    data = carton_of(model, tmp_path).read_bytes()
    objects = {"r/m/1.carton": data, "r/m/2.carton": data, "r/m/latest.carton": b"x", "r/u/3.carton/carton.toml": b"x", "r/notes.txt": b"x",
               "other/1.carton": data, "empty/notes.txt": b"x"}
    with bucket_of(objects) as (bucket, env):
        server = Server(BINARY, "serve", "--allow-http", "--port", 0, "--repository", "s3://b/r", env=env)
        try:
            assert ask(server, "/v2/models/m")["versions"] == ["1", "2"]
            log = server.log()
            assert "s3://b/r/m/latest.carton" in log and "s3://b/r/u/3.carton" in log and "carton.toml" not in log, log
            sent = len(bucket.seen)
            assert server.request("GET", "/v2/models/m/versions/2/ready").status == 200
            assert len(bucket.seen) == sent, "what was copied is not requested again"
            objects["r/n/7.carton"] = data
            index = json.loads(server.request("POST", "/v2/repository/index").body)
            assert [(row["name"], row.get("version"), row.get("state")) for row in index] == [("m", "1", "READY"), ("m", "2", "READY"), ("n", None, None)]
            assert server.request("POST", "/v2/repository/models/n/load").status == 200
            assert ask(server, "/v2/models/n")["versions"] == ["7"]
            del objects["r/m/1.carton"]
            assert server.request("POST", "/v2/repository/models/m/load").status == 200
            assert ask(server, "/v2/models/m")["versions"] == ["2"]
            objects["r/m/5.carton"] = b"no carton"
            answer = server.request("POST", "/v2/repository/models/m/load")
            assert answer.status == 500 and b"s3://b/r/m/5.carton" in answer.body and SECRET.encode() not in answer.body
            assert ask(server, "/v2/models/m")["versions"] == ["2"]
            assert server.request("POST", "/v2/repository/models/m/unload").status == 200
            assert server.request("GET", "/v2/models/m").status == 404
            assert server.request("POST", "/v2/repository/models/..%2Fother/load").status == 404
            assert server.end() == 0 and SECRET not in server.log()
        finally:
            server.close()
        for folder, reason in ("empty", "has no model: expected files NAME/VERSION.carton"), ("none", "does not exist"), ("r/m/2.carton", "it is a file"):
            error = refuse("serve", "--allow-http", "--port", 0, "--repository", f"s3://b/{folder}", env=env).stderr
            assert reason in error and f"s3://b/{folder}" in error, error


def test_many_inputs_at_addresses(tmp_path):
    """`batch` and `--each` take files, folders and indexes, and do not convert again what has not changed."""
    shards = {f"s/pytorch_model-0000{n}-of-00002.bin": {f"layer.{n}": torch.full((5, n), float(n))} for n in (1, 2)}
    index = {"weight_map": {f"layer.{n}": f"pytorch_model-0000{n}-of-00002.bin" for n in (1, 2)}}
    objects = {"a/model.pth": {"x": torch.ones(3)}, "b/model.pth": {"y": torch.ones(4)}, **shards}
    for name, tensors in objects.items():
        torch.save(tensors, tmp_path / "file")
        objects[name] = (tmp_path / "file").read_bytes()
    objects["s/pytorch_model.bin.index.json"] = json.dumps(index).encode()
    objects["s/notes.txt"] = b"x"
    whole = ["s3://b/a/model.pth", "s3://b/b/model.pth", "s3://b/s"]

    with bucket_of(objects) as (bucket, env):
        inputs = [*whole, "s3://b/s/pytorch_model.bin.index.json"]
        for task, member, values in ("digest", "tensors", (1, 1, 2, 2)), ("scan", "verdict", ("clean",) * 3), ("inspect", "tensors", (1, 1, 2, 2)):
            lines = [json.dumps({"input": it, "options": {"allow-http": True}}) for it in inputs[: len(values)]]
            (tmp_path / "m.jsonl").write_text("\n".join(lines))
            results = succeed("batch", tmp_path / "m.jsonl", "--task", task, "--jobs", 1, env=env).stdout
            assert tuple(json.loads(line)[member] for line in results.splitlines()) == values, (task, results)
        each = ["convert", "--each", "--allow-http", "--resume", *whole, "-o", tmp_path / "each", "--to", "safetensors"]
        assert "3 converted, 0 skipped" in succeed(*each, env=env).stderr
        assert sorted(path.name for path in (tmp_path / "each").iterdir() if path.is_dir() and path.name[0] != ".") == ["a", "b"]
        assert (tmp_path / "each" / "s.safetensors").exists()
        assert load_file(tmp_path / "each" / "b" / "model.safetensors").keys() == {"y"}
        assert "0 converted, 3 skipped" in succeed(*each, env=env).stderr
        objects["s/notes.txt"] = b"another"
        assert "0 converted, 3 skipped" in succeed(*each, env=env).stderr
        torch.save({"y": torch.zeros(4)}, tmp_path / "file")
        objects["b/model.pth"] = (tmp_path / "file").read_bytes()
        torch.save({"layer.2": torch.zeros(9)}, tmp_path / "file")
        objects["s/pytorch_model-00002-of-00002.bin"] = (tmp_path / "file").read_bytes()
        assert "2 converted, 1 skipped" in succeed(*each, env=env).stderr
        assert load_file(tmp_path / "each" / "s.safetensors")["layer.2"].shape == (9,)
        refused = refuse(*each, "s3://b/none.pth", env=env)
        assert "s3://b/none.pth does not exist" in refused.stderr and "0 converted, 3 skipped, 1 failed" in refused.stderr
        twice = refuse("convert", "--each", "--allow-http", "s3://b/s", "s3://b/s", "-o", tmp_path / "twice", env=env)
        assert "1 converted, 1 failed" in twice.stderr
    with running(Files, files={"model.pth": objects["a/model.pth"]}) as server:
        address = f"http://127.0.0.1:{server.port}/model.pth"
        done = succeed("convert", "--each", "--allow-http", "--json", f"{address}?signature={SECRET}", "-o", tmp_path / "signed")
        line = json.loads(done.stdout)
        assert line["file"] == address and line["remote"]["requests"] > 0 and SECRET not in done.stdout + done.stderr


def test_shards_on_a_web_server(tmp_path):
    """Several addresses with signatures of their own are one set; nothing else is asked for."""
    tensors = {f"layer.{n}": torch.full((200_000,), float(n)) for n in range(4)}
    names = [f"pytorch_model-0000{n}-of-00002.bin" for n in (1, 2)]
    for n, name in enumerate(names):
        torch.save(dict(list(tensors.items())[n::2]), tmp_path / name)
    with running(Files, files={name: (tmp_path / name).read_bytes() for name in names}) as server:
        addresses = [f"http://127.0.0.1:{server.port}/a/{name}?signature={SECRET}-{name}" for name in names]
        succeed("convert", "--allow-http", *addresses, "-o", tmp_path / "remote.safetensors")
        succeed("convert", *(tmp_path / name for name in names), "-o", tmp_path / "local.safetensors")
        assert (tmp_path / "remote.safetensors").read_bytes() == (tmp_path / "local.safetensors").read_bytes()
        paths = {urllib.parse.urlsplit(path) for _, path, _ in server.seen}
        assert {(it.path.rsplit("/", 1)[-1], it.query) for it in paths} == {(name, f"signature={SECRET}-{name}") for name in names}
        elsewhere = addresses[1].replace("/a/", "/b/")
        error = refuse("convert", "--allow-http", addresses[0], elsewhere, "-o", tmp_path / "x.safetensors").stderr
        assert "one folder" in error and SECRET not in error
        del server.files[names[1]]
        error = refuse("convert", "--allow-http", *addresses, "-o", tmp_path / "x.safetensors").stderr
        assert f"{names[1]} does not exist" in error and SECRET not in error
