"""`serve` and `chat` with further programs: OpenAI's client for JavaScript, Hugging Face's Jinja, lm-eval, and Triton's generate with curl."""

import hashlib
import json
import os
import shutil
import subprocess

import chat_cases
import environments
import pytest
from conftest import worker_fixture
from program import BINARY
from served import Server
from test_chat_templates import TOKENS, rendered
from test_openai import PERSON, TEMPLATE, wanted
from worker_client import Worker

reference = worker_fixture("NEWEST", "run_worker.py")
lm_eval = worker_fixture("LM_EVAL", "lm_eval_worker.py")

PACKAGES = ["openai@6.49.0", "@huggingface/jinja@0.5.11"]
CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "max_tokens": 24}


@pytest.fixture(scope="module")
def node():
    """A worker with the packages of npm, which are outside of the tree as the environments are."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("node and npm are not installed")
    folder = environments.root() / f"node-{hashlib.sha256(repr(PACKAGES).encode()).hexdigest()[:10]}"
    if not (folder / "stamp").exists():
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", *PACKAGES], cwd=folder, capture_output=True, text=True, timeout=300)
        if done.returncode:
            pytest.skip(f"npm could not install {' and '.join(PACKAGES)}: {done.stderr[-300:]}")
        (folder / "stamp").touch()
    worker = Worker("node", "node_worker.js", os.environ | {"T2C_NODE_PACKAGES": str(folder)})
    worker.command.remove("-B")
    yield worker
    worker.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, reference):
    folder = tmp_path_factory.mktemp("model")
    reference.ask("make", folder=str(folder), kind="byte level")
    calls = "{% for c in message.tool_calls or [] %}<tool_call>\n{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}\n</tool_call>{% endfor %}"
    (folder / "chat_template.jinja").write_text(TEMPLATE.replace("\n{% endfor %}", calls + "\n{% endfor %}"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return folder


@pytest.fixture(scope="module")
def server(folder):
    with Server(BINARY, "serve", "--quiet", "--port", "0", "--name", "m", folder) as server:
        yield server


def test_openai_for_javascript(server, node):
    """Whole answers are what the client makes of the stream."""
    assert node.ask("models", url=server.url) == ["m"]
    body = {"model": "m", "prompt": ["a", "b"], "temperature": 0, "max_tokens": 12, "logprobs": 2, "echo": True}
    whole = node.ask("completion", url=server.url, body=body)
    chunks = node.ask("completion_stream", url=server.url, body=body)
    for choice in whole["choices"]:
        parts = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == choice["index"]]
        assert "".join(part["text"] for part in parts) == choice["text"]
    for members in [{}, {"logprobs": True, "top_logprobs": 2, "n": 2, "temperature": 1, "seed": 4}, wanted(PERSON) | {"max_tokens": 300}]:
        whole = node.ask("chat", url=server.url, body=CHAT | members)
        stream = node.ask("chat_stream", url=server.url, body=CHAT | members)
        for one, other in zip(whole["choices"], stream["choices"], strict=True):
            assert one["message"]["content"] == other["message"]["content"] and one["finish_reason"] == other["finish_reason"]
            assert one["logprobs"] == other["logprobs"] or not members.get("logprobs")
    tool = {"type": "function", "function": {"name": "save", "parameters": PERSON}}
    asked = CHAT | {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 300}
    whole, stream = (node.ask(name, url=server.url, body=asked)["choices"][0] for name in ("chat", "chat_stream"))
    assert whole["finish_reason"] == stream["finish_reason"] == "tool_calls"
    [one], [other] = whole["message"]["tool_calls"], stream["message"]["tool_calls"]
    assert one["function"]["arguments"] == other["function"]["arguments"] and one["function"]["name"] == other["function"]["name"] == "save"
    body = {"model": "m", "input": "Hello", "temperature": 0, "max_output_tokens": 24}
    whole, stream = (node.ask(name, url=server.url, body=body) for name in ("response", "response_stream"))
    assert whole["output_text"] == stream["output_text"] == node.ask("chat", url=server.url, body=CHAT)["choices"][0]["message"]["content"]
    error = node.ask("refused", url=server.url, body=CHAT | {"model": "x"})
    assert error == {"class": "NotFoundError", "status": 404, "param": "model", "code": "model_not_found"}
    assert node.ask("refused", url=server.url, body=CHAT | {"temperature": 9})["class"] == "BadRequestError"


# Conversations that @huggingface/jinja renders otherwise than transformers and we do, and families of which it renders none.
# Its `lstrip` has no characters to strip.
DIFFERENT = {"qwen3": ["answered"], "smollm3": ["answered"]}
REFUSED = {"yi"}
CONVERSATIONS = ["one", "system", "answered", "turns", "empty", "tools", "tools without system", "no thinking"]


@pytest.mark.parametrize("family", chat_cases.FAMILIES)
def test_templates_as_hugging_faces_jinja(family, node, tmp_path):
    """Where both render: it knows less of Python than transformers, with which test_chat_templates.py compares everything."""
    compared, different = 0, []
    for name in CONVERSATIONS:
        # JavaScript writes this number otherwise.
        conversation = json.loads(json.dumps(chat_cases.CONVERSATIONS[name]).replace("1e-07", "0.5"))
        tokens = {key: text for key, text in TOKENS.items() if isinstance(text, str)}
        variables = {"tools": None, "documents": None, "add_generation_prompt": True, **tokens, **conversation, **conversation.get("chat_template_kwargs", {})}
        text = node.ask("render", template=chat_cases.FAMILIES[family], variables=variables)
        found = rendered(tmp_path, chat_cases.FAMILIES[family], conversation)
        if text is not None and found.returncode == 0:
            compared += 1
            if found.stdout.decode() != text:
                different.append(name)
    assert (different, compared == 0) == (DIFFERENT.get(family, []), family in REFUSED)


def test_log_probabilities_as_lm_eval_reads_them(folder, server, lm_eval):
    rows = [{"question": f"Question {number}: what is it?", "choices": [" yes", " no, never", "!"], "answer": number % 3} for number in range(6)]
    wanted = lm_eval.ask("expected", folder=str(folder), rows=rows)
    for batch in [1, 4]:
        found = lm_eval.ask("evaluate", url=server.url, folder=str(folder), rows=rows, batch=batch)
        for one, other in zip(found, wanted, strict=True):
            for (score, is_greedy), (exact, is_best) in zip(one, other, strict=True):
                assert abs(score - exact) < 1e-3 and is_greedy == is_best, (found, wanted)


@pytest.mark.parametrize("route", ["generate", "generate_stream"])
def test_tritons_generate_with_curl(server, route):
    body = {"text_input": "Once", "parameters": {"temperature": 0, "max_tokens": 12}}
    out = subprocess.run(["curl", "--silent", "--fail", "-d", json.dumps(body), f"http://{server.url}/v2/models/m/{route}"], capture_output=True, check=True).stdout.decode()
    parts = [out] if route == "generate" else [event.removeprefix("data: ") for event in out.split("\n\n")[:-1]]
    whole = server.request("POST", "/v1/completions", json.dumps({"model": "m", "prompt": "Once", "temperature": 0, "max_tokens": 12})).json()
    assert "".join(json.loads(part)["text_output"] for part in parts) == whole["choices"][0]["text"]
