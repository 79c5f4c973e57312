"""Compares `torch2carton.load` with `torch.load` for all files below folders: `python corpus.py FOLDER…`."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from pathlib import Path

from deep_equal import Difference, Comparison, reference

import torch2carton

_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".t7", ".model", ".tar", ".pickle", ".th", ".ptl", ".dat", ".data", "")


def main() -> int:
    warnings.simplefilter("ignore")
    results: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for folder in map(Path, sys.argv[1:]):
        for path in sorted(folder.rglob("*")):
            if not path.is_file() or path.suffix in (".tsv", ".md", ".json", ".txt", ".py"):
                continue
            try:
                expected = reference(str(path))
            except Exception as error:
                result = "torch.load fails"
                try:
                    torch2carton.load(str(path))
                except torch2carton.Error:
                    result = "both fail"
                except Exception as other:
                    result = "FAIL"
                    print(f"{path}: torch {type(error).__name__}; {type(other).__name__}: {other}")
                results[result] += 1
                continue
            try:
                found = torch2carton.load(str(path), map_location="cpu")
                comparison = Comparison()
                comparison.run(expected, found)
                results["equal"] += 1
                counts += comparison.counts
            except Difference as difference:
                results["DIFFERENT"] += 1
                print(f"{path}: {difference}")
            except Exception as error:
                results["FAIL"] += 1
                print(f"{path}: {type(error).__name__}: {str(error)[:300]}")
    print(dict(results), dict(counts))
    return 1 if results["FAIL"] or results["DIFFERENT"] else 0


if __name__ == "__main__":
    sys.exit(main())
