#!/usr/bin/env python3
"""Tries what docs/deploy.md says: the static binary in an empty root, the Dockerfile's steps, the unit, nginx, Kubernetes.

    deploy.py [--skip-build] [--debian]     prints a line for each part: ok, FAILED, or skipped with the reason

Needs root for `chroot`. A part whose program is missing is skipped by name: systemd-analyze (package systemd), nginx, curl.
`--debian` runs the Dockerfile's steps a second time, in a new Debian (package mmdebstrap) that has this machine's Rust: the image
of the Dockerfile is such a Debian. With CARGO_PROFILE_RELEASE_OPT_LEVEL=0 in the environment this takes less time.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent.parent
TARGET = "x86_64-unknown-linux-gnu"
BINARY = TREE / "target" / TARGET / "release/torch2carton"
failures = []


def report(part, problem):
    print(f"{part}: {'ok' if not problem else 'FAILED: ' + problem}", flush=True)
    if problem:
        failures.append(part)


def run(command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)


def dockerfile_steps():
    """The RUN instructions of the first stage, in order, without their line breaks."""
    text = (TREE / "deploy/Dockerfile").read_text().split("FROM scratch")[0].replace("\\\n", " ")
    return [line[4:].strip() for line in text.splitlines() if line.startswith("RUN ")]


def build():
    """Runs the Dockerfile's build step, without the part that fills the image."""
    step = next(step for step in dockerfile_steps() if "cargo build" in step).split("&&")[0].strip()
    done = subprocess.run(["bash", "-c", step], cwd=TREE, stdin=subprocess.DEVNULL)
    report("the Dockerfile's build step", "" if done.returncode == 0 and BINARY.exists() else step)


def image(root):
    """Runs the rest of the step in `root`, and returns the folder that the Dockerfile copies into an empty image."""
    step = next(step for step in dockerfile_steps() if "cargo build" in step).split("&&", 1)[1]
    folder = root / "image"
    done = run(["bash", "-c", step.replace("/image", str(folder))], cwd=TREE)
    report("the Dockerfile's image", done.stderr if done.returncode else "")
    return folder


def in_image(folder, *args, **options):
    return run(["chroot", "--userspec=65532:65532", folder, "/torch2carton", *args], **options)


def empty_root(root):
    folder = image(root)
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    report("the image has one file", "" if files == ["models", "tmp", "torch2carton"] else str(files))
    linked = run(["ldd", BINARY])
    report("no shared library", "" if "not a dynamic" in linked.stderr + linked.stdout or "statically" in linked.stdout else linked.stdout)
    made = run(["cargo", "run", "-q", "--example", "tiny-llama", "--", folder / "tmp/tiny"], cwd=TREE)
    report("a checkpoint", made.stderr[-300:] if made.returncode else "")
    os.chmod(folder / "tmp/tiny", 0o777)
    for args in (["--version"], ["inspect", "/tmp/tiny/consolidated.00.pth"], ["scan", "/tmp/tiny"],
                 ["/tmp/tiny", "-o", "/tmp/tiny/tiny.carton"], ["run", "/tmp/tiny/tiny.carton", "--tokens", "1,2,3"]):
        done = in_image(folder, *args)
        report(f"in an empty root: {args[0]}", "" if done.returncode == 0 else done.stderr)
    model = folder / "models/tiny"
    model.mkdir(parents=True)
    shutil.copy(folder / "tmp/tiny/tiny.carton", model / "1.carton")
    serve(["chroot", "--userspec=65532:65532", folder, "/torch2carton", *command_of_the_image(), "--port", "0"])
    names_of_hosts(folder)


def names_of_hosts(folder):
    """glibc's resolver is a part of the program, and reads its files in /etc."""
    serving = ["serve", "--repository", "/models", "--port", "0", "--host"]
    done = in_image(folder, *serving, "models.test")
    report("without /etc/hosts, a name is an error", "" if done.returncode == 1 and "models.test" in done.stderr else done.stderr)
    (folder / "etc").mkdir()
    (folder / "etc/hosts").write_text("127.0.0.1 models.test\n")
    serve(["chroot", "--userspec=65532:65532", folder, "/torch2carton", *serving, "models.test"])
    # The address of a name in a carton's links is looked up before it is refused, because it is that of a private network.
    made = in_image(folder, "shrink", "/models/tiny/1.carton", "--base", "https://models.test/", "--blobs", "/tmp/blobs", "-o", "/tmp/small.carton")
    done = in_image(folder, "resolve", "/tmp/small.carton", "-o", "/tmp/whole.carton")
    report("resolve looks a name up", "" if "private" in done.stderr or "127.0.0.1" in done.stderr else made.stderr + done.stderr)
    shutil.rmtree(folder / "etc")


def command_of_the_image():
    text = (TREE / "deploy/Dockerfile").read_text()
    return json.loads(re.search(r"^CMD (\[.*\])$", text, re.M)[1])


def serve(command):
    server = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        address = server.stdout.readline().strip().replace("0.0.0.0", "127.0.0.1")
        with urllib.request.urlopen(address + "/v2/models/tiny/ready", timeout=10) as answer:
            report("the image's command serves", "" if answer.status == 200 else str(answer.status))
        server.terminate()
        report("SIGTERM ends it", "" if server.wait(timeout=40) == 0 else str(server.returncode))
    except Exception as error:
        report("the image's command serves", repr(error))
    finally:
        server.kill()


