"""Writes checkpoints as the ranks of a training do: processes of torch.distributed on gloo, each with its part.

    trainer_worker.py RANKS FOLDER KIND…

Each kind is saved into FOLDER/KIND. Rank 0 writes FOLDER/KIND.json, which maps each name to the dtype, the shape and the SHA-256
of the whole tensor at the time of saving (`DTensor.full_tensor`). A kind is a way of saving and a state: `threads-one`. PyTorch
2.0.1 can save the kind `old` only.
"""

import hashlib
import json
import os
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def digest(tensor):
    tensor = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    raw = bytes(tensor.reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "sha256": hashlib.sha256(raw).hexdigest()}


def flatten(value, prefix=""):
    """Leaves by name, as torch.distributed.checkpoint joins their keys."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from flatten(item, f"{prefix}{key}.")
    elif isinstance(value, (list, tuple)) and any(isinstance(item, (torch.Tensor, dict, list)) for item in value):
        for at, item in enumerate(value):
            yield from flatten(item, f"{prefix}{at}.")
    else:
        yield prefix[:-1], value


def whole(value):
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def truth(state, path):
    """Every rank takes part in `full_tensor`."""
    tensors = {name: digest(whole(leaf)) for name, leaf in flatten(state) if isinstance(leaf, torch.Tensor)}
    if dist.get_rank() == 0:
        with open(path, "w") as out:
            json.dump(tensors, out)


def mesh(*shape, names=None):
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def spread(tensor, *placements, on):
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor, on, placements)


def two_dims(ranks):
    return (2, ranks // 2) if ranks % 2 == 0 else (1, ranks)


def numbers(*shape, dtype=torch.float32, seed=0):
    random = torch.Generator().manual_seed(seed + sum(shape))
    values = torch.randint(-100, 100, shape, generator=random)
    return values.to(dtype) if dtype == torch.bool or not dtype.is_floating_point else (values / 7).to(dtype)


def one_dim(rank, ranks):
    from torch.distributed.tensor import Replicate, Shard

    on = mesh(ranks)
    weights = {f"layers.{n}.w": spread(numbers(9, 5, seed=n, dtype=dtype), Shard(n % 2), on=on)
               for n, dtype in enumerate((torch.float32, torch.bfloat16, torch.float16, torch.float64))}
    weights |= {"norm": spread(numbers(6), Replicate(), on=on), "few": spread(numbers(2, 3), Shard(0), on=on),
                "none": spread(torch.empty(0, 4), Shard(0), on=on), "one": spread(numbers(1), Shard(0), on=on),
                "steps": spread(numbers(11, dtype=torch.int64), Shard(0), on=on), "plain": numbers(4, 4), "scalar": torch.tensor(3.5),
                "mask": numbers(7, dtype=torch.bool), "cube": spread(numbers(3, 10, 4), Shard(1), on=on)}
    return {"model": weights,
            "optim": {"state": {name: {"exp_avg": spread(whole(tensor) * 2, Shard(0), on=on), "step": torch.tensor(7.0)}
                                for name, tensor in list(weights.items())[:2]}, "param_groups": [{"lr": 0.1, "params": ["a", "b"]}]},
            "epoch": 3, "note": "as text", "nested": {"list": [1, 2.5, None]}}


def two_dim(rank, ranks):
    from torch.distributed.tensor import Replicate, Shard

    on = mesh(*two_dims(ranks), names=("dp", "tp"))
    return {"grid": spread(numbers(9, 10), Shard(0), Shard(1), on=on), "same": spread(numbers(10, 9), Shard(0), Shard(0), on=on),
            "hsdp": spread(numbers(7, 3), Replicate(), Shard(0), on=on), "other": spread(numbers(7, 3), Shard(1), Replicate(), on=on),
            "copies": spread(numbers(5), Replicate(), Replicate(), on=on), "inner": spread(numbers(8), Shard(0), on=on["tp"])}


def strided(rank, ranks):
    """FSDP over tensor parallelism: `_StridedShard`."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    on = mesh(*two_dims(ranks), names=("dp", "tp"))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(12, 20), torch.nn.ReLU(), torch.nn.Linear(20, 12), torch.nn.LayerNorm(12))
    parallelize_module(model, on["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=on["dp"])
    return {"model": dict(model.state_dict())}


def fsdp2(rank, ranks):
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.fsdp import fully_shard

    on = mesh(ranks)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(13, 7), torch.nn.BatchNorm1d(7), torch.nn.Linear(7, 3, bias=False))
    fully_shard(model, mesh=on)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(4, 13)).sum().backward()
    optimizer.step()
    weights, state = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": state}


def plain(rank, ranks):
    """Tensors that every rank has, views, and a tensor that is conjugated."""
    base = numbers(6, 8)
    return {"w": numbers(3, 4), "turned": base.t(), "part": base[1:4, ::2], "parameter": torch.nn.Parameter(numbers(5)),
            "conjugate": torch.complex(numbers(4), numbers(4, seed=1)).conj(), "int8": numbers(3, dtype=torch.int8),
            "tied": base, "also": base, "empty": torch.empty(0), "half": numbers(9, dtype=torch.bfloat16)}


def rank_files(rank, ranks, kind, out, path):
    """`model_world_size_N_rank_R.pt`: each rank's state dict of DTensors, by torch.save."""
    state = {"one": one_dim, "two": two_dim, "strided": strided}[kind](rank, ranks)
    state = state.get("model", state)
    torch.save(state, os.path.join(out, f"model_world_size_{ranks}_rank_{rank}.pt"))
    truth(state, path)


