"""Time and memory of a whole process, for the benchmarks of this folder."""

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent

TOUCH = "import mmap, sys; mmap.mmap(-1, int(sys.argv[1]), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()"


def touch(size):
    """Touches `size` bytes of memory and gives them back, after all earlier files are on the disk. A virtual machine returns
    free memory to its host, and the first program that takes it again would pay for it."""
    os.sync()
    subprocess.run([sys.executable, "-c", TOUCH, str(size)], check=True)


def describe(binary):
    """Prints and returns the processor, the number of its cores, and which of its extensions the program uses."""
    info = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    used = subprocess.run([binary, "-VV"], check=True, capture_output=True, text=True).stdout
    text = f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores\n{used}"
    print(text)
    return text


def timed(arguments):
    """Runs a command without its output. Returns its seconds and its largest memory in MiB; ends this program if it fails."""
    start = time.perf_counter()
    child = subprocess.Popen([str(argument) for argument in arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(map(str, arguments))} failed")
    return time.perf_counter() - start, usage.ru_maxrss / 1024
