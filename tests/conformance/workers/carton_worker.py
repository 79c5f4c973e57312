"""The Carton client: reads cartons, and runs them in a runner."""

import asyncio
import hashlib
import sys

import cartonml
import numpy
from line_server import serve


async def read_info(path):
    info = await cartonml.get_model_info(path)
    specs = lambda many: None if many is None else [{"name": s.name, "dtype": s.dtype, "shape": s.shape} for s in many]
    misc = {name: await file.read() for name, file in (info.misc_files or {}).items()}
    fields = "model_name short_description model_description license repository homepage required_platforms".split()
    return {f: getattr(info, f) for f in fields} | {
        "inputs": specs(info.inputs),
        "outputs": specs(info.outputs),
        "runner": {
            "name": info.runner.runner_name,
            "framework": info.runner.required_framework_version,
            "compat": info.runner.runner_compat_version,
            "opts": info.runner.opts,
        },
        "misc": {name: hashlib.sha256(data).hexdigest() for name, data in misc.items()},
    }


async def read_whole(path):
    """What `info` omits: the descriptions of inputs and outputs, options, tests and examples, with each tensor as [dtype, nested list]."""
    info = await cartonml.get_model_info(path)
    words = {spec.name: [spec.description, spec.internal_name] for spec in [*info.inputs, *info.outputs]}

    async def read(value):
        if isinstance(value, cartonml.LazyLoadedTensor):
            array = await value.get()
            return [array.dtype.kind, array.tolist()]
        return hashlib.sha256(await value.read()).hexdigest()

    async def all_of(values):
        return {name: await read(value) for name, value in (values or {}).items()}

    tests = [[t.name, t.description, await all_of(t.inputs), await all_of(t.expected_out)] for t in info.self_tests or []]
    examples = [[e.name, e.description, await all_of(e.inputs), await all_of(e.sample_out)] for e in info.examples or []]
    return {"words": words, "tests": tests, "examples": examples, "opts": info.runner.opts}


async def shrink(path, urls):
    """Lets the client write the carton without the files that have URLs, and returns the path."""
    return str(await cartonml.shrink(path, urls))


async def load_and_infer(path, calls, outputs, timeout):
    """Load with the installed runner and infer once for each npz file in `calls`; the npz file `outputs` gets what it returns.

    Whatever ends the process of the runner leaves the client waiting forever, hence the timeout in seconds.
    """
    model = await asyncio.wait_for(cartonml.load(path), timeout)
    answers = [await asyncio.wait_for(model.infer(dict(numpy.load(inputs))), timeout) for inputs in calls]
    texts = lambda array: array.astype(str) if array.dtype.kind not in "iuf" else array
    numpy.savez(outputs, **{f"{i} {name}": texts(numpy.asarray(array)) for i, answer in enumerate(answers) for name, array in answer.items()})
    return len(answers)


serve({
    "info": lambda **request: asyncio.run(read_info(**request)),
    "whole": lambda **request: asyncio.run(read_whole(**request)),
    "shrink": lambda **request: asyncio.run(shrink(**request)),
    "infer": lambda **request: asyncio.run(load_and_infer(**request)),
    "versions": lambda: {"python": sys.version.split()[0]},
})