def fsdp1_files(rank, ranks, out, path):
    """FSDP1's ShardedTensor in each rank's file."""
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardedStateDictConfig, StateDictType

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(13, 7), torch.nn.Linear(7, 3))
    whole_model = {name: digest(tensor) for name, tensor in model.state_dict().items()}
    model = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)
    FullyShardedDataParallel.set_state_dict_type(
        model, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig(offload_to_cpu=False))
    torch.save(model.state_dict(), os.path.join(out, f"model_world_size_{ranks}_rank_{rank}.pt"))
    if rank == 0:
        with open(path, "w") as file:
            json.dump(whole_model, file)


def saved_by_a_trainer(kind, rank, ranks, out, path):
    """A model and its optimizer, as the strategies of Lightning and `save_fsdp_model` of Accelerate write them."""
    from types import SimpleNamespace

    state = fsdp2(rank, ranks)
    weights = dict(state["model"])
    if kind.startswith("lightning"):
        from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy

        kind, settings, key = {"lightning-fsdp": (FSDPStrategy, {"_state_dict_type": "sharded"}, "model"),
                               "lightning-mesh": (ModelParallelStrategy, {"_save_distributed_checkpoint": True}, "state_dict")}[kind]
        strategy = SimpleNamespace(broadcast=lambda value: value, global_rank=rank, **settings)
        kind.save_checkpoint(strategy, {"epoch": 1, "state_dict": dict(weights), "optimizer_states": [state["optimizer"]], "hyper_parameters": {"lr": 0.1}}, out)
        return truth({key: weights, "optimizer_0": state["optimizer"]}, path)
    import accelerate.utils.fsdp_utils as accelerate
    from torch.distributed.fsdp import StateDictType

    # What a launcher starts is replaced: only the model's state and the numbers of the processes are asked for.
    accelerate.logger = SimpleNamespace(info=lambda text: None)
    accelerate._get_model_state_dict = lambda *_, **__: weights
    plugin = SimpleNamespace(state_dict_type=StateDictType.SHARDED_STATE_DICT, fsdp_version=2, state_dict_config=SimpleNamespace())
    process = SimpleNamespace(process_index=rank, num_processes=ranks, wait_for_everyone=dist.barrier)
    with_dcp = kind == "accelerate-dcp"
    accelerate.save_fsdp_model(plugin, process, None, out, use_dcp=with_dcp)
    truth({"model": weights} if with_dcp else weights, path)


STATES = {"one": one_dim, "two": two_dim, "strided": strided, "fsdp2": fsdp2, "plain": plain}


def old_sharded(rank, ranks, out, path):
    """ShardedTensor, with the interface of PyTorch 2.0."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed._shard import sharded_tensor
    from torch.distributed._shard.sharding_spec import ChunkShardingSpec

    spec = ChunkShardingSpec(dim=0, placements=[f"rank:{n}/cpu" for n in range(ranks)])
    sharded = sharded_tensor.zeros(spec, 10, 4)
    full = numbers(10, 4)
    for shard in sharded.local_shards():
        (row, _), (rows, _) = shard.metadata.shard_offsets, shard.metadata.shard_sizes
        shard.tensor.copy_(full[row:row + rows])
    state = {"sharded": sharded, "plain": numbers(3, 3), "count": 5}
    dcp.save_state_dict(state, dcp.FileSystemWriter(out))
    if rank == 0:
        with open(path, "w") as file:
            json.dump({"sharded": digest(full), "plain": digest(state["plain"])}, file)


def save(kind, rank, ranks, out, path):
    if kind.startswith(("accelerate", "lightning")):
        return saved_by_a_trainer(kind, rank, ranks, out, path)
    layout, _, kind = kind.partition("-")
    if layout == "files":
        return fsdp1_files(rank, ranks, out, path) if kind == "fsdp1" else rank_files(rank, ranks, kind, out, path)
    if layout == "old":
        return old_sharded(rank, ranks, out, path)
    import torch.distributed.checkpoint as dcp

    state, settings, more = STATES[kind](rank, ranks), {}, {}
    if layout in ("safetensors", "flat", "hf"):  # these save no other values
        state = {name: leaf for name, leaf in flatten(state) if isinstance(leaf, torch.Tensor)}
    if layout == "async":
        dcp.async_save(state, checkpoint_id=out).result()
        return truth(state, path)
    writer = dcp.FileSystemWriter
    if layout == "threads":
        settings = {"thread_count": 3}
    elif layout == "items":
        settings = {"single_file_per_rank": False}
    elif layout == "safetensors":
        from torch.distributed.checkpoint.filesystem import SerializationFormat

        settings = {"serialization_format": SerializationFormat.SAFETENSORS}
    elif layout == "zstd":
        from torch.distributed.checkpoint._extension import ZStandard

        settings = {"_extensions": [ZStandard()]}
    elif layout == "local":
        more = {"use_collectives": False}
    elif layout == "flat":
        more = {"planner": dcp.DefaultSavePlanner(flatten_state_dict=False)}
    elif layout == "hf":
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

        writer, settings = HuggingFaceStorageWriter, {"save_distributed": True}
    else:
        assert layout == "dcp", layout
    dcp.save(state, storage_writer=writer(path=out, **settings), **more)
    return truth(state, path)


def work(rank, ranks, out, port, kinds):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(ranks)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for kind in kinds:
        os.makedirs(os.path.join(out, kind), exist_ok=True)
        save(kind, rank, ranks, os.path.join(out, kind), os.path.join(out, f"{kind}.json"))
        dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    ranks, out, *kinds = sys.argv[1:]
    # Importing torch takes longer than saving, so the processes are forked after it.
    mp.start_processes(work, (int(ranks), out, free_port(), kinds), nprocs=int(ranks), start_method="fork")


if __name__ == "__main__":
    main()
