"""tekken.json: tokens are those of Mistral's own library."""

import pytest
from conftest import worker_fixture
from test_run import TEXTS, generated
from test_sentencepiece import random_texts

reference = worker_fixture("NEWEST", "run_worker.py")
mistral = worker_fixture("MISTRAL", "tekken_worker.py")


@pytest.mark.parametrize("names", [["<unk>", "<s>", "</s>", "[INST]", "[/INST]"], None])
def test_texts_are_divided_as_the_library_divides_them(names, reference, mistral, tmp_path):
    reference.ask("make", folder=str(tmp_path), kind="byte level", model_type="llama", seed=1)
    (tmp_path / "tokenizer.json").unlink()
    path = str(tmp_path / "tekken.json")
    mistral.ask("make", path=path, names=names)
    texts = [text for text in [*TEXTS, "[INST] hi [/INST]</s>", *random_texts(20)] if text]
    for text, wanted in zip(texts, mistral.ask("encode", path=path, texts=texts)):
        assert generated(tmp_path / "model.safetensors", "--max-tokens", 0, "--", text)["prompt_tokens"] == wanted, text
