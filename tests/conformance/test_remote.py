"""Inputs in buckets: what is read from real implementations of the services is what is read from a disk."""

import base64
import contextlib
import hashlib
import hmac
import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from email.utils import formatdate
from pathlib import Path

import pytest
import torch
from program import refuse, succeed
from safetensors.torch import save_file

WORKER = Path(__file__).resolve().parent / "workers" / "bucket_worker.py"
# The account of every emulator of Azure.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
SECRET = "a-secret-that-nobody-may-see"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@contextlib.contextmanager
def serving(command, port, **settings):
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **settings)
    try:
        for _ in range(300):
            assert process.poll() is None, "the emulator ended"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(port)), 1):
                break
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A bucket's contents: a zip file, a file in the old format, shards with an index, and a file without an extension."""
    root = tmp_path_factory.mktemp("bucket")
    torch.manual_seed(29)
    tensors = {f"layers.{n}.weight": torch.randn(300, 400) for n in range(8)}
    torch.save(tensors, root / "model.pth")
    torch.save(tensors, root / "old.pth", _use_new_zipfile_serialization=False)
    save_file(tensors, root / "model.safetensors")
    shards = root / "shards"
    shards.mkdir()
    names = list(tensors)
    parts = {f"model-{n + 1:05}-of-00002.safetensors": names[n::2] for n in range(2)}
    for file, keys in parts.items():
        save_file({key: tensors[key] for key in keys}, shards / file)
    weight_map = {key: file for file, keys in parts.items() for key in keys}
    (shards / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (shards / "config.json").write_text('{"model_type": "x"}')
    (shards / "tokenizer.json").write_text('{"version": "1.0"}')
    shutil.copy(root / "model.pth", root / "checkpoint")
    return root


def same_as_local(base, folder, tmp_path, env):
    """Compares every command on `base` with the folder, and conversions byte by byte."""
    allow = ["--allow-http"]
    for name in "model.pth", "old.pth", "model.safetensors", "shards", "checkpoint", "shards/model.safetensors.index.json":
        remote, local = f"{base}/{name}", folder / name
        for command in (["inspect", "--json", "--sha256"], ["digest"], ["scan", "--checksums"]):
            if command[0] == "scan" and name.endswith(".json"):
                continue
            theirs = succeed(*command, local).stdout.replace(str(local), "FILE")
            ours = succeed(*command, *allow, remote, env=env)
            stdout = re.sub(r',"remote":\{[^}]*\}', "", ours.stdout)  # the requests are what alone is more
            assert stdout.replace(remote, "FILE") == theirs, f"{command} of {remote}"
        for output in "x.safetensors", "x.pth", "x.carton":
            for kind, source in ("remote", remote), ("local", local):
                (tmp_path / kind).mkdir(exist_ok=True)
                named = ["--name", "model"] if output == "x.carton" else []
                succeed("convert", "--force", "--quiet", *named, *allow, source, "-o", tmp_path / kind / output, env=env)
            assert (tmp_path / "remote" / output).read_bytes() == (tmp_path / "local" / output).read_bytes(), f"{output} of {remote}"
    # All shards of a set, without their index; the documents next to them belong to it.
    names = [f"shards/model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    for kind, place in ("remote", base), ("local", folder):
        sources = [f"{place}/{name}" for name in names]
        succeed("convert", "--force", *allow, "--name", "model", *sources, "-o", tmp_path / kind / "x.carton", env=env)
    assert (tmp_path / "remote/x.carton").read_bytes() == (tmp_path / "local/x.carton").read_bytes()
    assert "one folder" in refuse("convert", *allow, f"{base}/{names[0]}", f"{base}/model.pth", env=env).stderr
    missing = refuse("inspect", *allow, f"{base}/none.pth", env=env)
    assert f"{base}/none.pth does not exist" in missing.stderr, missing
    assert "--allow-http" in refuse("inspect", f"{base}/model.pth", env=env).stderr
    assert SECRET not in missing.stderr + missing.stdout


@pytest.fixture(scope="module")
def moto(folder):
    if why := os.environ.get("T2C_MISSING_BUCKETS"):
        pytest.skip(why)
    python, port = os.environ["T2C_BUCKETS"], free_port()
    with serving([python, WORKER, "s3", port], port):
        subprocess.run([python, str(WORKER), "fill", port, "models", str(folder)], check=True)
        yield f"http://127.0.0.1:{port}"


def test_s3(moto, folder, tmp_path):
    env = {"AWS_ENDPOINT_URL": moto, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
    same_as_local("s3://models", folder, tmp_path, env)
    assert "does not exist" in refuse("inspect", "--allow-http", "s3://no-such-bucket/model.pth", env=env).stderr


def test_s3_profile(moto, tmp_path):
    (tmp_path / "credentials").write_text(f"[other]\naws_access_key_id = test\naws_secret_access_key = {SECRET}\n")
    (tmp_path / "config").write_text(f"[profile other]\nregion = us-east-1\nendpoint_url = {moto}\n[profile sso]\nsso_session = x\n")
    env = {"AWS_PROFILE": "other", "AWS_CONFIG_FILE": tmp_path / "config", "AWS_SHARED_CREDENTIALS_FILE": tmp_path / "credentials"}
    succeed("inspect", "--allow-http", "s3://models/model.pth", env=env)
    for profile, text in ("none", "there is no profile `none`"), ("sso", "aws configure export-credentials"):
        assert text in refuse("inspect", "--allow-http", "s3://models/model.pth", env=env | {"AWS_PROFILE": profile}).stderr


def test_s3_without_credentials(moto, tmp_path):
    """A public bucket: the requests are not signed."""
    env = {"AWS_ENDPOINT_URL": moto, "AWS_EC2_METADATA_DISABLED": "true", "HOME": tmp_path}
    succeed("inspect", "--allow-http", "s3://models/model.pth", env=env)


def azure(method, port, path, body=b"", headers=()):
    """Sends a request that is signed with the account's key."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"} | dict(headers)
    kind = "application/octet-stream"
    signed = "".join(f"{key}:{value}\n" for key, value in sorted(headers.items()))
    resource, _, query = path.partition("?")
    parameters = "".join("\n" + part.replace("=", ":", 1) for part in sorted(filter(None, query.split("&"))))
    text = f"{method}\n\n\n{len(body) or ''}\n\n{kind}\n\n\n\n\n\n\n{signed}/{ACCOUNT}/{ACCOUNT}{resource}{parameters}"
    digest = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)).decode()
    headers |= {"authorization": f"SharedKey {ACCOUNT}:{digest}", "content-type": kind}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{ACCOUNT}{path}", body or None, headers, method=method)
    return urllib.request.urlopen(request).read()


def downloaded(port, path):
    return azure("GET", port, path)


def test_azure(folder, tmp_path):
    azurite = os.environ.get("T2C_AZURITE") or shutil.which("azurite-blob")
    if not azurite:
        pytest.skip("azurite-blob is not on PATH: npm install azurite@3.35")
    port = free_port()
    command = [azurite, "--blobPort", port, "--location", tmp_path / "azurite", "--silent", "--skipApiVersionCheck"]
    with serving(command, port):
        azure("PUT", port, "/models?restype=container")
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                name = path.relative_to(folder).as_posix()
                azure("PUT", port, f"/models/{name}", path.read_bytes(), {"x-ms-blob-type": "BlockBlob"})
        env = {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{port}"}
        same_as_local("az://models", folder, tmp_path, env)
        source, target = folder / "model.pth", "az://models/out/x.safetensors"
        # 16 MB, so that the output has several blocks.
        large = tmp_path / "large.pth"
        torch.save({"a": torch.arange(4_000_000, dtype=torch.float32)}, large)
        for source in folder / "model.pth", large:
            succeed("convert", "--force", source, "-o", tmp_path / "x.safetensors")
            run = ["convert", "--allow-http", source, "-o", target]
            succeed(*run, "--force", env=env)
            assert (tmp_path / "x.safetensors").read_bytes() == downloaded(port, "/models/out/x.safetensors")
            assert "exists" in refuse(*run, "--no-clobber", env=env).stderr
            succeed(*run, env=env)
            new = f"az://models/out/{source.stem}.safetensors"
            succeed("convert", "--allow-http", "--no-clobber", source, "-o", new, env=env)


def test_google(folder, tmp_path):
    """The emulator has no listing that Google's XML interface has, so only objects are read."""
    if why := os.environ.get("T2C_MISSING_BUCKETS"):
        pytest.skip(why)
    port = free_port()
    command = [os.environ["T2C_BUCKETS"], "-m", "gcp_storage_emulator", "start", "--host", "127.0.0.1", "--port", port, "--in-memory",
               "--default-bucket", "models"]
    with serving(command, port):
        for name in "model.pth", "model.safetensors":
            url = f"http://127.0.0.1:{port}/upload/storage/v1/b/models/o?uploadType=media&name={name}"
            urllib.request.urlopen(urllib.request.Request(url, (folder / name).read_bytes(), method="POST")).read()
        env = {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}"}
        for name in "model.pth", "model.safetensors":
            remote, local = f"gs://models/{name}", folder / name
            theirs = succeed("digest", local).stdout.replace(str(local), "FILE")
            ours = succeed("digest", "--allow-http", remote, env=env)
            assert ours.stdout.replace(remote, "FILE") == theirs
