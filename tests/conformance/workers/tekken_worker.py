"""Mistral's own library: makes a small tekken.json, and encodes with it."""

import base64
import json
from collections import Counter
from pathlib import Path

from line_server import serve
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

TEXT = "Once upon a time there was. It's what they've said 12345; größer Männchen 从前有座山 Жила-была девочка 🤗🎉 def f(x):\n\n    return  x  "
PATTERN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
           r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
           r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = 30


def ranks():
    """The bytes, and the pairs that are most frequent."""
    found = [bytes([byte]) for byte in range(256)]
    words = [[bytes([byte]) for byte in f" {word}".encode()] for word in TEXT.split(" ")]
    while pairs := Counter(pair for word in words for pair in zip(word, word[1:])):
        (left, right), _ = pairs.most_common(1)[0]
        if left + right not in found:
            found.append(left + right)
        for word in words:
            at = 0
            while at < len(word) - 1:
                if word[at:at + 2] == [left, right]:
                    word[at:at + 2] = [left + right]
                at += 1
    return found


def make(path, names):
    """Writes a file whose last six ranks are not used. Without names, the library gives the special tokens those of the first files."""
    words = ranks()
    rows = [{"rank": rank, "token_bytes": base64.b64encode(word).decode(), "token_str": None} for rank, word in enumerate(words)]
    config = {"pattern": PATTERN, "num_vocab_tokens": len(rows), "default_vocab_size": len(rows) + SPECIAL - 6,
              "default_num_special_tokens": SPECIAL, "version": "v3"}
    file = {"config": config, "vocab": rows}
    if names:
        file["special_tokens"] = [{"rank": rank, "token_str": name, "is_control": True} for rank, name in enumerate(names)]
    Path(path).write_text(json.dumps(file))


def encode(path, texts):
    tokenizer = Tekkenizer.from_file(path)
    return [tokenizer.encode(text, bos=True, eos=False) for text in texts]


serve({f.__name__: f for f in (make, encode)})
