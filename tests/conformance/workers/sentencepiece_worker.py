"""Google's library of SentencePiece: trains models, and encodes and decodes with them."""

import io
from pathlib import Path

import sentencepiece
from line_server import serve

CORPUS = [
    "Once upon a time there was a little girl who lived in a village near the forest.",
    "It's what they've said: we'll see, I'm sure; you'd know. THEY'LL COME!",
    "Ein Männchen steht im Walde, ganz still und stumm; größer als ein Löwe.",
    "Жила-была девочка, и звали её Машенька. Она любила гулять в лесу.",
    "从前有座山,山里有座庙,庙里有个老和尚在讲故事。",
    "むかしむかし、あるところにおじいさんとおばあさんがいました。",
    "كان يا ما كان في قديم الزمان ملك عادل يحبه الناس.",
    "🤗🎉 1234567 3.14159 == != <= if x: return y # ½ ² ﬁ Ⅷ",
] * 20


def train(path, settings):
    """Writes a model, and returns the number of its pieces."""
    model = io.BytesIO()
    defaults = {"vocab_size": 500, "character_coverage": 0.98, "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=model, **defaults | settings)
    Path(path).write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()).vocab_size()


def encode(path, texts):
    processor = sentencepiece.SentencePieceProcessor(model_file=path)
    return [processor.encode(text) for text in texts]


def decode(path, ids):
    processor = sentencepiece.SentencePieceProcessor(model_file=path)
    return [processor.decode(row) for row in ids]


def transformers_ids(folder, texts):
    """Encodes texts with the tokenizer that transformers finds in a folder."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return [tokenizer(text)["input_ids"] for text in texts]


serve({f.__name__: f for f in (train, encode, decode, transformers_ids)})
