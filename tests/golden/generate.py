#!/usr/bin/env python3
"""Makes the inputs of the golden tests: checkpoints/ and objects/ with real PyTorch, hostile/ byte by byte.

    generate.py               both (needs torch; made with 2.15.0)
    generate.py --hostile     all except these two (needs only Python)
    generate.py --check       writes nothing; exit status 1 if a file in the tree differs from what would be made

The values are exact binary fractions computed from their index, and torch.save is deterministic, so the same torch
version makes the same bytes.
"""

import argparse
import collections
import hashlib
import json
import pathlib
import pickle
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

import hostile
import malicious
import shard_sets
import other_containers
from raw_zip import DEFLATED, Entry, archive

HERE = Path(__file__).resolve().parent

LLAMA = {"dim": 4, "n_layers": 2, "n_heads": 2, "vocab_size": -1, "multiple_of": 4, "norm_eps": 1e-05}
LLAMA_HIDDEN, LLAMA_VOCAB = 12, 6  # 2/3 of 4 * dim, rounded up to multiple_of; a vocabulary of 6


def values(torch, shape, dtype, first=0):
    """A tensor of small fractions that every float dtype holds exactly: 37 i + first modulo 64, as 64ths from -1/2 on."""
    count = 1
    for n in shape:
        count *= n
    index = torch.arange(count, dtype=torch.int64)
    return (((index * 37 + first) % 64 - 32).to(torch.float64) / 64).to(dtype).reshape(shape)


