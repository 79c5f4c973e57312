"""The server with Triton's own client (sync, gevent, asyncio).

The server has models that return their inputs (`crates/run/serve/examples/identity.rs`), so that every datatype passes in
both directions. Requests byte by byte are tested in `crates/run/serve/tests` and `crates/run/kserve/tests`.
"""

import contextlib
import gzip
import http.client
import struct
import threading
import time
import zlib

import pytest
from served import Server, identity

FP32 = "/v2/models/identity_fp32/infer"
LENGTH = "Inference-Header-Content-Length"


def identity_server():
    return Server(identity(), "--port", "0", "--until-stdin-closes")


@pytest.fixture(scope="module")
def server():
    with identity_server() as server:
        yield server


def test_documents(server, triton_client):
    shown = triton_client.ask("documents", url=server.url, model="identity_int64")
    assert [shown[name] for name in ("live", "ready", "model_ready", "version_ready")] == [True] * 4
    assert not shown["unknown_ready"] and not shown["unknown_version_ready"]
    assert "binary_tensor_data" in shown["server"]["extensions"] and shown["server"]["name"] and shown["server"]["version"]
    assert shown["model"] == shown["version"] == {
        "name": "identity_int64", "versions": ["1"], "platform": "identity",
        "inputs": [{"name": "INPUT0", "datatype": "INT64", "shape": [-1, -1]}],
        "outputs": [{"name": "OUTPUT0", "datatype": "INT64", "shape": [-1, -1]}],
    }
    config = shown["config"]
    assert (config["name"], config["max_batch_size"], config["input"][0]["data_type"], config["input"][0]["dims"]) == (
        "identity_int64", 8, "TYPE_INT64", [-1])
    assert [entry["name"] for entry in shown["statistics"]["model_stats"]] == ["identity_int64"]
    listed = {entry["name"]: entry["state"] for entry in shown["index"]}
    assert listed["identity_bytes"] == "READY" and len(listed) == len(shown["all_statistics"]["model_stats"])


def test_documents_with_asyncio(server, triton_client):
    shown, other = triton_client.ask("documents_aio", url=server.url, model="identity_bytes"), triton_client.ask(
        "documents", url=server.url, model="identity_bytes")
    assert all(shown[name] == other[name] for name in shown)
    assert shown["config"]["input"][0]["data_type"] == "TYPE_STRING"


@pytest.mark.parametrize("count", [3, 3000])
def test_every_datatype_in_every_form(server, triton_client, count, table):
    """JSON and bytes in both directions, with and without gzip and deflate in both directions."""
    answer = triton_client.ask("identity", url=server.url, count=count)
    assert answer["wrong"] == [] and answer["total"] == (12 * 4 + 2) * 9
    table(f"serve: {answer['total']} requests of {count} elements, in every datatype and form, came back equal")


def test_mixed_requests(server, triton_client):
    assert triton_client.ask("mixed", url=server.url, times=40) == []


def test_parameters_and_ids(server, triton_client):
    answer = triton_client.ask("parameters", url=server.url)
    assert answer["same"]
    assert (answer["answer"]["id"], answer["answer"]["model_name"], answer["answer"]["model_version"]) == ("é 7", "identity_int32", "1")


def test_tensors_without_elements(server, triton_client):
    assert triton_client.ask("zeros", url=server.url) == [[[1, 0], {"binary_data_size": 0}, None], [[1, 0], None, []]]


def test_what_is_refused(server, triton_client):
    """Each is a 4xx with a text, and the client can go on."""
    answers = triton_client.ask("failures", url=server.url)
    assert len(answers) == 12
    for name, status, message in answers:
        assert status == ("404" if name in ("model", "version") else "400") and message, (name, status, message)


@pytest.mark.parametrize("how", ["concurrent", "concurrent_aio"])
def test_a_thousand_concurrent_requests(server, triton_client, how):
    """All datatypes in each, in turn as JSON and as bytes: every answer is right and none is lost."""
    assert triton_client.ask(how, url=server.url, requests=1000, workers=100) == []
    stats = server.request("GET", "/v2/models/identity_all/stats").json()["model_stats"][0]
    assert stats["inference_stats"]["fail"]["count"] == 0 and stats["inference_stats"]["success"]["count"] >= 1000


def test_bodies_that_the_client_makes_and_parses(server, triton_client):
    """The client's own functions for bodies, with requests of our own: plain, raw, and each encoding."""
    made = triton_client.ask("bodies", url=server.url)
    body, array = bytes.fromhex(made["body"]), bytes.fromhex(made["array"])
    expected = [list(struct.unpack("<8f", array))]
    encode = {None: lambda data: data, "gzip": gzip.compress, "deflate": zlib.compress}
    for sent in encode:
        for accepted in encode:
            headers = [(LENGTH, str(made["header"]))]
            headers += [("Content-Encoding", sent)] if sent else []
            headers += [("Accept-Encoding", accepted)] if accepted else []
            answer = server.request("POST", FP32, encode[sent](body), headers)
            assert answer.status == 200 and answer.headers.get("content-encoding") == accepted, (sent, accepted, answer)
            length = answer.headers.get(LENGTH.lower())
            read = triton_client.ask("parse", body=answer.body.hex(), header=int(length), encoding=accepted)
            assert [[x if x == x else "nan" for x in row] for row in read] == [[x if x == x else "nan" for x in row] for row in expected]


def test_the_end_of_a_server(triton_client):
    """Requests in flight are answered, although another client is connected, and it ends with status 0."""
    outcomes = []
    with identity_server() as server, contextlib.closing(http.client.HTTPConnection(server.url, timeout=60)) as idle:
        asking = threading.Thread(target=lambda: outcomes.extend(triton_client.ask("in_flight", url=server.url, requests=4, delay_ms=500)))
        idle.request("GET", "/v2/health/ready")
        assert idle.getresponse().read() == b""
        asking.start()
        busy = lambda: sum(int(line.split()[-1]) for line in server.request("GET", "/metrics").body.decode().splitlines()
                           if line.startswith("nv_inference_pending_request_count") and "identity_int64" in line)
        deadline = time.monotonic() + 30
        while busy() < 2:
            assert time.monotonic() < deadline, "the requests did not arrive"
            time.sleep(0.01)
        status = server.end(None)
        asking.join()
        assert (status, outcomes) == (0, ["right"] * 4), server.log()
