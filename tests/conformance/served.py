"""Servers: the program's as a process with requests to it, and those of tests on the loopback interface."""

import contextlib
import http.client
import http.server
import json
import os
import signal
import ssl
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from http.client import HTTPMessage
from pathlib import Path

from program import BINARY, CLEAN

TREE = Path(__file__).resolve().parents[2]


@dataclass
class Response:
    status: int
    headers: HTTPMessage
    body: bytes

    def json(self):
        return json.loads(self.body)


class Server:
    """A server that prints its address as the first line of standard output."""

    def __init__(self, *command, env=None):
        self.words = tempfile.TemporaryFile()
        self.process = subprocess.Popen([str(part) for part in command], env=CLEAN | (env or {}), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.words, text=True)
        line = self.process.stdout.readline()
        assert "http://" in line, f"{command}: no address: {line}{self.log()}"
        self.url = line[line.index("http://") + len("http://"):].split()[0].rstrip("/")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            stream.close()

    def log(self):
        self.words.seek(0)
        return self.words.read().decode(errors="replace")[-3000:]

    def request(self, method, path, body=None, headers=()):
        """One request with a connection of its own."""
        with contextlib.closing(http.client.HTTPConnection(self.url, timeout=60)) as connection:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            return Response(answer.status, answer.headers, answer.read())

    def end(self, sig=signal.SIGTERM, timeout=60):
        """Asks the process to end; returns its exit status."""
        if sig is None:
            self.process.stdin.close()
        else:
            self.process.send_signal(sig)
        return self.process.wait(timeout)


def identity():
    """The server of `crates/run/serve/examples/identity.rs`, which returns what it gets; built as the program was."""
    program = Path(os.environ.get("T2C_IDENTITY") or Path(BINARY).parent / "examples/identity")
    if "T2C_IDENTITY" not in os.environ:
        profile = {"release": ["--release"]}.get(program.parent.parent.name, [])
        # Of the whole workspace, so that dependencies have the features with which the tests have built them.
        command = ["cargo", "build", "--quiet", "--locked", *profile, "--workspace", "--example", "identity"]
        subprocess.run(command, cwd=TREE, check=True)
    return program


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers requests without a log."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": len(body)}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def asked_range(self, length):
        """The start and end of the range that is asked for, or None."""
        if wanted := self.headers.get("range"):
            first, last = wanted.removeprefix("bytes=").split("-")
            return int(first) if first else max(0, length - int(last)), min(int(last) + 1, length) if first and last else length
        return None

    def answer_range(self, data, **headers):
        """The range that is asked for, or all."""
        if asked := self.asked_range(len(data)):
            start, end = asked
            return self.answer(206, data[start:end], Content_Range=f"bytes {start}-{end - 1}/{len(data)}", **headers)
        return self.answer(200, data, **headers)


@contextlib.contextmanager
def running(handler, certificate=None, **settings):
    """A server with this handler, and the settings as its attributes; `address` and `port` say where it is."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads, server.handle_error = True, lambda *_: None
    for name, value in settings.items():
        setattr(server, name, value)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.port = server.server_address[1]
    server.address = f"127.0.0.1:{server.port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
