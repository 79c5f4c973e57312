"""Runs a command and prints {"status", "peak", "seconds", "stderr"} as JSON; `peak` is its resident maximum in bytes.

This is a separate process because the peak of a child starts at the size of its parent.
"""

import json
import os
import resource
import sys
import time

CPU_SECONDS = 120

near, far = os.pipe()
start = time.monotonic()
child = os.fork()
if child == 0:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.dup2(far, 2)
    os.close(near)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    os.execv(sys.argv[1], sys.argv[1:])
os.close(far)
words = b"".join(iter(lambda: os.read(near, 65536), b""))
_, status, used = os.wait4(child, 0)
print(json.dumps({
    "status": os.waitstatus_to_exitcode(status),
    "peak": used.ru_maxrss * 1024,
    "seconds": time.monotonic() - start,
    "stderr": words.decode(errors="replace"),
}))
