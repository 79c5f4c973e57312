"""One version of torch: writes tiny models, runs the reference's code on them, and runs our archives like the runner.

Only the environment with the newest torch has transformers.
"""

import concurrent.futures
import copy
import io
import json
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy
import torch
from line_server import serve

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "stubs")]
import models  # noqa: E402

if torch.__version__ >= "2.1":  # must be imported before float32 is replaced by another dtype
    import safetensors.torch  # noqa: F401
    import transformers  # noqa: F401
warnings.simplefilter("ignore")
torch.set_num_threads(1)


# --- checkpoints ----------------------------------------------------------------------------------------------------


def past_of(answer):
    """The inputs for the next call."""
    return {name.replace("present", "past"): tensor for name, tensor in answer.items() if name.startswith("present")}


def norm_centre(model_type):
    """Number near which the weights of norms are: Gemma 1 to 3 multiply by 1 + weight."""
    return 0 if model_type.startswith("gemma") and not model_type.startswith("gemma4") else 1


def random_like(name, shape, seed, centre=1):
    """Norms are near `centre`."""
    if not shape:  # the numbers of an activation
        return torch.tensor(-1e-6 if name.endswith("eps") else 0.5, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    tensor = torch.randn(shape, generator=generator, dtype=torch.float64)
    if len(shape) == 1:
        return tensor * 0.1 + (0 if name.endswith("bias") else centre)
    return tensor if "embed" in name else tensor * 2 / shape[2 if "conv1d" in name else 1] ** 0.5


def meta_shapes(params):
    dim, heads = params["dim"], params["n_heads"]
    head = params.get("head_dim", dim // heads)
    queries, keys = heads * head, params.get("n_kv_heads", heads) * head
    yield from {"tok_embeddings.weight": (models.VOCAB, dim), "norm.weight": (dim,), "output.weight": (models.VOCAB, dim)}.items()
    for layer in range(params["n_layers"]):
        for name, shape in {
            "attention.wq": (queries, dim), "attention.wk": (keys, dim), "attention.wv": (keys, dim), "attention.wo": (dim, queries),
            "feed_forward.w1": (192, dim), "feed_forward.w2": (dim, 192), "feed_forward.w3": (192, dim),
            "attention_norm": (dim,), "ffn_norm": (dim,),
        }.items():
            yield f"layers.{layer}.{name}.weight", shape


def hugging_face_config(values):
    from transformers import AutoConfig

    values = dict(values)
    return AutoConfig.for_model(values.pop("model_type"), **values)


def hugging_face_model(config):
    from transformers import AutoModelForCausalLM

    # The other implementations of experts do not compute in float64. The one of Falcon adds ALiBi twice if it is eager.
    attention = "sdpa" if config.model_type == "falcon" else "eager"
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention, experts_implementation="eager")


def save(state, path):
    if path.suffix == ".safetensors":
        safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in state.items()}, path, metadata={"format": "pt"})
    else:
        torch.save(state, path)


