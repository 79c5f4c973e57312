#!/usr/bin/env python3
"""Times the joining of trainers' shards against `cp` and `sync` of the output, and against the trainers' own tools.

    shards.py FOLDER --python PYTHON [--binary target/release/torch2carton] [--gigabytes 4] [--ranks 8] [--rounds 3] [--skip-tools]

Writes a DCP of sharded tensors in bfloat16 into FOLDER, and after it one of DeepSpeed's ZeRO-3 in float32. Each has the given number of
gigabytes and ranks. In each round, `cp` copies the output and `sync` ends it, and the program makes it, with the input in the page cache;
the fastest round of each counts. `dcp_to_torch_save` and `zero_to_fp32` run once. PYTHON has torch and deepspeed, as the environments
of tests/conformance do: `python3 tests/conformance/environments.py DEEPSPEED` prints its path. `--make-only` writes the folders and stops.
"""

import argparse
import os
import shutil
import subprocess
from pathlib import Path

from whole_process import TREE, describe, timed

COLUMNS, ROWS = 4096, 14336

# Written by PYTHON: the parts of rank after rank, without a process group.
DCP = """
import sys, torch, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import *
from torch.distributed.checkpoint.filesystem import _StorageInfo
import pickle, os
out, ranks, layers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rows, columns = {rows}, {columns}
os.makedirs(out)
size, properties = torch.Size([rows, columns]), TensorProperties(dtype=torch.bfloat16)
state, places = {{}}, {{}}
for layer in range(layers):
    name = f"model.layers.{{layer}}.w"
    chunks = [ChunkStorageMetadata(torch.Size([rank * rows // ranks, 0]), torch.Size([rows // ranks, columns])) for rank in range(ranks)]
    state[name] = TensorStorageMetadata(properties, size, chunks)
for rank in range(ranks):
    file = f"__{{rank}}_0.distcp"
    with open(os.path.join(out, file), "wb") as stream:
        for layer in range(layers):
            part = torch.randint(-9999, 9999, (rows // ranks, columns), dtype=torch.int16).view(torch.bfloat16)
            start = stream.tell()
            torch.save(part, stream)
            index = MetadataIndex(f"model.layers.{{layer}}.w", torch.Size([rank * rows // ranks, 0]), rank)
            places[index] = _StorageInfo(file, start, stream.tell() - start)
with open(os.path.join(out, ".metadata"), "wb") as stream:
    pickle.dump(Metadata(state, {{name: tuple(name.split(".")) for name in state}}, places), stream)
""".format(rows=ROWS, columns=COLUMNS)

ZERO = """
import sys, os, torch
from collections import OrderedDict
os.environ["DS_ACCELERATOR"] = "cpu"
from deepspeed.runtime.zero.config import ZeroStageEnum
out, ranks, layers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
step = os.path.join(out, "global_step5")
os.makedirs(step)
open(os.path.join(out, "latest"), "w").write("global_step5")
shape = torch.Size([{rows}, {columns}])
shapes = [OrderedDict((f"layers.{{layer}}.w", shape) for layer in range(layers))]
for rank in range(ranks):
    flat = torch.randint(-9999, 9999, (layers * shape.numel() // ranks,), dtype=torch.int32).view(torch.float32)
    state = {{"zero_stage": ZeroStageEnum(3), "partition_count": ranks, "fp32_flat_groups": [flat], "ds_version": "0.19.8"}}
    torch.save({{"optimizer_state_dict": state, "ds_config": {{}}, "ds_version": "0.19.8"}},
               os.path.join(step, f"bf16_zero_pp_rank_{{rank}}_mp_rank_00_optim_states.pt"))
    model = {{"module": OrderedDict(), "buffer_names": [], "param_shapes": shapes, "frozen_param_shapes": None, "frozen_param_fragments": None,
              "shared_params": {{}}, "ds_version": "0.19.8", "ds_config": {{}}}}
    torch.save(model, os.path.join(step, f"zero_pp_rank_{{rank}}_mp_rank_00_model_states.pt"))
""".format(rows=ROWS, columns=COLUMNS)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--python", required=True)
    arguments.add_argument("--binary", type=Path, default=TREE / "target/release/torch2carton")
    arguments.add_argument("--gigabytes", type=float, default=4)
    arguments.add_argument("--ranks", type=int, default=8)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--skip-tools", action="store_true")
    arguments.add_argument("--make-only", action="store_true")
    options = arguments.parse_args()
    describe(options.binary)
    format_utils = "torch.distributed.checkpoint.format_utils"
    kinds = {
        "dcp": (DCP, 2, "dcp_to_torch_save", lambda source, out: [options.python, "-m", format_utils, "dcp_to_torch", source, out]),
        "zero": (ZERO, 4, "zero_to_fp32",
                 lambda source, out: [options.python, "-m", "deepspeed.utils.zero_to_fp32", source, out, "--max_shard_size", "100GB"]),
    }
    out, copy, other = (options.folder / name for name in ("out.safetensors", "copy.safetensors", "other"))
    for kind, (script, element, tool, command) in kinds.items():
        source = options.folder / kind
        if not source.exists():
            layers = max(1, round(options.gigabytes * 1e9 / (ROWS * COLUMNS * element)))
            subprocess.run([options.python, "-c", script, source, str(options.ranks), str(layers)], check=True)
            os.sync()
        if options.make_only:
            continue
        times, copies, memory = [], [], []
        for _ in range(options.rounds):
            out.unlink(missing_ok=True)
            seconds, mebibytes = timed([options.binary, source, "-o", out])
            times.append(seconds)
            memory.append(mebibytes)
            copy.unlink(missing_ok=True)
            copies.append(timed(["sh", "-c", f"cp '{out}' '{copy}' && sync '{copy}'"])[0])
        size = out.stat().st_size / 1e9
        print(f"{kind}: {size:.2f} GB of {options.ranks} ranks in {min(times):.2f} s, {max(memory):.0f} MiB; "
              f"cp and sync {min(copies):.2f} s: {min(times) / min(copies):.2f} of it", flush=True)  # fmt: skip
        for path in (out, copy):
            path.unlink()
        if not options.skip_tools:
            seconds, mebibytes = timed(command(source, other))
            print(f"  {tool}: {seconds:.2f} s, {mebibytes:.0f} MiB", flush=True)
            shutil.rmtree(other) if other.is_dir() else other.unlink()


if __name__ == "__main__":
    main()
