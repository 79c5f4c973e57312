#!/usr/bin/env python3
"""Makes hostile files of at most 5 MB from a seed, and measures what each command needs for them.

    bombs.py --binary target/release/torch2carton [--count 1000] [--seed 1] [--first 0] [--all-commands] [--keep FOLDER]

Prints a line for each command that needs more than 300 MB of memory or 5 seconds of processor time, and the largest
figures at the end. `trace` prints a listing as long as its input asks for, so only its memory counts. The exit status is 1 if
a command needs too much memory, panics, or takes more than a minute of processor time. Needs Python's standard library.
"""

import argparse
import io
import json
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

SIZE, MEMORY, SECONDS, STOP, DISK = 5_000_000, 300_000_000, 5.0, 60, 1_500_000_000

MAGIC = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
META = b"ctorch._utils\n_rebuild_meta_tensor_no_storage\n(ctorch\nfloat32\n))\x89tR"


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value


def number(value):
    return b"\x8a\x08" + struct.pack("<q", value)


def tensor(key, count, shape, stride, offset=0):
    """A view of a storage of `count` floats."""
    storage = b"(" + text(b"storage") + b"ctorch\nFloatStorage\n" + text(key) + text(b"cpu") + number(count) + b"tQ"
    sizes, strides = (b"(" + b"".join(map(number, values)) + b"t" for values in (shape, stride))
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(offset) + sizes + strides + b"\x89ccollections\nOrderedDict\n)RtR"


UNITS = [
    b"N", b"}", b"]", b"]Na", b"}NNs", b")", b"(t", b"(Nl", b"(NNd", b"\x8f", b"\x8f(N\x90", b"K\x01", b"J\x01\x02\x03\x04",
    b"G\0\0\0\0\0\0\0\0", b"N\x85", b"]\x94", b"N)R", b"N)RNb", b"N)RNbNNsNa", b"c\n\n", b"cos\nsystem\n", b"c__main__\nC\n)\x81}b",
    b"(i\n\n", b"P\n", b"P\nNa", b"NQ", b"\x82\x01", b"\x97", b"V\xff\n", b"V\\u0041\n", b"\x8c\x03\xed\xa0\x80", b"S'\\x41'\n",
    b"U\x01a0", b"]0N", b"I1\n", b"L123456789012345678901234567890L\n", b"F1.5\n", b"X\x02\0\0\0ab", b"X\x20\0\0\0" + b"k" * 32,
    META, b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"h\0", b"h\0h\0\x86", b"}h\0h\0s", b"]h\0a",
]
SHARED = [b"N", b"]", b"](" + b"K\x01" * 1000 + b"e", b"}(" + b"".join(b"J" + struct.pack("<I", i) + b"K\x01" for i in range(1000)) + b"u",
          META, b"X" + struct.pack("<I", 100_000) + b"k" * 100_000, b"c__main__\nC\n)\x81}(X\x01\0\0\0aK\x01ub"]


