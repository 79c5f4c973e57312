"""`chat --print-prompt`: the texts that transformers' `apply_chat_template` renders, and templates that never end."""

import json
import resource
import subprocess
import time

import chat_cases
import pytest
from conftest import worker_fixture
from program import BINARY, CLEAN

reference = worker_fixture("NEWEST", "chat_worker.py")
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "extra_special_tokens": {"image_token": "<image>"}}
# What Python refuses and we render, or which prints an address: no template of a model has them.
EXPRESSIONS = [text for text in chat_cases.EXPRESSIONS if text not in chat_cases.DIFFERENT]


def rendered(folder, template, conversation, limit=None):
    (folder / "chat_template.jinja").write_text(template, newline="")
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENS))
    return subprocess.run([BINARY, "chat", str(folder), "--print-prompt"], input=json.dumps(conversation).encode(), capture_output=True,
                          env=CLEAN, timeout=60, preexec_fn=limit)


def compare(folder, reference, template, conversation):
    wanted = reference.ask("render", template=template, tokens=TOKENS, conversation=conversation)
    found = rendered(folder, template, conversation)
    if wanted["text"] is None:
        assert found.returncode == 1 and found.stdout == b"" and b"line " in found.stderr, (template, wanted, found)
    else:
        assert found.stdout.decode() == wanted["text"], (template, found.stderr)


@pytest.mark.parametrize("family", chat_cases.FAMILIES)
def test_families_are_rendered_as_transformers_does(family, tmp_path, reference):
    for name, conversation in chat_cases.CONVERSATIONS.items():
        if name != "parts" or family in chat_cases.TAKES_PARTS:
            compare(tmp_path, reference, chat_cases.FAMILIES[family], conversation)


@pytest.mark.parametrize("name", chat_cases.VALUES)
def test_expressions_are_those_of_python(name, tmp_path, reference):
    """All in one template, each on a line, where Python renders them."""
    conversation = {**chat_cases.CONVERSATIONS["answered"], "chat_template_kwargs": {"x": chat_cases.VALUES[name]}}
    templates = ["{{ " + text + " }}" for text in EXPRESSIONS] + chat_cases.STATEMENTS
    good = [text for text in templates if reference.ask("render", template=text, tokens=TOKENS, conversation=conversation)["text"] is not None]
    good = [text for text in good if text not in chat_cases.DIFFERENT]
    assert len(good) > 100
    for at in range(0, len(good), 20):
        compare(tmp_path, reference, "".join(f"\n[{text}]" for text in good[at : at + 20]), conversation)


NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@pytest.mark.parametrize("name", ["LlamaTokenizer", "CodeLlamaTokenizer", "GPT2Tokenizer", "GPTNeoXTokenizer", "Qwen2Tokenizer", "Qwen3_5Tokenizer", "GemmaTokenizer",
                                  "CohereTokenizer", "T5Tokenizer", "XGLMTokenizer", "TokenizersBackend"])
@pytest.mark.parametrize("ending", ["", "Fast"])
def test_special_tokens_of_a_class(name, ending, tmp_path, reference):
    """Old folders name a class, and none of the tokens that it has."""
    wanted = reference.ask("class_tokens", name=name)
    (tmp_path / "chat_template.jinja").write_text("|".join("{{ " + token + " }}" for token in NAMED))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name + ending}))
    found = subprocess.run([BINARY, "chat", str(tmp_path), "--print-prompt"], input=b'[{"role": "user", "content": ""}]', capture_output=True, env=CLEAN, timeout=60)
    assert found.stdout.decode() == "|".join(wanted.get(token, "") for token in NAMED)


@pytest.mark.parametrize("name", chat_cases.HOSTILE)
def test_hostile_templates_end_soon_in_little_memory(name, tmp_path):
    start = time.monotonic()
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))  # noqa: E731
    found = rendered(tmp_path, chat_cases.HOSTILE[name], chat_cases.CONVERSATIONS["one"], limit)
    assert found.returncode in (0, 1), found
    assert time.monotonic() - start < 20