def unit(root):
    if not shutil.which("systemd-analyze"):
        return print("the unit: skipped: systemd-analyze is not installed")
    # The program of the unit has to exist where the unit says.
    text = (TREE / "deploy/torch2carton.service").read_text().replace("/usr/local/bin/torch2carton", str(BINARY))
    (root / "torch2carton.service").write_text(text)
    done = run(["systemd-analyze", "verify", "--man=no", root / "torch2carton.service"])
    problems = [line for line in done.stderr.splitlines() if "torch2carton" in line]
    report("the unit", "; ".join(problems) if done.returncode or problems else "")


def nginx(root):
    if not shutil.which("nginx"):
        return print("nginx: skipped: it is not installed")
    key, certificate, passwords = root / "key.pem", root / "certificate.pem", root / "passwords"
    run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "1", "-keyout", key, "-out", certificate])
    hashed = run(["openssl", "passwd", "-apr1", "secret"]).stdout.strip()
    passwords.write_text(f"user:{hashed}\n")
    server = subprocess.Popen([BINARY, "serve", "--repository", root / "image/models", "--port", "0"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
    upstream = server.stdout.readline().strip().removeprefix("http://")
    site = (TREE / "deploy/nginx.conf").read_text()
    for old, new in [("/etc/ssl/certs/models.example.org.pem", certificate), ("/etc/ssl/private/models.example.org.key", key),
                     ("/etc/nginx/torch2carton.htpasswd", passwords), ("127.0.0.1:8000", upstream), ("listen 443", "listen 127.0.0.1:18443")]:
        assert old in site, old
        site = site.replace(old, str(new))
    os.chmod(root, 0o755)
    (root / "nginx.conf").write_text(f"error_log {root}/error.log;\npid {root}/nginx.pid;\nevents {{}}\nhttp {{ access_log off;\n{site}}}\n")
    tested = run(["nginx", "-t", "-c", root / "nginx.conf"])
    report("nginx -t", "" if tested.returncode == 0 else tested.stderr)
    proxy = subprocess.Popen(["nginx", "-c", root / "nginx.conf", "-g", "daemon off;"], stderr=subprocess.DEVNULL)
    time.sleep(2)
    url = "https://127.0.0.1:18443/v2/models/tiny"
    status = lambda *args: run(["curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", *args, url]).stdout
    try:
        found = [status(), status("-u", "user:secret"), status("-u", "user:secret", "-H", "Origin: https://example.org", "-H", "Host: models.example.org")]
        report("requests through nginx", "" if found == ["401", "200", "200"] else str(found))
    finally:
        proxy.terminate()
        server.terminate()


def debian(root):
    """Runs the steps of the Dockerfile's first stage in a Debian that has Rust, as its base image has."""
    if not shutil.which("mmdebstrap"):
        return print("Debian: skipped: mmdebstrap is not installed")
    folder = root / "debian"
    done = run(["mmdebstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", folder])
    if done.returncode:
        return report("Debian", done.stderr[-500:])
    rust = run(["rustc", "--print", "sysroot"], cwd=TREE).stdout.strip()
    registry = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "registry"
    try:
        run(["mount", "-t", "proc", "proc", folder / "proc"], check=True)
        for source, target in {rust: "usr/local/rust", registry: "root/.cargo/registry", TREE: "torch2carton"}.items():
            target = folder / target
            target.mkdir(parents=True, exist_ok=True)
            run(["mount", "--bind", source, target], check=True)
            # Nothing can be changed or removed through the mount.
            run(["mount", "-o", "remount,bind,ro", target], check=True)
        shutil.copy("/etc/resolv.conf", folder / "etc/resolv.conf")
        names = [name for name in os.environ if name.startswith("CARGO_PROFILE_")]
        settings = [f"{name}={os.environ[name]}" for name in names]
        for step in dockerfile_steps():
            # A folder of its own for outputs, so that everything is compiled with the compiler of this Debian.
            step = step.replace("/image", "/root/image").replace(" target/", " /root/target/")
            command = ["chroot", folder, "env", "-i", "PATH=/usr/local/rust/bin:/usr/bin:/bin", "HOME=/root", "CARGO_TARGET_DIR=/root/target", *settings]
            done = run([*command, "sh", "-c", f"cd /torch2carton && {step}"])
            report(f"in Debian: {step.split('&&')[0].strip()[:60]}", done.stderr[-500:] if done.returncode else "")
        done = run(["chroot", folder / "root/image", "/torch2carton", "--version"])
        report("in Debian: the program", "" if done.returncode == 0 else done.stderr)
    except subprocess.CalledProcessError as error:
        report("Debian", error.stderr)
    finally:
        mounts = [folder / name for name in ("proc", "usr/local/rust", "root/.cargo/registry", "torch2carton")]
        for target in mounts:
            run(["umount", target])
        if any(os.path.ismount(target) for target in mounts):
            print(f"{folder} has mounts that cannot be removed; it is left as it is", flush=True)
            os._exit(1)


def kubernetes():
    try:
        import yaml
    except ImportError:
        return print("Kubernetes: skipped: Python has no module yaml")
    expected = {"kubernetes": ["Deployment", "Service"], "batch-job": ["Job"], "ray-job": ["RayJob"]}
    for name, kinds in expected.items():
        found = [document["kind"] for document in yaml.safe_load_all((TREE / f"deploy/{name}.yaml").read_text())]
        report(f"Kubernetes: YAML of {name}", "" if found == kinds else str(found))


def main():
    if "--skip-build" not in sys.argv:
        build()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        empty_root(root)
        unit(root)
        nginx(root)
        kubernetes()
        if "--debian" in sys.argv:
            debian(root)
    if failures:
        sys.exit(f"failed: {', '.join(failures)}")


if __name__ == "__main__":
    main()