def objects(rng, size):
    """A pickle of about `size` bytes that repeats one or two pieces, between each other or inside each other."""
    head = b"\x80\x02" + rng.choice(SHARED) + b"q\x000"
    unit = rng.choice(UNITS) if rng.random() < 0.7 else rng.choice(UNITS) + rng.choice(UNITS)
    shape = rng.random()
    room = max(size - len(head), 1000)
    if shape < 0.2:
        nested = rng.choice([(b"]", b"a"), (b"}K\x01", b"s"), (b"", b"\x85"), (b"(", b"t"), (b"(", b"l"), (b"c\nf\n", b"\x85R")])
        times = room // (len(nested[0]) + len(nested[1]))
        return head + nested[0] * times + b"N" + nested[1] * times + b"."
    if shape < 0.3:
        keys, pieces = rng.randrange(1 << 32), []
        for _ in range(room // 6):
            keys = (keys * 2654435761 + 12345) & 0xFFFFFFFF
            pieces.append(b"r" + struct.pack("<I", keys))
        return head + b"N" + b"".join(pieces) + b"."
    if shape < 0.5:
        entries = b"".join(text(b"%d" % i) + rng.choice([b"h\0", b"N", META, b"]"]) for i in range(room // 20))
        return head + b"}(" + entries + b"u."
    return head + b"](" + unit * (room // len(unit)) + b"e."


def archive(records, deflate, root="archive"):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED, compresslevel=6) as file:
        for name, data in records:
            file.writestr(f"{root}/{name}" if root else name, data)
    return out.getvalue()


def bare(rng):
    return "a.pkl", objects(rng, rng.randrange(1000, SIZE))


def stored(rng):
    return "a.pth", archive([("data.pkl", objects(rng, rng.randrange(1000, SIZE - 1000))), ("version", b"3\n")], False)


def deflated(rng):
    """The pickle is up to a thousand times as long as the file."""
    size = int(1000 * 10 ** rng.uniform(1, 5))
    return "a.pth", archive([("data.pkl", objects(rng, size)), ("version", b"3\n")], True)


def padded(rng):
    """A deflated pickle next to a storage that makes the file large."""
    size = int(1000 * 10 ** rng.uniform(2, 4.7))
    records = [("data.pkl", objects(rng, size)), ("data/0", rng.randbytes(rng.randrange(SIZE * 4 // 5)))]
    return "a.pth", archive([(name, data) for name, data in records], True)


def legacy(rng):
    system = b"\x80\x02}."
    return "a.pth", MAGIC + b"\x80\x02M\xe9\x03." + system + objects(rng, rng.randrange(1000, SIZE - 1000)) + b"\x80\x02]."


def views(rng):
    """Views that expand or overlap, many or few, and storages that inflate."""
    floats = rng.choice([1, 1000, 100_000, 1_000_000])
    count = rng.choice([1, 10, 1000, 10_000])
    pieces = []
    for index in range(count):
        kind = rng.randrange(4)
        if kind == 0:
            shape, stride = [1 << rng.randrange(1, 40), floats], [0, 1]
        elif kind == 1:
            half = max(floats // 2, 1)
            shape, stride = [half, half], [1, 1]
        elif kind == 2:
            shape, stride = [floats], [1]
        else:
            shape, stride = [1] * rng.randrange(1, 200) + [floats], [0] * 199
            stride = [0] * (len(shape) - 1) + [1]
        pieces.append(text(b"%d" % index) + tensor(b"0", floats, shape, stride))
    pickle = b"\x80\x02}(" + b"".join(pieces) + b"u."
    zeros = rng.random() < 0.5
    data = b"\0" * (4 * floats) if zeros else rng.randbytes(4 * floats)
    return "a.pth", archive([("data.pkl", pickle), ("data/0", data)], zeros)


def zeros(rng):
    """Storages of zeros that deflate by a thousand."""
    floats = rng.choice([1 << 20, 1 << 24, 1 << 26])
    pickle = b"\x80\x02}(" + text(b"w") + tensor(b"0", floats, [floats], [1]) + b"u."
    return "a.pth", archive([("data.pkl", pickle), ("data/0", bytes(4 * floats))], True)


def entries(rng):
    """Tens of thousands of records, in few bytes each."""
    count = rng.randrange(1000, 40_000)
    return "a.pth", archive([("data.pkl", b"\x80\x02}.")] + [(f"data/{i}", b"") for i in range(count)], False)[:SIZE]


def script(rng):
    """TorchScript with much code."""
    line = rng.choice([b"  x = torch.add(x, 1)\n", b"  x = ((((((x))))))\n", b"  # comment\n", b"  x = " + b"(" * 500 + b"x" + b")" * 500 + b"\n",
                       b"  x = \"" + b"a" * 500 + b"\"\n", b"class A%d(Module):\n", b"  def f(self, x: Dict[str, Tuple[int, int]]) -> int:\n    return 1\n"])
    size = int(1000 * 10 ** rng.uniform(1, 4.5))
    code = b"class M(Module):\n  def forward(self, x: Tensor) -> Tensor:\n" + line * (size // len(line)) + b"  return x\n"
    pickle = b"\x80\x02c__torch__\nM\n)\x81}b."
    many = rng.choice([1, 1, 20])
    records = [("data.pkl", pickle), ("constants.pkl", b"\x80\x02)."), ("version", b"3\n")]
    records += [(f"code/__torch__{'' if i == 0 else i}.py", code) for i in range(many)]
    return "a.pt", archive(records, True)


def safetensors(rng):
    kind = rng.randrange(4)
    if kind == 0:
        header = {f"{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(rng.randrange(60_000))}
        text_ = json.dumps(header)
    elif kind == 1:
        text_ = '{"__metadata__":{' + ",".join(f'"{i}":""' for i in range(rng.randrange(300_000))) + "}}"
    elif kind == 2:
        text_ = '{"a":' + "[" * rng.randrange(10, 4_000_000)
    else:
        shape = [1] * rng.randrange(1, 1_000_000)
        text_ = json.dumps({"a": {"dtype": "U8", "shape": shape, "data_offsets": [0, 1]}})
    data = text_.encode()[: SIZE - 100]
    return "a.safetensors", struct.pack("<Q", len(data)) + data + b"\0"


def carton(rng):
    """A carton with long documents or many entries."""
    count = rng.choice([10, 1000, 30_000])
    names = [f"misc/{i}" for i in range(count)]
    manifest = "".join(f"{name}={'0' * 64}\n" for name in names).encode()
    toml = b'spec_version = 1\n[runner]\nrunner_name = "torchscript"\nrequired_framework_version = "=2.0"\nrunner_compat_version = 1\n'
    toml += rng.choice([b"", b"[[input]]\nname = \"x\"\ndtype = \"float32\"\nshape = [1]\n" * 10_000, b"a = " + b"[" * 1_000_000, b"[misc]\n" * 100])
    records = [("carton.toml", toml), ("MANIFEST", manifest)] + [(name, b"") for name in names]
    records.append(("model/model.pt", archive([("data.pkl", objects(rng, int(1000 * 10 ** rng.uniform(1, 4.8)))), ("version", b"3\n")], True)))
    return "a.carton", archive(records, rng.random() < 0.7, root="")


KINDS = [bare, stored, deflated, deflated, deflated, padded, legacy, views, views, zeros, entries, script, safetensors, carton]

ANY = [["inspect"], ["inspect", "--json", "--sha256"], ["inspect", "--all"], ["scan"], ["scan", "--json"], ["trace"], ["trace", "--summary"],
       ["trace", "--dis"], ["trace", "--full"], ["convert", "--arch", "weights", "-o", "OUT/o.carton"], ["convert", "-o", "OUT/o.safetensors"],
       ["convert", "-o", "OUT/o.pth"], ["convert", "--arch", "weights", "--allow-dangerous", "--json", "-o", "OUT/o.carton"]]
CARTONS = [["verify"], ["inspect"], ["unpack", "-C", "OUT/u"], ["run", "--top", "1", "--tokens", "1"], ["run", "--self-test"], ["scan"]]


def make(seed, index):
    """The kind, the name and the bytes of a file, and the commands for it."""
    rng = random.Random(f"{seed}/{index}")
    kind = rng.choice(KINDS)
    name, data = kind(rng)
    if len(data) > SIZE:
        data = data[:SIZE]
    commands = ANY + CARTONS if kind is carton else ANY
    return kind.__name__, name, data, commands, rng.choice(commands)


def limit():
    resource.setrlimit(resource.RLIMIT_CPU, (STOP, STOP))
    resource.setrlimit(resource.RLIMIT_FSIZE, (DISK, DISK))


def run(binary, command, path, out):
    """The exit status, peak memory, processor time and errors of a command."""
    out.mkdir()
    arguments = [part.replace("OUT", str(out)) for part in command]
    place = 1
    arguments.insert(place, str(path))
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen([binary, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, preexec_fn=limit)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        stderr = errors.read(4000).decode(errors="replace")
    shutil.rmtree(out)
    return process.returncode, usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime, stderr


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--binary", type=Path, required=True)
    arguments.add_argument("--count", type=int, default=1000)
    arguments.add_argument("--first", type=int, default=0)
    arguments.add_argument("--seed", default="1")
    arguments.add_argument("--all-commands", action="store_true")
    arguments.add_argument("--verbose", action="store_true", help="print every run")
    arguments.add_argument("--keep", type=Path, help="write the files into this folder and run nothing")
    options = arguments.parse_args()
    if options.keep:
        options.keep.mkdir(exist_ok=True)
    faults, slow, runs, most_memory, most_seconds = 0, 0, 0, (0, ""), (0.0, "")
    with tempfile.TemporaryDirectory() as folder:
        for index in range(options.first, options.first + options.count):
            kind, name, data, commands, chosen = make(options.seed, index)
            path = Path(options.keep or folder, f"{index}-{name}")
            path.write_bytes(data)
            del data
            if options.keep:
                continue
            for command in commands if options.all_commands else [chosen]:
                status, peak, seconds, stderr = run(options.binary, command, path, Path(folder, "out"))
                what = f"{index} {kind} {path.stat().st_size} bytes, {' '.join(command)}: {peak / 1e6:.0f} MB, {seconds:.1f} s, exit status {status}"
                runs += 1
                most_memory = max(most_memory, (peak, what))
                is_slow = seconds > SECONDS and command[0] != "trace"
                most_seconds = max(most_seconds, (seconds if command[0] != "trace" else 0, what))
                is_fault = peak > MEMORY or "panicked" in stderr or (status < 0 and command[0] != "trace")
                faults += is_fault
                slow += is_slow
                if is_fault or is_slow or options.verbose:
                    print(what, *stderr.strip().splitlines()[:2], sep="\n    ", flush=True)
            path.unlink()
    print(f"{runs} runs: {faults} faults, {slow} above {SECONDS} s\nmost memory: {most_memory[1]}\nmost time: {most_seconds[1]}")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
