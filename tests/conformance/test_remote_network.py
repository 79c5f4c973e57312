"""Requests through a proxy, with certificates of one's own and with the credentials of an instance; cartons in buckets."""

import contextlib
import html
import json
import select
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import zlib
from pathlib import Path

import pytest
import torch
from program import BINARY, refuse, succeed
from served import Handler, Server, running

# A host that no resolver knows: only the proxy reaches it.
HOST = "models.invalid"
SECRET = "a-secret-that-nobody-may-see"


def etag(data):
    return f'"{zlib.crc32(data):08x}"'


class Files(Handler):
    """Sends ranges of the files of the server, as a web server, as S3, as Google or as Azure; `seen` has the requests."""

    def do_GET(self):
        self.server.seen.append((self.command, self.path, dict(self.headers)))
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        if self.server.answers and (body := self.server.answers(self)) is not None:
            return self.answer(200, body)
        data = self.server.files.get(path, self.server.files.get(path.rsplit("/", 1)[-1]))
        if data is None:
            return self.answer(404)
        return self.answer_range(data, ETag=etag(data), Last_Modified="Thu, 01 Jan 2026 00:00:00 GMT")

    do_HEAD = do_PUT = do_GET


def files_at(certificate=None, files=None, answers=None):
    return running(Files, certificate, files=files or {}, answers=answers, seen=[])


class Proxy(Handler):
    """Connects every host with one server."""

    protocol_version = "HTTP/1.0"

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
    with files_at(certificate, files={"model.pth": model.read_bytes()}) as server, \
            running(Proxy, seen=[], target=("127.0.0.1", server.port)) as proxy:
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
        with files_at(files={"model.pth": model.read_bytes()}) as plain:
            succeed("inspect", "--allow-http", f"http://127.0.0.1:{plain.port}/model.pth", env=through)
        assert proxy.seen == []
        unreachable = refuse("inspect", far, "--timeout", "2", env=trusted | {"HTTPS_PROXY": "http://127.0.0.1:9"})
        assert "HTTPS_PROXY" in unreachable.stderr, unreachable
        refuse("inspect", near, env={"SSL_CERT_FILE": tmp_path / "none.pem"})


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
    with files_at(files={"model.pth": model.read_bytes()}) as server, files_at(answers=answer_metadata) as metadata:
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


def carton_of(model, tmp_path, name="m"):
    path = tmp_path / f"{name}.carton"
    succeed("convert", model, "-o", path)
    return path


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

    with files_at(answers=answers) as bucket:
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
        with Server(BINARY, "serve", "--allow-http", "--port", 0, "s3://b/cartons", env=env) as server:
            for name in "a", "b":
                assert server.request("GET", f"/v2/models/{name}").json()["name"] == name
            assert server.request("GET", "/v2/models/c").status == 404
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
        with Server(BINARY, "serve", "--allow-http", "--port", 0, "--repository", "s3://b/r", env=env) as server:
            assert server.request("GET", "/v2/models/m").json()["versions"] == ["1", "2"]
            log = server.log()
            assert "s3://b/r/m/latest.carton" in log and "s3://b/r/u/3.carton" in log and "carton.toml" not in log, log
            sent = len(bucket.seen)
            assert server.request("GET", "/v2/models/m/versions/2/ready").status == 200
            assert len(bucket.seen) == sent, "what was copied is not requested again"
            objects["r/n/7.carton"] = data
            index = json.loads(server.request("POST", "/v2/repository/index").body)
            assert [(row["name"], row.get("version"), row.get("state")) for row in index] == [("m", "1", "READY"), ("m", "2", "READY"), ("n", None, None)]
            assert server.request("POST", "/v2/repository/models/n/load").status == 200
            assert server.request("GET", "/v2/models/n").json()["versions"] == ["7"]
            del objects["r/m/1.carton"]
            assert server.request("POST", "/v2/repository/models/m/load").status == 200
            assert server.request("GET", "/v2/models/m").json()["versions"] == ["2"]
            objects["r/m/5.carton"] = b"no carton"
            answer = server.request("POST", "/v2/repository/models/m/load")
            assert answer.status == 500 and b"s3://b/r/m/5.carton" in answer.body and SECRET.encode() not in answer.body
            assert server.request("GET", "/v2/models/m").json()["versions"] == ["2"]
            assert server.request("POST", "/v2/repository/models/m/unload").status == 200
            assert server.request("GET", "/v2/models/m").status == 404
            assert server.request("POST", "/v2/repository/models/..%2Fother/load").status == 404
            assert server.end() == 0 and SECRET not in server.log()
        for folder, reason in ("empty", "has no model: expected files NAME/VERSION.carton"), ("none", "does not exist"), ("r/m/2.carton", "it is a file"):
            error = refuse("serve", "--allow-http", "--port", 0, "--repository", f"s3://b/{folder}", env=env).stderr
            assert reason in error and f"s3://b/{folder}" in error, error
