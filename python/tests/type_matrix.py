"""Compares `torch2carton.load` with `torch.load` for the kinds of files in `tests/conformance/matrix.py` of the repository."""

from __future__ import annotations

import pickle
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import torch

import torch2carton

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "conformance"))

import matrix as kinds  # noqa: E402
from deep_equal import Comparison, Difference  # noqa: E402


#: Files that PyTorch reads beyond their end: it makes such a storage larger, and the tensor has numbers that are not in the file.
BEYOND = {"layout slice of columns tar (0.1)", "layout every other tar (0.1)"}


def main() -> int:
    warnings.simplefilter("ignore")
    results: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for group, objects in kinds.OBJECTS.items():
            for name, make in objects.items():
                for writer, (write, reader) in {**kinds.WRITERS, **kinds.CONTAINERS}.items():
                    if reader in ("torch", "pickle"):
                        place = Path(folder) / "file.pt"
                        results[compare(f"{group} {name} {writer}", make, write, reader, place)] += 1
    print(dict(results))
    is_wrong = results["DIFFERENT"] or results["FAIL"] or results["torch.load reads beyond a storage"] != len(BEYOND)
    return 1 if is_wrong else 0


def compare(title, make, write, reader, path) -> str:
    try:
        write(make(), path)
    except Exception:
        return "not written"
    try:
        if reader == "pickle":
            expected = pickle.loads(path.read_bytes())
        else:
            expected = torch.load(path, map_location="cpu", weights_only=False)
    except Exception:
        try:
            torch2carton.load(path)
        except torch2carton.Error:
            return "both fail"
        except Exception as error:
            print(f"{title}: {type(error).__name__}: {error}")
            return "FAIL"
        return "torch.load fails"
    try:
        comparison = Comparison()
        comparison.run(expected, torch2carton.load(path, map_location="cpu"))
    except Difference as difference:
        print(f"{title}: {difference}")
        return "DIFFERENT"
    except Exception as error:
        if title in BEYOND and isinstance(error, torch2carton.DamagedError):
            return "torch.load reads beyond a storage"
        print(f"{title}: {type(error).__name__}: {str(error)[:200]}")
        return "FAIL"
    return "equal"


if __name__ == "__main__":
    sys.exit(main())
