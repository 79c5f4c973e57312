"""A cluster of Ray that runs the jobs of a batch, one task for each."""

from __future__ import annotations

import functools
import importlib
import os
import socket
import time
from typing import Any
from urllib.parse import urlsplit

from .. import _native
from .._errors import Error, IoError, MissingPackageError
from ._driver import Job, LostError, run_job

#: Tasks with the cluster for each of its cores: some wait there, so that a core gets the next one at once.
_TASKS_PER_CORE = 4
_TASKS_MIN = 8
#: Seconds after which the nodes are looked at again.
_PERIOD = 10.0
#: Seconds that cancelled tasks have to end.
_CANCEL = 5.0
#: Seconds for a connection to a cluster, and for its first answer.
_ANSWER = 7.0
#: Port of Ray's clients, for an address that has none.
_CLIENT_PORT = 10001
#: What a client of HTTP/2 sends first, with empty settings, and the type of the frame with which each server begins.
_PREFACE, _SETTINGS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 4


def import_ray() -> Any:
    """Imports Ray, or says what to install."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        text = "a fleet needs Ray, which is not installed: pip install 'ray>=2.9'"
        raise MissingPackageError(text) from error


def check_answer(address: str, seconds: float = _ANSWER) -> None:
    """Checks that a cluster answers at an address, for which Ray itself waits for minutes.

    Raises:
        IoError: nothing answers there, or something else does
    """
    place = urlsplit(address if "://" in address else f"//{address}")
    if place.scheme not in ("", "ray") or not (place.scheme or ":" in address):
        return  # such as `auto`, which Ray finds by itself
    try:
        with socket.create_connection((place.hostname or "", place.port or _CLIENT_PORT), seconds) as connection:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return
            connection.settimeout(seconds)
            connection.sendall(_PREFACE)
            answer = connection.recv(9)
            if len(answer) < 4 or answer[3] != _SETTINGS:
                raise OSError("what answers is not Ray")
    except (OSError, ValueError) as error:
        text = f"no cluster of Ray answers at {address}: {error or type(error).__name__}; check --ray-address and RAY_ADDRESS"
        raise IoError(text) from error


@functools.lru_cache(maxsize=4)
def _worker(request: str) -> _native.BatchWorker:
    return _native.BatchWorker(request)


def _run(request: str, message: str, cores: int, folder: str, version: str) -> str:
    """Runs a job. This is the task of Ray."""
    if version != _native.__version__:
        raise Error(f"a node has torch2carton {_native.__version__}, the driver {version}; install the same on both")
    return run_job(_worker, request, message, cores, folder)


class RayCluster:
    """Ray, to which this process is connected, or connects.

    Attributes:
        request: that of the batch, as JSON
        folder: the folder to which relative paths are relative on all nodes
    """

    def __init__(self, request: str, folder: str, address: str | None) -> None:
        self._ray = import_ray()
        self._is_own = not self._ray.is_initialized()
        if self._is_own:
            check_answer(address or os.environ.get("RAY_ADDRESS") or "local")
            try:
                self._ray.init(address=address, logging_level="warning", log_to_driver=False)
            except (OSError, RuntimeError) as error:
                raise IoError(f"no cluster of Ray can be used at {address or 'RAY_ADDRESS'}: {_first_line(error)}") from error
        self._request = self._ray.put(request)
        self._folder = folder
        self._task = self._ray.remote(_run)
        self._limits = (0.0, 0, 0, 0)

    def _nodes(self) -> tuple[int, int, int]:
        """Returns the number of all cores, and the cores and the memory of the largest nodes: a task that asks for more would wait forever."""
        seen, *_ = self._limits
        now = time.monotonic()
        if not seen or now - seen > _PERIOD:
            nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
            cores = [int(node.get("CPU", 0)) for node in nodes]
            memory = [int(node.get("memory", 0)) for node in nodes if node.get("CPU", 0) >= 1]
            self._limits = (now, sum(cores), max(cores, default=0), max(memory, default=0))
        return self._limits[1:]

    def start(self, job: Job) -> Any:
        """Starts the task of a job. The driver starts lost ones again, so Ray does not."""
        _, cores, memory = self._nodes()
        cores = max(1, min(job.cores, cores or 1))
        options = {"num_cpus": cores, "memory": min(job.memory, memory) if memory else job.memory}
        task = self._task.options(**options, max_retries=0, scheduling_strategy="SPREAD")
        return task.remote(self._request, job.message, cores, self._folder, _native.__version__)

    def wait(self, keys: list[Any], seconds: float) -> list[Any]:
        """Returns the tasks that have ended."""
        ended, running = self._ray.wait(keys, num_returns=1, timeout=seconds)
        if ended and running:
            more, _ = self._ray.wait(running, num_returns=len(running), timeout=0)
            ended += more
        return list(ended)

    def result(self, key: Any) -> str:
        """Returns the result of a task."""
        failures = self._ray.exceptions
        try:
            result: str = self._ray.get(key)
            return result
        except failures.RayTaskError as error:
            # An exception in the task is a mistake in the setup, such as a node without this package.
            raise Error(f"a task cannot run: {error.cause if getattr(error, 'cause', None) else error}") from error
        except failures.OutOfMemoryError as error:
            raise LostError(_first_line(error), needs_memory=True) from error
        except failures.RayError as error:
            raise LostError(_first_line(error)) from error

    def cancel(self, keys: list[Any]) -> None:
        """Ends tasks, which then remove their unfinished outputs, and the connection if it was made here."""
        for key in keys:
            self._ray.cancel(key)
        if keys:
            self._ray.wait(keys, num_returns=len(keys), timeout=_CANCEL)
        if self._is_own:
            self._ray.shutdown()

    def capacity(self) -> int:
        """Returns the number of tasks that keep all cores busy."""
        return max(_TASKS_MIN, self._nodes()[0] * _TASKS_PER_CORE)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
