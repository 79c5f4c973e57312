"""Numbers of every dtype as files, and what `Tensor.to(dtype)` makes of them."""

import warnings
from pathlib import Path

import torch
from line_server import serve

warnings.simplefilter("ignore")  # views of storages
FLOAT8 = "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu".split()
FLOATS = ["float64", "float32", "float16", "bfloat16", *FLOAT8]
INTEGERS = "int64 int32 int16 int8 uint64 uint32 uint16 uint8".split()
COMPLEX = {"complex128": "float64", "complex64": "float32", "complex32": "float16", "bcomplex32": "bfloat16"}


def of(name):
    return getattr(torch, name)


def dtypes():
    """Those of numbers that this version has."""
    return [name for name in [*FLOATS, *INTEGERS, "bool", *COMPLEX] if hasattr(torch, name)]


def raw(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def every(bits, dtype):
    """All bit patterns of this width."""
    integer = {8: torch.uint8, 16: torch.int16}[bits]
    return torch.arange(2**bits).to(integer).view(of(dtype))


def floats32():
    """Every number of 16 bits and its neighbours, the middles between them and theirs, and random bits."""
    upper = torch.arange(2**16) << 16
    codes = [upper + low for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]
    half = torch.arange(0x7C01).to(torch.int16).view(torch.float16).float()
    both = torch.cat([half, (half[1:] + half[:-1]) / 2])
    around = both.view(torch.int32).long()
    codes += [around + step for step in (-1, 0, 1)] + [around + 2**31 + step for step in (-1, 0, 1)]
    codes.append(torch.randint(0, 2**32, (50_000,)))
    codes = torch.cat(codes) & 0xFFFFFFFF
    return torch.where(codes >= 2**31, codes - 2**32, codes).to(torch.int32).view(torch.float32)


def patterns(dtype):
    """Numbers of a dtype: all of them for 8 and 16 bits, otherwise those near limits, and random ones."""
    torch.manual_seed(12)
    if dtype in COMPLEX:
        parts = patterns(COMPLEX[dtype])
        return raw(torch.cat([parts, parts.roll(1)]))[: parts.numel() * parts.element_size() // 16 * 16].view(of(dtype))
    if dtype == "bool":
        return torch.tensor([False, True])
    if dtype == "float32":
        return floats32()
    if dtype == "float64":
        doubles = floats32().double()
        near = doubles.view(torch.int64)
        limits = torch.tensor([2.0**k for k in range(-1074, 1024)], dtype=torch.float64)
        random = torch.cat([torch.randint(-(2**63), 2**63 - 1, (50_000,)).view(torch.float64), limits, -limits])
        return torch.cat([doubles, (near + 1).view(torch.float64), (near - 1).view(torch.float64), random])
    size = of(dtype).itemsize if hasattr(of(dtype), "itemsize") else torch.empty(0, dtype=of(dtype)).element_size()
    if size <= 2:
        return every(8 * size, dtype)
    powers = torch.tensor([2**k for k in range(63)])
    near = torch.cat([powers + step for step in (-1, 0, 1)] + [3 * (powers >> 2) + step for step in (-1, 0, 1)])
    random = torch.randint(-(2**63), 2**63 - 1, (50_000,))
    shifted = random >> torch.randint(0, 63, random.shape)
    return torch.cat([near, -near, torch.tensor([-(2**63), 2**63 - 1]), random, shifted]).to(
        {8: torch.int64, 4: torch.int32}[size]).view(of(dtype))


def bounds(dtype):
    bits = int(dtype.lstrip("uint"))
    return (0, 2**bits - 1) if dtype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def make(dtype, path, only_for=None):
    """Saves the patterns; those that are in the range of an integer dtype, if it is given."""
    numbers = patterns(dtype)
    if only_for:
        low, high = bounds(only_for)
        whole = numbers.double().trunc()
        # 2^63 and 2^64 are doubles, one less is not.
        numbers = numbers[(whole >= float(low)) & (whole < float(high + 1))]
    torch.save({"x": numbers}, path)
    Path(path).with_suffix(".raw").write_bytes(bytes(raw(numbers).numpy()))


def read(path, dtype):
    return torch.frombuffer(bytearray(Path(path).read_bytes()), dtype=torch.uint8).view(of(dtype))


def parts(numbers, dtype):
    return torch.view_as_real(numbers) if dtype == "complex64" or dtype == "complex128" else (
        raw(numbers).view(of(COMPLEX[dtype])) if dtype in COMPLEX else numbers)


def outside(numbers, dtype, to):
    """How many numbers are out of the range of the dtype that they became."""
    if dtype == "bool" or to == "bool":
        return 0
    before, after = parts(numbers, dtype).reshape(-1), parts(numbers.to(of(to)), to).reshape(-1)
    if to in INTEGERS:
        if dtype in FLOATS:
            return 0
        low, high = bounds(to)
        return sum(not low <= number <= high for number in before.tolist())
    before, after = before.double(), after.double()
    is_number = ~before.isnan()
    if to == "float8_e4m3fn":  # infinity and what is rounded up past the largest number become that number
        return int((is_number & (before.float().abs() > 464)).sum())
    return int((is_number & (after.isnan() | (after.isinf() & ~before.isinf()))).sum())


def compare(source, dtype, found, to):
    """The first numbers that are not those of `Tensor.to`, and how many are out of range."""
    numbers = read(source, dtype)
    wanted = numbers.to(of(to))
    ours = read(found, to)
    assert ours.shape == wanted.shape, f"{ours.shape}, not {wanted.shape}"
    ours, wanted_parts = parts(ours, to).reshape(-1), parts(wanted, to).reshape(-1)
    size = wanted_parts.element_size()
    is_equal = (raw(ours).view(-1, size) == raw(wanted_parts).view(-1, size)).all(1)
    if to in FLOATS or to in COMPLEX:
        is_equal |= ours.double().isnan() & wanted_parts.double().isnan()
    first = (~is_equal).nonzero().flatten()[:3].tolist()
    sources = parts(numbers, dtype).reshape(-1)
    differences = [f"{sources[i].item()!r}: {ours[i].item()!r}, not {wanted_parts[i].item()!r}" for i in first]
    return {"differences": differences, "numbers": wanted_parts.numel(), "outside": outside(numbers, dtype, to)}


def make_views(path):
    """Tensors that share memory, and others."""
    whole = torch.randn(6, 8)
    tensors = {"whole": whole, "tied": whole, "transposed": whole.t(), "part": whole[1:3, ::2], "row": torch.randn(5).expand(4, 5)}
    torch.save(tensors | {"index": torch.arange(4), "empty": torch.empty(0, 3), "scalar": torch.tensor(1.5)}, path)


def cast_all(path, to, dtype):
    """Saves the checkpoint with every float in another dtype. Tensors over one storage are views of one storage again."""
    storages = {}

    def cast(tensor):
        if not tensor.is_floating_point():
            return tensor
        storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage().untyped()
        if storage.data_ptr() not in storages or not storage.nbytes():
            flat = torch.empty(0, dtype=tensor.dtype).set_(storage)
            storages[storage.data_ptr()] = flat.to(of(dtype))
        flat = storages[storage.data_ptr()]
        return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    torch.save({name: cast(tensor) for name, tensor in torch.load(path, weights_only=True).items()}, to)


serve({"dtypes": dtypes, "make": make, "compare": compare, "make_views": make_views, "cast_all": cast_all})
