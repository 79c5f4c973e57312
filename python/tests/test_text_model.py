"""`TextModel`: tokens, texts and conversations of the README's small model with a small tokenizer."""

import json
import struct

import pytest
import torch2carton

TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}{% if shout %}!{% endif %}"


def sentencepiece_model(pieces):
    model = b""
    for text, score, kind in pieces:
        text = text.encode()
        piece = bytes([10, len(text)]) + text + b"\x15" + struct.pack("<f", score) + bytes([24, kind])
        model += bytes([10, len(piece)]) + piece
    return model + bytes([18, 2, 24, 2])


@pytest.fixture
def model(llama, tmp_path):
    """A folder with the small model, a SentencePiece model of a few letters and a chat template."""
    folder = tmp_path / "model"
    torch2carton.convert(llama, f"{folder}/", to="safetensors", names="hf")
    letters = [(letter, -10.0 - number, 1) for number, letter in enumerate("abcdefghij▁")]
    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), ("▁a", -1.0, 1), ("bc", -2.0, 1), *letters]
    (folder / "tokenizer.model").write_bytes(sentencepiece_model(pieces))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


def test_texts_and_conversations(model):
    words = torch2carton.TextModel(model)
    assert "model" in repr(words)
    assert words.encode("abc a") == [1, 3, 4, 3]
    assert words.decode([1, 3, 4, 3]) == "abc a"
    messages = [{"role": "user", "content": "abc"}]
    assert words.render(messages) == "abc" and words.render(messages, shout=True) == "abc!"
    seen = []
    answer = words.generate("abc", max_tokens=8, on_text=seen.append)
    assert answer.prompt_tokens == (1, 3, 4) and len(answer.tokens) <= 8 and "".join(seen) == answer.text
    assert answer == words.generate("abc", max_tokens=8)
    chat = words.chat(messages, max_tokens=8, temperature=1, seed=3)
    assert chat.prompt_tokens == (3, 4) and chat == words.chat(messages, max_tokens=8, temperature=1, seed=3)
    whole = words.generate("abc", max_tokens=40)
    if len(whole.text) > 4:
        stop = whole.text[2:4]
        stopped = words.generate("abc", max_tokens=40, stop=stop)
        assert stopped.text == whole.text[: whole.text.index(stop)] and stopped.ended == "stop"


def test_what_is_wrong_is_an_exception(model):
    words = torch2carton.TextModel(model)

    def fail(text):
        raise KeyError(text)

    with pytest.raises(KeyError):
        words.generate("abc", max_tokens=40, on_text=fail)
    with pytest.raises(torch2carton.Error, match="no messages"):
        words.chat([])
    with pytest.raises(ValueError):
        words.chat([3])
    with pytest.raises(torch2carton.Error):
        words.generate("abc", temperature=-1.0)
    (model / "chat_template.jinja").unlink()
    with pytest.raises(torch2carton.Error, match="no chat template"):
        torch2carton.TextModel(model).chat([{"role": "user", "content": "a"}])
    (model / "tokenizer.model").unlink()
    with pytest.raises(torch2carton.Error, match="tokenizer"):
        torch2carton.TextModel(model)
    assert json.loads((model / "config.json").read_text())["model_type"] == "llama"
