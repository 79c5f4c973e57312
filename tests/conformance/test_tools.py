"""Calls of tools with OpenAI's own client: a grammar makes a random model write them in the syntax of each family's template."""

import json
import shutil

import chat_cases
import pytest
from conftest import worker_fixture
from program import BINARY
from served import Server

reference = worker_fixture("NEWEST", "run_worker.py")
client = worker_fixture("OPENAI", "openai_worker.py")

MISTRAL_NAMED = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]{% elif m.tool_calls %}{% for c in m.tool_calls %}"
    "{% if c.id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif %}"
    "[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}{% endfor %}</s>{% else %}{{ m.content }}</s>{% endif %}{% endfor %}")
# As DeepSeek V3.1 writes calls: in a section, with the arguments added to a text.
DEEPSEEK = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}<｜User｜>{{ m.content }}{% elif m.role == 'assistant' %}<｜Assistant｜>"
    "{% if m.tool_calls %}<｜tool▁calls▁begin｜>{% for c in m.tool_calls %}{{ '<｜tool▁call▁begin｜>' + c.function.name + '<｜tool▁sep｜>' + c.function.arguments "
    "+ '<｜tool▁call▁end｜>' }}{% endfor %}<｜tool▁calls▁end｜>{% else %}{{ m.content }}{% endif %}<｜end▁of▁sentence｜>{% else %}<｜tool▁output▁begin｜>"
    "{{ m.content }}<｜tool▁output▁end｜>{% endif %}{% endfor %}{% if add_generation_prompt %}<｜Assistant｜>{% endif %}")
# As Qwen 3 Coder writes calls: an element for each argument, whose value is on lines of its own.
QWEN_CODER = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ '\n<tool_call>\n<function=' + c.function.name + '>\n' }}"
    "{% for key, value in c.function.arguments | items %}{{ '<parameter=' + key + '>\n' + (value if value is string else value | tojson) + '\n</parameter>\n' }}{% endfor %}"
    "{{ '</function>\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
# As Gemma 4 writes calls: keys without quotes, and texts in quotes of its own.
GEMMA4 = (
    "{%- macro write(v) %}{% if v is string %}<|\"|>{{ v }}<|\"|>{% elif v is mapping %}{{ '{' }}{% for k, w in v | dictsort %}{{ ',' if not loop.first }}{{ k }}:{{ write(w) }}{% endfor %}{{ '}' }}"
    "{% elif v is sequence %}[{% for w in v %}{{ ',' if not loop.first }}{{ write(w) }}{% endfor %}]{% else %}{{ v | tojson }}{% endif %}{% endmacro -%}"
    "{{ bos_token }}{% for m in messages %}{{ '<|turn>' + m.role + '\n' }}{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ '<|tool_call>call:' + c.function.name + '{' }}"
    "{% for key, value in c.function.arguments | dictsort %}{% if not loop.first %},{% endif %}{{ key }}:{{ write(value) }}"
    "{% endfor %}{{ '}<tool_call|>' }}{% endfor %}{{ '<turn|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|turn>model\n' }}{% endif %}")
# As Apertus writes calls: a list of objects whose keys are the names.
APERTUS = (
    "{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>' }}{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ '<|tools_prefix|>[' if loop.first else ', ' }}"
    "{{ '{\"' + c.function.name + '\": ' + c.function.arguments | tojson + '}' }}{{ ']<|tools_suffix|>' if loop.last }}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}")
