"""The Triton client: sends requests in all of its ways, and compares what comes back with what was sent."""

import asyncio
import hashlib
import sys

import gevent.pool
import numpy
import tritonclient.http as http
import tritonclient.http.aio as aio
from line_server import serve
from tritonclient.utils import InferenceServerException, np_to_triton_dtype, triton_to_np_dtype

DATATYPES = "BOOL UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FP16 FP32 FP64 BF16 BYTES".split()
ENCODINGS = None, "gzip", "deflate"


def values(datatype, count, seed=0):
    """An array of `count` elements: the extremes of the datatype, then random ones."""
    random = numpy.random.default_rng([seed, count, DATATYPES.index(datatype)])
    if datatype == "BYTES":
        texts = ["", "a", "é\n\"\\", "x" * 300] + [str(n) for n in random.integers(0, 1 << 40, count)]
        return numpy.array([text.encode() for text in texts[:count]], dtype=numpy.object_)
    if datatype == "BOOL":
        return random.integers(0, 2, count).astype(bool)
    if datatype in ("FP32", "FP64", "FP16", "BF16"):
        dtype = numpy.dtype(triton_to_np_dtype(datatype))
        array = random.standard_normal(count).astype(dtype)
        special = [0.1, -0.0, numpy.nan, numpy.inf, -numpy.inf, 7.038531e-26, 1e-45, 65504]
        array[: len(special)] = numpy.array(special[:count], dtype=numpy.float64).astype(dtype)
        return array
    bounds = numpy.iinfo(triton_to_np_dtype(datatype))
    array = random.integers(bounds.min, bounds.max, count, dtype=bounds.dtype, endpoint=True)
    array[:2] = [bounds.min, bounds.max][:count]
    return array


def same(sent, got):
    if got is None or sent.shape != got.shape:
        return False
    if sent.dtype == numpy.object_:
        return [as_bytes(value) for value in sent.flat] == [as_bytes(value) for value in got.flat]
    if sent.dtype != got.dtype:
        return False
    if sent.dtype.kind in "fV":  # V: BF16, which numpy does not know
        sent, got = sent.astype(numpy.float64), got.astype(numpy.float64)
        return numpy.array_equal(sent, got, equal_nan=True) and numpy.array_equal(numpy.signbit(sent[sent == 0]), numpy.signbit(got[got == 0]))
    return numpy.array_equal(sent, got)


def as_bytes(value):
    return value.encode() if isinstance(value, str) else bytes(value)


def tensor(module, name, datatype, array, binary):
    made = module.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def has_json(datatype):
    return datatype not in ("FP16", "BF16")


def forms():
    """Datatype, whether the input is bytes, whether the output is, and the encodings of the request and the response."""
    for datatype in DATATYPES:
        for sent in (True, False):
            for got in (True, False):
                if (sent and got) or has_json(datatype):
                    for request in ENCODINGS:
                        for response in ENCODINGS:
                            yield datatype, sent, got, request, response


def identity(url, count):
    """Each datatype in each form, once; returns the number of requests and those that were answered with something else."""
    client, wrong, total = http.InferenceServerClient(url), [], 0
    for datatype, sent, got, request, response in forms():
        array = values(datatype, count).reshape(1, count)
        if not sent and datatype == "BYTES":
            array = numpy.array([[value.decode() for value in array[0]]], dtype=numpy.object_)
        total += 1
        result = client.infer(
            f"identity_{datatype.lower()}", [tensor(http, "INPUT0", datatype, array, sent)], outputs=[http.InferRequestedOutput("OUTPUT0", binary_data=got)],
            request_id=f"{total}", request_compression_algorithm=request, response_compression_algorithm=response)
        answer = result.get_response()
        is_binary = "binary_data_size" in answer["outputs"][0].get("parameters", {})
        if not same(array, result.as_numpy("OUTPUT0")) or answer["id"] != f"{total}" or is_binary != got:
            wrong.append([datatype, sent, got, request, response, str(answer)[:300]])
    client.close()
    return {"total": total, "wrong": wrong}


def arrays_for_all(seed=0):
    """An array for each datatype, those of JSON and bytes mixed."""
    return {datatype: values(datatype, 5, seed).reshape(1, 5) for datatype in DATATYPES}


