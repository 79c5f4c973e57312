"""The client of a worker: starts the process, sends one request at a time, and restarts the process if it ends."""

import json
import subprocess
import tempfile
from pathlib import Path

WORKERS = Path(__file__).resolve().parent / "workers"


class WorkerError(AssertionError):
    """The request raised an exception in the worker or ended its process; the text is the traceback."""


class Worker:
    def __init__(self, python, script, env=None):
        self.command, self.env = [str(python), "-B", str(WORKERS / script)], env
        self.process = None

    def ask(self, do, **request):
        if self.process is None:
            self.words = tempfile.TemporaryFile()
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.words, text=True, env=self.env)
        self.process.stdin.write(json.dumps({"do": do, **request}, default=str) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            status, self.process = self.process.wait(), None
            self.words.seek(0)
            words = self.words.read()[-3000:].decode(errors="replace")
            raise WorkerError(f"the worker ended with status {status} in {do}:\n{words}")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(f"{do}:\n{answer['error']}")
        return answer["ok"]

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
