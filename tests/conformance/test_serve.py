"""The server with Triton's own client (sync, gevent, asyncio), and byte by byte over sockets.

Most checks ask a server whose models return their inputs (`crates/run/serve/examples/identity.rs`), so that every datatype
passes in both directions. `extension_binary_data.md` of Triton is the specification.
"""

import gzip
import json
import struct
import threading
import time
import zlib

import pytest
from served import Server, identity

FP32 = "/v2/models/identity_fp32/infer"
LENGTH = "Inference-Header-Content-Length"


@pytest.fixture(scope="session")
def identity_program():
    return identity()


@pytest.fixture(scope="module")
def server(identity_program):
    server = Server(identity_program, "--port", "0", "--until-stdin-closes")
    yield server
    server.close()


@pytest.fixture
def started(identity_program):
    """`started(*flags)` starts another server; it ends with the test."""
    servers = []

    def start(*flags):
        servers.append(Server(identity_program, "--port", "0", "--until-stdin-closes", *flags))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def request(values, shape=None, name="INPUT0", datatype="FP32", **members):
    given = {"name": name, "shape": shape or [1, len(values)], "datatype": datatype, "data": values}
    return json.dumps({"inputs": [given], **members}).encode()


def with_bytes(header, blob):
    """A body, and the header for it."""
    header = json.dumps(header).encode()
    return header + blob, [(LENGTH, str(len(header)))]


GOOD = request([1.5, 2.5])


def ask_good(connection):
    connection.send("POST", FP32, GOOD)
    answer = connection.receive()
    assert answer.status == 200 and answer.json()["outputs"][0]["data"] == [1.5, 2.5], answer


# --- the real client ------------------------------------------------------------------------------------------------


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


# --- byte by byte ---------------------------------------------------------------------------------------------------


def test_the_response_of_the_extension(server):
    """The header's length, the order of the tensors and their sizes, as the specification's example has them."""
    inputs = [{"name": "IN_UINT32", "shape": [1, 4], "datatype": "UINT32", "parameters": {"binary_data_size": 16}},
              {"name": "IN_BOOL", "shape": [1, 3], "datatype": "BOOL", "parameters": {"binary_data_size": 3}}]
    rest = [{"name": f"IN_{datatype}", "shape": [1, 1], "datatype": datatype, "data": ["a" if datatype == "BYTES" else 1]}
            for datatype in "UINT8 UINT16 UINT64 INT8 INT16 INT32 INT64 FP32 FP64 BYTES".split()]
    halves = [{"name": f"IN_{datatype}", "shape": [1, 1], "datatype": datatype, "parameters": {"binary_data_size": 2}} for datatype in ("FP16", "BF16")]
    outputs = [{"name": "OUT_BOOL", "parameters": {"binary_data": True}}, {"name": "OUT_INT8"}, {"name": "OUT_UINT32", "parameters": {"binary_data": True}}]
    blob = struct.pack("<4I", 1, 2, 3, 1 << 31) + b"\1\0\1" + b"\0\x3c" + b"\x80\x3f"
    body, headers = with_bytes({"inputs": [*inputs, *rest, *halves], "outputs": outputs}, blob)
    answer = server.request("POST", "/v2/models/identity_all/infer", body, headers)
    assert answer.status == 200 and answer.headers["content-type"] == "application/octet-stream", answer
    length = int(answer.headers[LENGTH.lower()])
    document = json.loads(answer.body[:length])
    assert [(output["name"], output.get("parameters"), output.get("data")) for output in document["outputs"]] == [
        ("OUT_BOOL", {"binary_data_size": 3}, None), ("OUT_INT8", None, [1]), ("OUT_UINT32", {"binary_data_size": 16}, None)]
    assert answer.body[length:] == blob[16:19] + blob[:16]
    assert "id" not in document and document["model_version"] == "1"


