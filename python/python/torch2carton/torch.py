"""Loads and saves tensors of PyTorch with the functions of `safetensors.torch`.

`load_file` and `load` take every file that torch2carton reads, and `load_file` also folders.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ._dtypes import SAFETENSORS
from ._errors import UnsupportedError, import_torch
from ._open import Checkpoint
from ._safe_open import safe_open
from ._serialize import TensorSpec, serialize, serialize_file

if TYPE_CHECKING:
    import torch

__all__ = ["load", "load_file", "load_model", "save", "save_file", "save_model"]


def load_file(
    filename: str | os.PathLike[str], device: Any = "cpu", *, backend: str = "mmap"
) -> dict[str, torch.Tensor]:
    """Loads all tensors of a file or folder, as views of the file if possible.

    Raises:
        FileNotFoundError: there is no such file
        SafetensorError: the file is damaged or not a checkpoint

    >>> torch2carton.load_file("model.safetensors")["bias"]
    tensor([0., 0.])
    """
    with safe_open(filename, framework="pt", device=device, backend=backend) as file:
        return file.get_tensors()


def load(data: bytes) -> dict[str, torch.Tensor]:
    """Loads all tensors in the bytes of a file.

    >>> data = open("model.safetensors", "rb").read()
    >>> torch2carton.torch.load(data)["bias"]
    tensor([0., 0.])
    """
    checkpoint = Checkpoint(bytes(data))
    tied = {name for name, _ in checkpoint._native.tied_names}
    return {name: tensor.torch(copy=True) for name, tensor in checkpoint.items() if name not in tied}


def save(tensors: dict[str, torch.Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """Returns the bytes of a safetensors file with these tensors, which must be dense, contiguous and not share memory.

    >>> len(torch2carton.torch.save({"a": torch.zeros(2)}))
    72
    """
    specs, keep = _specs(tensors)
    data = serialize(specs, metadata)
    del keep
    return data


def save_file(
    tensors: dict[str, torch.Tensor],
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes a safetensors file with these tensors, which must be dense, contiguous and not share memory.

    Raises:
        ValueError: a value is not a tensor, or a tensor is sparse or not contiguous
        RuntimeError: tensors share memory

    >>> torch2carton.save_file({"a": torch.zeros(2)}, "new.safetensors")
    """
    specs, keep = _specs(tensors)
    serialize_file(specs, filename, metadata)
    del keep


def save_model(
    model: torch.nn.Module,
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
    force_contiguous: bool = True,
) -> None:
    """Writes the state dict of a module, tensors that share memory once: the metadata has their other names.

    >>> torch2carton.torch.save_model(torch.nn.Linear(2, 2), "linear.safetensors")
    """
    state = model.state_dict()
    for kept, names in _remove_duplicate_names(state).items():
        for name in names:
            metadata = {} if metadata is None else metadata
            metadata.setdefault(name, kept)
            del state[name]
    if force_contiguous:
        state = {name: tensor.contiguous() for name, tensor in state.items()}
    try:
        save_file(state, filename, metadata=metadata)
    except ValueError as error:
        text = f"{error} Or use save_model(..., force_contiguous=True), read the docs for potential caveats."
        raise ValueError(text) from None


def load_model(
    model: torch.nn.Module,
    filename: str | os.PathLike[str],
    strict: bool = True,
    device: Any = "cpu",
    *,
    backend: str = "mmap",
) -> tuple[set[str], list[str]]:
    """Loads a file into a module, and returns the names that the file lacks and those that the module lacks.

    Raises:
        RuntimeError: names are missing or unexpected, unless `strict` is False

    >>> torch2carton.torch.save_model(torch.nn.Linear(2, 2), "other.safetensors")
    >>> torch2carton.torch.load_model(torch.nn.Linear(2, 2), "other.safetensors")
    (set(), [])
    """
    state = load_file(filename, device=device, backend=backend)
    duplicates = _remove_duplicate_names(model.state_dict(), preferred_names=state.keys())
    result = model.load_state_dict(state, strict=False)
    missing, unexpected = set(result.missing_keys), list(result.unexpected_keys)
    for name in (name for names in duplicates.values() for name in names):
        if name in missing:
            missing.remove(name)
        else:
            unexpected.append(name)
    if strict and (missing or unexpected):
        text = f"Error(s) in loading state_dict for {type(model).__name__}:"
        if missing:
            text += "\n    Missing key(s) in state_dict: " + ", ".join(f'"{name}"' for name in sorted(missing))
        if unexpected:
            text += "\n    Unexpected key(s) in state_dict: " + ", ".join(f'"{name}"' for name in sorted(unexpected))
        raise RuntimeError(text)
    return missing, unexpected


