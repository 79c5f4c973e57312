"""The newest torch, transformers and tokenizers: makes tiny models with real tokenizers, and runs them as the reference."""

import base64
import json
import sys
import warnings
from pathlib import Path

import numpy
import torch
from line_server import serve

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import tokenizers  # noqa: E402
import transformers  # noqa: E402
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402

warnings.simplefilter("ignore")
transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# What tokenizers are trained on.
CORPUS = [
    "Once upon a time there was a little girl who lived in a village near the forest.",
    "It's what they've said: we'll see, I'm sure; you'd know. THEY'LL COME!",
    "Ein Männchen steht im Walde, ganz still und stumm; größer als ein Löwe.",
    "Жила-была девочка, и звали её Машенька. Она любила гулять в лесу.",
    "从前有座山,山里有座庙,庙里有个老和尚在讲故事。",
    "むかしむかし、あるところにおじいさんとおばあさんがいました。",
    "كان يا ما كان في قديم الزمان ملك عادل يحبه الناس.",
    "एक समय की बात है, एक गाँव में एक किसान रहता था।",
    "👩‍👩‍👧 🤗🎉 1234567 3.14159 == != <= \t\tif x:\n\n    return y  # ½ ²",
] * 4


# --- tokenizers -----------------------------------------------------------------------------------------------------


def trained(model, trainer, normalizer=None, pre_tokenizer=None, decoder=None):
    tokenizer = tokenizers.Tokenizer(model)
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def byte_level(special=("<|begin|>", "<|end|>")):
    """Pieces of text as Llama 3 and Qwen cut it, in bytes."""
    split = pre_tokenizers.Split(tokenizers.Regex(LLAMA3), "isolated")
    pieces = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=list(special), show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer = trained(models.BPE(), trainer, pre_tokenizer=pieces, decoder=decoders.ByteLevel())
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{special[0]} $A", special_tokens=[(special[0], tokenizer.token_to_id(special[0]))]) if special else None
    return tokenizer


def gpt2():
    """As GPT-2: the library's own pattern, and nothing at the beginning."""
    trainer = trainers.BpeTrainer(vocab_size=600, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    return trained(models.BPE(), trainer, normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel())


def byte_fallback():
    """As Llama 2: spaces become ▁, and what is not in the vocabulary becomes bytes."""
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=special, show_progress=False, limit_alphabet=60)
    marked = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer = trained(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True), trainer, marked, decoder=decoder)
    file = json.loads(tokenizer.to_str())
    # The bytes are ordinary tokens.
    file["added_tokens"] = [token for token in file["added_tokens"] if token["id"] < 3]
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(file))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def metaspace():
    """As T5 and ALBERT: a Unigram model over words that begin with ▁."""
    trainer = trainers.UnigramTrainer(vocab_size=400, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False)
    return trained(models.Unigram(), trainer, normalizers.NFKC(), pre_tokenizers.Metaspace(), decoders.Metaspace())


def word_piece():
    """As BERT: pieces that go on begin with ##."""
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=["[UNK]", "[CLS]"], show_progress=False)
    tokenizer = trained(models.WordPiece(unk_token="[UNK]"), trainer, normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(),
                        decoders.WordPiece())
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 1)])
    return tokenizer


def tiktoken(folder):
    """Llama 3's format: the ranks of a byte-level tokenizer, whose first 256 tokens are the bytes."""
    tokenizer = byte_level(special=())
    unicode_of = bytes_to_unicode()
    byte_of = {character: byte for byte, character in unicode_of.items()}
    words = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    ranked = [bytes(byte_of[character] for character in word) for word, _ in words]
    lines = [f"{base64.b64encode(word).decode()} {rank}\n" for rank, word in enumerate(ranked)]
    (folder / "tokenizer.model").write_text("".join(lines))
    return len(ranked) + 256


def bytes_to_unicode():
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}


KINDS = {"byte level": byte_level, "gpt2": gpt2, "byte fallback": byte_fallback, "metaspace": metaspace, "word piece": word_piece}


# --- models ---------------------------------------------------------------------------------------------------------