def test_raw_requests(server):
    answer = server.request("POST", FP32, struct.pack("<3f", 1, 2, 3), [(LENGTH, "0"), ("Content-Type", "application/octet-stream")])
    length = int(answer.headers[LENGTH.lower()])
    output = json.loads(answer.body[:length])["outputs"][0]
    assert (output["shape"], output["parameters"], answer.body[length:]) == ([1, 3], {"binary_data_size": 12}, struct.pack("<3f", 1, 2, 3))
    refused = server.request("POST", FP32, b"12345", [(LENGTH, "0")])
    assert refused.status == 400 and refused.json()["error"]
    # More than one free size; more than one input; BYTES of another shape than [1].
    for model in ("identity_fp32_unbatched", "identity_all", "identity_bytes"):
        refused = server.request("POST", f"/v2/models/{model}/infer", b"12345678", [(LENGTH, "0")])
        assert refused.status == 400 and refused.json()["error"], (model, refused)


def test_an_output_comes_before_the_request(server):
    """`binary_data` of an output, then `binary_data_output` of the request; Triton ignores the latter for outputs that are listed."""
    def is_binary(**members):
        return LENGTH.lower() in server.request("POST", FP32, request([1.0], **members)).headers

    yes, no = {"parameters": {"binary_data_output": True}}, {"parameters": {"binary_data_output": False}}
    binary = lambda value: {"outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": value}}]}
    assert [is_binary(), is_binary(**yes), is_binary(**no)] == [False, True, False]
    assert [is_binary(**binary(True)), is_binary(**binary(False))] == [True, False]
    assert [is_binary(**yes, **binary(False)), is_binary(**no, **binary(True))] == [False, True]
    assert is_binary(**yes, outputs=[{"name": "OUTPUT0"}])


BODIES = {
    "empty": b"",
    "not JSON": b"x",
    "cut": GOOD[:-2],
    "followed": GOOD + b"x",
    "an array": b"[]",
    "no inputs": b'{"outputs":[]}',
    "inputs of another kind": b'{"inputs":5}',
    "negative size": request([1.0], [1, -1]),
    "fractional size": request([1.0], [1.0, 1.0]),
    "too many elements": request([1.0], [1, 1 << 62]),
    "fewer values": request([1.0], [1, 2]),
    "more values": request([1.0, 2.0, 3.0], [1, 2]),
    "a string": request(["a"]),
    "a boolean": request([True]),
    "null": request([None]),
    "too large a number": GOOD.replace(b"1.5", b"1e39"),
    "no data": b'{"inputs":[{"name":"INPUT0","shape":[1,1],"datatype":"FP32"}]}',
    "two datas": b'{"inputs":[{"name":"INPUT0","shape":[1,1],"datatype":"FP32","data":[1],"parameters":{"binary_data_size":4}}]}',
    "unknown datatype": request([1.0], datatype="FLOAT"),
    "shared memory": b'{"inputs":[{"name":"INPUT0","shape":[1,1],"datatype":"FP32","parameters":{"shared_memory_region":"a"}}]}',
    "deep": b'{"inputs":' + b"[" * 100_000,
    "deep elsewhere": b'{"a":' + b'{"a":' * 100_000,
    "deep data": b'{"inputs":[{"name":"INPUT0","shape":[1,1],"datatype":"FP32","data":' + b"[" * 200 + b"1" + b"]" * 200 + b"}]}",
    "not UTF-8": GOOD.replace(b"INPUT0", b"INPUT\xff"),
    "bytes that are not there": b'{"inputs":[{"name":"INPUT0","shape":[1,1],"datatype":"FP32","parameters":{"binary_data_size":4}}]}',
    "no such output": request([1.0], outputs=[{"name": "OUTPUT1"}]),
    "an output twice": request([1.0], outputs=[{"name": "OUTPUT0"}, {"name": "OUTPUT0"}]),
    "a parameter": request([1.0], parameters={"a": [1]}),
}


def test_bad_bodies_leave_the_connection_usable(server):
    with server.connect() as connection:
        for name, body in BODIES.items():
            connection.send("POST", FP32, body)
            answer = connection.receive()
            assert answer.status == 400 and set(answer.json()) == {"error"} and answer.json()["error"], (name, answer)
            assert answer.headers["content-type"] == "application/json", (name, answer)
            ask_good(connection)


