"""Pickles written opcode by opcode: the few that torch.save emits, by the names of CPython's pickletools."""

import struct

PROTO, STOP, MARK, TUPLE, REDUCE, BINPERSID = b"\x80\x02", b".", b"(", b"t", b"R", b"Q"
EMPTY_DICT, EMPTY_TUPLE, SETITEM, SETITEMS, NEWFALSE = b"}", b")", b"s", b"u", b"\x89"


def text(s):
    raw = s.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def integer(n):
    if 0 <= n < 256:
        return b"K" + bytes([n])
    if -(2**31) <= n < 2**31:
        return b"J" + struct.pack("<i", n)
    raw = n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def many(items):
    return MARK + b"".join(items) + TUPLE


def integers(values):
    return many(integer(v) for v in values)


def name(module, attribute):
    return b"c" + module.encode() + b"\n" + attribute.encode() + b"\n"


def storage(numel, cls=("torch", "FloatStorage"), key="0"):
    return many([text("storage"), name(*cls), text(key), text("cpu"), integer(numel)]) + BINPERSID


def tensor(of, shape, stride, offset=0):
    """`torch._utils._rebuild_tensor_v2`; `of`, `shape` and `stride` are pickled already where they are bytes."""
    shape, stride = (x if isinstance(x, bytes) else integers(x) for x in (shape, stride))
    args = [of, integer(offset), shape, stride, NEWFALSE, name("collections", "OrderedDict") + EMPTY_TUPLE + REDUCE]
    return name("torch._utils", "_rebuild_tensor_v2") + many(args) + REDUCE


def dictionary(items):
    return EMPTY_DICT + MARK + b"".join(text(k) + v for k, v in items.items()) + SETITEMS


def pickle(body):
    return PROTO + body + STOP
