"""Checkpoints other than zip files, written field by field, so that each field can be made wrong.

`legacy()`, `tar()` and `safetensors()` with no arguments hold the tensors of `PLAIN`; an argument that is given replaces
the true value. Facts: `_legacy_save`, `_legacy_load` and `legacy_load` in torch/serialization.py; the safetensors README.
"""

import io
import json
import pickle
import struct
import tarfile
import zlib

import pickles as p
from raw_zip import Entry, archive

# name: (torch's storage class, safetensors' dtype, shape, bytes)
PLAIN = {
    "w": ("FloatStorage", "F32", (2, 3), struct.pack("<6f", *((37 * i % 64 - 32) / 64 for i in range(6)))),
    "n": ("LongStorage", "I64", (3,), struct.pack("<3q", 0, 1, 2)),
}
MAGIC = 0x1950A86A20F9469CFC6C
SYS_INFO = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}


def numel(shape):
    count = 1
    for n in shape:
        count *= n
    return count


def strides(shape):
    return [numel(shape[i + 1 :]) for i in range(len(shape))]


def storage(key, cls, count, view=b"N"):
    """A persistent id, including its sixth field."""
    fields = [p.text("storage"), p.name("torch", cls), p.text(key), p.text("cpu"), p.integer(count), view]
    return p.many(fields) + p.BINPERSID


def view(key, offset, size):
    return p.many([p.text(key), p.integer(offset), p.integer(size)])


def plain_root():
    return p.dictionary({
        name: p.tensor(storage(str(i), cls, numel(shape)), shape, strides(shape))
        for i, (name, (cls, _, shape, _)) in enumerate(PLAIN.items())})


def stored(count, data):
    return struct.pack("<q", count) + data


def legacy(protocol=2, version=1001, root=None, keys=None, storages=None):
    storages = [stored(numel(t[2]), t[3]) for t in PLAIN.values()] if storages is None else storages
    keys = [str(i) for i in range(len(storages))] if keys is None else keys
    head = b"".join(pickle.dumps(x, protocol) for x in (MAGIC, version, SYS_INFO))
    return head + p.pickle(root or plain_root()) + pickle.dumps(keys, protocol) + b"".join(storages)


def legacy_views():
    """A storage, two views that start at other offsets, and a tensor that starts inside its view."""
    of = lambda v: storage("a", "FloatStorage", 10, v)
    return legacy(
        root=p.dictionary({
            "whole": p.tensor(of(b"N"), [10], [1]),
            "first": p.tensor(of(view("v0", 0, 5)), [5], [1]),
            "late": p.tensor(of(view("v3", 3, 4)), [3], [1], 1),
            "late_again": p.tensor(of(view("v3", 3, 4)), [2, 2], [2, 1]),
        }),
        keys=["a"],
        storages=[stored(10, struct.pack("<10f", *range(10)))])


def described(*fields):
    return p.pickle(p.many(fields))


def tar_tensor(key, root, dims, numbers):
    return described(p.integer(key), p.integer(root), p.name("torch", "FloatTensor")) + struct.pack(
        f"<iI{len(numbers)}q", dims, 0xDEADBEEF, *numbers)


def tar(root=None, storages=None, views=None, tensors=None, leave_out=(), sys_info=None):
    if storages is None:
        storages = [described(p.integer(100 + i), p.text("cpu"), p.name("torch", cls)) + stored(numel(shape), data)
                    for i, (cls, _, shape, data) in enumerate(PLAIN.values())]
    views = [] if views is None else views
    if tensors is None:
        tensors = [tar_tensor(200 + i, 100 + i, len(shape), [*shape, *strides(shape), 0])
                   for i, (_, _, shape, _) in enumerate(PLAIN.values())]
    root = root or p.dictionary({name: p.text(str(200 + i)) + p.BINPERSID for i, name in enumerate(PLAIN)})
    members = {
        "sys_info": sys_info or pickle.dumps(SYS_INFO, 2),
        "pickle": p.pickle(root),
        "tensors": p.pickle(p.integer(len(tensors))) + b"".join(tensors),
        "storages": p.pickle(p.integer(len(storages))) + b"".join(storages)
        + (views if isinstance(views, bytes) else pickle.dumps(views, 2)),
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in members.items():
            if name not in leave_out:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    # Two blocks of zeros end an archive; tarfile's padding to 10 KiB is left out.
    return out.getvalue().rstrip(b"\0") + b"\0" * (512 - len(out.getvalue().rstrip(b"\0")) % 512 + 1024)


def safetensors(header=None, length=None, data=None, metadata=True):
    body = b"".join(t[3] for t in PLAIN.values())
    if header is None:
        header, at = ({"__metadata__": {"format": "pt"}} if metadata else {}), 0
        for name, (_, dtype, shape, raw) in PLAIN.items():
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(raw)]}
            at += len(raw)
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text) if length is None else length) + text + (body if data is None else data)