def test_integers_out_of_range(server):
    cases = {"UINT8": [256, -1], "INT8": [128, -129], "UINT16": [65536], "INT16": [32768], "UINT32": [1 << 32], "INT32": [1 << 31],
             "UINT64": [1 << 64, -1], "INT64": [1 << 63, -(1 << 63) - 1, 1.5]}
    with server.connect() as connection:
        for datatype, values in cases.items():
            for value in values:
                connection.send("POST", f"/v2/models/identity_{datatype.lower()}/infer", request([value], datatype=datatype))
                answer = connection.receive()
                assert answer.status == 400 and str(value) in answer.json()["error"], (datatype, value, answer)
        ask_good(connection)


def test_bad_lengths_leave_the_connection_usable(server):
    body, [(_, length)] = with_bytes(
        {"inputs": [{"name": "INPUT0", "shape": [1, 1], "datatype": "FP32", "parameters": {"binary_data_size": 4}}]}, b"\0\0\x80\x3f")
    with server.connect() as connection:
        for value in ("x", "-1", "-0", "1e2", "0x10", str(len(body) + 1), str(1 << 40), str(1 << 70), str(int(length) - 1), str(int(length) + 1), ""):
            connection.send("POST", FP32, body, [(LENGTH, value)])
            answer = connection.receive()
            assert answer.status == 400 and answer.json()["error"], (value, answer)
            ask_good(connection)
        for changed in (body[:-1], body + b"\0"):  # bytes are missing or left over
            connection.send("POST", FP32, changed, [(LENGTH, length)])
            assert connection.receive().status == 400
            ask_good(connection)
        connection.send("POST", FP32, body, [(LENGTH, length)])
        assert connection.receive().json()["outputs"][0]["data"] == [1.0]


def test_bytes_whose_lengths_do_not_fit(server):
    with server.connect() as connection:
        for blob in (b"", b"\1", b"\1\0\0\0", b"\xff\xff\xff\xff", b"\1\0\0\0ab", b"\2\0\0\0a"):
            body, headers = with_bytes(
                {"inputs": [{"name": "INPUT0", "shape": [1, 1], "datatype": "BYTES", "parameters": {"binary_data_size": len(blob)}}]}, blob)
            connection.send("POST", "/v2/models/identity_bytes/infer", body, headers)
            answer = connection.receive()
            assert answer.status == 400 and answer.json()["error"], (blob, answer)
            ask_good(connection)


def test_routes_and_methods(server):
    with server.connect() as connection:
        for method, path, status in [
            ("GET", "/v2", 200), ("GET", "/v2/", 404), ("GET", "/", 200), ("GET", "/v2/nothing", 404), ("POST", "/v2", 405),
            ("GET", "/v2/health/live", 200), ("GET", "/v2/health/ready", 200), ("POST", "/v2/health/live", 405),
            ("GET", "/v2/models/identity_fp32", 200), ("GET", "/v2/models/identity_fp32/versions/1", 200),
            ("GET", "/v2/models/identity_fp32/versions/2", 404), ("GET", "/v2/models/nothing", 404),
            ("GET", "/v2/models/identity_fp32/ready", 200), ("GET", "/v2/models/nothing/ready", 400),
            ("GET", "/v2/models/identity_fp32/config", 200), ("GET", "/v2/models/nothing/config", 404),
            ("GET", "/v2/models/stats", 200), ("GET", "/v2/models/nothing/stats", 400), ("GET", FP32, 405),
            ("POST", "/v2/models/nothing/infer", 404), ("POST", "/v2/models/identity_fp32/versions/3/infer", 404),
            ("POST", "/v2/repository/index", 200), ("GET", "/v2/repository/index", 405), ("DELETE", "/v2/models/identity_fp32", 405),
        ]:
            connection.send(method, path, GOOD if path.endswith("infer") and method == "POST" else b"")
            answer = connection.receive(method)
            assert answer.status == status, (method, path, answer)
            if path.startswith("/v2/health") or path.endswith("/ready") and status == 200:
                assert status != 200 or answer.body == b""
            elif status >= 400:
                assert answer.json()["error"], (method, path, answer)
            ask_good(connection)


