#!/usr/bin/env python3
"""Mixes judged uses: objects inside each other, by a seed. What a scan calls clean is loaded, and must run nothing.

    judged_mixes.py --binary target/release/torch2carton [--count 2000] [--seed 1] PYTHON…

`judged_uses.py` proves each use alone. Here a pickle has up to a dozen objects of the lists: as arguments, attributes, items, keys and
states of each other, shared, and inside themselves. Among them are canaries: instances of a class that is only judged to be made, whose methods
are replaced in the interpreter by ones that tell. Each PYTHON loads the clean ones under the audit hook of workers/use_worker.py. The exit
status is 1 if one raises an event or touches a canary.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from judged_uses import HERE, LISTS, instances, reviewed
from payloads import NONE, PROTO, TRUE, listed, many, mapped, name, short

# Attributes that Python or a class looks at.
ATTRIBUTES = ["a", "training", "__setstate__", "__class__", "__dict__", "__reduce_ex__", "append", "extend", "add", "data", "_parameters", "_modules", "_buffers", "__eq__", "_hash", "_dim_group_names", "with_module", "network_address",
              "param_groups", "state", "defaults", "default_factory", "args", "value", "name", "_value_", "hook", "_hooks", "keys", "items", "__hash__", "__len__", "dtype",
              "shape", "__array__", "__array_interface__", "__torch_function__", "__iter__", "__getattr__", "__call__", "_flat_weights", "_all_weights", "maxlen"]
# Methods that reviewed functions call, or that the interpreter calls when an object goes away.
METHODS = ["keys", "items", "detach", "to", "dim", "unbind", "tolist", "close", "flush", "get", "update", "default_factory", "as_subclass", "requires_grad_", "set_", "__iter__"]
# Functions that read much of their first argument, and the others.
READERS = {("builtins", "dict"): [], ("builtins", "list"): [], ("builtins", "set"): [], ("collections", "OrderedDict"): [], ("collections", "Counter"): [], ("numpy", "dtype"): [],
           ("torch.nn.parameter", "Parameter"): [], ("torch", "FloatTensor"): [], ("torch", "Size"): [], ("torch._utils", "_rebuild_parameter"): [TRUE, b"}"],
           ("torch._utils", "_rebuild_device_tensor_from_cpu_tensor"): [name("torch:float32"), short("cpu"), b"\x89"]}
CANARY = "torch.utils.data.dataloader DataLoader"
# May be named, and no function calls it.
FUNCTION = "colorsys rgb_to_hsv"
STORAGE = many(short("storage"), name("torch:FloatStorage"), short("0"), short("cpu"), b"K\4") + b"Q"
REBUILT = {"_rebuild_tensor_v2": [STORAGE, b"K\0", b"K\1\x85", b"K\1\x85", b"\x89", b"}"], "_rebuild_tensor": [STORAGE, b"K\0", b"K\1\x85", b"K\1\x85"]}


class Mixer(object):
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.made, self.called, self.rules = {}, [], rules()
        for module, attribute, _, letters in instances():
            self.made[module, attribute] = letters
        for module, attribute, use, letters in reviewed():
            if use == "call":
                self.called.append((module, attribute))
            self.made.setdefault((module, attribute), letters)
        self.names = sorted(self.made)
        self.readable = [key for key in self.names if "p" in self.made[key]]
        self.readers = sorted(key for key, wanted in self.rules.items() if {"data", "named", "pairs"} & {*wanted})
        # Most classes only store their states.
        self.hooked = [key for key in self.names if set(self.made[key]) & set("hHlmrbtgaijcK")]
        # Few classes in each pickle, so that they meet.
        self.chosen = []

    def pickle(self):
        self.memo = 0
        self.chosen = self.random.sample(self.random.choice([self.names, self.hooked]), 3)
        self.functions = self.random.sample(self.called, 3)
        made = self.instance if self.random.random() < 0.5 else self.reading
        return PROTO + many(*(made(1) for _ in range(self.random.randrange(1, 4)))) + b"."

    def value(self, depth):
        ways = [self.plain] * 2 + [self.canary, self.named_canary]
        if depth < 4:
            ways += [self.listed, self.mapped, self.tuple, self.function, self.tensor] + [self.instance] * 4
        if self.memo:
            ways += [self.shared]
        body = self.random.choice(ways)(depth + 1)
        return body

    def values(self, depth, most=3):
        return [self.value(depth) for _ in range(self.random.randrange(most + 1))]

    def plain(self, depth):
        return self.random.choice([NONE, TRUE, b"K\1", b"K\0", short("a"), short("cpu"), short("__class__"), b"}", b"]", b")", b"C\1b", b"G?\xf0\0\0\0\0\0\0", b"J\xff\xff\xff\xff",
                                   name("builtins:int"), name("torch:float32"), name("collections:OrderedDict"), short("os")])

    def canary(self, depth):
        module, attribute = CANARY.split()
        return name(f"{module}:{attribute}") + b")\x81" + b"}" + short("num_workers") + b"K\0sb"

    def named_canary(self, depth):
        """The function, or an annotation, whose call would call it."""
        function = name(FUNCTION.replace(" ", ":"))
        return self.random.choice([function, name("types:GenericAlias") + many(function, b"K\1") + b"R", name("types:GenericAlias") + many(function, many(name("builtins:int"))) + b"R"])

    def methods(self, depth):
        """Attributes that would replace methods of an instance."""
        return b"}(" + b"".join(short(self.random.choice(METHODS)) + self.random.choice([self.named_canary, self.value])(depth) for _ in range(self.random.randrange(1, 3))) + b"u"

    def fitting(self, rule, depth):
        """An argument for a rule of reviewed.txt."""
        ways = {"plain": [self.plain], "data": [self.plain, self.listed, self.instance], "type": [lambda _: name("builtins:" + self.random.choice(["dict", "list", "object"]))],
                "class": [self.a_class], "new": [self.a_class], "attributes": [self.methods], "storage": [lambda _: STORAGE], "text": [self.plain]}
        return self.random.choice(ways.get(rule, [self.value, self.instance, self.tensor]))(depth + 1)

    def fitting_args(self, names, depth):
        """Arguments that mostly fit a function."""
        wanted = list(self.rules.get(names, []))
        if names[1] == "_rebuild_parameter_with_state" and self.random.random() < 0.8:
            return [name("torch._utils:_rebuild_tensor_v2") + many(*REBUILT["_rebuild_tensor_v2"]) + b"R", TRUE, b"}", self.methods(depth)]
        if names[1] in REBUILT and self.random.random() < 0.8:
            return REBUILT[names[1]]
        if "function" in wanted:
            inner = self.random.choice([("torch._utils", "_rebuild_tensor_v2"), ("torch._utils", "_rebuild_parameter_with_state"), *(
                key for key in self.rules if key[1].startswith("_rebuild_") and "function" not in self.rules[key])])
            return [name(":".join(inner)), self.a_class(depth), many(*self.fitting_args(inner, depth + 1)), self.methods(depth)]
        if wanted:
            wanted += [wanted[-1]] * self.random.randrange(4)
        return [self.fitting(rule, depth) for rule in wanted]

    def reading(self, depth):
        """A call of a reviewed function, or a hook, that reads an object with a canary."""
        names = self.random.choice(self.readers if self.random.random() < 0.3 else [*READERS])
        args = list(READERS[names] if names in READERS else self.fitting_args(names, depth + 2)[1:])
        return self.remember(name(":".join(names)) + many(self.carrier(depth + 2), *args) + b"R")

    def carrier(self, depth):
        """An object that can be read, whose attributes, factory or contents lead to a canary."""
        cls = name(":".join(self.random.choice(self.readable) if self.random.random() < 0.5 else ("collections", "OrderedDict")))
        new = cls + b")" + self.random.choice([b"R", b"\x81"])
        ways = [lambda: self.named_canary(depth), lambda: self.tensor(depth), lambda: new + self.methods(depth) + b"b", lambda: new + many(NONE, self.methods(depth)) + b"b",
                lambda: name("collections:defaultdict") + many(self.value(depth)) + b"R", lambda: name("collections:defaultdict") + many(self.named_canary(depth)) + b"R",
                lambda: listed(self.named_canary(depth)), lambda: many(self.named_canary(depth)), lambda: mapped(a=self.named_canary(depth)),
                lambda: name("torch._tensor:_rebuild_from_type_v2") + many(cls, cls, many(), self.methods(depth)) + b"R",
                lambda: name("torch._tensor:_rebuild_from_type_v2") + many(cls, cls, many(self.named_canary(depth)), b"}") + b"R"]
        return self.remember(self.random.choice(ways)())

    def a_class(self, depth):
        return name(":".join(self.random.choice([*self.chosen, ("torch", "Tensor"), ("torch.nn.parameter", "Parameter"), ("torch.nn.parameter", "Buffer"), ("collections", "OrderedDict"), ("numpy", "ndarray")])))

    def tensor(self, depth):
        """A tensor, perhaps of another class and with attributes."""
        if self.random.random() < 0.3:
            return self.remember(name("torch._utils:_rebuild_tensor_v2") + many(*REBUILT["_rebuild_tensor_v2"]) + b"R")
        names = self.random.choice([("torch._tensor", "_rebuild_from_type_v2"), ("torch._utils", "_rebuild_parameter_with_state")])
        args = self.fitting_args(names, depth) if names[0] == "torch._tensor" else [self.tensor(depth + 1) if depth < 4 else NONE, TRUE, b"}", self.methods(depth)]
        # `Tensor.__setstate__` reads tuples of four and five.
        state = many(*[self.plain(depth)] * 4) + b"b" if self.random.random() < 0.2 else b""
        return self.remember(name(":".join(names)) + many(*args) + b"R") + state

    def remember(self, body):
        self.memo += 1
        return body + b"r" + (self.memo - 1).to_bytes(4, "little")

    def shared(self, depth):
        return b"j" + self.random.randrange(self.memo).to_bytes(4, "little")

    def listed(self, depth):
        return self.remember(b"]") + b"(" + b"".join(self.values(depth)) + b"e"

    def mapped(self, depth):
        return self.remember(b"}") + b"(" + b"".join(self.key(depth) + self.value(depth) for _ in range(self.random.randrange(3))) + b"u"

    def key(self, depth):
        return self.value(depth) if self.random.random() < 0.5 else short(self.random.choice(ATTRIBUTES))

    def tuple(self, depth):
        return self.remember(many(*self.values(depth)))

    def function(self, depth):
        module, attribute = names = self.random.choice(self.functions)
        args = self.values(depth, 4) if self.random.random() < 0.3 or depth > 4 else self.fitting_args(names, depth)
        return self.remember(name(f"{module}:{attribute}") + many(*args) + b"R")

    def state(self, depth):
        return b"}(" + b"".join(short(self.random.choice(ATTRIBUTES)) + self.value(depth) for _ in range(self.random.randrange(4))) + b"u"

    def tuple_state(self, depth):
        return many(*self.values(depth, 5))

    def instance(self, depth):
        module, attribute = chosen = self.random.choice(self.chosen)
        letters = self.made[chosen]
        cls = name(f"{module}:{attribute}")
        how = self.random.random()
        is_called = set(letters) & set("exc") or how < 0.1
        body = self.remember(cls + (many(*self.values(depth)) if how < 0.4 else b")") + (b"R" if is_called else b"\x81"))
        own = self.memo - 1
        for _ in range(self.random.randrange(3)):
            # Mostly what was judged.
            use = self.random.choice(letters if self.random.random() < 0.9 else "dsaij")
            if use in "ds" and self.random.random() < 0.2:
                body += self.methods(depth) + b"b" if use == "d" else many(NONE, self.methods(depth)) + b"b"
            elif use in "ds":
                body += self.state(depth) + b"b" if use == "d" else many(NONE, self.state(depth)) + b"b"
            elif use in "hHlmrbtg":
                body += self.random.choice([self.state, self.tuple_state, self.value])(depth) + b"b"
            elif use in "a":
                body += b"(" + b"".join(self.values(depth)) + b"e"
            elif use in "ij":
                body += b"(" + self.key(depth) + self.value(depth) + b"u"
            elif use in "kK":
                # The instance is under the dict, so it is put there from the memo.
                body += b"0}" + b"j" + own.to_bytes(4, "little") + self.value(depth) + b"s"
                break
            elif use == "p":
                body = name("builtins:" + self.random.choice(["list", "tuple", "set", "dict", "slice", "bytearray", "str", "int"])) + b"(" + body + b"tR"
                break
        return body


def rules():
    """The rules for the arguments of each reviewed function."""
    found = {}
    for line in (LISTS / "reviewed.txt").read_text().splitlines():
        if not line.startswith("#"):
            names, arguments, *_ = (cell.strip() for cell in line.split("|"))
            if arguments != "-":
                found[tuple(names.split(" "))] = arguments.split(",")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", default="1")
    parser.add_argument("pythons", nargs="+")
    options = parser.parse_args()
    mixer, faults = Mixer(f"mixes {options.seed}"), 0
    with tempfile.TemporaryDirectory() as folder:
        for index in range(options.count):
            Path(folder, f"{index:06}.pkl").write_bytes(mixer.pickle())
        done = subprocess.run([options.binary, "scan", "--json", folder], capture_output=True, text=True)
        scans = [json.loads(line) for line in done.stdout.splitlines()]
        print(Counter(scan["verdict"] for scan in scans))
        clean = [scan["file"] for scan in scans if scan["verdict"] == "clean"]
        for python in options.pythons:
            worker = subprocess.run([python, "-B", "-W", "ignore", HERE / "workers/mix_worker.py", *CANARY.split(), *FUNCTION.split()], input="\n".join(clean) + "\n", capture_output=True, text=True, cwd="/")
            answers = [json.loads(line) for line in worker.stdout.splitlines()]
            assert len(answers) == len(clean), worker.stderr[-2000:]
            print(python, Counter("ran to the end" if answer["error"] is None else "stopped early" for answer in answers))
            for file, answer in zip(clean, answers, strict=True):
                if answer["events"]:
                    faults += 1
                    print("RUNS", file, answer["events"], Path(file).read_bytes())
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