def one(**changes):
    """A header of one tensor over the 48 bytes of PLAIN."""
    return {"t": {"dtype": "F32", "shape": [12], "data_offsets": [0, 48]} | changes}


def zipped(root):
    """A zip checkpoint whose records are in this root folder, or in none."""
    entries = [Entry(f"{root}data/{i}", t[3]) for i, t in enumerate(PLAIN.values())]
    items = {name: p.tensor(p.storage(numel(shape), ("torch", cls), str(i)), shape, strides(shape))
             for i, (name, (cls, _, shape, _)) in enumerate(PLAIN.items())}
    return archive([Entry(f"{root}data.pkl", p.pickle(p.dictionary(items))), *entries])


def cut():
    """A slice of a storage with a wrong checksum; the slice itself is intact."""
    data = struct.pack("<4096f", *range(4096))
    root = p.pickle(p.dictionary({"slice": p.tensor(p.storage(4096), [4], [1], 8)}))
    return archive([Entry("archive/data.pkl", root), Entry("archive/data/0", data[:-4] + b"\0\0\0\0", crc=zlib.crc32(data))])


CHECKPOINTS = {
    "rootless.pth": zipped(""),
    "zip_in_root.pth": zipped("model.zip/"),
    "legacy.pth": legacy(),
    "legacy_protocol_0.pth": legacy(protocol=0),
    "legacy_protocol_5.pth": legacy(protocol=5),
    "legacy_views.pth": legacy_views(),
    "tar.pth": tar(),
    "tar_view.pth": tar(
        views=[(300, 100, 2, 4)], tensors=[tar_tensor(200, 300, 1, [3, 1, 1]), tar_tensor(201, 101, 1, [3, 1, 0])]),
    "plain.safetensors": safetensors(),
    "bare.pkl": pickle.dumps({"epoch": 3, "names": ["a", "b"]}, 0),
}

