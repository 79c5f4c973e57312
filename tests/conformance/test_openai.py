"""`serve` with OpenAI's own client and curl: texts, streams, errors, and clients that go away, read slowly or do nothing."""

import contextlib
import itertools
import json
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import chat_cases
import pytest
from conftest import worker_fixture
from program import BINARY, succeed
from served import Server

reference = worker_fixture("NEWEST", "run_worker.py")
client = worker_fixture("OPENAI", "openai_worker.py")

TOKENS = 48
# Two logits that are nearer to each other than this could be swapped by rounding.
MARGIN = 1e-3
TEXTS = ["Once upon a time", "从前 🤗 größer", "Жила\n\n12345"]
TEMPLATE = "{% for message in messages %}[{{ message.role }}] {{ message.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"


class Model:
    """A random model with its tokenizer and a chat template, and what transformers generates."""

    def __init__(self, folder, reference, kind):
        self.folder, self.reference, self.kind = folder, reference, kind
        for self.seed in range(100):
            reference.ask("make", folder=str(folder), kind=kind, model_type="llama", seed=self.seed)
            texts = (reference.ask("generate", folder=str(folder), text=text, count=TOKENS) for text in TEXTS)
            self.wanted = [*itertools.takewhile(is_clear, texts)]
            if len(self.wanted) == len(TEXTS):
                break
        else:
            pytest.fail("no seed gives whole texts without close choices")
        (folder / "chat_template.jinja").write_text(TEMPLATE)
        self.carton = folder / "made.carton"
        succeed(folder / "model.safetensors", "-o", self.carton, "--quiet")


@pytest.fixture(scope="module", params=["byte level", "byte fallback"])
def model(request, tmp_path_factory, reference):
    return Model(tmp_path_factory.mktemp("model"), reference, request.param)


@pytest.fixture(scope="module")
def server(model):
    with Server(BINARY, "serve", "--quiet", "--port", "0", "--name", "m", "--max-positions", "4096", model.carton) as server:
        yield server


def greedy(prompt, **members):
    return {"model": "m", "prompt": prompt, "temperature": 0, "max_tokens": TOKENS, **members}


def is_clear(wanted):
    """True if no two tokens were almost equally probable and the text ends with a whole character; `serve` leaves out an unfinished one."""
    return wanted["margin"] >= MARGIN and wanted["text"] is not None and not wanted["text"].endswith("\ufffd")


def running(server):
    text = server.request("GET", "/metrics").body.decode()
    return int(re.search(r"^torch2carton_texts\{.*\} (\d+)$", text, re.MULTILINE)[1])


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.02)


def test_greedy_texts_are_those_of_transformers(model, server, client):
    """Alone, all at once, as ids, and as a stream."""
    for text, wanted in zip(TEXTS, model.wanted):
        [alone] = client.ask("completions", url=server.url, bodies=[greedy(text)])
        assert alone["choices"][0]["text"] == wanted["text"]
        assert alone["usage"]["prompt_tokens"] == len(wanted["prompt"])
        chunks = client.ask("completion_stream", url=server.url, body=greedy(wanted["prompt"]))
        assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == alone["choices"][0]["text"]
    bodies = [greedy(TEXTS[number % len(TEXTS)], max_tokens=TOKENS - number % 5) for number in range(32)]
    together = client.ask("completions", url=server.url, bodies=bodies)
    for number, (body, answer) in enumerate(zip(bodies, together)):
        [alone] = client.ask("completions", url=server.url, bodies=[body])
        assert answer["choices"] == alone["choices"], number


def test_chats_and_responses(server, client):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    body = {"model": "m", "messages": messages, "temperature": 0, "max_tokens": TOKENS}
    answer = client.ask("chat", url=server.url, body=body)
    text = answer["choices"][0]["message"]["content"]
    assert answer["choices"][0]["finish_reason"] == "length" and answer["usage"]["completion_tokens"] == TOKENS
    chunks = client.ask("chat_stream", url=server.url, body=body | {"stream_options": {"include_usage": True}})
    assert "".join(chunk["choices"][0]["delta"]["content"] or "" for chunk in chunks if chunk["choices"]) == text
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"] == answer["usage"] and len({chunk["id"] for chunk in chunks}) == 1
    body = {"model": "m", "instructions": "Be brief.", "input": "Hello", "temperature": 0, "max_output_tokens": TOKENS}
    response = client.ask("response", url=server.url, body=body)
    assert response["output_text"] == text and response["status"] == "incomplete"
    stream = client.ask("response_stream", url=server.url, body=body)
    assert stream["text"] == text and stream["kinds"][0] == "response.created" and stream["kinds"][-1] == "response.incomplete"
    assert stream["numbers"] == list(range(len(stream["numbers"])))


