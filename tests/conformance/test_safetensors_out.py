"""safetensors files that we write, read by the real safetensors and transformers, and compared with those that they write.

The expected tensors are those of ../shared/corpus and ../shared/corpus-2, of matrix.py, and of random state dicts. Names that
are not written because of a tie are in the metadata, and must have the values of the name that it gives.
"""

import json
import os
import re

import matrix
import pytest
from conftest import SHARED, worker_fixture
from program import listing, succeed, torch2carton
from test_corpus import NUMPY, corpus, expectation, is_read, table

CORPUS_2 = SHARED / "corpus-2"
SEEDS = range(int(os.environ.get("T2C_SAFETENSORS", "150")))
# The dtypes of torch that safetensors has, too.
HELD = set(
    "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool complex64 float8_e4m3fn float8_e4m3fnuz "
    "float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2".split())


reference = worker_fixture("NEWEST", "safetensors_worker.py")
matrix_writer = worker_fixture("NEWEST", "matrix_worker.py")


def convert(path, out, *flags):
    """Everything in the file, whatever its pickle would call."""
    return torch2carton(path, "-o", out, "--key", "", "--allow-dangerous", *flags, timeout=300)


def restored(found):
    """name → [dtype, shape, hash], with the names that the metadata has."""
    tensors, metadata = dict(found["tensors"]), dict(found["metadata"])
    assert metadata.pop("format") == "pt"
    # Other entries are those of the input.
    for dropped, kept in ((dropped, kept) for dropped, kept in metadata.items() if kept in tensors):
        assert dropped not in tensors, f"`{dropped}` is written and in the metadata"
        tensors[dropped] = tensors[kept]
    return tensors


def wrong(path, wanted, out, reference, compounds=(), more=None):
    """None, or how the safetensors file made of a file differs from the rows {name: [dtype, shape, hash]}.

    Tensors of several parts must be refused, and so must dtypes that safetensors lacks; what is left without them must be
    written. `more` are rows of tensors that may be written, too.
    """
    wanted = {name or "tensor": row for name, row in wanted.items()}  # the root, or a key without letters
    lacking = sorted({*compounds, *(name for name, (dtype, _, _) in wanted.items() if dtype not in HELD)})
    answer = convert(path, out)
    if lacking:
        if answer.status != 1 or out.exists() or not ("--exclude" in answer.stderr or "--dequantize" in answer.stderr):
            return f"{lacking} are not refused: {answer}"
        if not any(f"`{name}`" in answer.stderr for name in lacking):
            return f"no name of {lacking} in {answer.stderr}"
        wanted = {name: row for name, row in wanted.items() if not any(name == it or name.startswith(f"{it}.") for it in lacking)}
        patterns = [re.sub(r"([*?\[\]{}\\])", r"[\1]", name) for name in lacking]
        answer = convert(path, out, *[flag for it in patterns for flag in ("--exclude", it, "--exclude", f"{it}.*")])
    if not wanted and not more:
        return None if answer.status == 1 and re.search("no tensors?", answer.stderr) else f"of no tensors: {answer}"
    if answer.status != 0:
        return f"refused: {answer.stderr.strip().removeprefix(f'error: {path}: ')}"
    found = restored(reference.ask("read", path=str(out)))
    out.unlink()
    return difference({name: row for name, row in found.items() if name in wanted or (more or {}).get(name) != row}, wanted)


def difference(found, wanted):
    """None, or a difference between two tables of tensors."""
    if found.keys() != wanted.keys():
        return f"lacks {sorted(wanted.keys() - found.keys())[:5]}, has also {sorted(found.keys() - wanted.keys())[:5]}"
    for name, row in wanted.items():
        if found[name] != row:
            return f"`{name}`: {found[name]}, not {row}"
    return None


# --- Real files ----------------------------------------------------------------------------------------------------


def corpus_rows(expected):
    rows = {name: [t["dtype"], t["shape"], t["sha256"]] for name, t in expected["tensors"].items()}
    arrays = {name: leaf for name, leaf in expected["leaves"].items() if leaf["kind"] == "ndarray"}
    return rows | {name: [NUMPY[leaf["dtype"].lstrip("<>|=")], leaf["shape"], leaf["sha256"]] for name, leaf in arrays.items()}