def test_chunked_bodies(server):
    def chunks(body, size):
        parts = [body[start:start + size] for start in range(0, len(body), size)]
        return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"

    with server.connect() as connection:
        for size in (1, 7, 1000):
            connection.send("POST", FP32, chunks(GOOD, size), [("Transfer-Encoding", "chunked")])
            assert connection.receive().json()["outputs"][0]["data"] == [1.5, 2.5]
        compressed = chunks(gzip.compress(GOOD), 5)
        connection.send("POST", FP32, compressed, [("Transfer-Encoding", "chunked"), ("Content-Encoding", "gzip")])
        assert connection.receive().json()["outputs"][0]["data"] == [1.5, 2.5]
        connection.send("POST", FP32, chunks(b"x", 5), [("Transfer-Encoding", "chunked")])
        assert connection.receive().status == 400
        ask_good(connection)


def test_the_server_asks_for_a_body_that_is_expected(server):
    with server.connect() as connection:
        connection.send("POST", FP32, b"", [("Expect", "100-continue"), ("Content-Length", str(len(GOOD)))])
        assert connection.receive().status == 100
        connection.stream.sendall(GOOD)
        assert connection.receive().json()["outputs"][0]["data"] == [1.5, 2.5]
        ask_good(connection)


def test_requests_one_after_the_other_without_waiting(server):
    with server.connect() as connection:
        for n in range(50):
            connection.send("POST", FP32, request([float(n)], id=str(n)) if n % 5 else b"x")
        for n in range(50):
            answer = connection.receive()
            assert (answer.status, answer.json().get("id")) == ((200, str(n)) if n % 5 else (400, None)), (n, answer)


def test_a_body_that_comes_slowly(server):
    with server.connect() as connection:
        connection.send("POST", FP32, b"", [("Content-Length", str(len(GOOD)))])
        for byte in GOOD:
            connection.stream.sendall(bytes([byte]))
        assert connection.receive().json()["outputs"][0]["data"] == [1.5, 2.5]


def test_encodings(server):
    with server.connect() as connection:
        for name in ("br", "zstd", "compress", "nonsense"):
            connection.send("POST", FP32, GOOD, [("Content-Encoding", name)])
            answer = connection.receive()
            assert answer.status == 501 and name in answer.json()["error"], answer
            ask_good(connection)
        for name, damaged in (("gzip", gzip.compress(GOOD)[:-5]), ("gzip", b"x"), ("deflate", zlib.compress(GOOD)[:-3]), ("deflate", b"x"), ("gzip", b"")):
            connection.send("POST", FP32, damaged, [("Content-Encoding", name)])
            assert connection.receive().status == 400, (name, damaged)
            ask_good(connection)
        connection.send("POST", FP32, GOOD, [("Content-Encoding", "identity")])
        assert connection.receive().status == 200
        for accepted, encoding in [("gzip;q=0.5, deflate", "deflate"), ("deflate;q=0.1, gzip;q=0.9", "gzip"), ("gzip;q=0", None), ("br", None),
                                   ("*", None), ("", None), ("GZIP", "gzip"), ("identity", None)]:
            connection.send("POST", FP32, GOOD, [("Accept-Encoding", accepted)])
            answer = connection.receive()
            got = answer.headers.get("content-encoding")
            assert answer.status == 200 and (got == encoding or accepted == "*"), (accepted, answer)
            body = {"gzip": gzip.decompress, "deflate": zlib.decompress, None: bytes}[got](answer.body)
            assert json.loads(body)["outputs"][0]["data"] == [1.5, 2.5]


def test_sizes_are_those_of_the_inflated_body(server):
    """The header's length and the tensors' sizes count bytes after decompression."""
    blob = struct.pack("<1000f", *range(1000))
    body, headers = with_bytes(
        {"inputs": [{"name": "INPUT0", "shape": [1, 1000], "datatype": "FP32", "parameters": {"binary_data_size": 4000}}]}, blob)
    answer = server.request("POST", FP32, zlib.compress(body, 9), [*headers, ("Content-Encoding", "deflate"), ("Accept-Encoding", "gzip")])
    assert json.loads(gzip.decompress(answer.body))["outputs"][0]["data"] == list(range(1000))


