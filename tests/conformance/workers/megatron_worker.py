"""Writes the checkpoints of a small GPT as the ranks of Megatron do: megatron-core on gloo, without a GPU.

    megatron_worker.py FOLDER SETTING     SETTING is JSON: {"tp": 2, "pp": 1, "ep": 1, "vp": 1, "model": {…}}

The ranks write FOLDER/dist/iter_0000005 (`torch_dist`) and FOLDER/ranks/iter_0000005 (`mp_rank_XX_YYY`), and three others write
FOLDER/fsdp/iter_0000005 in the form of `fsdp_dtensor`. A single process loads the first with Megatron and writes three maps of names
to dtype, shape and SHA-256: FOLDER/dist.json has the tensors as `torch_dist` has them, FOLDER/whole.json those of the model in one
process, and FOLDER/hf.json those of Hugging Face's model.
"""

import argparse
import json
import os
import sys
import warnings
import zlib

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from trainer_worker import digest, free_port

warnings.filterwarnings("ignore")
HIDDEN, HEADS, GROUPS, WIDTH, LAYERS, PADDED, VOCAB = 32, 4, 2, 48, 4, 64, 61


def without_cuda():
    # A function of its own for each: torch refuses to compile with one function under two names.
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = lambda *args, **kwargs: None
    torch.cuda.set_rng_state = lambda *args, **kwargs: None
    torch.cuda.get_rng_state = lambda *args, **kwargs: torch.get_rng_state()
    torch.Tensor.cuda = lambda self, *args, **kwargs: self
    torch.nn.Module.cuda = lambda self, *args, **kwargs: self


