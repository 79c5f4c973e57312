"""Files for the tests, made by PyTorch or, without it, by hand."""

from __future__ import annotations

import os
import pickle
import struct
from collections import OrderedDict
from pathlib import Path

import pytest

torch = None
try:
    import torch
except ImportError:
    pass
np = None
try:
    import numpy as np
except ImportError:
    pass

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
needs_numpy = pytest.mark.skipif(np is None, reason="NumPy is not installed")


def write_safetensors(path: Path, metadata: dict[str, str] | None = None) -> None:
    """Writes `weight` (0 to 5, 2 × 3) and `bias` (two zeros) without a library."""
    import json

    header = {
        "weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "bias": {"dtype": "F32", "shape": [2], "data_offsets": [24, 32]},
    }
    if metadata:
        header = {"__metadata__": metadata, **header}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + struct.pack("<8f", *range(6), 0, 0))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with model.safetensors, model.pt if there is PyTorch, and evil.pkl; it is the working directory."""
    monkeypatch.chdir(tmp_path)
    write_safetensors(tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "evil.pkl").write_bytes(b"cos\nsystem\n(S'echo executed > executed'\ntR.")
    (tmp_path / "data.pkl").write_bytes(pickle.dumps({"epoch": 7, "rate": 0.5, "names": ["a", "b"]}, 2))
    if torch is not None:
        state = OrderedDict(weight=torch.arange(6.0).reshape(2, 3), bias=torch.zeros(2))
        torch.save(state, tmp_path / "model.pt")
    return tmp_path


@pytest.fixture
def llama(place):
    """A carton with a small LLaMA, made by the example `tiny-llama` of the repository, if it was built."""
    found = os.environ.get("TINY_LLAMA_CARTON")
    if not found:
        pytest.skip("TINY_LLAMA_CARTON names no carton")
    target = place / "llama.carton"
    target.write_bytes(Path(found).read_bytes())
    return target