def mixed_request(module, seed):
    arrays = arrays_for_all(seed)
    inputs = [tensor(module, f"IN_{datatype}", datatype, array, (n + seed) % 2 == 0 or not has_json(datatype))
              for n, (datatype, array) in enumerate(arrays.items())]
    outputs = [module.InferRequestedOutput(f"OUT_{datatype}", binary_data=(n // 2 + seed) % 2 == 0 or not has_json(datatype))
               for n, datatype in enumerate(reversed(DATATYPES))]
    return arrays, inputs, outputs


def mismatches(arrays, result):
    return [datatype for datatype, array in arrays.items() if not same(array, result.as_numpy(f"OUT_{datatype}"))]


def mixed(url, times):
    """All datatypes in one request, some as JSON and some as bytes, the outputs in another order than the inputs."""
    client, wrong = http.InferenceServerClient(url), []
    for seed in range(times):
        arrays, inputs, outputs = mixed_request(http, seed)
        result = client.infer("identity_all", inputs, outputs=outputs)
        names = [output["name"] for output in result.get_response()["outputs"]]
        if mismatches(arrays, result) or names != [f"OUT_{datatype}" for datatype in reversed(DATATYPES)]:
            wrong.append([seed, mismatches(arrays, result), names])
    client.close()
    return wrong


def parameters(url):
    """Custom parameters, an id, and a request whose outputs are not listed: the client asks for all as bytes then."""
    client = http.InferenceServerClient(url)
    array = values("INT32", 4).reshape(1, 4)
    result = client.infer("identity_int32", [tensor(http, "INPUT0", "INT32", array, True)], request_id="é 7",
                          parameters={"a": "text", "b": 5, "c": True, "d": 0.5}, priority=1, timeout=10_000_000,
                          sequence_id=2**64 - 1, sequence_start=True, sequence_end=True)
    client.close()
    return {"same": same(array, result.as_numpy("OUTPUT0")), "answer": result.get_response()}


def bodies(url):
    """Bodies made and parsed by the client, sent by other means."""
    array = values("FP32", 8).reshape(1, 8)
    body, header = http.InferenceServerClient.generate_request_body([tensor(http, "INPUT0", "FP32", array, True)])
    return {"body": body.hex(), "header": header, "array": array.tobytes().hex()}


def parse(body, header, encoding):
    """What the client reads from a body that was received by other means."""
    data = bytes.fromhex(body)
    result = http.InferenceServerClient.parse_response_body(data, header_length=header, content_encoding=encoding)
    return result.as_numpy("OUTPUT0").astype(numpy.float64).tolist()


def documents(url, model):
    """What the client shows of a server and a model."""
    client = http.InferenceServerClient(url)
    answer = {
        "live": client.is_server_live(), "ready": client.is_server_ready(),
        "model_ready": client.is_model_ready(model), "version_ready": client.is_model_ready(model, "1"),
        "unknown_ready": client.is_model_ready("nothing"), "unknown_version_ready": client.is_model_ready(model, "7"),
        "server": client.get_server_metadata(), "model": client.get_model_metadata(model), "version": client.get_model_metadata(model, "1"),
        "config": client.get_model_config(model), "statistics": client.get_inference_statistics(model),
        "all_statistics": client.get_inference_statistics(), "index": client.get_model_repository_index(),
    }
    client.close()
    return answer


async def documents_aio(url, model):
    async with aio.InferenceServerClient(url) as client:
        return {
            "live": await client.is_server_live(), "ready": await client.is_server_ready(),
            "model_ready": await client.is_model_ready(model), "server": await client.get_server_metadata(),
            "model": await client.get_model_metadata(model), "config": await client.get_model_config(model),
        }


def failures(url):
    """The status and the message of what the server refuses, and whether the client can go on with the same connection."""
    client, answers = http.InferenceServerClient(url), []
    good = values("FP32", 3).reshape(1, 3)

    def attempt(name, *arguments, **named):
        try:
            client.infer(*arguments, **named)
            answers.append([name, "it was answered", ""])
        except InferenceServerException as error:
            answers.append([name, error.status(), error.message()])
        result = client.infer("identity_fp32", [tensor(http, "INPUT0", "FP32", good, True)])
        assert same(good, result.as_numpy("OUTPUT0")), name

    def given(name="INPUT0", datatype="FP32", array=good):
        return [tensor(http, name, datatype, array, True)]

    attempt("model", "nothing", given())
    attempt("version", "identity_fp32", given(), model_version="7")
    attempt("no input", "identity_fp32", [])
    attempt("input", "identity_fp32", given("INPUT1"))
    attempt("twice", "identity_fp32", given() + given())
    attempt("datatype", "identity_fp32", given(datatype="FP64", array=good.astype(numpy.float64)))
    attempt("rank", "identity_fp32", given(array=good[0]))
    attempt("batch", "identity_fp32", given(array=numpy.zeros((9, 1), numpy.float32)))
    attempt("output", "identity_fp32", given(), outputs=[http.InferRequestedOutput("OUTPUT1")])
    attempt("half", "identity_fp16", given(datatype="FP16", array=good.astype(numpy.float16)), outputs=[http.InferRequestedOutput("OUTPUT0", binary_data=False)])
    attempt("text", "identity_bytes", given(datatype="BYTES", array=numpy.array([[b"\xff"]], dtype=numpy.object_)), outputs=[http.InferRequestedOutput("OUTPUT0", binary_data=False)])
    attempt("classes", "identity_fp32", given(), outputs=[http.InferRequestedOutput("OUTPUT0", class_count=2)])
    client.close()
    return answers


def zeros(url):
    """A tensor without elements, both ways."""
    client = http.InferenceServerClient(url)
    array, got = numpy.zeros((1, 0), numpy.float32), []
    for binary in (True, False):
        result = client.infer("identity_fp32", [tensor(http, "INPUT0", "FP32", array, binary)], outputs=[http.InferRequestedOutput("OUTPUT0", binary_data=binary)])
        output = result.get_response()["outputs"][0]
        got.append([output["shape"], output.get("parameters"), output.get("data")])
    client.close()
    return got


def concurrent(url, requests, workers):
    """Many requests at once through gevent; returns the numbers of those whose answer is not theirs."""
    client = http.InferenceServerClient(url, concurrency=workers, connection_timeout=120, network_timeout=120)
    sent = [mixed_request(http, seed) for seed in range(requests)]
    pending = [client.async_infer("identity_all", inputs, outputs=outputs, request_id=str(n)) for n, (_, inputs, outputs) in enumerate(sent)]
    results = [one.get_result() for one in pending]
    wrong = [n for n, result in enumerate(results) if result.get_response()["id"] != str(n) or mismatches(sent[n][0], result)]
    client.close()
    return wrong


async def concurrent_aio(url, requests, workers):
    """The same through asyncio."""
    limit, wrong = asyncio.Semaphore(workers), []
    async with aio.InferenceServerClient(url, conn_limit=workers, conn_timeout=120) as client:
        async def one(n):
            arrays, inputs, outputs = mixed_request(aio, n)
            encoding = ENCODINGS[n % 3]
            async with limit:
                result = await client.infer("identity_all", inputs, outputs=outputs, request_id=str(n), request_compression_algorithm=encoding,
                                            response_compression_algorithm=ENCODINGS[n % 2])
            if result.get_response()["id"] != str(n) or mismatches(arrays, result):
                wrong.append(n)

        await asyncio.gather(*(one(n) for n in range(requests)))
    return wrong


def infer(url, model, inputs, answers, wanted=None, binary=True, times=1):
    """Sends the arrays of an npz file; writes those that come back into another. Returns their datatypes."""
    client = http.InferenceServerClient(url, network_timeout=120)
    given = [tensor(http, name, np_to_triton_dtype(array.dtype), array, binary) for name, array in numpy.load(inputs).items()] if inputs else []
    outputs = None if wanted is None else [http.InferRequestedOutput(name, binary_data=binary) for name in wanted]
    for _ in range(times):
        result = client.infer(model, given, outputs=outputs)
    listed = result.get_response()["outputs"]
    numpy.savez(answers, **{output["name"]: result.as_numpy(output["name"]) for output in listed})
    client.close()
    return {output["name"]: output["datatype"] for output in listed}


def weights(url, model, together):
    """The datatype, shape and hash of each output of a model without inputs, asked for alone or all at once."""
    client, found = http.InferenceServerClient(url, network_timeout=120), {}
    names = [output["name"] for output in client.get_model_metadata(model)["outputs"]]
    for wanted in [names] if together else [[name] for name in names]:
        result = client.infer(model, [], outputs=[http.InferRequestedOutput(name, binary_data=True) for name in wanted])
        for output in result.get_response()["outputs"]:
            array = result.as_numpy(output["name"])
            found[output["name"]] = [output["datatype"], output["shape"], hashlib.sha256(array.tobytes()).hexdigest()]
    client.close()
    return found


def repository(url, model):
    """What the index says and whether the model is ready: at first, unloaded, loaded again."""
    client, seen = http.InferenceServerClient(url), []
    for step in (lambda: None, lambda: client.unload_model(model), lambda: client.load_model(model)):
        step()
        seen.append([[entry["version"], entry["state"]] for entry in client.get_model_repository_index() if entry["name"] == model]
                    + [client.is_model_ready(model)])
    try:
        client.load_model("../nothing")
        seen.append("it was loaded")
    except InferenceServerException as error:
        seen.append(error.status())
    client.close()
    return seen


def in_flight(url, requests, delay_ms):
    """Requests that take time, sent while the server ends: how each of them ended."""
    client = http.InferenceServerClient(url, concurrency=requests, network_timeout=60)
    array = values("INT64", 6).reshape(1, 6)
    pool, outcomes = gevent.pool.Pool(requests), []

    def one(n):
        try:
            result = client.infer("identity_int64", [tensor(http, "INPUT0", "INT64", array + n, True)], parameters={"delay_ms": delay_ms})
            outcomes.append("right" if same(array + n, result.as_numpy("OUTPUT0")) else "wrong")
        except InferenceServerException as error:
            outcomes.append(f"{error.status()} {error.message()}")
        except Exception as error:
            outcomes.append(f"lost: {error!r}")

    for n in range(requests):
        pool.spawn(one, n)
    pool.join()
    client.close()
    return outcomes


serve({
    "identity": identity, "mixed": mixed, "parameters": parameters, "bodies": bodies, "parse": parse, "documents": documents,
    "documents_aio": lambda **request: asyncio.run(documents_aio(**request)),
    "failures": failures, "zeros": zeros, "concurrent": concurrent,
    "concurrent_aio": lambda **request: asyncio.run(concurrent_aio(**request)),
    "in_flight": in_flight, "infer": infer, "weights": weights, "repository": repository,
    "versions": lambda: {"python": sys.version.split()[0]},
})