def start(rank, ranks, port, setting):
    """Returns the pieces of this rank's model."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank)}
    torch.set_num_threads(1)
    without_cuda()
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.transformer_config import TransformerConfig

    tp, pp, ep, vp = (setting.get(key, 1) for key in ("tp", "pp", "ep", "vp"))
    virtual = vp if vp > 1 else None
    parallel_state.initialize_model_parallel(
        tp, pp, virtual, expert_model_parallel_size=ep, expert_tensor_parallel_size=setting.get("etp"))
    model = {"gated_linear_unit": True, "activation_func": torch.nn.functional.silu, "add_bias_linear": False, **setting.get("model", {})}
    config = TransformerConfig(
        num_layers=LAYERS, hidden_size=HIDDEN, num_attention_heads=HEADS, num_query_groups=GROUPS, ffn_hidden_size=WIDTH, normalization="RMSNorm",
        tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp, virtual_pipeline_model_parallel_size=virtual, expert_model_parallel_size=ep,
        expert_tensor_parallel_size=setting.get("etp"), params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16, bf16=True, gradient_accumulation_fusion=False, use_cpu_initialization=True, **model)
    pieces = []
    for piece in range(vp):
        stage = {"vp_stage": piece} if virtual else {}
        pieces.append(GPTModel(
            config, get_gpt_layer_local_spec(config.num_moe_experts, qk_layernorm=config.qk_layernorm, normalization="RMSNorm"),
            vocab_size=PADDED, max_sequence_length=32, position_embedding_type="rope",
            share_embeddings_and_output_weights=setting.get("tied", False),
            pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, **stage),
            post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, **stage), **stage))
    return pieces


def shards(value):
    from megatron.core.dist_checkpointing.mapping import ShardedTensor, ShardedTensorFactory

    if isinstance(value, ShardedTensorFactory):
        value = value.build()
    if isinstance(value, ShardedTensor):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from shards(item)


def fill(pieces):
    """Gives each element the value that its name and place in the whole tensor determine."""
    for piece in pieces:
        for shard in shards(piece.sharded_state_dict()):
            random = torch.Generator().manual_seed(zlib.crc32(shard.key.encode()))
            whole = torch.randint(-1000, 1000, shard.global_shape, generator=random) / 512
            place = tuple(slice(at, at + size) for at, size in zip(
                shard.global_offset, (1,) * shard.prepend_axis_num + tuple(shard.local_shape)))
            with torch.no_grad():
                shard.data.copy_(whole[place].reshape(shard.data.shape))


def save(rank, ranks, port, folder, setting):
    from megatron.core import dist_checkpointing, parallel_state

    pieces = start(rank, ranks, port, setting)
    fill(pieces)
    tp, pp, ep, vp = (setting.get(key, 1) for key in ("tp", "pp", "ep", "vp"))
    args = argparse.Namespace(
        tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp, expert_model_parallel_size=ep, num_layers=LAYERS, hidden_size=HIDDEN,
        expert_tensor_parallel_size=setting.get("etp", tp), num_attention_heads=HEADS, num_query_groups=GROUPS, padded_vocab_size=PADDED, swiglu=True,
        untie_embeddings_and_output_weights=not setting.get("tied", False))
    common = {"args": args, "checkpoint_version": 3.0, "iteration": 5}
    keys = ["model"] if vp == 1 else [f"model{piece}" for piece in range(vp)]
    numbers = f"{parallel_state.get_tensor_model_parallel_rank():02d}"
    numbers += f"_{parallel_state.get_pipeline_model_parallel_rank():03d}" if pp > 1 else ""
    numbers += f"_{parallel_state.get_expert_model_parallel_rank():03d}" if ep > 1 else ""
    own = os.path.join(folder, "ranks/iter_0000005", f"mp_rank_{numbers}")
    os.makedirs(own, exist_ok=True)
    optimizer = {"optimizer": {"state": {0: {"exp_avg": torch.full((3,), float(rank))}}, "param_groups": [{"lr": 0.1}]}}
    own_state = common | {key: piece.state_dict_for_save_checkpoint() for key, piece in zip(keys, pieces)} | optimizer
    torch.save(own_state, os.path.join(own, "model_optim_rng.pt"))
    out = os.path.join(folder, "dist/iter_0000005")
    os.makedirs(out, exist_ok=True)
    dist.barrier()
    metadata = setting.get("metadata")
    state = common | {key: piece.sharded_state_dict(metadata=metadata) for key, piece in zip(keys, pieces)}
    dist_checkpointing.save(state, out, content_metadata=metadata)
    dist.barrier()
    dist.destroy_process_group()


def hugging_face(state, tied):
    """The tensors of Hugging Face's model, as `saver_llama_mistral.py` of Megatron-LM computes them."""
    heads, size = HEADS // GROUPS, HIDDEN // HEADS
    yield "model.embed_tokens.weight", state["embedding.word_embeddings.weight"][:VOCAB]
    yield "model.norm.weight", state["decoder.final_layernorm.weight"]
    if not tied:
        yield "lm_head.weight", state["output_layer.weight"][:VOCAB]
    for layer in range(LAYERS):
        old, new = f"decoder.layers.{layer}", f"model.layers.{layer}"
        for kind in ("weight", "bias"):
            if (fused := state.get(f"{old}.self_attention.linear_qkv.{kind}")) is not None:
                grouped = fused.reshape(GROUPS, heads + 2, size, *fused.shape[1:])
                for name, part in (("q", grouped[:, :heads]), ("k", grouped[:, heads:-1]), ("v", grouped[:, -1:])):
                    yield f"{new}.self_attn.{name}_proj.{kind}", part.reshape(-1, *fused.shape[1:])
        for name in ("q", "k"):
            if (norm := state.get(f"{old}.self_attention.{name}_layernorm.weight")) is not None:
                yield f"{new}.self_attn.{name}_norm.weight", norm
        yield f"{new}.self_attn.o_proj.weight", state[f"{old}.self_attention.linear_proj.weight"]
        names = {"input_layernorm.weight": "input_layernorm.weight", "pre_mlp_layernorm.weight": "post_attention_layernorm.weight"}
        names |= {"self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
                  "mlp.linear_fc1.layer_norm_weight": "post_attention_layernorm.weight", "mlp.router.weight": "mlp.gate.weight"}
        for name, other in names.items():
            if (tensor := state.get(f"{old}.{name}")) is not None:
                yield f"{new}.{other}", tensor
        for name in state:
            if name.startswith(f"{old}.mlp.") and name.endswith("linear_fc1.weight"):
                expert = name.split("local_experts.")[1].split(".")[0] if "local_experts" in name else None
                to = f"{new}.mlp." + (f"experts.{expert}." if expert else "")
                gate, up = state[name].chunk(2)
                yield f"{to}gate_proj.weight", gate
                yield f"{to}up_proj.weight", up
                yield f"{to}down_proj.weight", state[name.replace("linear_fc1", "linear_fc2")]


