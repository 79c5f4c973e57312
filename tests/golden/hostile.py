"""The files of hostile/: each is wrong in one way. Needs the Python standard library only.

`FILES` maps a file's name to (its bytes, what is wrong with it). Nothing here is ever loaded with Python's pickle.
"""

import struct
import zlib

import other_containers
import pickles as p
from raw_zip import DEFLATED, Entry, archive

W = struct.pack("<2f", 1.0, 2.0)  # the one storage: float32 [2]


def state(**changes):
    """data.pkl of `{"w": tensor}`; `changes` go to `pickles.tensor`."""
    args = {"of": p.storage(2), "shape": [2], "stride": [1]} | changes
    return p.pickle(p.dictionary({"w": p.tensor(**args)}))


def checkpoint(pickle=None, data=W, **changes):
    """A whole zip checkpoint; the keyword `pkl` or `storage` replaces that `Entry`, `extra` appends more of them."""
    pkl = changes.get("pkl") or Entry("archive/data.pkl", pickle or state())
    stored = changes.get("storage") or Entry("archive/data/0", data)
    entries = [pkl, Entry("archive/version", b"3\n"), stored, *changes.get("extra", [])]
    return archive(entries, **changes.get("end", {}))


def overlapping():
    """data/1 points into the middle of data/0, which contains a second local header."""
    inner = archive([Entry("archive/data/1", W)])[: 30 + len("archive/data/1") + len(W)]
    whole = checkpoint(data=inner)
    return checkpoint(data=inner, extra=[Entry("archive/data/1", W, local=False, offset=whole.index(inner))])


def zip64_far_end():
    """A zip64 end record that places the central directory beyond the file."""
    far = 1 << 40
    record = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, 3, 3, 150, far)
    body = checkpoint()
    at = body.index(b"PK\x01\x02") + (len(body) - 22 - body.index(b"PK\x01\x02"))
    locator = struct.pack("<IIQI", 0x07064B50, 0, at, 1)
    return checkpoint(end={"zip64_end": record + locator, "count": 0xFFFF, "directory_offset": 0xFFFFFFFF})


def zip64(*sizes):
    return struct.pack("<HH", 1, 8 * len(sizes)) + b"".join(struct.pack("<Q", size) for size in sizes)


def unicode_path(name, other):
    """Info-ZIP's extra field with a name in UTF-8, and the checksum of the name that it replaces."""
    data = struct.pack("<BI", 1, zlib.crc32(name.encode())) + other.encode()
    return struct.pack("<HH", 0x7075, len(data)) + data


def cycle():
    """A dict that contains itself."""
    return p.pickle(p.EMPTY_DICT + b"q\x00" + p.text("self") + b"h\x00" + p.SETITEM)


def doubling(levels=64):
    """Dicts that each hold the previous one twice, which gives 2 to the power of `levels` names for one tensor."""
    inner = p.tensor(p.storage(2), [2], [1]) + b"q\x00"
    body = p.EMPTY_DICT + p.text("a") + inner + p.SETITEM + b"q\x01"
    for i in range(2, levels + 1):
        # The dict below is on the stack: memoise it, pop it, and refer to it twice.
        body += b"0" + p.EMPTY_DICT + p.MARK + p.text("a") + b"h" + bytes([i - 1]) + p.text("b") + b"h" + bytes([i - 1]) \
            + p.SETITEMS + b"q" + bytes([i])
    return p.pickle(body)


def deep(levels=100_000):
    """Nested dicts, deep enough to overflow the stack of a recursive walk; deflated, so that the file is small."""
    body = (p.EMPTY_DICT + p.text("a")) * levels + p.tensor(p.storage(2), [2], [1]) + p.SETITEM * levels
    return checkpoint(pkl=Entry("archive/data.pkl", p.pickle(body), method=DEFLATED))