def listed(path):
    """(rows, names of tensors of several parts) as `inspect` lists them, for files that it reads otherwise than their loaders."""
    answer = torch2carton("inspect", "--json", "--sha256", path)
    if answer.status != 0:
        return None
    found = json.loads(answer.stdout)["tensors"]
    rows = {t["name"]: [t["dtype"], t["shape"], t["sha256"]] for t in found if t["storage"] is not None}
    return rows, [t["name"] for t in found if is_compound(t)]


def is_compound(row):
    return "quantizer" in row or row["storage"] is None and "layout" in row


@pytest.mark.skipif(not corpus(), reason="there is no ../shared/corpus")
@pytest.mark.parametrize("file", [row["file"] for row in corpus()])
def test_corpus(file, reference, tmp_path):
    path, expected = SHARED / "corpus" / file, expectation(file)
    out = tmp_path / "out.safetensors"
    found = listed(path)
    if found is None:  # test_corpus.py says whether that is right
        assert convert(path, out).status == 1 and listing(tmp_path) == []
        return
    rows, compounds = found
    if is_read(expected) and file not in table():
        rows = corpus_rows(expected)
    assert wrong(path, rows, out, reference, compounds) is None


def corpus_2():
    expected = CORPUS_2 / "expected.json"
    return json.loads(expected.read_text()) if expected.is_file() else {}


@pytest.mark.skipif(not corpus_2(), reason="there is no ../shared/corpus-2")
@pytest.mark.parametrize("file", corpus_2())
def test_corpus_2(file, reference, tmp_path):
    rows, compounds = listed(CORPUS_2 / file)  # with attributes of TorchScript modules, which are not in a state_dict
    assert wrong(CORPUS_2 / file, corpus_2()[file], tmp_path / "out.safetensors", reference, compounds, rows) is None


# --- The type matrix -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group, name", [(group, name) for group, named in matrix.OBJECTS.items() for name in named])
def test_every_kind_of_object(group, name, reference, matrix_writer, tmp_path):
    ways = ["zip, protocol 2", "legacy, protocol 4"] + (["TorchScript"] if name in matrix.SCRIPTED.get(group, ()) else [])
    made = matrix_writer.ask("make", group=group, name=name, writers=ways, folder=str(tmp_path))
    for file in made["files"]:
        if "unwritten" in file or "error" in file["read"] or (name, file["writer"]) in matrix.MISREAD:
            continue
        out = tmp_path / "out.safetensors"
        rows = file["read"]["rows"]
        wanted = {row["name"]: [row["dtype"], row["shape"], row["sha256"]] for row in rows if row["storage"] is not None}
        # Of a subclass that keeps its data in its attributes, only these are tensors; a meta tensor has no data.
        subclass = name == "_rebuild_wrapper_subclass"
        without = [row["name"] for row in rows if is_compound(row) or row["storage"] is None and not subclass]
        assert wrong(file["path"], wanted, out, reference, without) is None, file["writer"]
        if subclass:
            assert "the parts of 1 tensor are written, and not how they belong together: x\n" in convert(file["path"], out).stderr


@pytest.mark.parametrize("writer", matrix.CONTAINERS)
def test_every_container(writer, reference, matrix_writer, tmp_path):
    file = matrix_writer.ask("container", writer=writer, path=str(tmp_path / "model.pt"))
    wanted = {row["name"]: [row["dtype"], row["shape"], row["sha256"]] for row in file["read"]["rows"]}
    assert wrong(file["path"], wanted, tmp_path / "out.safetensors", reference) is None


# --- The same bytes ----------------------------------------------------------------------------------------------------


def test_the_bytes_are_those_of_save_file(reference, tmp_path):
    seen = set()
    for seed in SEEDS:
        seen |= set(reference.ask("random_pair", seed=seed, folder=str(tmp_path))["dtypes"])
        out = tmp_path / "out.safetensors"
        succeed(tmp_path / "random.pth", "-o", out, "--key", "")
        assert out.read_bytes() == (tmp_path / "reference.safetensors").read_bytes(), f"seed {seed}"
        again = tmp_path / "again.safetensors"
        succeed(out, "-o", again)
        assert again.read_bytes() == out.read_bytes(), f"seed {seed}: converted again"
    if len(SEEDS) >= 100:
        assert seen == set(reference.ask("dtypes")), "every dtype was tried"


