"""The driver of a fleet: gives the jobs of a batch to a cluster, and writes each result once. It knows nothing of Ray."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from .. import _native

#: Jobs that are read ahead while those before them wait for their host.
_AHEAD = 1000
#: Seconds until a lost job is tried again; twice as long each time.
_PAUSE = 1.0
#: Longest wait for results in seconds, and while new lines may come.
_WAIT, _WAIT_FOR_LINES = 5.0, 0.2
#: Bytes from which on an input is worth a second core, which hashes while the other writes.
_LARGE = 256 << 20
#: Memory of a process of Python with this package, and the smallest amount that is asked for.
_PROCESS = 128 << 20


class LostError(Exception):
    """A job ended without a result, because its process or its node did."""

    def __init__(self, text: str, *, needs_memory: bool = False) -> None:
        super().__init__(text)
        self.needs_memory = needs_memory


@dataclass
class Job:
    """A job of a batch.

    Attributes:
        input: the input, as the manifest has it
        message: the text from which a worker makes the job
        cores: number of cores
        memory: memory in bytes
        hosts: the servers that it sends requests to
        attempts: how often it was started
        not_before: time at which it may start
    """

    input: str
    message: str
    cores: int
    memory: int
    hosts: tuple[str, ...] = ()
    attempts: int = 0
    not_before: float = 0.0


class Cluster(Protocol):
    """Runs jobs in other processes."""

    def start(self, job: Job) -> Any:
        """Starts a job, and returns a key for it."""

    def wait(self, keys: list[Any], seconds: float) -> list[Any]:
        """Returns the keys of jobs that have ended, as soon as there is one, or none after a time."""
        ...

    def result(self, key: Any) -> str:
        """Returns the text of the result of a job that has ended.

        Raises:
            LostError: it has none, and another attempt may have
        """
        ...

    def cancel(self, keys: list[Any]) -> None:
        """Ends jobs."""

    def capacity(self) -> int:
        """Returns how many jobs it takes at the same time, some of which wait so that no core does."""
        ...


@dataclass
class Counts:
    """Numbers of results: all of them are `ok` or `failed`; `kept` are those of an earlier run, and `lost` attempts without a result."""

    ok: int = 0
    failed: int = 0
    kept: int = 0
    lost: int = 0


@dataclass
class Driver:
    """Gives the jobs of a batch to a cluster.

    Attributes:
        batch: the batch, which has the manifest and the results
        lines: lines of the manifest, if the batch does not read it
        jobs: most jobs at the same time; None for what the cluster takes
        per_host: most jobs at the same time that send requests to one server
        retries: how often a lost job is started again
    """

    batch: _native.Batch
    cluster: Cluster
    lines: Lines | None = None
    jobs: int | None = None
    per_host: int = 8
    retries: int = 3
    pause: float = _PAUSE
    counts: Counts = field(default_factory=Counts)
    _waiting: deque[Job] = field(default_factory=deque)
    _running: dict[Any, Job] = field(default_factory=dict)
    _busy: Counter[str] = field(default_factory=Counter)
    #: Results of an earlier run that are still valid.
    _kept: list[str] = field(default_factory=list)
    _is_read: bool = False

    def results(self) -> Iterator[tuple[str, bool]]:
        """Runs all jobs. Yields the line of each result when it is written, and whether it is from an earlier run."""
        try:
            while True:
                self._start()
                for message in self._kept:
                    yield self.batch.add(message)
                has_more, self._kept = bool(self._kept), []
                if not has_more and not self._running and not self._waiting and self._is_read:
                    break
                for key in self._wait(has_more):
                    ended = self._ended(key)
                    if ended is not None:
                        yield self.batch.add(ended)
            self.counts.ok, self.counts.failed, self.counts.kept = self.batch.finish()
        finally:
            self.cluster.cancel(list(self._running))
            self._running.clear()

    def _start(self) -> None:
        """Starts jobs until the cluster has enough, or all others have to wait."""
        limit = self.jobs or self.cluster.capacity()
        while len(self._running) < limit:
            job = self._next_job()
            if job is None:
                return
            job.attempts += 1
            self._busy.update(job.hosts)
            self._running[self.cluster.start(job)] = job

    def _next_job(self) -> Job | None:
        """Returns the first job that does not have to wait."""
        now = time.monotonic()
        for place, job in enumerate(self._waiting):
            if self._may_start(job, now):
                del self._waiting[place]
                return job
        while not self._is_read and len(self._waiting) < _AHEAD and len(self._kept) < _AHEAD:
            read = self._read_job()
            if read is None:
                return None
            if self._may_start(read, now):
                return read
            self._waiting.append(read)
        return None

    def _may_start(self, job: Job, now: float) -> bool:
        return job.not_before <= now and all(self._busy[host] < self.per_host for host in job.hosts)

    def _read_job(self) -> Job | None:
        """Returns the next job of the batch that was not done by an earlier run; None if there is none now."""
        while len(self._kept) < _AHEAD:
            if self.lines is None:
                row = self.batch.next_job()
                self._is_read = row is None
            else:
                line = self.lines.take()
                self._is_read = line is None and self.lines.is_over
                row = None if line is None else self.batch.job_of_line(line)
                if row is None and line is not None:
                    continue  # an empty line
            if row is None:
                return None
            input, message, nbytes, memory, kept = row
            if kept is None:
                return make_job(input, message, nbytes, memory)
            self._kept.append(kept)
        return None

    def _wait(self, has_more: bool) -> list[Any]:
        """Returns the keys of jobs that have ended, after at most some seconds, or at once if there is more to do."""
        if has_more:
            return self.cluster.wait(list(self._running), 0) if self._running else []
        seconds = _WAIT if self.lines is None or self._is_read else _WAIT_FOR_LINES
        now = time.monotonic()
        for job in self._waiting:
            if job.not_before > now:
                seconds = min(seconds, job.not_before - now)
        if self._running:
            return self.cluster.wait(list(self._running), seconds)
        if self.lines is not None and not self._is_read and not self._waiting:
            self.lines.wait(seconds)
        else:
            time.sleep(min(seconds, self.pause))
        return []

    def _ended(self, key: Any) -> str | None:
        """Returns the text of a result; None if the job is to be started again."""
        job = self._running.pop(key)
        self._busy.subtract(job.hosts)
        try:
            return self.cluster.result(key)
        except LostError as lost:
            self.counts.lost += 1
            if job.attempts > self.retries:
                text = f"{job.input}: the process that worked on it was lost {job.attempts} times; the last time: {lost}"
                return _native.failed_job(job.message, "io", text)
            if lost.needs_memory:
                job.memory *= 2
            job.not_before = time.monotonic() + self.pause * 2 ** (job.attempts - 1)
            self._waiting.append(job)
            return None


class Lines:
    """Lines of a manifest that come from an iterable, which a thread reads if it may have to wait for the next one."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.is_over = False
        self._error: BaseException | None = None
        self._ready: queue.Queue[str | None] = queue.Queue(maxsize=_AHEAD)
        self._first: str | None = None
        if isinstance(lines, Collection):
            self._here: Iterator[str] | None = iter(lines)
        else:
            self._here = None
            threading.Thread(target=self._read, args=(lines,), daemon=True, name="manifest").start()

    def _read(self, lines: Iterable[str]) -> None:
        try:
            for line in lines:
                self._ready.put(line)
        except BaseException as error:  # it is raised by the thread that takes the lines
            self._error = error
        self._ready.put(None)

    def take(self) -> str | None:
        """Returns the next line; None if there is none now."""
        if self._here is not None:
            line = next(self._here, None)
            self.is_over = line is None
            return line
        if self.is_over:
            return None
        if self._first is not None:
            line, self._first = self._first, None
            return line
        try:
            return self._checked(self._ready.get_nowait())
        except queue.Empty:
            return None

    def wait(self, seconds: float) -> None:
        """Waits until there is a line, or for some seconds."""
        try:
            self._first = self._checked(self._ready.get(timeout=seconds))
        except queue.Empty:
            pass

    def _checked(self, line: str | None) -> str | None:
        if line is None:
            self.is_over = True
            if self._error is not None:
                raise self._error
        return line


def make_job(input: str, message: str, nbytes: int, memory: int) -> Job:
    """Makes a job of what the batch says about it.

    Ray keeps workers apart whose jobs ask for different amounts, so memory is a power of two.
    """
    need = memory + _PROCESS
    rounded = 1 << (need - 1).bit_length()
    return Job(input, message, 2 if nbytes >= _LARGE else 1, rounded, tuple(_hosts(input)))


def _hosts(input: str) -> Iterator[str]:
    address = urlsplit(input) if "://" in input else None
    if address is not None and address.scheme:
        yield "huggingface.co" if address.scheme == "hf" else (address.hostname or address.scheme)


def run_job(worker: Callable[[str], _native.BatchWorker], request: str, message: str, cores: int, folder: str) -> str:
    """Runs a job in this process, in the folder to which its paths are relative. Returns the text of its result."""
    from .._errors import InternalError

    if os.path.isdir(folder):
        os.chdir(folder)
    try:
        return worker(request).run(message, cores)
    except InternalError as error:
        return _native.failed_job(message, "internal", str(error))
