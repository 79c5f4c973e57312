"""Writes folders as DeepSpeed's ZeRO does, and asks DeepSpeed what their weights are.

The files have the members that `deepspeed.runtime` saves; DeepSpeed's own `zero_to_fp32` says what is expected.
"""

import hashlib
import os
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace

import torch

os.environ["DS_ACCELERATOR"] = "cpu"
from deepspeed.checkpoint import ds_to_universal  # noqa: E402
from deepspeed.runtime.zero.config import ZeroStageEnum  # noqa: E402  (after the line above)
from deepspeed.utils.tensor_fragment import fragment_address  # noqa: E402
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint  # noqa: E402
from line_server import serve  # noqa: E402

MASTER = "single_partition_of_fp32_groups", "fp32_flat_groups"


def digest(tensor):
    raw = bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "sha256": hashlib.sha256(raw).hexdigest()}


def parts(flat, ranks):
    """The partitions of a flat tensor, of which the last is padded."""
    size = -(-flat.numel() // ranks)
    flat = torch.cat([flat, torch.zeros(size * ranks - flat.numel(), dtype=flat.dtype)])
    return [flat[rank * size:(rank + 1) * size].clone() for rank in range(ranks)]


def slices(group, rank, size):
    """Where the parameters of a group are in a rank's partition of `size` elements."""
    found, at = OrderedDict(), 0
    for name, tensor in group:
        start, end = max(at, rank * size), min(at + tensor.numel(), (rank + 1) * size)
        if start < end:
            found[name] = fragment_address(numel=end - start, start=start - rank * size)
        at += tensor.numel()
    return found


def universal(folder, stage, ranks, **setting):
    """Saves a folder of ZeRO, lets DeepSpeed make a universal checkpoint of it, and returns what is in that."""
    # The writer cannot join tensors of no dimension after ZeRO-1 and 2.
    save(folder, stage, ranks, scalar=() if stage == 3 else (1,), **setting)
    step, out = Path(folder) / "global_step5", Path(folder) / "global_step5_universal"
    out.mkdir()
    ds_to_universal.main(SimpleNamespace(input_folder=str(step), output_folder=str(out), num_extract_workers=1, num_merge_workers=1,
                                         keep_temp_folder=False, strict=False, inject_missing_state=False))
    whole = get_fp32_state_dict_from_zero_checkpoint(str(folder))
    weights, moments = {}, {}
    for path in sorted(out.glob("zero/*/*.pt")):
        if path.stem not in ("fp32", "exp_avg", "exp_avg_sq"):
            continue
        tensor = torch.load(path, weights_only=False)
        tensor = tensor["param"] if isinstance(tensor, dict) else tensor.reshape(whole[path.parent.name].shape)
        if path.stem == "fp32":
            weights[path.parent.name] = digest(tensor)
        else:
            moments[f"{path.parent.name}.{path.stem}"] = digest(tensor)
    # What has no folder is that of zero_to_fp32.
    weights |= {name: digest(tensor) for name, tensor in whole.items() if name not in weights}
    return {"weights": weights, "moments": moments}


def save(folder, stage, ranks, dtype="bfloat16", frozen=True, shared=True, groups=2, scalar=()):
    """Saves a model of random weights, and returns what `zero_to_fp32` makes of it, and its weights of 16 bits."""
    torch.manual_seed(stage * 10 + ranks)
    step = Path(folder) / "global_step5"
    step.mkdir(parents=True)
    (Path(folder) / "latest").write_text("global_step5")
    low = getattr(torch, dtype)
    shapes = [OrderedDict([("emb.weight", torch.Size([11, 7])), ("l.weight", torch.Size([5, 7])), ("scalar", torch.Size(scalar))]),
              OrderedDict([("bn.weight", torch.Size([5])), ("one", torch.Size([1]))])][:groups]
    full = [[(name, torch.randn(shape)) for name, shape in group.items()] for group in shapes]
    kept = torch.randn(3, 3).to(low)
    module = OrderedDict((name, tensor.to(low) if stage < 3 else torch.empty(0, dtype=low)) for group in full for name, tensor in group)
    module |= {"run": torch.randn(4).to(low), "ids": torch.arange(3)}
    for rank in range(ranks):
        if stage < 3:
            flat = [parts(torch.cat([tensor.reshape(-1) for _, tensor in group]), ranks)[rank] for group in full]
        else:
            flat = [torch.cat([parts(tensor.reshape(-1), ranks)[rank] for _, tensor in group]) for group in full]
        state = {"zero_stage": ZeroStageEnum(stage), "partition_count": [ranks] * groups if stage < 3 else ranks,
                 MASTER[stage == 3]: flat, "ds_version": "0.19.8"}
        base = {number: {"exp_avg": part * 2, "exp_avg_sq": part * part, "step": 5} for number, part in enumerate(flat)}
        state |= {"base_optimizer_state": {"state": base, "param_groups": []},
                  "optimizer_state_dict": {"state": base, "param_groups": []}, "group_paddings": [0] * groups,
                  "param_slice_mappings": [slices(group, rank, len(part)) for group, part in zip(full, flat)]}
        prefix = "bf16_" if low is torch.bfloat16 else ""
        torch.save({"optimizer_state_dict": state, "ds_config": {}, "ds_version": "0.19.8"},
                   step / f"{prefix}zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
        if stage == 3 or rank == 0:
            fragment = kept if stage < 3 else parts(kept.reshape(-1), ranks)[rank]
            model = {"module": module, "buffer_names": ["run", "ids"], "param_shapes": shapes,
                     "frozen_param_shapes": OrderedDict([("kept", kept.shape)]) if frozen else None,
                     "frozen_param_fragments": {"kept": fragment} if frozen else None,
                     "shared_params": {"head.weight": "emb.weight"} if shared else {}, "ds_version": "0.19.8", "global_steps": 5, "ds_config": {},
                     "universal_checkpoint_info": {"universal_checkpoint_version": 0.2}}
            name = f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt" if stage == 3 else "mp_rank_00_model_states.pt"
            torch.save(model, step / name)
    weights = get_fp32_state_dict_from_zero_checkpoint(str(folder))
    return {"weights": {name: digest(tensor) for name, tensor in weights.items()},
            "module": {name: digest(tensor) for name, tensor in module.items()}}


if __name__ == "__main__":
    serve({"save": save, "universal": universal})
