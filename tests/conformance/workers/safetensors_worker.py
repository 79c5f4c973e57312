"""The real safetensors and transformers: reads what torch2carton writes, and writes what it is compared with."""

import json
import random
import shutil
import sys
from pathlib import Path

import torch
from line_server import serve
from safetensors import safe_open
from safetensors.torch import load_file, load_model, save_file, save_model

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import matrix  # noqa: E402

PT = {"format": "pt"}


def row(tensor):
    return [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), matrix.digest(matrix.c_order_bytes(tensor))]


def read(path):
    """Metadata and tensors by both functions that read a file; they must agree."""
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
        opened = {name: row(file.get_tensor(name)) for name in file.keys()}
    assert opened == {name: row(tensor) for name, tensor in load_file(path).items()}, "safe_open and load_file differ"
    return {"metadata": metadata, "tensors": opened}


def read_each(paths):
    """What `read` says of each file, or its error."""
    return [attempt(path) for path in paths]


def attempt(path):
    try:
        return read(path)
    except Exception as why:  # any exception is a result
        return {"error": f"{type(why).__name__}: {why}"[:300]}


BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # torch can copy these, and not all dtypes

# --- State dicts without ties --------------------------------------------------------------------------------------

NAMES = ["weight", "bias", "größe", "重み", "🔥", "a b", 'quo"te', "back\\slash", "tab\tline\n", "\x7f\x01", "e\u0301", "\u2028", "x" * 300, "/", "."]


def dtypes():
    """All dtypes that both this torch and safetensors have."""
    from safetensors.torch import _SIZE

    return sorted((dtype for dtype in _SIZE if dtype is not None), key=str)


def random_dict(rng):
    tensors = {}
    for number in range(rng.choice([1, 2, 10, 60])):
        name = rng.choice(NAMES) + rng.choice(["", f".{number}", f".layers.{number}.w"])
        tensors[name] = laid_out(rng, filled(rng, rng.choice(dtypes())))
    return tensors


def filled(rng, dtype):
    """Random bits of any shape, also of no dimension and without elements."""
    shape = [rng.choice([0, 1, 1, 2, 3, 4, 5, 7, 64]) for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 4]))]
    if dtype == getattr(torch, "float4_e2m1fn_x2", None) and not shape:
        shape = [1]  # the halves of an element need a dimension
    count = 1
    for size in shape:
        count *= size
    size = torch.empty(1, dtype=dtype).element_size()
    data = torch.tensor(list(rng.randbytes(count * size)), dtype=torch.uint8)
    if dtype == torch.bool:
        data = data % 2
    return data.reshape(count, size).view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)


def laid_out(rng, tensor):
    """The same elements, in another order in memory or in a larger storage."""
    way = rng.choice(["as it is", "as it is", "transposed", "every second", "slice"])
    if tensor.dim() == 0 or tensor.numel() == 0 or way == "as it is":
        return tensor
    bits = BITS[tensor.element_size()]
    plain = tensor.view(bits)
    if way == "transposed":
        plain = plain.transpose(0, -1).contiguous().transpose(0, -1)
    elif way == "every second":
        base = torch.zeros((*plain.shape[:-1], plain.shape[-1] * 2), dtype=bits)
        base[..., ::2] = plain
        plain = base[..., ::2]
    else:
        base = torch.zeros((plain.shape[0] + 2, *plain.shape[1:]), dtype=bits)
        base[1:-1] = plain
        plain = base[1:-1]
    return plain.view(tensor.dtype)


def contiguous(tensor):
    return tensor if tensor.is_contiguous() else tensor.view(BITS[tensor.element_size()]).contiguous().view(tensor.dtype)


def random_pair(seed, folder):
    """A random checkpoint as torch.save writes it, and as save_file does."""
    tensors = random_dict(random.Random(seed))
    torch.save(tensors, f"{folder}/random.pth")
    save_file({name: contiguous(tensor).clone() for name, tensor in tensors.items()}, f"{folder}/reference.safetensors", metadata=PT)
    return {"dtypes": sorted({str(tensor.dtype) for tensor in tensors.values()})}


