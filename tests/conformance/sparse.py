"""Checkpoints of gigabytes that take no disk: zip files whose tensors are holes, made by a tool next to the checkout."""

import subprocess
import sys

import pytest
from conftest import SHARED

SPARSE = SHARED / "tools/make_sparse_pth.py"
needs_sparse = pytest.mark.skipif(not SPARSE.is_file(), reason="../shared/tools/make_sparse_pth.py does not exist")


def sparse(path, *flags, warm=False):
    """`warm`: read it once, so that the timing does not include the kernel filling its cache with zeros."""
    subprocess.run([sys.executable, SPARSE, path, *flags], check=True, stdout=subprocess.DEVNULL)
    if warm:
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 22):
                pass
    return path
