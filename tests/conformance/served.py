"""A server as a process, and requests to it byte by byte over a socket."""

import json
import os
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

from program import BINARY, CLEAN

TREE = Path(__file__).resolve().parents[2]


class Server:
    """A server that prints its address as the first line of standard output."""

    def __init__(self, *command, env=None):
        self.words = tempfile.TemporaryFile()
        self.process = subprocess.Popen([str(part) for part in command], env=CLEAN | (env or {}), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.words, text=True)
        line = self.process.stdout.readline()
        assert "http://" in line, f"{command}: no address: {line}{self.log()}"
        self.url = line[line.index("http://") + len("http://"):].split()[0].rstrip("/")
        host, _, port = self.url.rpartition(":")
        self.address = host, int(port)

    def log(self):
        self.words.seek(0)
        return self.words.read().decode(errors="replace")[-3000:]

    def connect(self, timeout=60):
        return Connection(socket.create_connection(self.address, timeout=timeout))

    def request(self, method, path, body=b"", headers=()):
        """One request with a connection of its own."""
        with self.connect() as connection:
            connection.send(method, path, body, headers)
            return connection.receive(method)

    def end(self, sig=signal.SIGTERM, timeout=60):
        """Asks the process to end; returns its exit status."""
        if sig is None:
            self.process.stdin.close()
        else:
            self.process.send_signal(sig)
        return self.process.wait(timeout)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            stream.close()


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.headers} {self.body[:300]}"


class Connection:
    """A connection that sends exactly the bytes that a test gives, and reads responses one after the other."""

    def __init__(self, stream):
        self.stream, self.buffer = stream, b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stream.close()

    def send(self, method, path, body=b"", headers=()):
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *(f"{name}: {value}" for name, value in headers)]
        names = {name.lower() for name, _ in headers}
        if method == "POST" and not names & {"content-length", "transfer-encoding"}:
            lines.append(f"Content-Length: {len(body)}")
        self.stream.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    def receive(self, method="POST"):
        """The next response; skips none, so that 100 Continue is one too."""
        head = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        status = int(head[0].split()[1])
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        if status < 200 or method == "HEAD":
            body = b""
        elif headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self.until(b"\r\n").split(b";")[0], 16):
                body += self.exactly(size)
                self.exactly(2)
            self.until(b"\r\n")
        else:
            body = self.exactly(int(headers.get("content-length", 0)))
        return Response(status, headers, body)

    def until(self, end):
        while end not in self.buffer:
            self.more()
        found, _, self.buffer = self.buffer.partition(end)
        return found + end

    def exactly(self, size):
        while len(self.buffer) < size:
            self.more()
        found, self.buffer = self.buffer[:size], self.buffer[size:]
        return found

    def more(self):
        got = self.stream.recv(1 << 16)
        if not got:
            raise ConnectionError(f"the server closed the connection; so far: {self.buffer[:300]}")
        self.buffer += got


def identity():
    """The server of `crates/run/serve/examples/identity.rs`, which returns what it gets; built as the program was."""
    program = Path(os.environ.get("T2C_IDENTITY") or Path(BINARY).parent / "examples/identity")
    if "T2C_IDENTITY" not in os.environ:
        profile = {"release": ["--release"]}.get(program.parent.parent.name, [])
        command = ["cargo", "build", "--quiet", "--locked", *profile, "-p", "serve", "--example", "identity"]
        subprocess.run(command, cwd=TREE, check=True)
    return program