# --- Ties --------------------------------------------------------------------------------------------------------------


class Tied(torch.nn.Module):
    """Two pairs of names for one parameter each, and one triple."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(7, 4)
        self.middle = torch.nn.Linear(4, 4)
        self.again = self.middle
        self.head = torch.nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight
        self.more = torch.nn.Linear(4, 7, bias=False)
        self.more.weight = self.embed.weight


def tied_pair(folder):
    """A model with ties as torch.save writes its state_dict, and as save_model writes it."""
    torch.manual_seed(1)
    model = Tied()
    torch.save(model.state_dict(), f"{folder}/tied.pth")
    save_model(model, f"{folder}/reference.safetensors", metadata=dict(PT))


def load_tied(path):
    """Whether load_model fills another model with the values of `tied_pair`."""
    torch.manual_seed(1)
    wanted = Tied().state_dict()
    torch.manual_seed(2)
    model = Tied()
    missing, unexpected = load_model(model, path, strict=False)  # it calls the copies that --ties duplicate writes unexpected
    return {"missing": sorted(missing), "unexpected": list(unexpected),
            "differ": [name for name, tensor in model.state_dict().items() if not torch.equal(tensor, wanted[name])]}


# --- Models of transformers ----------------------------------------------------------------------------------------


def model(kind):
    import transformers

    torch.manual_seed(3)
    small = dict(vocab_size=96, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, max_position_embeddings=64)
    configs = {
        "llama": lambda: transformers.LlamaConfig(**small, num_key_value_heads=2),
        "llama, bfloat16": lambda: transformers.LlamaConfig(**small, num_key_value_heads=2),
        "qwen2, tied": lambda: transformers.Qwen2Config(**small, num_key_value_heads=2, tie_word_embeddings=True),
        "gpt2, tied": lambda: transformers.GPT2Config(vocab_size=96, n_embd=64, n_layer=2, n_head=4, n_positions=64),
    }
    made = transformers.AutoModelForCausalLM.from_config(configs[kind]()).eval()
    return made.to(torch.bfloat16) if "bfloat16" in kind else made


DOCUMENTS = {"tokenizer.json": "{}", "tokenizer_config.json": '{"a": 1}', "special_tokens_map.json": "{}", "merges.txt": "a b\n", "vocab.json": "{}"}


def model_pair(kind, folder, max_shard_size):
    """A model in Hugging Face's old layout in `bin`, and as save_pretrained writes it in `reference`."""
    made = model(kind)
    made.generation_config.eos_token_id = 5
    old, reference = Path(folder, "bin"), Path(folder, "reference")
    old.mkdir()
    torch.save(made.state_dict(), old / "pytorch_model.bin")
    made.save_pretrained(reference, max_shard_size=max_shard_size)
    for name in ("config.json", "generation_config.json"):
        shutil.copy(reference / name, old / name)
    for name, text in DOCUMENTS.items():
        (old / name).write_text(text)
    return {"files": sorted(path.name for path in reference.iterdir()), "documents": sorted(DOCUMENTS), "nbytes": sum(
        tensor.numel() * tensor.element_size() for tensor in made.state_dict().values())}


def logits(folder):
    """The hash of the logits of a model that from_pretrained loads, and what it says of missing keys."""
    import transformers

    loaded, report = transformers.AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, output_loading_info=True)
    tokens = torch.arange(24).reshape(2, 12) * 5 % 96
    with torch.no_grad():
        found = loaded.eval()(tokens).logits
    return {"logits": row(found), "parameters": sorted({str(p.dtype) for p in loaded.parameters()}),
            "report": {key: sorted(map(str, value)) for key, value in report.items()}}


if __name__ == "__main__":
    torch.set_num_threads(1)
    functions = (read, read_each, random_pair, tied_pair, load_tied, model_pair, logits)
    serve({function.__name__: function for function in functions} | {"dtypes": lambda: [str(dtype) for dtype in dtypes()]})
