"""Thoughts before answers, with OpenAI's own client: a random model ends them when a token that is made likely comes."""

import json
import shutil

import chat_cases
import pytest
from conftest import worker_fixture
from program import BINARY
from served import Server

reference = worker_fixture("NEWEST", "run_worker.py")
client = worker_fixture("OPENAI", "openai_worker.py")

TURNS = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}ANSWER{{ (m.content or '') + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}PROMPT{% endif %}"
CALLS = "{% for c in m.tool_calls or [] %}{{ '<tool_call>\n{\"name\": \"' + c.function.name + '\", \"arguments\": ' + c.function.arguments | tojson + '}\n</tool_call>' }}{% endfor %}"
WRITTEN = "{% if m.reasoning_content %}{{ START + m.reasoning_content + END }}{% endif %}" + CALLS


def template(start, end, prompt=""):
    answer = WRITTEN.replace("START", json.dumps(start)).replace("END", json.dumps(end))
    return TURNS.replace("ANSWER", answer).replace("PROMPT", prompt)


# Templates, the marks of their thoughts, and whether the prompt begins one.
FAMILIES = {
    "qwen 3": (template("<think>\n", "\n</think>\n\n"), "<think>", "</think>", False),
    "qwen 3.5": (template("<think>\n", "\n</think>\n\n", "{{ '<think>\n' }}"), "<think>", "</think>", True),
    "deepseek r1": (TURNS.replace("ANSWER", CALLS).replace("PROMPT", "{{ '<think>\n' }}"), "<think>", "</think>", True),
    "command a": (template("<|START_THINKING|>", "<|END_THINKING|>", "<|START_THINKING|>"), "<|START_THINKING|>", "<|END_THINKING|>", True),
    "gemma 4": (template("<|channel>thought\n", "\n<channel|>"), "<|channel>", "<channel|>", False),
}
SCHEMA = {"type": "object", "additionalProperties": False, "required": ["n"], "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
TOOLS = [{"type": "function", "function": {"name": "count", "description": "d", "parameters": SCHEMA}}]
MESSAGES = [{"role": "user", "content": "What now?"}]
SEEDS = range(4)


class Family:
    def __init__(self, server, marks, tokens, begins):
        self.server, self.marks, (self.start, self.end), self.begins = server, marks, tokens, begins

    def body(self, **members):
        # The marks are likely, and much less so when they were written.
        bias = {str(self.end): 5} | ({} if self.begins else {str(self.start): 9})
        return {"model": "m", "messages": MESSAGES, "temperature": 1, "max_tokens": 200, "logit_bias": bias, "presence_penalty": 2, "frequency_penalty": 2, **members}


@pytest.fixture(scope="module")
def model(tmp_path_factory, reference):
    folder = tmp_path_factory.mktemp("model")
    reference.ask("make", folder=str(folder), kind="byte level")
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    return folder


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, model, tmp_path_factory):
    text, start, end, begins = FAMILIES[request.param]
    folder = tmp_path_factory.mktemp("family")
    for file in model.iterdir():
        shutil.copy(file, folder)
    (folder / "chat_template.jinja").write_text(text)
    file = (folder / "tokenizer.json").read_text().replace("<|begin|>", start).replace("<|end|>", end)
    (folder / "tokenizer.json").write_text(file)
    ids = {token["content"]: token["id"] for token in json.loads(file)["added_tokens"]}
    with Server(BINARY, "serve", "--quiet", "--port", "0", "--name", "m", folder) as server:
        yield Family(server, (start, end), (ids[start], ids[end]), begins)


def streamed(client, family, body):
    """The thought, the text, the calls and the reason in the chunks of a stream."""
    chunks = [chunk["choices"][0] for chunk in client.ask("chat_stream", url=family.server.url, body=body)]
    part = lambda name: "".join(chunk["delta"].get(name) or "" for chunk in chunks)  # noqa: E731
    calls = [call["function"] for chunk in chunks for call in chunk["delta"]["tool_calls"] or []]
    return part("reasoning_content"), part("content"), calls, chunks[-1]["finish_reason"]


def whole(client, family, body):
    choice = client.ask("chat", url=family.server.url, body=body)["choices"][0]
    message = choice["message"]
    calls = [call["function"] for call in message["tool_calls"] or []]
    return message.get("reasoning_content") or "", message["content"] or "", calls, choice["finish_reason"]


def test_thoughts_are_not_in_the_answer(family, client):
    thoughts = 0
    for seed in SEEDS:
        body = family.body(seed=seed)
        thought, text, _, _ = whole(client, family, body)
        assert streamed(client, family, body) == whole(client, family, body)
        assert family.marks[1] not in thought and thought == thought.strip()
        thoughts += bool(thought and text)
    # A random model does not write the word after the mark of Gemma.
    assert thoughts or family.marks[0] == "<|channel>"


def test_an_answer_with_a_schema_may_have_a_thought(family, client):
    thoughts = 0
    for seed in SEEDS:
        body = family.body(seed=seed, response_format=FORMAT)
        thought, text, _, reason = whole(client, family, body)
        assert streamed(client, family, body) == (thought, text, [], reason)
        if reason == "stop":
            assert 0 <= json.loads(text)["n"] <= 99
            thoughts += bool(thought)
    assert thoughts


def test_a_required_call_may_have_a_thought(family, client):
    thoughts = 0
    for seed in SEEDS:
        body = family.body(seed=seed, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
        thought, text, calls, reason = whole(client, family, body)
        assert streamed(client, family, body) == (thought, text, calls, reason)
        if reason == "tool_calls":
            assert not text and calls[0]["name"] == "count" and 0 <= json.loads(calls[0]["arguments"])["n"] <= 99
            thoughts += bool(thought)
    assert thoughts


def test_an_answer_may_end_within_the_thought(family, client):
    body = family.body(max_tokens=9, seed=0, response_format=FORMAT, logit_bias={str(family.end): -100} | ({} if family.begins else {str(family.start): 12}))
    thought, text, calls, reason = whole(client, family, body)
    assert thought and not text and not calls and reason == "length"
    assert streamed(client, family, body) == (thought, text, calls, reason)


def test_responses_have_thoughts_as_items(family, client):
    kinds = set()
    for seed in SEEDS:
        extra = {name: family.body(seed=seed)[name] for name in ("seed", "logit_bias", "presence_penalty", "frequency_penalty")}
        asked = {"model": "m", "input": "What now?", "temperature": 1, "max_output_tokens": 60, "extra_body": extra}
        answer = client.ask("response", url=family.server.url, body=asked)
        items = [item["type"] for item in answer["output"]]
        stream = client.ask("response_stream", url=family.server.url, body=asked)
        assert stream["text"] == answer["output_text"] and ("response.reasoning_text.delta" in stream["kinds"]) == ("reasoning" in items)
        if items == ["reasoning", "message"]:
            thought, message = answer["output"]
            sent = [{"role": "user", "content": "What now?"}, {"type": "reasoning", "id": thought["id"], "summary": [], "content": thought["content"]},
                    {"role": "assistant", "content": message["content"][0]["text"]}, {"role": "user", "content": "And now?"}]
            later = client.ask("response", url=family.server.url, body=asked | {"input": sent, "max_output_tokens": 1})
            assert later["usage"]["input_tokens"] > answer["usage"]["input_tokens"]
        kinds.update(items)
    assert kinds == {"reasoning", "message"} or family.marks[0] == "<|channel>"


def test_marks_that_a_template_does_not_show_are_text(model, client, tmp_path):
    for file in model.iterdir():
        shutil.copy(file, tmp_path)
    (tmp_path / "chat_template.jinja").write_text(chat_cases.YI)
    (tmp_path / "tokenizer.json").write_text((tmp_path / "tokenizer.json").read_text().replace("<|begin|>", "<think>"))
    with Server(BINARY, "serve", "--quiet", "--port", "0", "--name", "m", tmp_path) as server:
        message = client.ask("chat", url=server.url, body={"model": "m", "messages": MESSAGES, "max_tokens": 9, "seed": 1})["choices"][0]["message"]
        assert message["content"] and "reasoning_content" not in message