ZIPS = {
    "duplicate_name.pth": (checkpoint(extra=[Entry("archive/data/0", W)]), "two entries are called archive/data/0"),
    "overlapping_entries.pth": (overlapping(), "archive/data/1 lies inside the data of archive/data/0"),
    "name_disagreement.pth": (
        checkpoint(storage=Entry("archive/data/0", W, local_name="archive/data/9")),
        "the local header of archive/data/0 says archive/data/9"),
    "size_disagreement.pth": (
        checkpoint(storage=Entry("archive/data/0", W, local_size=4)),
        "the local header of archive/data/0 says 4 bytes, the central directory 8, and flag bit 3 is clear"),
    "entry_past_end.pth": (
        checkpoint(storage=Entry("archive/data/0", W, size=1 << 20, compressed_size=1 << 20)),
        "archive/data/0 ends beyond the file"),
    "offset_past_end.pth": (
        checkpoint(storage=Entry("archive/data/0", W, offset=1 << 24)), "the local header of archive/data/0 is beyond the file"),
    "two_data_pkl.pth": (checkpoint(extra=[Entry("other/data.pkl", state())]), "archive/data.pkl and other/data.pkl"),
    "no_data_pkl.pth": (checkpoint(pkl=Entry("archive/notes.txt", b"hello")), "no entry called data.pkl"),
    "truncated.pth": (checkpoint()[:-40], "the end record and part of the central directory are cut off"),
    "empty.pth": (b"", "an empty file"),
    "not_a_checkpoint.pth": (b"hello, world\n" * 8, "neither a zip file nor a pickle"),
    "bad_crc_pickle.pth": (checkpoint(pkl=Entry("archive/data.pkl", state(), crc=0x12345678)), "the CRC of data.pkl is wrong"),
    "bad_crc_storage.pth": (checkpoint(storage=Entry("archive/data/0", W, crc=0x12345678)), "the CRC of data/0 is wrong"),
    "path_traversal.pth": (checkpoint(extra=[Entry("archive/../../x", b"x")]), "an entry is called archive/../../x"),
    "absolute_path.pth": (checkpoint(extra=[Entry("/etc/x", b"x")]), "an entry is called /etc/x"),
    "encrypted.pth": (checkpoint(storage=Entry("archive/data/0", W, flags=1)), "archive/data/0 is marked as encrypted"),
    "encrypted_strongly.pth": (
        checkpoint(storage=Entry("archive/data/0", W, flags=1 << 6)), "archive/data/0 is marked as strongly encrypted"),
    "encrypted_masked.pth": (
        checkpoint(storage=Entry("archive/data/0", W, flags=1 << 13)), "the local header of archive/data/0 is marked as masked"),
    "patch.pth": (checkpoint(storage=Entry("archive/data/0", W, flags=1 << 5)), "archive/data/0 is marked as a patch"),
    "link_inside.pth": (
        checkpoint(extra=[Entry("archive/data/1", b"0", mode=0o120777)]), "archive/data/1 is a symbolic link to archive/data/0"),
    "other_case.pth": (
        checkpoint(extra=[Entry("archive/DATA/0", W[::-1])]), "archive/data/0 and archive/DATA/0 are one record for PyTorch"),
    "link_to_nothing.pth": (
        checkpoint(extra=[Entry("archive/data/1", b"/nowhere", mode=0o120777)]),
        "archive/data/1 is a symbolic link to a file that is not in the archive"),
    "two_names.pth": (
        checkpoint(storage=Entry("archive/data/0", W, central_extra=unicode_path("archive/data/0", "archive/data/7"))),
        "archive/data/0 has another name in its Unicode path field"),
    "unknown_method.pth": (checkpoint(storage=Entry("archive/data/0", W, method=99)), "compression method 99"),
    "deflated_too_long.pth": (
        checkpoint(storage=Entry("archive/data/0", b"\0" * (1 << 20), method=DEFLATED, size=8)),
        "archive/data/0 says 8 bytes and inflates to 1 MiB"),
    "deflated_too_short.pth": (
        checkpoint(storage=Entry("archive/data/0", b"\0" * 4, method=DEFLATED, size=8)),
        "archive/data/0 says 8 bytes and inflates to 4"),
    "entry_count.pth": (checkpoint(end={"count": 2}), "the end record says 2 entries, the central directory has 3"),
    "zip64_missing.pth": (
        checkpoint(storage=Entry("archive/data/0", W, size=0xFFFFFFFF, compressed_size=0xFFFFFFFF)),
        "archive/data/0 refers to a zip64 extra field that does not exist"),
    "zip64_size.pth": (
        checkpoint(storage=Entry("archive/data/0", W, size=0xFFFFFFFF, compressed_size=0xFFFFFFFF,
                                 central_extra=struct.pack("<HHQQ", 1, 16, 1 << 62, 1 << 62))),
        "the zip64 extra field of archive/data/0 says 4 EiB"),
    "zip64_offset.pth": (
        checkpoint(storage=Entry("archive/data/0", W, offset=0xFFFFFFFF,
                                 central_extra=struct.pack("<HHQ", 1, 8, (1 << 64) - 1))),
        "the zip64 extra field of archive/data/0 says offset 2**64 - 1"),
    "zip64_twice.pth": (
        checkpoint(storage=Entry("archive/data/0", W, size=0xFFFFFFFF, compressed_size=0xFFFFFFFF, local_size=8,
                                 central_extra=zip64(8, 8) + zip64(4, 4))),
        "archive/data/0 has two zip64 extra fields, which say 8 and 4 bytes"),
    "zip64_twice_equal.pth": (
        checkpoint(storage=Entry("archive/data/0", W, size=0xFFFFFFFF, compressed_size=0xFFFFFFFF, local_size=8,
                                 central_extra=zip64(8, 8) * 2)),
        "archive/data/0 has two zip64 extra fields, which say the same"),
    "zip64_end.pth": (zip64_far_end(), "the zip64 end record places the central directory at 1 TiB"),
}