# --- Ties ------------------------------------------------------------------------------------------------------------


def test_ties_are_in_the_metadata_as_save_model_writes_it(reference, tmp_path):
    reference.ask("tied_pair", folder=str(tmp_path))
    theirs = reference.ask("read", path=str(tmp_path / "reference.safetensors"))
    for how in ("drop", "duplicate"):
        out = tmp_path / f"{how}.safetensors"
        succeed(tmp_path / "tied.pth", "-o", out, "--ties", how)
        ours = reference.ask("read", path=str(out))
        assert restored(ours) == restored(theirs)
        if how == "duplicate":
            assert ours["metadata"] == {"format": "pt"}
        else:
            # save_model keeps the first name of the alphabet, we keep the first of the file; the groups are the same.
            assert ours["metadata"].keys() - {"format"} == {"again.weight", "again.bias", "head.weight", "more.weight"}
            assert groups(ours) == groups(theirs) and len(ours["tensors"]) == len(theirs["tensors"])
        loaded = reference.ask("load_tied", path=str(out))
        assert loaded["differ"] == [] and loaded["missing"] == [], how
        assert how == "duplicate" or loaded["unexpected"] == []


def groups(found):
    """The sets of names of one memory."""
    sets = {}
    for dropped, kept in found["metadata"].items():
        if dropped != "format":
            sets.setdefault(kept, {kept}).add(dropped)
    return sorted(map(sorted, sets.values()))


# --- Folders ---------------------------------------------------------------------------------------------------------

MODELS = ["llama", "llama, bfloat16", "qwen2, tied", "gpt2, tied"]


@pytest.mark.parametrize("size", ["50KB", "20KB", "1KB", "5GB"])
@pytest.mark.parametrize("kind", MODELS)
def test_shards_are_those_of_save_pretrained(kind, size, reference, tmp_path):
    made = reference.ask("model_pair", kind=kind, folder=str(tmp_path), max_shard_size=size)
    ours, theirs = tmp_path / "ours", tmp_path / "reference"
    succeed(tmp_path / "bin", "--to", "safetensors", "-o", ours, "--max-shard-size", size)
    assert listing(ours) == sorted([*made["files"], *made["documents"]])
    for name in made["documents"]:
        assert (ours / name).read_bytes() == (tmp_path / "bin" / name).read_bytes()
    for name in made["files"]:
        if name.endswith(".safetensors"):
            written, wanted = (reference.ask("read", path=str(folder / name)) for folder in (ours, theirs))
            assert written["tensors"] == wanted["tensors"], name
            if groups(written) == []:
                assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name
        elif name.endswith(".index.json"):
            assert json.loads((ours / name).read_text()) == json.loads((theirs / name).read_text())
        else:
            assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name
    old, new = (reference.ask("logits", folder=str(folder)) for folder in (tmp_path / "bin", ours))
    assert new == old
    assert not any(new["report"].values()), new["report"]


# --- Headers ---------------------------------------------------------------------------------------------------------


def entry(dtype="F32", shape=(1,), offsets=(0, 4), more=""):
    return f'{{"dtype":"{dtype}","shape":{json.dumps(list(shape))},"data_offsets":{json.dumps(list(offsets))}{more}}}'


def header(*pairs):
    return "{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in pairs) + "}"


def one(*arguments, name="w", **more):
    return header((name, entry(*arguments, **more)))


