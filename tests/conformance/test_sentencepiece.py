"""SentencePiece models: tokens and texts are those of Google's library, in each algorithm and with each setting."""

import random
import shutil

import pytest
from conftest import worker_fixture
from program import succeed
from test_run import TEXTS, generated

reference = worker_fixture("NEWEST", "run_worker.py")
pieces = worker_fixture("CONVERTER", "sentencepiece_worker.py")

LLAMA = {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False}
SETTINGS = {
    "LLaMA": LLAMA,
    "Gemma": LLAMA | {"add_dummy_prefix": False, "user_defined_symbols": ["<mask>", "\n\n", "▁▁▁", "the "]},
    "Unigram": {"model_type": "unigram"},
    "Unigram, byte fallback": {"model_type": "unigram", "byte_fallback": True, "user_defined_symbols": ["girl", "<x>"]},
    "Unigram, identity": {"model_type": "unigram", "normalization_rule_name": "identity", "remove_extra_whitespaces": False},
    "BPE, folded": {"model_type": "bpe", "normalization_rule_name": "nmt_nfkc_cf"},
    "BPE, suffix": {"model_type": "bpe", "treat_whitespace_as_suffix": True},
    "BPE, digits": LLAMA | {"split_digits": True, "allow_whitespace_only_pieces": True, "control_symbols": ["<turn>"]},
}
MORE = [
    "<s>a</s>", "<mask> the girl<mask>", "a\n\nb \n\n\n c", "  ", "\t", "▁x▁ y", "a  b   c ", "<turn>", "<0x41>", "ｆｕｌｌ　ｗｉｄｔｈ", "ﬁne Å Å",
    "e\u0301\u0302", "\u200bzero\u200dwidth\ufeff", "Ǆ ǅ ß ẞ", "ㄱㅏ가", "\x00\x01\x7f", "\u2581", "THE GIRL", "<x>girl<x>girlgirl",
]


def random_texts(count):
    draw = random.Random(7)
    words = [*"abcdefghij ▁\n\t.,!?'-", "the", " girl", "из", "山", "ﬁ", "½", "🤗", "é", "<s>", "  ", "\u3000", "\u00a0", "ก็", "\ufffd"]
    return ["".join(draw.choice(words) for _ in range(draw.randint(1, 60))) for _ in range(count)]


@pytest.mark.parametrize("name", SETTINGS)
def test_texts_are_divided_as_the_library_divides_them(name, reference, pieces, tmp_path):
    reference.ask("make", folder=str(tmp_path), kind="byte level", model_type="llama", seed=1)
    for document in ["tokenizer.json", "tokenizer_config.json"]:
        (tmp_path / document).unlink(missing_ok=True)
    model = str(tmp_path / "tokenizer.model")
    count = pieces.ask("train", path=model, settings=SETTINGS[name])
    assert count <= 600, "the model has as many tokens"
    carton = tmp_path / "made.carton"
    succeed(tmp_path / "model.safetensors", "-o", carton, "--quiet")
    texts = [*TEXTS, *MORE, *random_texts(40)]
    texts = [text for text in texts if "\x00" not in text]  # an argument has no zero
    for text, wanted in zip(texts, pieces.ask("encode", path=model, texts=texts)):
        answer = generated(carton, "--max-tokens", 0, "--", text)
        assert answer["prompt_tokens"] == [1, *wanted], text
    texts = [text for text in TEXTS if text]
    answers = [generated(carton, "--max-tokens", 24, "--", text) for text in texts]
    known = [[token for token in answer["tokens"] if token < count] for answer in answers]
    assert any(known)
    prompts = [answer["prompt_tokens"] for answer in answers]
    befores = pieces.ask("decode", path=model, ids=prompts)
    wholes = pieces.ask("decode", path=model, ids=[prompt + tokens for prompt, tokens in zip(prompts, known)])
    for before, whole, answer in zip(befores, wholes, answers):
        assert whole.startswith(before)
        if "\ufffd" not in whole:
            assert answer["text"] == whole[len(before):], answer


@pytest.mark.parametrize("kind", ["pieces", "tiktoken"])
def test_a_folder_made_of_metas_files_has_the_tokenizer_that_transformers_finds(kind, reference, pieces, tmp_path):
    """Meta's files have no document that says what the tokenizer adds."""
    folder, metas, made = tmp_path / "model", tmp_path / "meta", tmp_path / "made"
    reference.ask("make", folder=str(folder), kind="tiktoken" if kind == "tiktoken" else "byte level", model_type="llama", seed=1)
    succeed(folder / "model.safetensors", "--names", "meta", "--to", "pth", "-o", f"{metas}/", "--quiet")
    for document in ["tokenizer.json", "tokenizer_config.json", "config.json", "generation_config.json"]:
        (metas / document).unlink(missing_ok=True)
    if kind == "pieces":
        pieces.ask("train", path=str(metas / "tokenizer.model"), settings=LLAMA)
    else:
        shutil.copy(folder / "tokenizer.model", metas)
    succeed(metas, "--names", "hf", "-o", f"{made}/", "--quiet")
    # Where a special token or a line starts, transformers itself divides texts in another way than the library.
    texts = [text for text in TEXTS if text and "\n" not in text and not text.startswith(" ")]
    carton = tmp_path / "made.carton"
    succeed(metas, "-o", carton, "--quiet")
    wanted = [generated(carton, "--max-tokens", 0, "--", text)["prompt_tokens"] for text in texts]
    assert pieces.ask("transformers_ids", folder=str(made), texts=texts) == wanted