def test_errors_are_the_clients_classes(server, client):
    assert client.ask("models", url=server.url) == ["m"]
    refused = lambda route, **body: client.ask("refused", url=server.url, route=route, body=body)
    chat = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    error = refused("completions", model="x", prompt="a")
    assert (error["class"], error["code"], error["param"]) == ("NotFoundError", "model_not_found", "model")
    error = refused("completions", **greedy("a", max_tokens=100_000))
    assert (error["class"], error["code"]) == ("BadRequestError", "context_length_exceeded") and "4096" in error["message"]
    for route, body, param in [
        ("completions", greedy("a", suffix="b"), "suffix"), ("completions", greedy("a", best_of=2), "best_of"),
        ("chat", chat | {"response_format": {"type": "xml"}}, "response_format"), ("chat", chat | wanted({"type": "nonsense"}), "response_format"),
        ("chat", chat | wanted({"$ref": "#/nowhere"}), "response_format"), ("chat", chat | {"temperature": 3}, "temperature"),
        ("chat", chat | {"tool_choice": "required"}, "tool_choice"), ("responses", {"model": "m", "input": "a", "store": True}, "store"),
        ("responses", {"model": "m", "input": "a", "previous_response_id": "r"}, "previous_response_id"),
    ]:
        error = refused(route, **body)
        assert (error["class"], error["param"]) == ("BadRequestError", param), error


def wanted(schema):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "strict": True, "schema": schema}}}


