"""Batches on a cluster of Ray: one task for each input, with the lines and the rules of `torch2carton batch`.

```sh
pip install 'ray>=2.9'
python -m torch2carton.fleet models.jsonl --to safetensors -o out/ --results results.jsonl
python -m torch2carton.fleet report results.jsonl -o report.html
```

`run` does the same as a function. All nodes have this package, and see the files by the same paths. docs/batch.md describes the
manifest, the results, and what happens when a node is lost.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from .. import _native
from ._driver import Cluster, Driver, Lines
from ._report import write_report as report

__all__ = ["report", "run"]

Path = Any


def run(
    tasks: Any,
    *,
    task: str = "convert",
    to: str | None = None,
    output: Path = None,
    results: Path = None,
    options: Mapping[str, Any] | None = None,
    digest: bool = True,
    checksum: bool = False,
    blobs: Path = None,
    base: str | None = None,
    ray_address: str | None = None,
    jobs: int | None = None,
    per_host: int = 8,
    retries: int = 3,
) -> Iterator[dict[str, Any]]:
    """Does a task with each input on a cluster of Ray, and yields each result when it is there.

    Args:
        tasks: the path of a manifest, or an iterable of the lines of one, each a dict with `input`, and if needed `output` and `options`, or
            only the input. An iterator may wait for the next line, such as for a message of a queue; a thread reads it
        task: `convert`, `scan`, `inspect` or `digest`
        to: what `convert` writes, such as `safetensors`
        output: the folder for outputs whose line names none
        results: a file to which each result is appended. If it has results of an earlier run, they stay, and only what is
            missing or has changed is done
        options: options of the task for all inputs by their names, such as `{"dtype": "bfloat16"}`
        digest: compute the digest of each input also if the task does not need it
        checksum: read each output of an earlier run as a whole
        blobs: a folder for the large files of cartons, so that files that several have are stored once
        base: the URL under which the files in `blobs` will be served
        ray_address: the address of the cluster, such as `auto` or `ray://host:10001`; by default that in `RAY_ADDRESS`, or a
            new cluster on this machine. If this process is connected to Ray, that connection is used
        jobs: most inputs at the same time; by default 4 for each core, of which Ray runs those that have room
        per_host: most inputs at the same time that are read from one server
        retries: how often an input is tried again whose process or node was lost

    Yields:
        A dict for each input, with the members of a line of `torch2carton batch`: `input`, `status` (`ok` or `failed`), `error`,
        `code`, `digest`, `output`, `seconds`, `bytes`, `repeated_bytes`, and `verdict` or `tensors`.

    Raises:
        MissingPackageError: Ray is not installed
        OptionError: an option is wrong
        InputError: a line of the manifest is wrong
        IoError: the manifest or the results cannot be read, or another batch writes to the results

    >>> tasks = [{"input": "model.pt", "options": {"dtype": "float16"}}, "other.ckpt"]
    >>> for result in fleet.run(tasks, to="safetensors", output="out", results="results.jsonl"):  # doctest: +SKIP
    ...     print(result["input"], result["status"])
    """
    is_manifest = isinstance(tasks, (str, bytes, os.PathLike))
    request = {
        "manifest": tasks if is_manifest else "tasks", "task": task, "to": to, "output": output, "results": results,
        "resume": results is not None, "checksum": checksum, "no_digest": not digest, "blobs": blobs, "base": base,
        "options": dict(options or {}),
    }
    driver = _open(json.dumps(request, default=os.fsdecode), None if is_manifest else _lines(tasks), ray_address, jobs=jobs, per_host=per_host, retries=retries)
    return (json.loads(line) for line, _ in driver.results())


def _open(
    request: str, lines: Iterable[str] | None, ray_address: str | None, cluster: Cluster | None = None, **limits: Any
) -> Driver:
    """Opens a batch, and then the cluster, so that a wrong manifest is refused before anything is started."""
    from ._ray import RayCluster, import_ray

    if cluster is None:
        import_ray()
    batch = _native.Batch(request, lines is not None)
    cluster = cluster or RayCluster(request, os.getcwd(), ray_address)
    return Driver(batch, cluster, None if lines is None else Lines(lines), **limits)


def _lines(tasks: Iterable[str | Mapping[str, Any]]) -> Iterable[str]:
    return [_line(task) for task in tasks] if isinstance(tasks, Collection) else (_line(task) for task in tasks)


def _line(task: str | Mapping[str, Any]) -> str:
    return json.dumps({"input": os.fspath(task)} if isinstance(task, (str, os.PathLike)) else dict(task))