def load(_, port, folder, setting):
    from megatron.core import dist_checkpointing
    from torch.distributed.checkpoint import FileSystemReader

    one = {key: value for key, value in setting.items() if key in ("model", "tied")}
    [model] = start(0, 1, port, one)
    out = os.path.join(folder, "dist/iter_0000005")
    sharded = model.sharded_state_dict(metadata=setting.get("metadata"))
    keys = ["model"] if setting.get("vp", 1) == 1 else ["model0"]
    model.load_state_dict(dist_checkpointing.load({keys[0]: sharded}, out)[keys[0]])
    state = {name: tensor for name, tensor in model.state_dict().items() if isinstance(tensor, torch.Tensor)}
    stored = FileSystemReader(out).read_metadata().state_dict_metadata
    plain = {name: torch.empty(entry.size, dtype=entry.properties.dtype) for name, entry in stored.items() if hasattr(entry, "size")}
    torch.distributed.checkpoint.load(plain, checkpoint_id=out, no_dist=True)
    results = {"dist": plain, "whole": state, "hf": dict(hugging_face(state, setting.get("tied", False)))}
    for name, tensors in results.items():
        with open(os.path.join(folder, f"{name}.json"), "w") as file:
            json.dump({name: digest(tensor) for name, tensor in tensors.items()}, file)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": WIDTH, "vocab_size": VOCAB,
              "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": GROUPS, "rms_norm_eps": 1e-5,
              "tie_word_embeddings": setting.get("tied", False), "torch_dtype": "bfloat16"} | setting.get("config", {})
    torch.save(state, os.path.join(folder, "whole.pt"))
    os.makedirs(os.path.join(folder, "fsdp"))
    for layout in ("dist", "ranks", "fsdp"):
        with open(os.path.join(folder, layout, "config.json"), "w") as file:
            json.dump(config, file)
        with open(os.path.join(folder, layout, "latest_checkpointed_iteration.txt"), "w") as file:
            file.write("5")
    dist.destroy_process_group()


def save_fsdp(rank, ranks, port, folder):
    """`fsdp_dtensor`: a DCP of DTensors with the names of `handle_swiglu_in_state_dict` in fsdp_dtensor_checkpoint.py."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(ranks)}
    dist.init_process_group("gloo")
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    on, model = init_device_mesh("cpu", (ranks,)), {}
    for name, tensor in torch.load(os.path.join(folder, "whole.pt")).items():
        halves = {"": tensor}
        if name.endswith("linear_fc1.weight"):
            halves = dict(zip(("_w", "_v"), tensor.chunk(2)))
        model |= {f"module.{name}{half}": distribute_tensor(part.contiguous(), on, [Shard(0)]) for half, part in halves.items()}
    dcp.save({"model": model, "iteration": 5}, checkpoint_id=os.path.join(folder, "fsdp/iter_0000005"))
    dist.destroy_process_group()


def main():
    folder, setting = sys.argv[1], json.loads(sys.argv[2])
    tp, pp, ep, etp = (setting.get(key, 1) for key in ("tp", "pp", "ep", "etp"))
    ranks = pp * max(tp, ep * setting.get("etp", tp))
    mp.start_processes(save, (ranks, free_port(), folder, setting), nprocs=ranks, start_method="fork")
    mp.start_processes(load, (free_port(), folder, setting), nprocs=1, start_method="fork")
    mp.start_processes(save_fsdp, (3, free_port(), folder), nprocs=3, start_method="fork")


if __name__ == "__main__":
    main()
