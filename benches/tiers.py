#!/usr/bin/env python3
"""Shows what depends on the processor's extensions: the time of commands without each of them, and on one core.

    tiers.py FOLDER [--binary target/release/torch2carton] [--gigabytes 1] [--rounds 3] [--only merge,digest]

Writes inputs into FOLDER. In each round, each command runs with all extensions, without AVX-512, without AVX2 as well, without SSSE3 as
well, and without SHA extensions (`TORCH2CARTON_WITHOUT`), as far as the processor has them, and on one core. Each cell is the median over the
rounds of the ratio to the run with all in the same round, of the elapsed time and of the time of the processor, which other programs change
less. ring, which hashes without SHA extensions, uses them where the processor has them, so that column shows what the choice costs. Needs
Python's standard library.
"""

import argparse
import json
import os
import shutil
import statistics
import time
from pathlib import Path

import dequantize
import merge
from whole_process import TREE, describe, touch

WIDE = "avx512,avx512-bf16,amx-bf16"
TIERS = {"without AVX-512": ("avx512", WIDE), "without AVX2": ("avx2", f"{WIDE},avx2"), "without SSSE3": ("ssse3", f"{WIDE},avx2,ssse3"),
         "without SHA": ("sha", "sha")}


def make(folder, gigabytes, wanted):
    """Writes the inputs, and returns the command of each row."""
    merge.make(folder, gigabytes, [16])
    base, out = folder / "base", folder / "out.safetensors"
    shutil.copytree(base, folder / "copy", dirs_exist_ok=True)
    rows = {f"{number}.weight": (4, 4) for number in range(100_000)}
    merge.write(folder / "many.safetensors", rows)
    commands = {
        "list": ["inspect", "--json", folder / "many.safetensors"],
        "digest": ["digest", base],
        "diff": ["diff", base, folder / "copy"],
        "carton": [base / "model.safetensors", "-o", folder / "out.carton"],
        "safetensors": [base / "model.safetensors", "-o", out],
        "cast": [base / "model.safetensors", "--dtype", "float16", "-o", out],
        "merge": [base, "--merge", folder / "rank-16", "-o", out],
    }
    for scheme in ("fp8", "gptq", "mxfp4"):
        if scheme in wanted or not wanted:
            dequantize.write(folder / scheme, *dequantize.models(gigabytes)[scheme])
        commands[scheme] = [folder / scheme, "--dequantize", "-o", out]
    return {name: command for name, command in commands.items() if name in wanted or not wanted}


def run(command, environment, is_alone):
    """Elapsed seconds, and those of the processor."""
    start = time.monotonic()
    command = [*(["taskset", "-c", "0"] if is_alone else []), *map(str, command)]
    files = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    child = os.posix_spawnp(command[0], command, os.environ | environment, file_actions=files)
    _, status, used = os.wait4(child, 0)
    assert status == 0, command
    return time.monotonic() - start, used.ru_utime + used.ru_stime


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--binary", type=Path, default=TREE / "target/release/torch2carton")
    arguments.add_argument("--gigabytes", type=float, default=1)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--only", default="", help="rows, separated by commas")
    options = arguments.parse_args()
    text = describe(options.binary)
    wanted = [name for name in options.only.split(",") if name]
    commands = make(options.folder, options.gigabytes, wanted)
    used = json.dumps(text.partition("not used")[0])
    columns = {"all": ("", False)} | {name: (without, False) for name, (has, without) in TIERS.items() if has in used or has == "sha"}
    columns["one core"] = ("", True)
    print(f"| | all | {' | '.join(list(columns)[1:])} |\n|---|{'---|' * len(columns)}")
    for name, command in commands.items():
        runs = {column: [] for column in columns}
        for turn in range(options.rounds + 1):  # the first one warms the page cache
            for column, (without, is_alone) in sorted(columns.items(), reverse=turn % 2 == 1):
                touch(int(options.gigabytes * 1e9))
                figures = run([options.binary, *command, "-q"], {"TORCH2CARTON_WITHOUT": without}, is_alone)
                for file in options.folder.glob("out.*"):
                    file.unlink()
                if turn:
                    runs[column].append(figures)
        medians = [statistics.median(figures[place] for figures in runs["all"]) for place in (0, 1)]
        cells = [f"{medians[0]:.2f} s, {medians[1]:.2f} s"]
        for column in list(columns)[1:]:
            ratios = [statistics.median(a[place] / b[place] for a, b in zip(runs[column], runs["all"])) for place in (0, 1)]
            cells.append(f"{ratios[0]:.2f}, {ratios[1]:.2f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