# As LFM2.5 writes calls: a list in Python's language.
LFM2 = (
    "{%- macro write(v) %}{% if v is string %}{{ \"'\" + v + \"'\" }}{% else %}{{ v | string }}{% endif %}{% endmacro -%}"
    "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}{{ '<|tool_call_start|>[' if loop.first else ', ' }}{{ c.function.name + '(' }}{% for key, value in c.function.arguments | items %}"
    "{{ ', ' if not loop.first }}{{ key + '=' + write(value) }}{% endfor %}{{ ')' }}{{ ']<|tool_call_end|>' if loop.last }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
# As Solar writes calls: an id before each name.
SOLAR = (
    "{% for m in messages %}{{ '<|begin|>' + m.role }}{% if m.tool_calls %}<|tool_calls|>{% for c in m.tool_calls %}"
    "{{ '<|tool_call:begin|>' + c.id + '<|tool_call:name|>' + c.function.name + '<|tool_call:args|>' + c.function.arguments | tojson + '<|tool_call:end|>' }}{% endfor %}<|calls|>"
    "{% else %}{{ '<|content|>' + m.content + '<|end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|begin|>assistant{% endif %}")
# As DeepSeek V3.2 writes calls: elements with an attribute for texts.
DEEPSEEK32 = (
    "{% for m in messages %}{{ '<｜User｜>' if m.role == 'user' else '<｜Assistant｜>' }}{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ '\n\n<｜DSML｜function_calls>\n' if loop.first }}"
    "{{ '<｜DSML｜invoke name=\"' + c.function.name + '\">\n' }}{% for key, value in c.function.arguments | items %}{{ '<｜DSML｜parameter name=\"' + key + '\" string=\"' }}"
    "{{ ('true\">' + value if value is string else 'false\">' + value | tojson) + '</｜DSML｜parameter>\n' }}{% endfor %}{{ '</｜DSML｜invoke>\n' }}"
    "{{ '</｜DSML｜function_calls>' if loop.last }}{% endfor %}{% endfor %}{% if add_generation_prompt %}<｜Assistant｜>{% endif %}")
TEMPLATES = {
    "hermes": chat_cases.HERMES, "qwen 2.5": chat_cases.QWEN_TOOLS, "llama 3.1": chat_cases.LLAMA31, "mistral": chat_cases.MISTRAL, "mistral, named": MISTRAL_NAMED,
    "deepseek": DEEPSEEK, "kimi": chat_cases.KIMI, "gpt-oss": chat_cases.GPT_OSS, "glm": chat_cases.GLM,
    "qwen 3 coder": QWEN_CODER, "gemma 4": GEMMA4, "apertus": APERTUS,
    "lfm2": LFM2, "solar": SOLAR, "deepseek 3.2": DEEPSEEK32,
}
# A random model would never end its analysis or its thought, so none begins.
BIAS = {}
# Marks that are special tokens of the tokenizer, by the tokens whose places they take.
SPECIAL = {"<|begin|>": "[TOOL_CALLS]", "<|end|>": "[ARGS]"}
PARAMETERS = {
    "type": "object", "additionalProperties": False, "required": ["place", "days"],
    "properties": {"place": {"$ref": "#/$defs/place"}, "days": {"type": "integer", "minimum": 1, "maximum": 14}},
    "$defs": {"place": {"enum": ["Oslo", "北京", "say \"hi\""]}},
}
TOOLS = [{"type": "function", "function": {"name": name, "description": name, "parameters": PARAMETERS}} for name in ("weather", "news")]
MESSAGES = [{"role": "user", "content": "What now?"}]
ROUNDS = 2


@pytest.fixture(scope="module")
def model(tmp_path_factory, reference):
    folder = tmp_path_factory.mktemp("model")
    reference.ask("make", folder=str(folder), kind="byte level")
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    return folder


@pytest.fixture(scope="module", params=TEMPLATES)
def server(request, model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("family")
    for file in model.iterdir():
        shutil.copy(file, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATES[request.param])
    if "mistral" in request.param:
        text = (folder / "tokenizer.json").read_text()
        for old, new in SPECIAL.items():
            text = text.replace(old, new)
        (folder / "tokenizer.json").write_text(text)
    BIAS.clear()
    if request.param == "gpt-oss":
        vocab = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
        BIAS.update({str(number): -100 for token, number in vocab.items() if token.startswith("a")})
    if request.param == "glm":
        text = (folder / "tokenizer.json").read_text().replace("<|begin|>", "<think>")
        (folder / "tokenizer.json").write_text(text)
        BIAS.update({str(token["id"]): -100 for token in json.loads(text)["added_tokens"] if token["content"] == "<think>"})
    with Server(BINARY, "serve", "--quiet", "--port", "0", "--name", "m", folder) as server:
        yield server


def body(**members):
    return {"model": "m", "messages": MESSAGES, "tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 300, "logit_bias": BIAS,
            **members}


def check(function, names=("weather", "news")):
    assert function["name"] in names
    arguments = json.loads(function["arguments"])
    assert arguments["place"] in PARAMETERS["$defs"]["place"]["enum"] and 1 <= arguments["days"] <= 14 and len(arguments) == 2


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_required_calls(server, client, seed):
    """Whole and as a stream, with their ids going back to the template."""
    asked = body(temperature=1, seed=seed, n=2)
    answer = client.ask("chat", url=server.url, body=asked)
    for choice in answer["choices"]:
        assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None, choice
        [call] = choice["message"]["tool_calls"]
        check(call["function"])
        # The templates of Kimi need the ids that the model writes.
        assert not call["id"].startswith("functions.") or call["id"] == f"functions.{call['function']['name']}:{call['id'].split(':')[1]}"
    chunks = client.ask("chat_stream", url=server.url, body=asked)
    for index, choice in enumerate(answer["choices"]):
        streamed = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index]
        [call] = [call for part in streamed for call in part["delta"]["tool_calls"] or []]
        assert call["function"] == choice["message"]["tool_calls"][0]["function"] and call["index"] == 0
        assert not "".join(part["delta"]["content"] or "" for part in streamed) and streamed[-1]["finish_reason"] == "tool_calls"
    message = answer["choices"][0]["message"]
    told = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "\"rain\""}
    later = client.ask("chat", url=server.url, body=body(messages=[*MESSAGES, message, told], tool_choice="auto", max_tokens=3))
    assert later["usage"]["prompt_tokens"] > answer["usage"]["prompt_tokens"]


