"""Meta's own tokenizer of Llama 3, over OpenAI's tiktoken."""

from pathlib import Path

from line_server import serve
from llama_models.llama3.tokenizer import Tokenizer


def encode(path, texts):
    """The tokens of each text after <|begin_of_text|>; special tokens in a text are recognised."""
    tokenizer = Tokenizer(Path(path))
    return [tokenizer.encode(text, bos=True, eos=False, allowed_special="all") if text else [tokenizer.bos_id] for text in texts]


def decode(path, tokens):
    """Without special tokens."""
    tokenizer = Tokenizer(Path(path))
    return tokenizer.decode([token for token in tokens if token < tokenizer.n_words - tokenizer.num_reserved_special_tokens])


def stops(path):
    return Tokenizer(Path(path)).stop_tokens


serve({f.__name__: f for f in (encode, decode, stops)})