HOSTILE = {
    "cut.pth": (cut(), "a wrong checksum of a storage of which a slice is kept"),
    "legacy_cut_in_root.pth": (legacy()[:150], "a legacy file that ends within its root object"),
    "legacy_cut_in_storage.pth": (legacy()[:-10], "the last 10 bytes are missing"),
    "legacy_protocol_version.pth": (legacy(version=1000), "protocol version 1000"),
    "legacy_negative_count.pth": (
        legacy(storages=[stored(-6, PLAIN["w"][3]), stored(3, PLAIN["n"][3])]), "storage 0 says it has -6 elements"),
    "legacy_other_count.pth": (
        legacy(storages=[stored(5, PLAIN["w"][3]), stored(3, PLAIN["n"][3])]), "storage 0 says it has 5 elements, its persistent id 6"),
    "legacy_unexplained_key.pth": (legacy(keys=["0", "7"]), "storage 7 is listed and in no persistent id"),
    "legacy_key_twice.pth": (legacy(keys=["0", "1", "0"], storages=[
        stored(6, PLAIN["w"][3]), stored(3, PLAIN["n"][3]), stored(6, PLAIN["w"][3])]), "storage 0 is listed twice"),
    "legacy_key_missing.pth": (
        legacy(keys=["0"], storages=[stored(6, PLAIN["w"][3])]), "storage 1 is in a persistent id and not listed"),
    "legacy_huge_numel.pth": (
        legacy(root=p.dictionary({"w": p.tensor(storage("0", "DoubleStorage", 1 << 62), [1], [1])}), keys=["0"], storages=[stored(1 << 62, b"")]),
        "a storage of 2**62 doubles"),
    "legacy_view_past_end.pth": (
        legacy(root=p.dictionary({"w": p.tensor(storage("0", "FloatStorage", 6, view("v", 4, 3)), [3], [1])}),
               keys=["0"], storages=[stored(6, PLAIN["w"][3])]),
        "a view of 3 elements at 4 of a storage of 6"),
    "legacy_keys_no_list.pth": (legacy(keys=7, storages=[]), "the list of storage keys is the number 7"),
    "tar_no_tensors.pth": (tar(leave_out=["tensors"]), "there is no member `tensors`"),
    "tar_other.pth": (tar(leave_out=["pickle"]), "a tar archive that is not a checkpoint"),
    "tar_cut.pth": (tar()[:2600], "the tar archive ends within a member"),
    "tar_negative_count.pth": (
        tar(storages=[described(p.integer(100), p.text("cpu"), p.name("torch", "FloatStorage")) + stored(-1, b"")]),
        "a storage of -1 elements"),
    "tar_negative_dims.pth": (tar(tensors=[tar_tensor(200, 100, -1, [])]), "a tensor of -1 dimensions"),
    "tar_negative_size.pth": (tar(tensors=[tar_tensor(200, 100, 1, [-6, 1, 0])]), "shape [-6]"),
    "tar_past_storage.pth": (tar(tensors=[tar_tensor(200, 100, 1, [6, 1, 1]), tar_tensor(201, 101, 1, [3, 1, 0])]),
                             "6 elements at 1 of a storage of 6"),
    "tar_unknown_storage.pth": (tar(tensors=[tar_tensor(200, 999, 1, [6, 1, 0])]), "a tensor of a storage that does not exist"),
    "tar_view_past_end.pth": (tar(views=[(300, 100, 4, 3)]), "a view of 3 elements at 4 of a storage of 6"),
    "tar_view_of_nothing.pth": (tar(views=[(300, 999, 0, 1)]), "a view of a storage that does not exist"),
    "safetensors_cut.pth": (safetensors()[:-10], "the last 10 bytes are missing"),
    "safetensors_cut_in_header.pth": (safetensors()[:40], "a safetensors file that ends within its header"),
    "safetensors_huge_header.pth": (safetensors(length=1 << 30), "a header of 1 GiB"),
    "safetensors_no_json.pth": (safetensors(header=b'{"t": '), "the header is not JSON"),
    "safetensors_hole.pth": (safetensors(header=one(shape=[11], data_offsets=[4, 48])), "4 bytes before the first tensor"),
    "safetensors_trailing.pth": (safetensors(header=one(shape=[11], data_offsets=[0, 44])), "4 bytes after the last tensor"),
    "safetensors_overlap.pth": (
        safetensors(header=one(shape=[8], data_offsets=[0, 32]) | {"u": {"dtype": "F32", "shape": [5], "data_offsets": [28, 48]}}),
        "two tensors share 4 bytes"),
    "safetensors_twice.pth": (
        safetensors(header=b'{"t":{"dtype":"F32","shape":[12],"data_offsets":[0,48]},"t":{"dtype":"F32","shape":[12],"data_offsets":[0,48]}}'),
        "two tensors are called t"),
    "safetensors_dtype.pth": (safetensors(header=one(dtype="F6_E2M3")), "a dtype that PyTorch does not have"),
    "safetensors_size.pth": (safetensors(header=one(shape=[13])), "shape and offsets disagree"),
    "safetensors_overflow.pth": (safetensors(header=one(shape=[1 << 33, 1 << 33])), "2**66 elements"),
    "safetensors_backwards.pth": (safetensors(header=one(data_offsets=[48, 0])), "a tensor that ends before it starts"),
    "safetensors_negative.pth": (safetensors(header=one(data_offsets=[-1, 48])), "a tensor that starts at -1"),
    "git_lfs.pth": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n", "a Git LFS pointer"),
    "html.pth": (b"\n<!DOCTYPE html><html></html>", "an HTML page"),
    "json.pth": (b'{"error": "not found"}', "a JSON answer"),
    "numpy.pth": (b"\x93NUMPY\x01\x00", "a NumPy array"),
    "gguf.pth": (b"GGUF\x03\x00\x00\x00", "a GGUF model that is cut off"),
    "ggjt.pth": (b"tjgg\x03\x00\x00\x00", "a model of ggml"),
    "hdf5.pth": (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    "gzip.pth": (b"\x1f\x8b\x08\x00", "a gzip file"),
    "seven_zip.pth": (b"7z\xbc\xaf\x27\x1c\x00\x04", "a 7z archive"),
    "onnx.pth": (b"\x08\x08\x12\x07pytorch\x1a\x052.0.1", "an ONNX model"),
    "flax.pth": (b"\x81\xa6params\x80", "a Flax checkpoint"),
}