BIG = 2**64 - 1
A, B = ("a", entry()), ("b", entry(offsets=(4, 8)))
# name → (header, bytes of tensors, the tensor that an error must name)
HEADERS = {
    "plain": (one(), 4, None),
    "empty file of tensors": ("{}", 0, None),
    "only metadata": ('{"__metadata__":{"a":"b"}}', 0, None),
    "padded with spaces": (one() + "   ", 4, None),
    "padded with newlines": (one() + "\n\n", 4, None),
    "padded with zeros": (one() + "\0\0", 4, None),
    "padded with text": (one() + "x", 4, None),
    "leading space": (" " + one(), 4, None),
    "leading newline": ("\n" + one(), 4, None),
    "leading byte order mark": ("\ufeff" + one(), 4, None),
    "an array": ("[]", 0, None),
    "a text": ('"{"', 0, None),
    "null": ("null", 0, None),
    "not JSON": ("{oops", 0, None),
    "trailing comma": (one()[:-1] + ",}", 4, None),
    "comment": ("{/**/" + one()[1:], 4, None),
    "no header": ("", 0, None),
    "not UTF-8": (one(name="?").encode().replace(b"?", b"\xff"), 4, None),
    "lone surrogate": ('{"\\ud800":' + entry() + "}", 4, None),
    "escaped name": ('{"\\u0077":' + entry() + "}", 4, None),
    "empty name": (one(name=""), 4, None),
    "metadata is null": (header(("__metadata__", "null"), ("w", entry())), 4, None),
    "metadata is empty": (header(("__metadata__", "{}"), ("w", entry())), 4, None),
    "metadata is a text": (header(("__metadata__", '"a"'), ("w", entry())), 4, None),
    "metadata is an array": (header(("__metadata__", "[]"), ("w", entry())), 4, None),
    "metadata has a number": (header(("__metadata__", '{"a":1}'), ("w", entry())), 4, None),
    "metadata has null": (header(("__metadata__", '{"a":null}'), ("w", entry())), 4, None),
    "metadata has an object": (header(("__metadata__", '{"a":{}}'), ("w", entry())), 4, None),
    "metadata comes last": (header(("w", entry()), ("__metadata__", '{"a":"b"}')), 4, None),
    "metadata twice": (header(("__metadata__", "{}"), ("__metadata__", "{}"), ("w", entry())), 4, None),
    "metadata is a tensor": (header(("__metadata__", entry())), 4, None),
    "a name twice": (header(("w", entry()), ("w", entry())), 4, "w"),
    "a name twice, other values": (header(("w", entry()), ("w", entry("I32"))), 4, "w"),
    "a key of the metadata twice": (header(("__metadata__", '{"a":"b","a":"c"}'), ("w", entry())), 4, None),
    "a field twice": (header(("w", entry(more=',"dtype":"F32"'))), 4, "w"),
    "an unknown field": (header(("w", entry(more=',"x":1'))), 4, None),
    "no dtype": (header(("w", '{"shape":[1],"data_offsets":[0,4]}')), 4, "w"),
    "no shape": (header(("w", '{"dtype":"F32","data_offsets":[0,4]}')), 4, "w"),
    "no offsets": (header(("w", '{"dtype":"F32","shape":[1]}')), 4, "w"),
    "null entry": (header(("w", "null")), 4, "w"),
    "array entry": (header(("w", '["F32",[1],[0,4]]')), 4, "w"),
    "one offset": (header(("w", '{"dtype":"F32","shape":[1],"data_offsets":[4]}')), 4, "w"),
    "three offsets": (header(("w", '{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}')), 4, "w"),
    "offsets as texts": (header(("w", '{"dtype":"F32","shape":[1],"data_offsets":["0","4"]}')), 4, "w"),
    "offsets as floats": (header(("w", '{"dtype":"F32","shape":[1],"data_offsets":[0.0,4.0]}')), 4, "w"),
    "negative offset": (one(offsets=(-4, 0)), 4, "w"),
    "negative size": (one(shape=(-1,)), 4, "w"),
    "size as float": (header(("w", '{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}')), 4, "w"),
    "size of 2^64": (one(shape=(2**64,)), 4, "w"),
    "offset of 2^64": (one(offsets=(0, 2**64)), 4, "w"),
    "no dimensions": (one(shape=()), 4, None),
    "no elements": (one(shape=(0, 3), offsets=(0, 0)), 0, None),
    "no elements between others": (header(A, ("e", entry(shape=(0,), offsets=(4, 4))), B), 8, None),
    "no elements, bytes": (one(shape=(0,)), 4, "w"),
    "no elements in a hole": (header(("e", entry(shape=(0,), offsets=(9, 9))), A), 4, "e"),
    "no elements within another": (header(A, ("e", entry(shape=(0,), offsets=(2, 2)))), 4, None),
    "two tensors, file order": (header(A, B), 8, None),
    "two tensors, other order": (header(B, A), 8, None),
    "hole before": (one(offsets=(4, 8)), 8, "w"),
    "hole between": (header(A, ("b", entry(offsets=(8, 12)))), 12, "b"),
    "overlap": (header(A, ("b", entry(offsets=(2, 6)))), 6, "b"),
    "same bytes": (header(A, ("b", entry())), 4, "b"),
    "inside": (header(("a", entry(shape=(2,), offsets=(0, 8))), ("b", entry(offsets=(4, 8)))), 8, "b"),
    "reversed": (one(offsets=(4, 0)), 4, "w"),
    "offsets past the end": (one(shape=(2,), offsets=(0, 8)), 4, "w"),
    "offsets near 2^64": (one("U8", shape=(3,), offsets=(BIG - 3, BIG)), 4, "w"),
    "bytes after the last": (one(), 5, None),
    "bytes after no tensor": ("{}", 1, None),
    "shape too small": (one(shape=(1,), offsets=(0, 8)), 8, "w"),
    "shape too large": (one(shape=(3,), offsets=(0, 8)), 8, "w"),
    "product of 2^64": (one("U8", shape=(2**32, 2**32), offsets=(0, 0)), 0, "w"),
    "product of 2^64 + 1": (one("U8", shape=(274177, 67280421310721), offsets=(0, 1)), 1, "w"),
    "bytes of 2^64": (one("F64", shape=(2**61,), offsets=(0, 0)), 0, "w"),
    "2^63 times 0": (one(shape=(2**63, 2, 0), offsets=(0, 0)), 0, None),
    "0 times 2^63": (one(shape=(0, 2**63, 2), offsets=(0, 0)), 0, None),
    "unknown dtype": (one("F7"), 4, "w"),
    "PyTorch's name of a dtype": (one("float32"), 4, "w"),
    "dtype in small letters": (one("f32"), 4, "w"),
    "dtype is a number": (header(("w", '{"dtype":1,"shape":[1],"data_offsets":[0,4]}')), 4, "w"),
    **{f"dtype {dtype}": (one(dtype, shape=(4,), offsets=(0, size)), size, None) for dtype, size in {
        "BOOL": 4, "U8": 4, "I8": 4, "F8_E5M2": 4, "F8_E4M3": 4, "F8_E8M0": 4, "F8_E4M3FNUZ": 4, "F8_E5M2FNUZ": 4, "I16": 8, "U16": 8,
        "F16": 8, "BF16": 8, "I32": 16, "U32": 16, "F32": 16, "C64": 32, "F64": 32, "I64": 32, "U64": 32, "F4": 2}.items()},
    "dtype F6_E2M3": (one("F6_E2M3", shape=(4,), offsets=(0, 3)), 3, "w"),
    "dtype F6_E3M2": (one("F6_E3M2", shape=(4,), offsets=(0, 3)), 3, "w"),
    "F4, odd": (one("F4", shape=(3,), offsets=(0, 2)), 2, "w"),
    "F4, odd last dimension": (one("F4", shape=(2, 3), offsets=(0, 3)), 3, "w"),
    "F4, no dimensions": (one("F4", shape=(), offsets=(0, 1)), 1, "w"),
    "deep nesting": ('{"__metadata__":' + "[" * 10_000 + "]" * 10_000 + "}", 0, None),
    "dtype is an object": (header(("w", '{"dtype":{"F32":null},"shape":[1],"data_offsets":[0,4]}')), 4, None),
    "dtype is an object of two": (header(("w", '{"dtype":{"F32":null,"F16":null},"shape":[1],"data_offsets":[0,4]}')), 4, "w"),
    "dtype is an object with a value": (header(("w", '{"dtype":{"F32":1},"shape":[1],"data_offsets":[0,4]}')), 4, "w"),
    "dtype is an empty object": (header(("w", '{"dtype":{},"shape":[1],"data_offsets":[0,4]}')), 4, "w"),
    "array entry, too short": (header(("w", '["F32",[1]]')), 4, "w"),
    "array entry, too long": (header(("w", '["F32",[1],[0,4],5]')), 4, "w"),
    "minus zero": (header(("w", '{"dtype":"F32","shape":[1],"data_offsets":[-0,4]}')), 4, "w"),
    "an unknown field twice": (header(("w", entry(more=',"x":1,"x":2'))), 4, None),
    "a huge integer in an unknown field": (header(("w", entry(more=',"x":' + "9" * 40))), 4, None),
    "a huge float in an unknown field": (header(("w", entry(more=',"x":1e999'))), 4, "w"),
    "a surrogate in an unknown field": (header(("w", entry(more=',"x":"\\ud800"'))), 4, "w"),
    "not UTF-8 in an unknown field": (header(("w", entry(more=',"x":"?"'))).encode().replace(b"?", b"\xff"), 4, None),
    "2^62 twice, times 0": (one(shape=(2**62, 2, 0), offsets=(0, 0)), 0, None),
    "0 times 2^64": (one(shape=(0, 2**62, 4), offsets=(0, 0)), 0, None),
    "depth in an unknown field": (header(("w", entry(more=',"x":' + "[" * 200 + "]" * 200))), 4, "w"),
}
# What docs/security.md says that is refused here and read by the official reader.
STRICTER = {"a name twice", "a name twice, other values", "a key of the metadata twice"}
# What is listed here with a note, and refused by the official reader or by PyTorch.
LENIENT = {"metadata has a number", "metadata has null", "metadata has an object", "unknown dtype", "PyTorch's name of a dtype",
           "dtype in small letters", "dtype F6_E2M3", "dtype F6_E3M2"}