def make(kind, dtype, folder, files=1, extension=None, layers=None, frequencies=None):
    """Writes the checkpoint in `files` files with this extension, and its document. Returns the name of the first file.

    `frequencies` are names under which it has the RoPE frequencies that Meta's code computes.
    """
    folder, dtype = Path(folder), getattr(torch, dtype)
    if kind in models.META:
        params, centre = models.params(kind) | ({"n_layers": layers} if layers else {}), 1
        shapes = dict(meta_shapes(params))
        (folder / "params.json").write_text(json.dumps(params))
        tied = "tied" in kind and "output.weight"
    else:
        config = models.config(kind) | ({"num_hidden_layers": layers} if layers else {})
        settings = hugging_face_config(config)
        with torch.device("meta"):
            model = hugging_face_model(settings)
            kept, members = model.state_dict(), [*model.named_parameters(), *model.named_buffers()]
            shapes = {name: tuple(member.shape) for name, member in members if name in kept}
        (folder / "config.json").write_text(json.dumps(config))
        tied = settings.tie_word_embeddings and "lm_head.weight"
        centre = norm_centre(settings.model_type)
    state = {n: random_like(n, s, i, centre).to(dtype) for i, (n, s) in enumerate(shapes.items()) if n != tied}
    if not frequencies:
        known = models.FREQUENCIES.get(kind, []) if frequencies is None else []
        state |= {name: torch.linspace(1, 0, 8).to(dtype) for name in known}
    else:
        theta, head = models.params(kind).get("rope_theta", 10000.0), 16
        computed = 1.0 / (theta ** (torch.arange(0, head, 2)[: (head // 2)].float() / head))
        state |= {name: computed.to(dtype) for name in frequencies}
    if kind in models.META:
        for number, shard in enumerate(meta_shards(state, files, params)):
            save(shard, folder / f"consolidated.{number:02}.pth")
        return "consolidated.00.pth"
    if kind in models.SAVED:
        model = hugging_face_model(settings).to(dtype)
        left = model.load_state_dict(state, strict=False)
        assert set(left.missing_keys) <= {tied} and not left.unexpected_keys, left
        model.tie_weights()
        model.save_pretrained(folder, max_shard_size=sum(t.nbytes for t in state.values()) // files + 1000)
        return "model.safetensors" if files == 1 else "."
    extension = extension or "safetensors"
    stem = "model" if extension == "safetensors" else "pytorch_model"
    if files == 1:
        save(state, folder / f"{stem}.{extension}")
        return f"{stem}.{extension}"
    names, weight_map = list(state), {}
    for number in range(files):
        file = f"{stem}-{number + 1:05}-of-{files:05}.{extension}"
        mine = names[number * len(names) // files:(number + 1) * len(names) // files]
        save({name: state[name] for name in mine}, folder / file)
        weight_map |= dict.fromkeys(mine, file)
    (folder / f"{stem}.{extension}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return "."


def meta_shards(state, count, params):
    """Splits like Meta's code. If there are fewer heads than shards, the heads of keys and values have several copies."""
    if count == 1:
        return [state]
    shards = [{} for _ in range(count)]
    head = params.get("head_dim", params["dim"] // params["n_heads"])
    for name, tensor in state.items():
        module = name.split(".")[-2]
        if tensor.dim() == 1:
            parts = [tensor] * count
        elif module in ("wk", "wv") and tensor.shape[0] // head < count:
            heads = tensor.split(head)
            parts = [heads[i * len(heads) // count] for i in range(count)]
        else:
            parts = tensor.chunk(count, 1 if module in ("wo", "w2") else 0)
        for shard, part in zip(shards, parts, strict=True):
            shard[name] = part.clone()
    return shards


# --- references -----------------------------------------------------------------------------------------------------


class Exact:
    """Inside this context, everything that a model computes in float32 regardless of its weights is computed in float64."""

    def __init__(self, on):
        self.on = on

    def __enter__(self):
        self.kept = torch.float32, torch.float, torch.Tensor.float
        if self.on:
            torch.float32 = torch.float = torch.float64
            torch.Tensor.float = torch.Tensor.double

    def __exit__(self, *_):
        torch.float32, torch.float, torch.Tensor.float = self.kept


def reference(kind, folder, tokens, outputs):
    """Logits of the reference's code entirely in float64 (`exact KEY`), and in the checkpoint's dtype (`KEY`)."""
    folder, batches, logits = Path(folder), numpy.load(tokens), {}
    if kind in models.META:
        state = torch.load(folder / "consolidated.00.pth", weights_only=True)
    else:
        state = saved(folder) if kind in models.SAVED else safetensors.torch.load_file(folder / "model.safetensors")
    code = metas if kind in models.META and kind not in models.NOT_METAS else transformers_of
    for exact in (True, False):
        with Exact(exact), torch.no_grad():
            dtype = torch.float64 if exact else next(iter(state.values())).dtype
            model = code(kind, {k: v for k, v in state.items() if not k.endswith(("rope.freqs", "inv_freq"))}, dtype)
            for key, batch in batches.items():
                answer = model(torch.from_numpy(batch))
                assert not exact or answer.dtype == torch.float64
                logits[f"exact {key}" if exact else key] = answer.double().numpy()
    numpy.savez(outputs, **logits)


def saved(folder):
    """The tensors that transformers reads, by the names of its modules."""
    from transformers import AutoModelForCausalLM

    settings = {"attn_implementation": "eager", "local_files_only": True, "output_loading_info": True}
    model, left = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", **settings)
    assert not any(left[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), left
    return model.state_dict()


def metas(kind, state, dtype):
    from llama_models.llama3 import args, model

    state.setdefault("output.weight", state["tok_embeddings.weight"])
    params = models.params(kind) | {"vocab_size": models.VOCAB}
    settings = args.ModelArgs(**{"rope_theta": 10000.0, **params, "max_batch_size": 4, "max_seq_len": 128})
    transformer = model.Transformer(settings).to(dtype)
    left = transformer.load_state_dict({k: v.to(dtype) for k, v in state.items()})
    assert not left.missing_keys and not left.unexpected_keys, left
    return lambda tokens: transformer(tokens, 0)


def transformers_of(kind, state, dtype):
    if kind in models.META:
        state, config = from_meta(state, models.params(kind))
    else:
        config = models.config(kind)
    model = hugging_face_model(hugging_face_config(config)).to(dtype)
    left = model.load_state_dict({k: v.to(dtype) for k, v in state.items()}, strict=False)
    assert set(left.missing_keys) <= {"lm_head.weight"} and not left.unexpected_keys, left
    model.tie_weights()
    return lambda tokens: model.eval()(tokens).logits


NAMES = {
    "attention.wq": "self_attn.q_proj", "attention.wk": "self_attn.k_proj", "attention.wv": "self_attn.v_proj",
    "attention.wo": "self_attn.o_proj", "feed_forward.w1": "mlp.gate_proj", "feed_forward.w2": "mlp.down_proj",
    "feed_forward.w3": "mlp.up_proj", "attention_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}


def from_meta(state, params):
    """Meta's tensors with the names of transformers and its order of the rows of queries and keys, and the configuration."""
    outer = {"tok_embeddings.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
    head = params.get("head_dim", params["dim"] // params["n_heads"])
    named = {}
    for name, tensor in state.items():
        if name in outer:
            named[outer[name]] = tensor
            continue
        _, layer, part = name.removesuffix(".weight").split(".", 2)
        if part in ("attention.wq", "attention.wk"):
            tensor = tensor.view(-1, head // 2, 2, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)
        named[f"model.layers.{layer}.{NAMES[part]}.weight"] = tensor
    config = models.SIZES | {"model_type": "llama", "num_key_value_heads": params["n_kv_heads"], "rms_norm_eps": params["norm_eps"],
                             "head_dim": head, "rope_theta": params.get("rope_theta", 10000.0)}
    if params.get("use_scaled_rope"):
        config["rope_scaling"] = models.llama3(params["rope_scaling_factor"]) | {"original_max_position_embeddings": 8192}
    return named, config


# --- models in another layout ---------------------------------------------------------------------------------------


def logits_of(load, tokens, outputs):
    """Logits entirely in float64 (`exact KEY`), and in the dtype that `load` chooses (`KEY`). `load` takes a dtype or None."""
    logits = {}
    for exact in (True, False):
        with Exact(exact), torch.no_grad():
            model = load(torch.float64 if exact else None)
            for key, batch in numpy.load(tokens).items():
                logits[f"exact {key}" if exact else key] = model(torch.from_numpy(batch)).double().numpy()
    numpy.savez(outputs, **logits)


def pretrained(folder, tokens, outputs):
    """Runs a folder with `from_pretrained`. Returns what the model says about itself."""
    from transformers import AutoModelForCausalLM

    settings = {"attn_implementation": "eager", "local_files_only": True, "output_loading_info": True}
    model, left = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", **settings)
    assert not any(left[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), left

    def load(dtype):
        ours = model
        if dtype:  # `from_pretrained` reads nothing right while float32 is replaced
            ours = hugging_face_model(model.config).to(dtype)
            ours.load_state_dict({k: v.to(dtype) for k, v in model.state_dict().items()})
        return lambda tokens: ours.eval()(tokens).logits

    logits_of(load, tokens, outputs)
    embeddings, output = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    return {"dtype": str(model.dtype), "tied": embeddings.data_ptr() == output.data_ptr(), "bos": model.config.bos_token_id,
            "eos": model.config.eos_token_id}


def run_metas(folder, tokens, outputs):
    """Runs a folder with Meta's code and its params.json."""
    from llama_models.llama3 import args, model

    state, params = state_of(folder), json.loads(Path(folder, "params.json").read_text())
    state.pop("rope.freqs", None)

    def load(dtype):
        transformer = model.Transformer(args.ModelArgs(**params, max_batch_size=4, max_seq_len=128))
        dtype = dtype or next(iter(state.values())).dtype
        transformer.to(dtype).load_state_dict({k: v.to(dtype) for k, v in state.items()})
        return lambda tokens: transformer(tokens, 0)

    logits_of(load, tokens, outputs)


def state_of(folder):
    """The tensors of a folder with one file, with those that its metadata names as copies of others."""
    folder = Path(folder)
    if (path := folder / "consolidated.00.pth").exists():
        return torch.load(path, weights_only=True)
    with safetensors.safe_open(folder / "model.safetensors", "pt") as file:
        state = {name: file.get_tensor(name) for name in file.keys()}
        kept = {dropped: state[name] for dropped, name in file.metadata().items() if name in state}
    return state | kept


def differences(one, other):
    """The names that one folder lacks, and those of tensors that are not equal bit for bit."""
    one, other = state_of(one), state_of(other)
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}

    def equal(a, b):
        same = a.dtype == b.dtype and a.shape == b.shape
        return same and torch.equal(*(t.contiguous().view(bits[t.element_size()]) for t in (a, b)))

    wrong = [name for name in one.keys() & other.keys() if not equal(one[name], other[name])]
    return sorted(one.keys() ^ other.keys()) + sorted(wrong)


# --- ours -----------------------------------------------------------------------------------------------------------


def load(archive):
    return torch.jit.load(io.BytesIO(Path(archive).read_bytes()), map_location="cpu")


def groups():
    """The groups that the fuser compiled in the last call."""
    graph = str(torch.jit.last_executed_optimized_graph())
    return graph.count("TensorExprGroup") + graph.count("FusionGroup") + graph.count("CudaFusion")


def fuser_is_seen():
    """Whether `groups` finds an existing group, in a torch with a fuser for the CPU."""
    chain = torch.jit.script(twice_and_more)
    for _ in range(3):
        chain(torch.ones(8))
    return groups() > 0


def twice_and_more(x):
    return (x * 2 + 1).tanh() * x


def run(archive, tokens, outputs, times=3):
    """Logits of each batch as `KEY CALL` for each call, and the number of fused groups."""
    assert torch.is_grad_enabled()
    module, logits, fused = load(archive), {}, 0
    for key, batch in numpy.load(tokens).items():
        for call in range(times):
            answer = module.forward({"tokens": torch.from_numpy(batch)})
            assert list(answer) == ["logits"] and answer["logits"].dtype == torch.float32 and not answer["logits"].requires_grad
            logits[f"{key} {call}"] = answer["logits"].numpy()
            fused += groups()
    numpy.savez(outputs, **logits)
    return fused


def decode(archive, tokens, key, prefill):
    """The difference between decoding with the cache and one pass, and between `last_only` and the last position; fused groups."""
    module = load(archive)
    batch = torch.from_numpy(numpy.load(tokens)[key])
    whole = module.forward({"tokens": batch})["logits"]
    flag, fused = torch.tensor(1), 0
    answer = module.forward({"tokens": batch[:, :prefill], "use_cache": flag})
    parts = [answer["logits"]]
    for at in range(prefill, batch.shape[1]):
        past = past_of(answer)
        answer = module.forward({"tokens": batch[:, at:at + 1], **past})
        parts.append(answer["logits"])
        fused += groups()
    # Passing the rest in one call after the cache gives the same logits.
    answer = module.forward({"tokens": batch[:, :prefill], "use_cache": flag})
    past = past_of(answer)
    rest = module.forward({"tokens": batch[:, prefill:], **past})
    stepwise, last = torch.cat(parts, 1), module.forward({"tokens": batch, "last_only": flag})["logits"]
    one = module.forward({"tokens": batch[0]})["logits"]
    return {
        "step": float((stepwise - whole).abs().max()),
        "final": float((stepwise[:, -1] - whole[:, -1]).abs().max()),
        "argmax": bool((stepwise.argmax(-1) == whole.argmax(-1)).all()),
        "rest": float((rest["logits"] - whole[:, prefill:]).abs().max()),
        "last": float((last - whole[:, -1:]).abs().max()),
        "one": float((one - whole[:1]).abs().max()),
        "cache": list(rest["present_key"].shape),
        "dtype": str(rest["present_key"].dtype),
        "fused": fused,
    }


def positional(archive, positional, tokens):
    """How the module of the file `positional` differs from that of `archive`. It is loaded and run as Triton's PyTorch backend does."""
    module = load(archive)
    with torch.inference_mode():
        other = load(positional)
        schema = other.forward.schema if hasattr(other.forward, "schema") else other._c._get_method("forward").schema
        kinds = [[a.name, a.type.kind()] for a in schema.arguments], [r.type.kind() for r in schema.returns]
        same, fused, frozen = [], 0, 0.0
        quick = torch.jit.optimize_for_inference(load(positional).eval())
        for batch in map(torch.from_numpy, numpy.load(tokens).values()):
            for _ in range(3):
                wanted, found = module.forward({"tokens": batch})["logits"], other.forward(batch)
                fused += groups()
                same.append(wanted.dtype == found.dtype == torch.float32 and torch.equal(wanted, found))
            frozen = max(frozen, float((quick(batch) - wanted).abs().max() / wanted.abs().max()))
    mine, theirs = module.state_dict(), other.state_dict()
    is_equal = list(mine) == list(theirs) and all(mine[n].dtype == theirs[n].dtype and torch.equal(mine[n], theirs[n]) for n in mine)
    return {"arguments": kinds[0], "returns": kinds[1], "state": is_equal, "logits": all(same), "fused": fused, "frozen": frozen}


def add_tensor(path, output, name):
    """A copy of a safetensors file with one more tensor."""
    safetensors.torch.save_file(safetensors.torch.load_file(path) | {name: torch.ones(1)}, output, metadata={"format": "pt"})


def refusal(archive, inputs):
    """The message that `inputs` (shape, dtype, value) give, and whether it is returned."""
    tensors = {name: torch.full(shape, value, dtype=getattr(torch, dtype)) for name, (shape, dtype, value) in inputs.items()}
    try:
        answer = load(archive).forward(tensors)
    except Exception as error:
        return str(error), False
    assert list(answer) == (["error"] if "error" in answer else ["logits"])
    return answer.get("error"), True


def switches(archive, tokens):
    """Whether values of `last_only` and `use_cache` that are 0 change nothing, and others are on."""
    module, batch = load(archive), torch.from_numpy(numpy.load(tokens)["2x7"])
    whole, zero = module.forward({"tokens": batch})["logits"], torch.tensor(0)
    off = [zero, zero.reshape(1), zero.float(), zero.bool(), zero.half().reshape(1, 1)]
    on = [zero + 1, zero.reshape(1) - 2, zero + 0.5, ~zero.bool()]
    answers = [module.forward({"tokens": batch, "last_only": value, "use_cache": value}) for value in off + on]
    is_off = all(list(answer) == ["logits"] and torch.equal(answer["logits"], whole) for answer in answers[:len(off)])
    return is_off, all(len(answer) == 3 and answer["logits"].shape[1] == 1 for answer in answers[len(off):])


def widened(archive, tokens, modules=20, threads=6):
    """What the first and the second call of a float16 model copy, what its state is then, and whether the first calls of threads
    that call at once, of a copy and of a frozen copy have the logits of one call."""
    module, batch = load(archive), {"tokens": torch.from_numpy(numpy.load(tokens)["3x60"])}
    wanted, copies = None, []
    matrices = [list(tensor.shape) for tensor in module.state_dict().values() if tensor.dim() == 2]
    for _ in range(2):
        with torch.autograd.profiler.profile(record_shapes=True) as profile:
            wanted = module.forward(batch)["logits"]
        shapes = [event.input_shapes[0] for event in profile.function_events if event.name in ("aten::_to_copy", "aten::copy_")]
        # A product copies its bias to all rows, which is not a copy of a matrix.
        copies.append(sum(list(shape) in matrices for shape in shapes))
    state = sorted({str(tensor.dtype) for tensor in module.state_dict().values()})
    others = [torch.jit.freeze(load(archive).eval())]
    # A copy of 2.0.1 has the whole tensor in the place of each part of it.
    held = [tensor for tensors in getattr(module, "__tensors__").narrow.values() for tensor in tensors]
    if torch.__version__ >= "2.1" or all(t.untyped_storage().nbytes() == t.numel() * t.element_size() for t in held):
        others += [copy.deepcopy(module), copy.deepcopy(load(archive))]
    same = [torch.equal(other.forward(batch)["logits"], wanted) for other in others]
    for _ in range(modules):
        shared, together = load(archive), threading.Barrier(threads)
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            calls = [pool.submit(lambda: (together.wait(), shared.forward(batch)["logits"])[1]) for _ in range(threads)]
            same += [torch.equal(call.result(), wanted) for call in calls]
    return copies, state, all(same)


def speed(archive):
    """Seconds to load and for each call; from the third call on, each has a new sequence length."""
    start = time.perf_counter()
    module = load(archive)
    loaded, calls = time.perf_counter() - start, []
    for length in [16, 16, *range(17, 25)]:
        tokens = torch.zeros(1, length, dtype=torch.long)
        start = time.perf_counter()
        module.forward({"tokens": tokens})
        calls.append(time.perf_counter() - start)
    return {"load": loaded, "calls": calls}


if __name__ == "__main__":
    serve({
        "version": lambda: torch.__version__,
        "make": make,
        "reference": reference,
        "pretrained": pretrained,
        "run_metas": run_metas,
        "differences": differences,
        "fuser_is_seen": fuser_is_seen,
        "run": run,
        "decode": decode,
        "positional": positional,
        "add_tensor": add_tensor,
        "refusal": refusal,
        "switches": switches,
        "widened": widened,
        "speed": speed,
    })