TENSORS = {
    "short_storage.pth": (checkpoint(data=W[:4]), "storage 0 has 4 bytes, its numel of 2 needs 8"),
    "missing_storage.pth": (checkpoint(state(of=p.storage(2, key="7"))), "there is no data/7"),
    "storage_key_escapes.pth": (checkpoint(state(of=p.storage(2, key="../data.pkl"))), "the storage key is ../data.pkl"),
    "negative_size.pth": (checkpoint(state(shape=[-2])), "shape [-2]"),
    "negative_stride.pth": (checkpoint(state(stride=[-1], offset=1)), "stride [-1]"),
    "negative_offset.pth": (checkpoint(state(offset=-1)), "storage offset -1"),
    "negative_numel.pth": (checkpoint(state(of=p.storage(-2))), "a storage of -2 elements"),
    "past_storage_end.pth": (checkpoint(state(shape=[2], offset=1)), "elements 1 and 2 of a storage that has 2"),
    "overflow_strides.pth": (
        checkpoint(state(shape=[3, 3], stride=[1 << 62, 1 << 62])), "the last element's index overflows 64 bits"),
    "overflow_shape.pth": (
        checkpoint(state(shape=[1 << 40, 1 << 40], stride=[0, 0])), "the number of elements overflows 64 bits"),
    "huge_integer.pth": (checkpoint(state(shape=[1 << 80])), "a size that does not fit 64 bits"),
    "rank_mismatch.pth": (checkpoint(state(shape=[2], stride=[1, 1])), "one size, two strides"),
    "shape_of_text.pth": (checkpoint(state(shape=p.many([p.text("two")]))), "a size is a string"),
    "unknown_storage.pth": (
        checkpoint(state(of=p.storage(2, cls=("torch", "DecimalStorage")))), "torch.DecimalStorage does not have a dtype"),
    "two_dtypes.pth": (
        checkpoint(p.pickle(p.dictionary({
            "w": p.tensor(p.storage(2), [2], [1]),
            "v": p.tensor(p.storage(1, cls=("torch", "DoubleStorage")), [1], [1])}))),
        "storage 0 is used as float32 and as float64"),
    "storage_of_nothing.pth": (
        checkpoint(state(of=p.many([p.text("storage")]) + p.BINPERSID)), "a persistent id of one field"),
    "short_rebuild.pth": (
        checkpoint(p.pickle(p.dictionary({
            "w": p.name("torch._utils", "_rebuild_tensor_v2") + p.many([p.storage(2)]) + p.REDUCE}))),
        "_rebuild_tensor_v2 with one argument"),
    "same_name_twice.pth": (
        checkpoint(p.pickle(p.dictionary({
            "a.b": p.tensor(p.storage(2), [2], [1]),
            "a": p.dictionary({"b": p.tensor(p.storage(2), [2], [1])})}))),
        "the key `a.b`, and `b` in `a`, are both called a.b"),
    "cycle.pth": (checkpoint(cycle()), "a dict that contains itself"),
    "doubling.pth": (checkpoint(doubling()), "2**63 names for one tensor"),
    "deep.pth": (deep(), "100,000 dicts in one another"),
    "no_tensors.pth": (checkpoint(p.pickle(p.dictionary({"epoch": p.integer(3)}))), "there are no tensors"),
    "os_system.pth": (
        checkpoint(p.pickle(p.name("os", "system") + p.many([p.text("echo this never runs")]) + p.REDUCE)),
        "os.system as the root: inert, but not a checkpoint"),
    "os_system_beside.pth": (
        checkpoint(p.pickle(p.dictionary({
            "w": p.tensor(p.storage(2), [2], [1]),
            "x": p.name("os", "system") + p.many([p.text("echo this never runs")]) + p.REDUCE}))),
        "a valid tensor `w` and a call of os.system; --allow-dangerous converts it"),
}

