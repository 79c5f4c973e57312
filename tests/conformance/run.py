#!/usr/bin/env python3
"""Checks the output of torch2carton with the programs that read it: PyTorch 2.0.1, the newest PyTorch, the Carton client,
the Triton client.

    run.py [--fast] [--jobs N] [--binary target/release/torch2carton] [FILE…] [-k EXPR] [-x] [any other argument of pytest …]

Needs only Python's standard library. Everything else is installed into virtual environments outside the tree (README.md
in this folder). If an environment can't be made, its checks are skipped and the reason is printed. --fast makes only the
environments of FAST_ENVIRONMENTS, and runs the checks that need no other, which takes minutes.

The exit status is 0 if at least one check ran, none failed, and no file of the tree was changed.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True
import environments  # noqa: E402  (after the line above, so that no __pycache__ appears in the tree)

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent
FAST = [HERE / f"test_{name}.py" for name in (
    "chat chat_templates check cli clients comfy container corpus diff differential every_model forward gguf gguf_out inspect inspect_values judged_uses megatron merge merge_bases merge_layouts mlx mutate names newest_torch openai ordinary parts "
    "payloads pickled pipelines proof pt2 random_models right_or_refused run safetensors_out scan scan_documents scan_loaders scan_nested scan_policy scan_sequences serve serve_cartons sums tools trainers zero").split()]
# Files of one pytest: it starts the programs of its environments once, and the last one should not run alone for long.
FILES = 3
FAST_ENVIRONMENTS = "NEWEST", "TRITON", "PEFT", "DEEPSPEED", "MEGATRON", "GGUF", "DIFFUSERS", "CONVERTER", "LLAMA_CPP", "PROOF", "MLX", "COMFY", "OPENAI"


def fingerprint():
    """The path and hash of every file of the tree, except for build outputs."""
    found = {}
    for folder, below, files in os.walk(TREE):
        below[:] = [name for name in below if name not in (".git", "target", "__pycache__")]
        for path in (Path(folder, name) for name in files):
            found[path.relative_to(TREE).as_posix()] = hashlib.sha256(path.read_bytes()).digest() if path.is_file() else None
    return found


def run(command, files, jobs, setting):
    """Runs a pytest for every few files, as many at the same time as there are jobs, and shows the output of each when it ends."""
    groups = [files[start : start + FILES] for start in range(0, len(files), FILES)]

    def check(group):
        hidden = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} if len(groups) > 1 else {}
        done = subprocess.run([*command, *map(str, group)], env=setting, cwd=HERE, **hidden)
        if hidden:
            print(f"{' '.join(file.stem for file in group)}\n{done.stdout.decode(errors='replace')}", flush=True)
        return done.returncode

    with ThreadPoolExecutor(jobs) as pool:
        statuses = list(pool.map(check, groups))
    # 5: these files had nothing to check.
    return max((status for status in statuses if status != 5), default=5, key=abs)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--binary", type=Path, default=TREE / "target/release/torch2carton")
    arguments.add_argument("--make-only", action="store_true", help="make the environments and stop")
    arguments.add_argument("--require", action="store_true", help="an environment that can't be made is a failure")
    arguments.add_argument("--jobs", type=int, default=min(2, len(os.sched_getaffinity(0))))
    arguments.add_argument("--fast", action="store_true", help="only the checks that need no environments but those of FAST_ENVIRONMENTS")
    options, for_pytest = arguments.parse_known_args()
    files = [HERE / name for name in for_pytest if name.startswith("test_") and (HERE / name.partition("::")[0]).is_file()]
    for_pytest = [name for name in for_pytest if HERE / name not in files]

    pythons, missing = {}, {}
    for key, recipe in environments.ALL.items():
        if options.fast and key not in FAST_ENVIRONMENTS:
            missing[key] = f"--fast does not use the {recipe.name} environment"
            continue
        start = time.monotonic()
        try:
            pythons[key] = environments.make(recipe)
            print(f"{recipe.name}: {pythons[key].parent.parent} ({time.monotonic() - start:.1f} s)", flush=True)
        except environments.CannotMake as why:
            missing[key] = f"could not make the {recipe.name} environment: {why}"
            print(f"skipped: {missing[key]}", flush=True)
    if options.require and any(not (options.fast and key != "NEWEST") for key in missing):
        return 1
    if options.make_only:
        return 0
    if "NEWEST" in missing:
        print("error: nothing was checked: the suite runs in the newest torch environment, which could not be made", file=sys.stderr)
        return 1
    if not options.binary.is_file():
        print(f"{options.binary} does not exist: run `cargo build --release` first, or give --binary", file=sys.stderr)
        return 2

    setting = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "NO_COLOR", "CLICOLOR_FORCE", "FORCE_COLOR")}
    setting |= {"PYTHONDONTWRITEBYTECODE": "1", "T2C_BINARY": str(options.binary.resolve())}
    setting |= {f"T2C_{key}": str(path) for key, path in pythons.items()}
    setting |= {f"T2C_MISSING_{key}": why for key, why in missing.items()}
    if options.fast:
        setting.setdefault("T2C_SAMPLE", "yes")
        setting.setdefault("T2C_LAYOUTS", "28")
        setting.setdefault("T2C_DIFFERENTIAL", "200")
    command = [pythons["NEWEST"], "-m", "pytest", "-q", "-rsfE", "-p", "no:cacheprovider", "--durations", "15", "--durations-min", "8", "--rootdir", HERE]
    command += ["-o", "tmp_path_retention_policy=failed", "-o", "tmp_path_retention_count=1"]  # some are gigabytes
    command = [str(word) for word in (*command, *for_pytest)]
    before = fingerprint()
    status = run(command, files or (FAST if options.fast else sorted(HERE.glob("test_*.py"))), options.jobs, setting)
    after = fingerprint()
    if changed := sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)):
        print(f"error: files of the tree were changed during the run: {', '.join(changed)}", file=sys.stderr)
        return status or 1
    return status


if __name__ == "__main__":
    sys.exit(main())