def storage_ptr(tensor: torch.Tensor) -> int:
    """Returns the address of the tensor's storage."""
    return int(tensor.untyped_storage().data_ptr())


def storage_size(tensor: torch.Tensor) -> int:
    """Returns the number of bytes of the tensor's storage."""
    return int(tensor.untyped_storage().nbytes())


def _find_shared_tensors(tensors: Mapping[str, torch.Tensor]) -> list[set[str]]:
    """Returns sets of the names of tensors whose memory overlaps; a tensor that overlaps no other is alone in its set."""
    import torch

    storages: dict[tuple[Any, int, int], set[str]] = {}
    for name, tensor in tensors.items():
        if tensor.device != torch.device("meta") and storage_ptr(tensor) != 0 and storage_size(tensor) != 0:
            key = (tensor.device, storage_ptr(tensor), storage_size(tensor))
            storages.setdefault(key, set()).add(name)
    found: list[set[str]] = []
    for names in storages.values():
        areas = sorted((tensors[name].data_ptr(), _end_ptr(tensors[name]), name) for name in names)
        last = None
        for start, end, name in areas:
            if last is not None and start < last:
                found[-1].add(name)
            else:
                found.append({name})
            last = end
    return found


def _end_ptr(tensor: torch.Tensor) -> int:
    """Returns the address after the tensor's last element."""
    if tensor.numel() == 0:
        return int(tensor.data_ptr())
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
    return int(tensor.data_ptr() + (last + 1) * tensor.element_size())


def _is_complete(tensor: torch.Tensor) -> bool:
    is_first = tensor.data_ptr() == storage_ptr(tensor)
    return bool(is_first and tensor.numel() * tensor.element_size() == storage_size(tensor))


def _remove_duplicate_names(
    state_dict: Mapping[str, torch.Tensor],
    *,
    preferred_names: Iterable[str] | None = None,
    discard_names: Iterable[str] | None = None,
) -> dict[str, list[str]]:
    """Chooses a name for each set of tensors that share memory, and returns the other names by it.

    Raises:
        RuntimeError: no tensor of a set is all of its storage
    """
    preferred, discarded = set(preferred_names or ()), set(discard_names or ())
    removed: dict[str, list[str]] = {}
    for shared in _find_shared_tensors(state_dict):
        complete = {name for name in shared if _is_complete(state_dict[name])}
        if not complete:
            raise RuntimeError(
                f"no tensor of {sorted(shared)}, which share memory, covers the whole storage: saving one would store more"
                " memory than it needs; clone them, or save them on their own"
            )
        choices = (preferred & complete) or (complete - discarded) or complete
        kept = min(choices)
        others = [name for name in sorted(shared) if name != kept]
        if others:
            removed[kept] = others
    return removed


def _specs(tensors: dict[str, torch.Tensor]) -> tuple[dict[str, TensorSpec], list[Any]]:
    """Returns what is to be written, and the tensors that own the memory."""
    torch: Any = import_torch("torch2carton.torch")
    if not isinstance(tensors, dict):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    sparse = []
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(tensor)}")
        if tensor.layout != torch.strided:
            sparse.append(name)
    if sparse:
        raise ValueError(
            f"You are trying to save a sparse tensors: `{sparse}` which this library does not support."
            " You can make it a dense tensor before saving with `.to_dense()` but be aware this might"
            " make a much larger file than needed."
        )
    shared = [names for names in _find_shared_tensors(tensors) if len(names) > 1]
    if shared:
        raise RuntimeError(
            f"Some tensors share memory, this will lead to duplicate memory on disk and potential differences when loading"
            f" them again: {shared}. A potential way to correctly save your model is to use `save_model`."
        )
    specs, keep = {}, []
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(
                f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. It either means you"
                " are trying to save tensors which are reference of each other in which case it's recommended to save"
                " only the full tensors, and reslice at load time, or simply call `.contiguous()` on your tensor to"
                " pack it before saving."
            )
        dtype = str(tensor.dtype).split(".")[-1]
        if dtype not in SAFETENSORS:
            raise UnsupportedError(f"tensor `{name}`: safetensors has no {dtype}", tensor=name)
        owner = tensor if tensor.device.type == "cpu" else tensor.to("cpu")
        # A negative or conjugated view has other bytes than its elements.
        owner = owner.resolve_neg().resolve_conj()
        keep.append(owner)
        specs[name] = TensorSpec(
            dtype=dtype,
            shape=tuple(owner.shape),
            data_ptr=owner.data_ptr(),
            data_len=owner.numel() * owner.element_size(),
        )
    return specs, keep