def make(folder, kind, model_type="llama", seed=0, hidden=48):
    """Writes a random model with a tokenizer of this kind. Returns how many tokens it knows."""
    folder = Path(folder)
    if kind == "tiktoken":
        vocab = tiktoken(folder)
    else:
        tokenizer = KINDS[kind]()
        tokenizer.save(str(folder / "tokenizer.json"))
        vocab = tokenizer.get_vocab_size()
    config = transformers.AutoConfig.for_model(
        model_type, vocab_size=vocab, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None)
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Larger than usual, so that the model says something else after each token.
            parameter.copy_(torch.randn(parameter.shape) * (1.0 if "embed" in name or parameter.dim() == 1 else 2.5 / hidden ** 0.5))
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    return vocab


def tokenizer_of(folder):
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(Path(folder) / "tokenizer.json"), clean_up_tokenization_spaces=False)


def generate(folder, text=None, tokens=None, count=64, stops=None):
    """What `transformers.generate` continues a text with, and how much more probable each token was than the next one."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    tokenizer = tokenizer_of(folder) if text is not None else None
    prompt = tokenizer(text, return_tensors="pt").input_ids if tokenizer else torch.tensor([tokens])
    out = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=count, eos_token_id=stops,
                         pad_token_id=0, return_dict_in_generate=True, output_logits=True)
    best = torch.stack(out.logits)[:, 0].topk(2).values
    ids, length = out.sequences[0].tolist(), prompt.shape[1]
    answer = {"prompt": ids[:length], "tokens": ids[length:], "margin": float((best[:, 0] - best[:, 1]).min()),
              "distinct": len(set(ids[length:]))}
    if tokenizer:
        before = tokenizer.decode(ids[:length], skip_special_tokens=True)
        whole = tokenizer.decode(ids, skip_special_tokens=True)
        # None if the continuation changes the prompt: bytes that are not UTF-8 also make the bytes before them unreadable.
        answer["text"] = whole[len(before):] if whole.startswith(before) else None
    return answer


def encode(folder, texts):
    tokenizer = tokenizer_of(folder)
    return [tokenizer(text).input_ids for text in texts]


def decode(folder, ids):
    return tokenizer_of(folder).decode(ids, skip_special_tokens=True)


def logits(folder, tokens):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        last = model(torch.tensor([tokens])).logits[0, -1].double()
    return {"logits": last.tolist(), "probabilities": torch.softmax(last, 0).tolist()}


def run(archive, inputs, outputs):
    """The TorchScript archive with the arrays of an .npz file, as Carton's runner calls it."""
    module = torch.jit.load(archive)
    with torch.no_grad():
        found = module({name: torch.from_numpy(array) for name, array in numpy.load(inputs).items()})
    numpy.savez(outputs, **{name: tensor.numpy() for name, tensor in found.items()})
    return sorted(found)


# --- tensors --------------------------------------------------------------------------------------------------------


def make_dtypes(path, folder):
    """A checkpoint with each dtype and some views, and each tensor as numpy has it, in folder/NUMBER.npy."""
    torch.manual_seed(1)
    numbers = torch.randn(3, 5, dtype=torch.float64) * 7
    names = ("float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex128 complex64 float8_e4m3fn float8_e5m2 "
             "float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu uint16 uint32 uint64 complex32")
    state = {name: numbers.abs().to(getattr(torch, name)) if name.startswith(("uint", "float8_e8")) else numbers.to(getattr(torch, name))
             for name in names.split()}
    state |= {"scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3), "transposed": numbers.t(), "every second": numbers[:, ::2],
              "expanded": torch.tensor([1.5]).expand(4, 3), "special": torch.tensor([float("nan"), float("inf"), -0.0]).bfloat16()}
    torch.save(state, path)
    for number, tensor in enumerate(state.values()):
        wide = {torch.bfloat16: torch.float32, torch.complex32: torch.complex64}.get(tensor.dtype)
        if str(tensor.dtype).startswith("torch.float8"):
            wide = torch.float32
        numpy.save(Path(folder) / f"{number}.npy", (tensor.to(wide) if wide else tensor).contiguous().numpy())
    return list(state)


serve({f.__name__: f for f in (make, generate, encode, decode, logits, run, make_dtypes)})
