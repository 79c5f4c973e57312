#!/usr/bin/env python3
"""Asks a server as fast as it answers, with 1, 2, 8 and 64 clients, and prints requests per second, p50 and p99.

    serve.py [--model NAME] [--shape 1,16] [--output NAME] [--seconds 5] [--clients 1,2,8,64] COMMAND…
    serve.py --shape 1,16 --output logits target/release/torch2carton serve -q --port 0 x.carton
    serve.py --model identity_fp32 --shape 1,16 target/release/examples/identity --port 0

COMMAND starts a server that prints its address as the first line of standard output. Each client has a connection of its own,
on which it sends the next request when it has the answer to the last one. The tensor is sent as bytes and comes back as bytes.
An answer is right if it is byte for byte the first one, which was asked for alone; an answer that is wrong, or a connection
that ends, is counted as lost, and then the exit status is 1. The clients are one thread of Python, which shares the machine
with the server: with small tensors they take more of it than the server does. Needs only Python's standard library.
"""

import argparse
import json
import random
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time

SIZES = {"BOOL": "?", "INT32": "i", "INT64": "q", "UINT8": "B", "FP32": "f", "FP64": "d"}


class Client:
    """A connection that sends the same request again and again."""

    def __init__(self, address, request):
        self.stream = socket.create_connection(address)
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request, self.buffer, self.start = request, b"", 0.0

    def send(self):
        self.buffer, self.start = b"", time.perf_counter()
        self.stream.sendall(self.request)

    def receive(self):
        """The status line and the body of the answer, or None if it is not complete."""
        got = self.stream.recv(1 << 20)
        if not got:
            raise ConnectionError("the server closed the connection")
        self.buffer += got
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return None
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        return (head.split(b"\r\n")[0], body) if len(body) >= int(length.split(b":")[1]) else None


def load(address, request, expected, clients, seconds):
    """The latencies in seconds, how long it took, and how many answers were wrong or lost."""
    latencies, lost, ready = [], 0, selectors.DefaultSelector()
    begin = time.perf_counter()
    for client in [Client(address, request) for _ in range(clients)]:
        client.send()
        ready.register(client.stream, selectors.EVENT_READ, client)
    while ready.get_map():
        for key, _ in ready.select():
            client = key.data
            try:
                answer = client.receive()
                if answer is None:
                    continue
                now = time.perf_counter()
                latencies.append(now - client.start)
                lost += answer != expected
                if now - begin < seconds:
                    client.send()
                    continue
            except OSError:
                lost += 1
            ready.unregister(client.stream)
            client.stream.close()
    return sorted(latencies), time.perf_counter() - begin, lost


def http(address, method, path, body=b"", headers=""):
    """The bytes of a request."""
    return f"{method} {path} HTTP/1.1\r\nHost: {address[0]}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


def ask(address, request):
    """One answer, asked for alone."""
    client, answer = Client(address, request), None
    client.send()
    while answer is None:
        answer = client.receive()
    client.stream.close()
    return answer


def infer(address, model, shape, output):
    """The bytes of a request with random values for the model's first input."""
    metadata = json.loads(ask(address, http(address, "GET", f"/v2/models/{model}"))[1])
    given = metadata["inputs"][0]
    count = 1
    for size in shape:
        count *= size
    values = random.Random(0)
    data = struct.pack(f"<{count}{SIZES[given['datatype']]}", *(values.randrange(2, 100) for _ in range(count)))
    tensor = {"name": given["name"], "shape": shape, "datatype": given["datatype"], "parameters": {"binary_data_size": len(data)}}
    wanted = [{"name": output or metadata["outputs"][0]["name"], "parameters": {"binary_data": True}}]
    header = json.dumps({"inputs": [tensor], "outputs": wanted}).encode()
    return http(address, "POST", f"/v2/models/{model}/infer", header + data, f"Inference-Header-Content-Length: {len(header)}\r\n")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--model", help="[default: the first of the server's index]")
    arguments.add_argument("--shape", default="1,16", help="the shape of its first input")
    arguments.add_argument("--output", help="[default: the model's first]")
    arguments.add_argument("--seconds", default=5.0, type=float)
    arguments.add_argument("--clients", default="1,2,8,64")
    arguments.add_argument("command", nargs=argparse.REMAINDER)
    options = arguments.parse_args()
    server = subprocess.Popen(options.command, stdout=subprocess.PIPE, text=True)
    try:
        line = server.stdout.readline()
        host, _, port = line[line.index("http://") + len("http://"):].split()[0].rstrip("/").rpartition(":")
        address = host, int(port)
        index = json.loads(ask(address, http(address, "POST", "/v2/repository/index"))[1])
        model = options.model or index[0]["name"]
        request = infer(address, model, [int(size) for size in options.shape.split(",")], options.output)
        expected = ask(address, request)
        if b" 200 " not in expected[0]:
            sys.exit(f"{expected[0].decode()}: {expected[1][:500].decode(errors='replace')}")
        load(address, request, expected, 2, min(1.0, options.seconds))  # warms up
        print("| clients | requests/s | p50, ms | p99, ms | requests | lost |\n|---|---|---|---|---|---|")
        all_lost = 0
        for clients in map(int, options.clients.split(",")):
            latencies, took, lost = load(address, request, expected, clients, options.seconds)
            at = lambda share: 1000 * latencies[min(len(latencies) - 1, int(share * len(latencies)))]
            print(f"| {clients} | {len(latencies) / took:,.0f} | {at(0.5):.2f} | {at(0.99):.2f} | {len(latencies):,} | {lost} |", flush=True)
            all_lost += lost
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
    return 1 if all_lost else 0


if __name__ == "__main__":
    sys.exit(main())