def test_a_named_call(server, client):
    choice = {"type": "function", "function": {"name": "news"}}
    answer = client.ask("chat", url=server.url, body=body(tool_choice=choice, temperature=0))
    [call] = answer["choices"][0]["message"]["tool_calls"]
    check(call["function"], ["news"])
    error = client.ask("refused", url=server.url, route="chat", body=body(tool_choice={"type": "function", "function": {"name": "x"}}))
    assert (error["class"], error["param"]) == ("BadRequestError", "tool_choice")


NESTED = {
    "type": "object", "additionalProperties": False, "required": ["stops", "by"],
    "properties": {
        "stops": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"enum": ["Oslo", "北京", "it's"]}},
        "by": {"type": "object", "additionalProperties": False, "required": ["fast"], "properties": {"fast": {"type": "boolean"}, "rest": {"$ref": "#/$defs/rest"}}},
    },
    "$defs": {"rest": {"type": ["integer", "null"], "minimum": 0, "maximum": 9}},
}


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_lists_and_objects(server, client, seed):
    tools = [{"type": "function", "function": {"name": "travel", "description": "d", "parameters": NESTED}}]
    answer = client.ask("chat", url=server.url, body=body(tools=tools, temperature=1, seed=seed))
    [call] = answer["choices"][0]["message"]["tool_calls"]
    arguments = json.loads(call["function"]["arguments"])
    assert call["function"]["name"] == "travel" and arguments.keys() == {"stops", "by"}
    assert 1 <= len(arguments["stops"]) <= 3 and set(arguments["stops"]) <= {"Oslo", "北京", "it's"}
    assert isinstance(arguments["by"]["fast"], bool) and arguments["by"].get("rest", None) in (None, *range(10))
    message = answer["choices"][0]["message"]
    told = {"role": "tool", "tool_call_id": call["id"], "content": "\"now\""}
    later = client.ask("chat", url=server.url, body=body(messages=[*MESSAGES, message, told], tools=tools, tool_choice="auto", max_tokens=3))
    assert later["usage"]["prompt_tokens"] > answer["usage"]["prompt_tokens"]


def test_an_answer_without_a_call_is_a_text(server, client):
    """And what a random model writes is none, with the tools in the prompt or not."""
    for choice in ["auto", "none"]:
        answer = client.ask("chat", url=server.url, body=body(tool_choice=choice, temperature=0, max_tokens=24))
        [found] = answer["choices"]
        assert found["message"]["tool_calls"] is None and found["message"]["content"] and found["finish_reason"] == "length"
        chunks = client.ask("chat_stream", url=server.url, body=body(tool_choice=choice, temperature=0, max_tokens=24))
        assert "".join(chunk["choices"][0]["delta"]["content"] or "" for chunk in chunks) == found["message"]["content"]


def test_responses_have_calls_as_items(server, client):
    tools = [{"type": "function", "name": "weather", "description": "d", "parameters": PARAMETERS, "strict": True}]
    asked = {"model": "m", "input": "What now?", "tools": tools, "tool_choice": "required", "parallel_tool_calls": False, "temperature": 0, "max_output_tokens": 300,
             "extra_body": {"logit_bias": BIAS}}
    answer = client.ask("response", url=server.url, body=asked)
    [call] = answer["output"]
    assert call["type"] == "function_call" and call["status"] == "completed"
    check(call)
    stream = client.ask("response_stream", url=server.url, body=asked)
    assert stream["text"] == "" and "response.function_call_arguments.done" in stream["kinds"] and stream["kinds"][-1] == "response.completed"
    told = {"type": "function_call_output", "call_id": call["call_id"], "output": "\"rain\""}
    sent = {key: call[key] for key in ("type", "call_id", "name", "arguments")}
    later = client.ask("response", url=server.url, body=asked | {"input": [{"role": "user", "content": "What now?"}, sent, told], "tool_choice": "auto", "max_output_tokens": 3})
    assert later["usage"]["input_tokens"] > answer["usage"]["input_tokens"]


def test_calls_that_a_template_does_not_show_cannot_be_required(model, client, tmp_path):
    for file in model.iterdir():
        shutil.copy(file, tmp_path)
    (tmp_path / "chat_template.jinja").write_text(chat_cases.YI)
    with Server(BINARY, "serve", "--quiet", "--port", "0", "--name", "m", tmp_path) as server:
        assert client.ask("chat", url=server.url, body=body(tool_choice="auto", max_tokens=3))["choices"][0]["message"]["content"] is not None
        error = client.ask("refused", url=server.url, route="chat", body=body())
        assert (error["class"], error["param"]) == ("BadRequestError", "tool_choice") and "does not show" in error["message"]