PERSON = {
    "type": "object", "additionalProperties": False, "required": ["name", "age", "tags", "kind"],
    "properties": {
        "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "maxItems": 3}, "kind": {"enum": ["a", "从前", 3, None]},
    },
    "$defs": {"tag": {"type": "string", "pattern": "^[a-z]{1,5}$"}},
}


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1.5, "seed": 3, "n": 4}, {"temperature": 1, "logprobs": True}])
def test_answers_follow_a_schema(server, client, sampling):
    """A random model writes anything that is allowed, for as long as it is."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 400, **wanted(PERSON), **sampling}
    for choice in client.ask("chat", url=server.url, body=body)["choices"]:
        person = json.loads(choice["message"]["content"])
        assert choice["finish_reason"] == "stop" and list(person) == ["name", "age", "tags", "kind"], person
        assert len(person["name"]) <= 12 and 0 <= person["age"] <= 150 and person["kind"] in ["a", "从前", 3, None]
        assert len(person["tags"]) <= 3 and all(re.fullmatch("[a-z]{1,5}", tag) for tag in person["tags"])
    if sampling == {"temperature": 0}:
        chunks = client.ask("chat_stream", url=server.url, body=body)
        assert "".join(chunk["choices"][0]["delta"]["content"] or "" for chunk in chunks) == choice["message"]["content"]
        form = {"format": {"type": "json_schema", "name": "s", "schema": PERSON}}
        response = client.ask("response", url=server.url, body={"model": "m", "input": "Hello", "temperature": 0, "max_output_tokens": 400, "text": form})
        assert list(json.loads(response["output_text"])) == list(person) and response["status"] == "completed"


def test_a_key_is_needed_and_never_logged(model, client, tmp_path):
    (tmp_path / "keys").write_text("first-key\nsecond-key\n")
    command = [BINARY, "serve", "--port", "0", "--name", "m", "--api-key-file", tmp_path / "keys", model.carton]
    with Server(*command, env={"TORCH2CARTON_API_KEY": "third-key"}) as server:
        for key in ["first-key", "second-key", "third-key"]:
            assert client.ask("models", url=server.url, key=key) == ["m"]
        error = client.ask("refused", url=server.url, route="completions", body=greedy("a"), key="wrong-key")
        assert (error["class"], error["code"]) == ("AuthenticationError", "invalid_api_key")
        server.end()
        assert "-key" not in server.log()


def curl(server, body, *arguments):
    address = f"http://{server.url}/v1/completions"
    command = ["curl", "--silent", "--no-buffer", *arguments, address, "-H", "Content-Type: application/json", "-d", json.dumps(body)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


@pytest.mark.parametrize("version", ["--http1.0", "--http1.1"])
def test_curl_reads_streams(model, server, version):
    out, _ = curl(server, greedy(TEXTS[0], stream=True), "--include", version).communicate()
    head, _, events = out.decode().partition("\r\n\r\n")
    assert ("chunked" in head.lower()) == (version == "--http1.1") and events.endswith("data: [DONE]\n\n")
    texts = [json.loads(event.removeprefix("data: "))["choices"][0]["text"] for event in events.split("\n\n")[:-2]]
    assert "".join(texts) == model.wanted[0]["text"]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_killed_clients_free_their_places(server, stream):
    clients = [curl(server, greedy(TEXTS[0], max_tokens=4000, stream=stream)) for _ in range(8)]
    wait_for(lambda: running(server) == 8)
    for process in clients:
        process.kill()
        process.communicate()
    wait_for(lambda: running(server) == 0, seconds=10)


def ending(model, tokens):
    """A server with a stream of this many tokens, which was asked to end and refuses requests."""
    server = Server(BINARY, "serve", "--quiet", "--port", "0", "--name", "m", model.carton)
    stream = curl(server, greedy(TEXTS[0], max_tokens=tokens, stream=True))
    wait_for(lambda: running(server) == 1)
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: curl(server, greedy("a"), "--fail").wait() != 0)
    return server, stream


def test_sigterm_lets_streams_end(model):
    """The process ends with 0 after them."""
    server, stream = ending(model, 600)
    with server:
        assert server.process.poll() is None, "the stream has not ended"
        events = stream.communicate(timeout=60)[0].decode().split("\n\n")
        assert events[-2] == "data: [DONE]" and sum('"text"' in event for event in events) > 100
        assert json.loads(events[-3].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
        assert server.process.wait(60) == 0, server.log()


def test_a_second_sigterm_ends_at_once(model):
    server, stream = ending(model, 4000)
    with server:
        assert server.end(timeout=10) == 128 + signal.SIGTERM
        assert b"[DONE]" not in stream.communicate(timeout=60)[0]


def test_slow_readers_hold_up_nobody(server, client):
    """They read nothing: their texts wait, others go on, and the server does not grow."""
    rss = lambda: int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{server.process.pid}/status").read_text())[1])
    host, port = server.url.split(":")
    body = json.dumps(greedy(TEXTS[0], max_tokens=4000, stream=True, logprobs=20)).encode()
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            slow = stack.enter_context(socket.create_connection((host, int(port))))
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        wait_for(lambda: running(server) == 4)
        before = rss()
        for _ in range(3):
            [answer] = client.ask("completions", url=server.url, bodies=[greedy(TEXTS[1])])
            assert answer["usage"]["completion_tokens"] == TOKENS
        assert rss() - before < 64 << 10, "kilobytes"
    wait_for(lambda: running(server) == 0, seconds=30)


def test_idle_connections_hold_up_nobody(server, client):
    host, port = server.url.split(":")
    with contextlib.ExitStack() as stack:
        for _ in range(1000):
            stack.enter_context(socket.create_connection((host, int(port))))
        [answer] = client.ask("completions", url=server.url, bodies=[greedy(TEXTS[0])])
        assert answer["usage"]["completion_tokens"] == TOKENS


def test_a_template_that_loops_is_an_error(model, tmp_path):
    """And the server goes on, for others at the same time and after it."""
    for file in model.folder.glob("*.*"):
        if file.name != "chat_template.jinja" and file.suffix != ".carton":
            shutil.copy(file, tmp_path)
    (tmp_path / "chat_template.jinja").write_text(chat_cases.HOSTILE["silent loops"])
    with Server(BINARY, "serve", "--quiet", "--port", "0", "--name", "m", tmp_path) as server:
        chat = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})
        threads = [threading.Thread(target=server.request, args=("POST", "/v1/chat/completions", chat)) for _ in range(8)]
        for thread in threads:
            thread.start()
        assert server.request("POST", "/v1/completions", json.dumps(greedy(TEXTS[0]))).json()["choices"][0]["text"] == model.wanted[0]["text"]
        for thread in threads:
            thread.join(60)
        error = server.request("POST", "/v1/chat/completions", chat)
        assert error.status == 400 and error.json()["error"]["param"] == "messages" and "steps" in error.json()["error"]["message"]


def test_a_flood_of_long_prompts_is_fair(server, client):
    """A short text that comes last is not the last that is answered."""
    long = greedy([5] * 1000, max_tokens=1)
    done = []
    flood = [threading.Thread(target=lambda: (curl(server, long).communicate(), done.append("long"))) for _ in range(4)]
    for thread in flood:
        thread.start()
    wait_for(lambda: running(server) >= 4)
    client.ask("completions", url=server.url, bodies=[greedy(TEXTS[0], max_tokens=2)])
    done.append("short")
    for thread in flood:
        thread.join()
    assert done.index("short") < len(done) - 1, done