def written(path, text, data, length=None):
    text = text if isinstance(text, bytes) else text.encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + bytes(range(data)))
    return path


def compare(name, path, theirs, tensor):
    """None, or how we differ from the official reader."""
    answer = torch2carton("inspect", "--json", "--sha256", path)
    if name in LENIENT:
        notes = " ".join(json.loads(answer.stdout)["notes"]) if answer.status == 0 else ""
        noted = "error" in theirs and notes and (tensor is None or f"`{tensor}`" in notes)
        return None if noted else f"not listed with a note; theirs: {theirs}; ours: {answer}"
    if "error" in theirs or name in STRICTER:
        if answer.status != 1 or not answer.stderr.startswith("error: "):
            return f"not refused; theirs: {theirs}; ours: {answer}"
        return None if tensor is None or f"`{tensor}`" in answer.stderr else f"does not name `{tensor}`: {answer.stderr}"
    if answer.status != 0:
        return f"refused: {answer.stderr}; theirs: {theirs}"
    found = {t["name"]: [t["dtype"], t["shape"], t["sha256"]] for t in json.loads(answer.stdout)["tensors"]}
    return difference(found, theirs["tensors"])


def test_headers_are_read_or_refused_as_by_safetensors(reference, tmp_path):
    paths = {name: written(tmp_path / f"{i}.safetensors", text, data) for i, (name, (text, data, _)) in enumerate(HEADERS.items())}
    theirs = dict(zip(HEADERS, reference.ask("read_each", paths=[str(path) for path in paths.values()])))
    found = {name: why for name, path in paths.items() if (why := compare(name, path, theirs[name], HEADERS[name][2]))}
    assert not found, "\n".join(f"{name}: {why}" for name, why in found.items())
    assert not any("error" in theirs[name] for name in STRICTER), "refused by safetensors, too"


@pytest.mark.parametrize("length, beyond", [(100_000_000, False), (100_000_001, True), (2**63, True), (2**64 - 1, True), (99, True)])
def test_the_length_of_the_header(length, beyond, reference, tmp_path):
    text = one()
    if not beyond:
        text += " " * (length - len(text))
    path = written(tmp_path / "x.safetensors", text, 4, length)
    (theirs,) = reference.ask("read_each", paths=[str(path)])
    assert ("error" in theirs) == beyond
    assert compare("length", path, theirs, None) is None


@pytest.mark.parametrize("size", range(12))
def test_a_file_that_is_cut(size, reference, tmp_path):
    path = written(tmp_path / "x.safetensors", one(), 4)
    path.write_bytes(path.read_bytes()[:size])
    (theirs,) = reference.ask("read_each", paths=[str(path)])
    assert "error" in theirs and compare("cut", path, theirs, None) is None