def test_bodies_that_are_too_large(started):
    """Of JSON, of bytes, in chunks, and after inflation; the server still answers."""
    server = started("--max-body", "100000")
    large = request([0.0] * 40_000)
    bomb = gzip.compress(b" " * 50_000_000)
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(large), large)
    for body, headers in [(large, []), (bomb, [("Content-Encoding", "gzip")]), (chunked, [("Transfer-Encoding", "chunked")]),
                          (b"\0" * 200_000, [(LENGTH, "0")]), (b"", [("Content-Length", str(1 << 60))])]:
        with server.connect() as connection:
            try:
                connection.send("POST", FP32, body, headers)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it was refused before all of it was sent
            answer = connection.receive()
            assert 400 <= answer.status < 500 and answer.json()["error"], (headers, answer)
        with server.connect() as connection:
            ask_good(connection)


def test_headers_that_are_too_large(server):
    for headers in ([("A", "x" * 100_000)], [(f"A{n}", "x") for n in range(1000)]):
        with server.connect() as connection:
            try:
                connection.send("GET", "/v2", headers=headers)
            except (BrokenPipeError, ConnectionResetError):
                pass
            assert 400 <= connection.receive("GET").status < 500
    assert server.request("GET", "/v2/health/live").status == 200


def test_a_full_queue(started):
    """More requests than may wait are refused with 503, and those that wait are answered."""
    server = started("--queue", "2")
    body = request([1.0], parameters={"delay_ms": 700})
    answers = []

    def ask():
        answers.append(server.request("POST", FP32, body))

    threads = [threading.Thread(target=ask) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    statuses = sorted(answer.status for answer in answers)
    assert set(statuses) == {200, 503} and 2 <= statuses.count(200) <= 4, statuses
    assert all(answer.json()["error"] for answer in answers if answer.status == 503)
    assert server.request("POST", FP32, GOOD).status == 200


def test_a_model_that_panics_or_fails(server):
    with server.connect() as connection:
        for parameter in ("panic", "fail"):
            connection.send("POST", FP32, request([1.0], parameters={parameter: True}))
            answer = connection.receive()
            assert answer.status == 500 and answer.json()["error"], answer
            ask_good(connection)


def test_a_client_that_goes_away(server):
    for _ in range(20):
        with server.connect() as connection:
            connection.send("POST", FP32, GOOD[:10], [("Content-Length", str(len(GOOD)))])
        with server.connect() as connection:
            connection.send("POST", FP32, request([1.0], parameters={"delay_ms": 20}))
    assert server.request("POST", FP32, GOOD).status == 200


def test_the_end_of_a_server(started, triton_client):
    """Requests in flight are answered; the server says that it is not ready, takes no new requests, and ends with status 0."""
    server = started()
    outcomes = []
    asking = threading.Thread(target=lambda: outcomes.extend(triton_client.ask("in_flight", url=server.url, requests=4, delay_ms=500)))
    with server.connect() as idle:
        idle.send("GET", "/v2/health/ready")
        assert idle.receive("GET").status == 200
        asking.start()
        busy = lambda: sum(int(line.split()[-1]) for line in server.request("GET", "/metrics").body.decode().splitlines()
                           if line.startswith("nv_inference_pending_request_count") and "identity_int64" in line)
        deadline = time.monotonic() + 30
        while busy() < 2:
            assert time.monotonic() < deadline, "the requests did not arrive"
            time.sleep(0.01)
        status = server.end(None)
    asking.join()
    assert status == 0, server.log()
    assert outcomes == ["right"] * 4, outcomes


def test_metrics(server):
    before = counts(server, "identity_fp64")
    good, bad = request([1.0, 2.0], [2, 1], datatype="FP64"), request(["x"], datatype="FP64")
    for body in (good, good, bad):
        server.request("POST", "/v2/models/identity_fp64/infer", body)
    after = counts(server, "identity_fp64")
    grown = {name: after[name] - before.get(name, 0) for name in after}
    assert grown["nv_inference_request_success"] == 2 and grown["nv_inference_request_failure"] == 1
    assert grown["nv_inference_count"] == 4 and grown["nv_inference_exec_count"] == 2 and after["nv_inference_pending_request_count"] == 0


def counts(server, model):
    """The metrics of a model, those with several labels added up."""
    found = {}
    for line in server.request("GET", "/metrics").body.decode().splitlines():
        if not line.startswith("#") and f'model="{model}"' in line and 'version="1"' in line:
            name, value = line.partition("{")[0], line.split()[-1]
            found[name] = found.get(name, 0) + float(value)
    return found