def llama(torch, dtype):
    """Meta's names and order, as Llama 2 stores them."""
    dim, hidden, vocab = LLAMA["dim"], LLAMA_HIDDEN, LLAMA_VOCAB
    shapes = {"tok_embeddings.weight": (vocab, dim), "norm.weight": (dim,), "output.weight": (vocab, dim)}
    for i in range(LLAMA["n_layers"]):
        shapes |= {f"layers.{i}.attention.{w}.weight": (dim, dim) for w in ("wq", "wk", "wv", "wo")}
        shapes |= {f"layers.{i}.feed_forward.{w}.weight": s
                   for w, s in (("w1", (hidden, dim)), ("w2", (dim, hidden)), ("w3", (hidden, dim)))}
        shapes |= {f"layers.{i}.{w}.weight": (dim,) for w in ("attention_norm", "ffn_norm")}
    tensors = {name: values(torch, shape, dtype, 5 * i) for i, (name, shape) in enumerate(shapes.items())}
    head = LLAMA["dim"] // LLAMA["n_heads"]
    return tensors | {"rope.freqs": torch.tensor([1 / 2**i for i in range(head // 2)], dtype=dtype)}


def dtypes(torch):
    names = "uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()
    tensors = {n: values(torch, (2, 2), torch.float64).mul(64).abs().to(getattr(torch, n)) for n in names}
    tensors["bool"] = torch.tensor([True, False, True])
    for n in ("complex64", "complex128"):
        tensors[n] = torch.complex(*(values(torch, (2,), torch.float64, k) for k in (0, 9))).to(getattr(torch, n))
    return tensors


def views(torch):
    base = values(torch, (3, 4), torch.float32)
    return {
        "base": base,
        "transposed": base.t(),
        "row": base[1],
        "column": base[:, 2],
        "every_other": base[::2, 1::2],
        "inner": base[1:, 1:3],
        "expanded": torch.tensor([0.5], dtype=torch.float32).expand(2, 3),
        "scalar": torch.tensor(0.25),
        "empty": torch.empty((0, 3), dtype=torch.float32),
        "empty_in_the_middle": torch.empty((2, 0, 3), dtype=torch.int64),
        "alone_in_a_large_storage": torch.arange(8, dtype=torch.int16)[6:7],
    }


def nested(torch):
    """What a training script saves: the model two levels down, an optimizer with integer keys, plain values in between."""
    weight, bias = values(torch, (2, 3), torch.float32), values(torch, (2,), torch.float32, 7)
    return {
        "epoch": 3,
        "model": {"encoder": {"weight": weight, "bias": bias}, "scale": torch.tensor(2.0)},
        "optimizer": {
            "state": {0: {"step": torch.tensor(10.0), "exp_avg": values(torch, (2, 3), torch.float32, 3)}},
            "param_groups": [{"lr": 0.001, "betas": (0.9, 0.999), "params": [0, 1]}],
        },
        "config": {"name": "tiny", "layers": [1, 2], "dropout": None, "tied": True},
    }


def ordered_dict(torch):
    """state_dict() of a module: an OrderedDict with `_metadata`, and a 0-d int64 buffer."""
    module = torch.nn.Sequential(collections.OrderedDict(fc=torch.nn.Linear(2, 2), bn=torch.nn.BatchNorm1d(2)))
    with torch.no_grad():
        for i, tensor in enumerate(module.state_dict().values()):
            tensor.copy_(values(torch, tensor.shape, tensor.dtype, i))
    return module.state_dict()


NAMES = [
    "weight", "0", "1.weight", "class", "None", "True", "with space", "dash-ed", 'quote"d', "back\\slash", "new\nline",
    "tab\t", "nul\0", "bell\x07", "escape\x1b[31m", "größe", "重み", "🦙", "rtl\u202e", "a..b", ".dot", "dot.", "forward", "__tensors__",
    "training", "_parameters", "x" * 70,
]


def arrays():
    """NumPy arrays of each dtype that torch has too, and in the layouts that pickle tells apart."""
    import numpy

    kinds = "f8 f4 f2 i8 i4 i2 i1 u8 u4 u2 u1 ?".split()
    made = {kind: numpy.array([[1, 2, 3], [4, 5, 0]], kind) for kind in kinds}
    made |= {kind: numpy.array([1 + 2j, 3 - 4j], kind) for kind in ("c16", "c8")}
    made |= {f"big {kind}": made[kind].astype(f">{kind}") for kind in ("f4", "i8", "c8")}
    made["fortran"] = numpy.asfortranarray(made["i2"])
    made["3 dimensions"] = numpy.asfortranarray(numpy.arange(24, dtype="u1").reshape(2, 3, 4))
    made["scalar"], made["number"] = numpy.array(1.5, "f4"), numpy.float64(2.5)
    made["empty"] = numpy.zeros((0, 3), "f4")
    made["text"], made["record"] = numpy.array(["a"]), numpy.zeros(2, [("a", "i4")])
    return made


def python_values():
    """Values of classes of Python and NumPy. The name of each ends with what `str` returns, with ISO's T in a date and time."""
    import numpy
    from datetime import date, datetime, time, timedelta, timezone

    class Scalar:
        """A number or text as a machine writes it whose bytes are in this order."""

        def __init__(self, kind, data):
            self.arguments = numpy.dtype(kind), data

        def __reduce__(self):
            return numpy._core.multiarray.scalar, self.arguments

    zones = [timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-9, minutes=-30)), timezone.utc]
    made = [date(1, 1, 1), date(9999, 12, 31), time(23, 59, 58), time(1, 2, 3, 4), time(12, 30, tzinfo=zones[1]), *zones]
    made += [timedelta(0), timedelta(days=1), timedelta(days=-1, microseconds=5), timedelta(days=3, hours=11, minutes=1)]
    made += [pathlib.PurePosixPath("."), pathlib.PurePosixPath("a/b"), pathlib.PureWindowsPath("C:/a/b")]
    made += map(numpy.datetime64, ("1969-12-31", "1970-01-01", "2000-02-29", "1900-03-01", "2400-12-31", "-0001-01-01"))
    made += [numpy.datetime64("1969-07-20T20:17:40.123456789", unit) for unit in "h m s ms us ns".split()]
    made += [numpy.datetime64("NaT", "s")]
    made += map(numpy.dtype, ("f2", "i8", "u2", "?", "c16"))
    named = {str(value): value for value in made}
    moments = [datetime(2024, 2, 29, 1, 2, 3, tzinfo=zone) for zone in zones]
    named |= {moment.isoformat(): moment for moment in moments}
    named |= {"90 m": numpy.timedelta64(90, "m"), "6 h": numpy.timedelta64(2, "3h"), "652 M": numpy.datetime64("2024-05")}
    named |= {"0.0009765625": numpy.float16(2**-10), "5.960464477539063e-8": numpy.float16(2**-24)}
    named |= {"inf": numpy.float16("inf"), "nan": numpy.float16("nan"), "True": numpy.True_, "False": numpy.False_}
    numbers = {"f2": -1.5, "f4": 0.1, "f8": 1e300, "i1": -2, "i2": -300, "i4": -70000, "i8": -5 << 40}
    numbers |= {"u1": 200, "u2": 60000, "u4": 4 << 29, "u8": 9 << 60, "c8": 1.5 - 2.5j, "c16": 0.25 + 4.5j, "U2": "aé", "S2": b"ab"}
    for kind, number in numbers.items():
        shown = f"({number.real}{number.imag:+}j)" if kind[0] == "c" else str(number)
        for order in "<>":
            named[f"{order}{kind}|{shown}"] = Scalar(order + kind, numpy.array(number, order + kind).tobytes())
    return named


def compounds(torch):
    """Tensors that are several tensors, or another one with other signs."""
    matrix = torch.tensor([[0.0, 1.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0], [3.0, 0.0, 4.0, 5.0], [0.0, 6.0, 0.0, 0.0]])
    made = {"coo": matrix.to_sparse(), "uncoalesced": torch.sparse_coo_tensor([[1, 1]], torch.tensor([2.0, 3.0]), (4,))}
    made |= {"csr": matrix.to_sparse_csr(), "csc": matrix.to_sparse_csc()}
    made |= {"bsr": matrix.to_sparse_bsr((2, 2)), "bsc": matrix.to_sparse_bsc((2, 2))}
    made["per tensor"] = torch.quantize_per_tensor(matrix, 0.5, 3, torch.quint8)
    scales, zeros = torch.tensor([0.5, 0.25, 1.0, 2.0]).double(), torch.tensor([0, 1, 2, 3])
    made["per channel"] = torch.quantize_per_channel(matrix, scales, zeros, 1, torch.qint8)
    made["strided nested"] = torch.nested.nested_tensor([torch.ones(2, 3), torch.zeros(1, 3)])
    made["jagged"] = torch.nested.nested_tensor_from_jagged(torch.arange(10.0).reshape(5, 2), torch.tensor([0, 2, 5]))
    made["jagged with lengths"] = torch.nested.nested_tensor_from_jagged(
        torch.arange(10.0).reshape(5, 2), torch.tensor([0, 2, 5]), torch.tensor([1, 2]))
    numbers = torch.tensor([1 + 2j, -3 - 4j], dtype=torch.complex64)
    made["conj"], made["neg"], made["both"] = numbers.conj(), numbers._neg_view(), numbers.conj()._neg_view()
    made["imaginary"], made["real neg"] = numbers.conj().imag, torch.tensor([1.0, -2.0])._neg_view()
    made["of a neg"] = made["neg"][1:]
    return made


def of_classes(torch):
    """Tensors of subclasses, with attributes, and without data."""
    import torch.distributed.tensor as distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    weight = torch.nn.Parameter(torch.arange(4.0), requires_grad=False)
    noted = torch.nn.Parameter(torch.arange(3.0))
    noted.note, noted.mask = "kept", torch.tensor([True, False, True])
    tensor = torch.arange(2.0)
    tensor.note = ["a", {"b": torch.tensor(7)}]
    made = {"weight": weight, "noted": noted, "tensor": tensor, "buffer": torch.nn.Buffer(torch.arange(2.0))}
    made["meta"] = torch.empty((2, 3), device="meta")
    made["no data"] = torch.UntypedStorage(0)
    made["storage"], made["untyped"] = torch.tensor([1, 2], dtype=torch.int16).storage(), torch.arange(2.0).untyped_storage()
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    try:
        mesh = distributed.init_device_mesh("cpu", (2,))
        made["shard"] = distributed.DTensor.from_local(torch.arange(6.0).reshape(2, 3), mesh, [distributed.Shard(0)])
        made["replica"] = distributed.DTensor.from_local(torch.arange(6.0).reshape(2, 3), mesh, [distributed.Replicate()])
    finally:
        torch.distributed.destroy_process_group()
    return made


def hashes(torch, name, value):
    """SHA-256 of the elements that torch or NumPy sees, little-endian in C order, by the names that `inspect` gives them."""
    if not isinstance(value, torch.Tensor):
        if type(value).__name__ != "ndarray" or value.dtype.kind not in "fiubc":
            return {}
        return {name: hashlib.sha256(value.astype(value.dtype.newbyteorder("<")).tobytes("C")).hexdigest()}
    if value.is_meta:
        return {}
    if value.layout == torch.jagged:
        parts = {"values": value.values(), "offsets": value.offsets(), "lengths": value.lengths()}
    elif value.is_nested:
        parts = {"values": value.values(), "sizes": value._nested_tensor_size(), "strides": value._nested_tensor_strides(),
                 "offsets": value._nested_tensor_storage_offsets()}
    elif value.layout == torch.sparse_coo:
        parts = {"indices": value._indices(), "values": value._values()}
    elif value.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = {"crow_indices": value.crow_indices(), "col_indices": value.col_indices(), "values": value.values()}
    elif value.layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = {"ccol_indices": value.ccol_indices(), "row_indices": value.row_indices(), "values": value.values()}
    else:
        local = getattr(value, "_local_tensor", value)
        numbers = local.int_repr() if local.is_quantized else local.detach().resolve_conj().resolve_neg().contiguous()
        name = f"{name}._local_tensor" if any(place.is_shard() for place in getattr(value, "placements", ())) else name
        return {name: hashlib.sha256(numbers.numpy().tobytes()).hexdigest()}
    parts = {f"{name}.{part}": tensor for part, tensor in parts.items() if tensor is not None}
    return {part: found for part, tensor in parts.items() for found in hashes(torch, part, tensor.contiguous()).values()}


def objects(torch, folder):
    """Files of everything above, and what torch and NumPy see in them."""
    expected = {}
    for protocol in (2, 5):
        path = f"arrays_{protocol}.pth"
        torch.save(arrays(), folder / path, pickle_protocol=protocol)
        expected[path] = {n: found for name, array in arrays().items() for n, found in hashes(torch, name, array).items()}
    for kind, made in (("compounds", compounds), ("of_classes", of_classes)):
        (folder / kind).mkdir()
        for name, tensor in made(torch).items():
            path = f"{kind}/{name.replace(' ', '_')}.pth"
            torch.save({"x": tensor}, folder / path)
            expected[path] = hashes(torch, "x", tensor)
    (folder / "python_values.pkl").write_bytes(pickle.dumps(python_values(), 2))
    (folder / "elements.json").write_text(json.dumps(expected, indent=1) + "\n")


def checkpoints(torch, folder):
    save = torch.save
    shared = values(torch, (2, 3), torch.float32)

    (folder / "llama_tiny").mkdir()
    save(llama(torch, torch.bfloat16), folder / "llama_tiny/consolidated.00.pth")
    (folder / "llama_tiny/params.json").write_text(json.dumps(LLAMA) + "\n")
    (folder / "llama_tiny/tokenizer.model").write_bytes(b"not a tokenizer: a stand-in for the golden tests\n")

    save({n: t for n, t in llama(torch, torch.bfloat16).items() if n in ("tok_embeddings.weight", "norm.weight")},
         folder / "llama_first.pth")
    # The same two tensors in the size of Llama 3.1 8B. Only the pickle is kept, so the real sizes take no space.
    with torch.serialization.skip_data(), tempfile.TemporaryDirectory() as scratch:
        path = f"{scratch}/consolidated.00.pth"
        save({"tok_embeddings.weight": torch.empty((128256, 4096), dtype=torch.bfloat16),
              "norm.weight": torch.empty((4096,), dtype=torch.bfloat16)}, path)
        (folder / "llama_8b_first.pkl").write_bytes(zipfile.ZipFile(path).read("consolidated.00/data.pkl"))

    save(dtypes(torch), folder / "dtypes.pth")
    save(views(torch), folder / "views.pth")
    save({"embed.weight": shared, "head.weight": shared, "again.weight": shared.view(3, 2)}, folder / "tied.pth")
    save(nested(torch), folder / "nested.pth")
    save(ordered_dict(torch), folder / "ordered_dict.pth")
    save({"trained": torch.nn.Parameter(shared), "frozen": torch.nn.Parameter(shared[0], requires_grad=False)},
         folder / "parameters.pth")
    save({n: torch.tensor([float(i)]) for i, n in enumerate(NAMES)}, folder / "names.pth")
    save({"a": shared, "a.b": shared[0], "c": shared[1]}, folder / "prefix.pth")
    save({}, folder / "empty_dict.pth")
    save(shared, folder / "bare_tensor.pth")

    plain = {"w": shared, "n": torch.arange(3, dtype=torch.int64), "z": dtypes(torch)["complex64"]}
    torch.serialization.set_crc32_options(False)
    save(plain, folder / "crc_zero.pth")
    torch.serialization.set_crc32_options(True)
    save(plain, folder / "plain.pth")
    records = zip_records(folder / "plain.pth")
    (folder / "big_endian.pth").write_bytes(big_endian(records, {"0": 4, "1": 8, "2": 4}))
    (folder / "deflated.pth").write_bytes(
        archive([Entry(f"deflated/{n}", d, method=DEFLATED) for n, d in records.items()]))


def zip_records(path):
    with zipfile.ZipFile(path) as z:
        return {n.split("/", 1)[1]: z.read(n) for n in z.namelist()}


def big_endian(records, widths):
    """The same tensors as a big-endian machine writes them: the bytes of each component are swapped."""
    def swapped(data, width):
        return b"".join(data[i : i + width][::-1] for i in range(0, len(data), width))

    out = []
    for name, data in records.items():
        data = b"big" if name == "byteorder" else data
        data = swapped(data, widths[name[5:]]) if name.startswith("data/") else data
        out.append(Entry(f"big_endian/{name}", data, align=64 if name.startswith("data/") else 1))
    return archive(out)


def make(folder, with_torch):
    for part, made in (("hostile", hostile), ("malicious", malicious), ("shards", shard_sets)):
        (folder / part).mkdir()
        for name, (data, _) in made.FILES.items():
            (folder / part / name).parent.mkdir(exist_ok=True)
            (folder / part / name).write_bytes(data)
        (folder / part / "README.md").write_text(made.index())
    if with_torch:
        import torch

        warnings.simplefilter("ignore")
        (folder / "checkpoints").mkdir()
        for name, data in other_containers.CHECKPOINTS.items():
            (folder / "checkpoints" / name).write_bytes(data)
        checkpoints(torch, folder / "checkpoints")
        (folder / "objects").mkdir()
        objects(torch, folder / "objects")
        print(f"made with torch {torch.__version__}", file=sys.stderr)


def files(folder):
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--hostile", action="store_true")
    arguments.add_argument("--check", action="store_true")
    options = arguments.parse_args()
    parts = ["hostile", "malicious", "shards"] + ([] if options.hostile else ["checkpoints", "objects"])
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        make(scratch, "checkpoints" in parts)
        stale = False
        for part in parts:
            made, kept = files(scratch / part), files(HERE / part) if (HERE / part).is_dir() else {}
            for name in sorted(made.keys() | kept.keys()):
                if made.get(name) == kept.get(name):
                    continue
                stale = True
                print(f"{part}/{name}: {'differs' if name in made and name in kept else 'new' if name in made else 'no longer made'}")
                if options.check:
                    continue
                target = HERE / part / name
                if name in made:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(made[name])
                else:
                    target.unlink()
    sys.exit(1 if options.check and stale else 0)


if __name__ == "__main__":
    main()