PICKLES = {
    "empty.pkl": (b"", "no bytes"),
    "no_stop.pkl": (p.PROTO + p.EMPTY_DICT, "no STOP"),
    "truncated_text.pkl": (p.PROTO + p.text("weight")[:-3], "BINUNICODE ends before its 6 bytes"),
    "truncated_argument.pkl": (p.PROTO + b"J\x01\x02", "BININT with 2 of its 4 bytes"),
    "stack_underflow.pkl": (p.PROTO + p.REDUCE + p.STOP, "REDUCE on an empty stack"),
    "empty_stop.pkl": (p.PROTO + p.STOP, "STOP on an empty stack"),
    "no_mark.pkl": (p.PROTO + p.integer(1) + p.TUPLE + p.STOP, "TUPLE without a MARK"),
    "marks_left.pkl": (p.PROTO + p.MARK + p.EMPTY_DICT + p.STOP, "a MARK is left at STOP; CPython accepts that, pickletools does not"),
    "memo_missing.pkl": (p.PROTO + b"h\x05" + p.STOP, "BINGET 5, which was never stored"),
    "memo_far.pkl": (p.PROTO + p.EMPTY_DICT + b"r\xff\xff\xff\xff" + p.STOP, "LONG_BINPUT 4294967295, which is legal but must not reserve memory"),
    "huge_text.pkl": (p.PROTO + b"X\xff\xff\xff\xff" + b"abc" + p.STOP, "BINUNICODE of 4 GiB, followed by 4 bytes"),
    "huge_text8.pkl": (b"\x80\x04\x8d" + b"\xff" * 8 + b"abc" + p.STOP, "BINUNICODE8 of 2**64 - 1 bytes"),
    "bad_utf8.pkl": (p.PROTO + b"X\x02\x00\x00\x00\xff\xfe" + p.STOP, "BINUNICODE that is not UTF-8"),
    "negative_long4.pkl": (p.PROTO + b"\x8b\xff\xff\xff\xff" + p.STOP, "LONG4 of -1 bytes"),
    "unknown_opcode.pkl": (p.PROTO + b"\xff" + p.STOP, "opcode 0xff"),
    "protocol_9.pkl": (b"\x80\x09" + p.EMPTY_DICT + p.STOP, "PROTO 9"),
    "global_unfinished.pkl": (p.PROTO + b"cos\nsystem", "GLOBAL without its second newline"),
    "odd_setitems.pkl": (p.PROTO + p.EMPTY_DICT + p.MARK + p.text("key") + p.SETITEMS + p.STOP, "SETITEMS with a key and no value"),
    "setitem_on_text.pkl": (p.PROTO + p.text("d") + p.text("k") + p.text("v") + p.SETITEM + p.STOP, "SETITEM on a string"),
    "reduce_without_tuple.pkl": (
        p.PROTO + p.name("os", "system") + p.text("echo this never runs") + p.REDUCE + p.STOP, "REDUCE whose arguments are not a tuple"),
    "reduce_text.pkl": (p.PROTO + p.text("f") + p.EMPTY_TUPLE + p.REDUCE + p.STOP, "REDUCE of a string"),
    "os_system.pkl": (
        p.PROTO + p.name("os", "system") + p.many([p.text("echo this never runs")]) + p.REDUCE + p.STOP,
        "NOT refused by the machine: REDUCE of os.system is recorded and never called"),
}

OTHER_ZIPS = {
    "npz.pth": (archive([Entry("x.npy", b"\x93NUMPY")]), "a NumPy archive"),
    "mar.pth": (archive([Entry("MAR-INF/MANIFEST.json", b"{}"), Entry("model.pt", b"")]), "a TorchServe archive"),
    "pt2.pth": (archive([Entry("x/archive_format", b"pt2"), Entry("x/models/model.json", b"{}")]), "an exported program without the document of its weights"),
    "zipped.pth": (archive([Entry("best/model.pth", b"")]), "a checkpoint in a zip archive"),
}

FILES = ZIPS | TENSORS | PICKLES | OTHER_ZIPS | other_containers.HOSTILE


def index():
    """Returns hostile/README.md: every file and its fault."""
    rows = "".join(f"| `{name}` | {len(data)} | {why} |\n" for name, (data, why) in sorted(FILES.items()))
    return (
        "# Files that must be refused\n\n"
        "`generate.py --hostile` makes these files and this list from `hostile.py`. Each file has one fault and must be refused\n"
        "unless its row says otherwise. No file may run anything, use much more memory than its size, or take more than a\n"
        "moment. `.pth` files are checkpoints and `.pkl` files are bare pickles. A fault in the bytes of a storage is found\n"
        "only when they are read: in a conversion, or by `inspect --sha256`.\n\n"
        "| file | bytes | what is wrong |\n|---|---|---|\n" + rows
    )
