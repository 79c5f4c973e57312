"""The Carton client: what it reads from a carton, and what a runner answers."""

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


async def load_and_infer(path, inputs, outputs, times):
    """Load with the installed runner and infer `times` times; inputs and outputs are npz files."""
    model = await cartonml.load(path)
    answers = [await model.infer(dict(numpy.load(inputs))) for _ in range(times)]
    numpy.savez(outputs, **{f"{i} {name}": array for i, answer in enumerate(answers) for name, array in answer.items()})
    return len(answers)


serve({
    "info": lambda **request: asyncio.run(read_info(**request)),
    "infer": lambda **request: asyncio.run(load_and_infer(**request)),
    "versions": lambda: {"python": sys.version.split()[0]},
})
