#!/usr/bin/env python3
"""Tries the files that deploy/release made: checksums, programs, scripts that install, packages and wheels.

    tests/platforms/release.py OUT [--root FOLDER]

The .deb is installed in a Debian in FOLDER; without it, debootstrap makes one. What a machine lacks is skipped by name.
"""

import argparse
import functools
import hashlib
import http.server
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
from pathlib import Path

import needs

PROGRAM = "usr/bin/torch2carton"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def run(*words, status=0, **how):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **how)
    if done.returncode != status:
        sys.exit(f"error: {' '.join(map(str, words))} ended with {done.returncode}, expected {status}:\n{done.stdout}")
    return done.stdout.strip()


def have(*names):
    missing = [name for name in names if not shutil.which(name)]
    if missing:
        print(f"skipped: no {', '.join(missing)}")
    return not missing


def checksums(out):
    lines = (out / "SHA256SUMS").read_text().splitlines()
    for line in lines:
        digest, name = line.split("  ")
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == digest, name
    assert len(lines) + 1 == len(list(out.iterdir())), "a file has no checksum"
    print(f"{len(lines)} checksums")


def archives(out, folder):
    """Unpacks each archive, and yields its folder."""
    for path in sorted([*out.glob("*-*-*-*.tar.gz"), *out.glob("*.zip")]):
        with zipfile.ZipFile(path) if path.suffix == ".zip" else tarfile.open(path) as archive:
            archive.extractall(folder)
        unpacked = folder / path.name.removesuffix(".zip").removesuffix(".tar.gz")
        found = needs.needs(next(unpacked.glob("torch2carton*")))
        assert not found.wrong, f"{path.name}: {found.wrong}"
        print(f"{path.name}: {path.stat().st_size} bytes, {len(list(unpacked.rglob('*')))} files; {found.text}")
        yield unpacked


def install_script(out, folder, version):
    """Installs from a server on this machine. A wrong checksum installs nothing, and keeps the program that was there."""
    served, target = folder / "served", folder / "bin"
    shutil.copytree(out, served)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=served))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = os.environ | {"TORCH2CARTON_RELEASE": f"http://127.0.0.1:{server.server_port}"}
    script = ["sh", served / "install.sh", target]
    run(*script, env=environment)
    assert version in run(target / "torch2carton", "--version")
    before = (target / "torch2carton").stat()
    archive = next(served.glob(f"*-{platform.machine()}-unknown-linux-musl.tar.gz"))
    archive.write_bytes(archive.read_bytes()[:-1] + b"!")
    print("install.sh: installed; with a changed archive:", run(*script, status=1, env=environment))
    assert (target / "torch2carton").stat() == before and len(list(target.iterdir())) == 1
    server.shutdown()


def deb(out, folder, root, version):
    package = next(out.glob("*_amd64.deb"), None)
    if not package or not have("lintian", "debootstrap"):
        return
    print(f"lintian: {run('lintian', '--allow-root', '--fail-on', 'error,warning', package) or 'nothing'}")
    if not root:
        root = folder / "root"
        run("debootstrap", "--variant=minbase", "bookworm", root)
    shutil.copy(package, root / "package.deb")
    inside = functools.partial(run, "chroot", root)
    inside("dpkg", "-i", "/package.deb")
    assert version in inside("torch2carton", "--version")
    listed = inside("dpkg", "-L", "torch2carton").splitlines()
    inside("dpkg", "--verify", "torch2carton")
    inside("dpkg", "--purge", "torch2carton")
    assert not (root / PROGRAM).exists()
    print(f"dpkg: installed, run and purged; {len(listed)} paths")


def rpm(out, folder, version):
    package = next(out.glob("*.x86_64.rpm"), None)
    if not package or not have("rpm"):
        return
    root = folder / "rpm"
    on_root = ["rpm", "--root", root, "--dbpath", "/db"]
    run(*on_root, "--initdb")
    run(*on_root, "--install", "--nodeps", package)
    assert version in run(root / PROGRAM, "--version")
    run(*on_root, "--verify", "--nodeps", "torch2carton")
    run(*on_root, "--erase", "torch2carton")
    assert not (root / PROGRAM).exists()
    print("rpm: installed, run and erased")


def wheels(out, folder, version):
    found = sorted(out.glob("*.whl"))
    for wheel in found:
        assert wheel.stat().st_size <= 12_000_000, f"{wheel.name} has {wheel.stat().st_size} bytes"
        inside = folder / wheel.name
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(inside)
        library = next(path for path in inside.rglob("_native*") if path.suffix in (".so", ".pyd"))
        wrong = needs.needs(library).wrong
        assert not wrong, f"{wheel.name}: {wrong}"
        print(f"{wheel.name}: {wheel.stat().st_size} bytes; {needs.needs(library).text}")
        if "abi3" in wheel.name and have("abi3audit"):
            print(run("abi3audit", "--strict", wheel))
        if "linux" in wheel.name and have("auditwheel"):
            print(re.sub(r"\s+", " ", run("auditwheel", "show", wheel))[:200])
        if "win" in wheel.name and have("delvewheel"):
            print(run("delvewheel", "show", wheel))
        if f"linux_2_17_{platform.machine()}" in wheel.name.replace("2014", "_2_17") and "abi3" in wheel.name:
            run(sys.executable, "-m", "venv", folder / "venv")
            run(folder / "venv/bin/pip", "install", "--quiet", "--no-index", wheel)
            assert version in run(folder / "venv/bin/torch2carton", "--version")
            print("pip: installed, and its program run")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--root", type=Path)
    args = parser.parse_args()
    out = args.out.resolve()
    version = re.search(r"^version=(.*)$", (out / "install.sh").read_text(), re.M)[1]
    checksums(out)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for unpacked in archives(out, folder):
            if f"{platform.machine()}-unknown-linux" in unpacked.name:
                assert version in run(unpacked / "torch2carton", "--version")
        if list(out.glob(f"*-{platform.machine()}-unknown-linux-musl.tar.gz")):
            install_script(out, folder, version)
        deb(out, folder, args.root and args.root.resolve(), version)
        rpm(out, folder, version)
        wheels(out, folder, version)


main()
