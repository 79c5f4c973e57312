"""`torch2carton serve` with Triton's own client: a decoder's logits are those of its TorchScript module, weights are those of
the checkpoint, and models are loaded and unloaded."""

import json
import shutil
import struct

import numpy
import pytest
from checkpoints import LLAMA_PARAMS, VOCAB
from program import BINARY
from served import Server

LENGTH = "Inference-Header-Content-Length"
# The datatypes of KServe that hold a dtype of PyTorch bit for bit.
DATATYPES = {"bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "int8": "INT8", "int16": "INT16",
             "int32": "INT32", "int64": "INT64", "float16": "FP16", "bfloat16": "BF16", "float32": "FP32", "float64": "FP64"}


@pytest.fixture(scope="module")
def llama(case):
    return case("llama_float32", params=LLAMA_PARAMS)


@pytest.fixture(scope="module")
def llama_server(llama):
    with Server(BINARY, "serve", "--port", "0", llama.carton_path, "--name", "llama") as server:
        yield server


@pytest.fixture
def tokens():
    return numpy.random.default_rng(0).integers(0, VOCAB, (2, 20))


@pytest.fixture
def logits(llama, newest, tokens, tmp_path):
    """Those of the TorchScript module."""
    numpy.savez(tmp_path / "tokens.npz", batch=tokens)
    newest.ask("run", archive=str(llama.archive), tokens=str(tmp_path / "tokens.npz"), outputs=str(tmp_path / "logits.npz"), times=1)
    return numpy.load(tmp_path / "logits.npz")["batch 0"]


def asked(triton_client, server, folder, inputs, **named):
    """The arrays that come back for these."""
    numpy.savez(folder / "inputs.npz", **inputs)
    triton_client.ask("infer", url=server.url, model="llama", inputs=str(folder / "inputs.npz"), answers=str(folder / "answers.npz"), **named)
    return dict(numpy.load(folder / "answers.npz"))


def close(one, other):
    return one.shape == other.shape and numpy.abs(one - other).max() <= 1e-4


@pytest.mark.parametrize("binary", [True, False], ids=["bytes", "json"])
def test_logits_are_those_of_the_module(llama_server, triton_client, tokens, logits, tmp_path, binary):
    answer = asked(triton_client, llama_server, tmp_path, {"tokens": tokens}, binary=binary, times=3)
    assert list(answer) == ["logits"] and close(answer["logits"], logits)


def test_raw_tokens(llama_server, tokens, logits):
    """The body is the bytes of one sequence."""
    answer = llama_server.request("POST", "/v2/models/llama/infer", tokens[:1].astype("<i8").tobytes(), [(LENGTH, "0")])
    length = int(answer.headers[LENGTH.lower()])
    output = json.loads(answer.body[:length])["outputs"][0]
    assert (answer.status, output["name"], output["shape"]) == (200, "logits", [1, 20, VOCAB])
    assert close(numpy.frombuffer(answer.body[length:], "<f4").reshape(1, 20, VOCAB), logits[:1])


def test_only_the_last_logits(llama_server, triton_client, tokens, logits, tmp_path):
    switch = numpy.ones(2, numpy.int64)
    answer = asked(triton_client, llama_server, tmp_path, {"tokens": tokens, "last_only": switch})
    assert close(answer["logits"][:, -1], logits[:, -1]) and answer["logits"].shape[1] == 1


def test_token_by_token_with_a_cache(llama_server, triton_client, tokens, logits, tmp_path):
    """The keys and values that come back are sent with the next tokens."""
    past, wanted = {}, ["logits", "present_key", "present_value"]
    for start, end in ((0, 11), (11, 12), (12, 20)):
        inputs = {"tokens": tokens[:, start:end], "use_cache": numpy.ones(2, numpy.int64), **past}
        answer = asked(triton_client, llama_server, tmp_path, inputs, wanted=wanted)
        assert close(answer["logits"], logits[:, start:end])
        past = {"past_key": answer["present_key"], "past_value": answer["present_value"]}
        assert past["past_key"].shape[0] == 2


@pytest.mark.parametrize("together", [True, False], ids=["together", "alone"])
def test_weights_are_those_of_the_checkpoint(case, newest, triton_client, together):
    """Bit for bit, in each dtype that KServe has."""
    made = case("dtypes")
    with Server(BINARY, "serve", "--port", "0", made.carton_path) as server:
        found = triton_client.ask("weights", url=server.url, model=made.carton_path.stem, together=together)
    wanted = newest.ask("describe_checkpoint", path=str(made.checkpoint))["tensors"]
    assert sorted(found) == sorted(tensor["name"] for tensor in wanted)
    compared = 0
    for tensor in wanted:
        datatype = DATATYPES.get(tensor["dtype"].removeprefix("torch."))
        if datatype:
            assert found[tensor["name"]] == [datatype, tensor["shape"], tensor["sha256"]], tensor
            compared += 1
    assert compared >= 9


def test_a_repository(llama, triton_client, tmp_path):
    """The newest version answers; a version can be named; models are loaded and unloaded by their name."""
    folder = tmp_path / "models/llama"
    folder.mkdir(parents=True)
    for version in (1, 3):
        shutil.copy(llama.carton_path, folder / f"{version}.carton")
    with Server(BINARY, "serve", "--port", "0", "--repository", tmp_path / "models") as server:
        seen = triton_client.ask("repository", url=server.url, model="llama")
        ready = [["1", "READY"], ["3", "READY"], True]
        assert seen[0] == ready and seen[2] == ready and seen[1][-1] is False and "READY" not in [state for _, state in seen[1][:-1]], seen
        assert seen[3] in ("400", "404"), seen
        shown = server.request("GET", "/v2/models/llama").json()
        assert sorted(shown["versions"]) == ["1", "3"]
        body = struct.pack("<2q", 1, 2)
        answers = {version: server.request("POST", f"/v2/models/llama{version}/infer", body, [(LENGTH, "0")]) for version in ("", "/versions/1", "/versions/3")}
    versions = {version: json.loads(answer.body[:int(answer.headers[LENGTH.lower()])])["model_version"] for version, answer in answers.items()}
    assert versions == {"": "3", "/versions/1": "1", "/versions/3": "3"}
