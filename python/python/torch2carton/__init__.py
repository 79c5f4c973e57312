"""Reads, scans, converts and runs PyTorch checkpoints. Nothing in a file is ever executed.

>>> import torch2carton
>>> checkpoint = torch2carton.open("model.pt")
>>> checkpoint
<Checkpoint model.pt: zip, 2 tensors, 32 B>
>>> checkpoint["weight"]
<Tensor weight: float32 (2, 3)>
>>> checkpoint["weight"].numpy()
array([[0., 1., 2.],
       [3., 4., 5.]], dtype=float32)

`load` takes the place of `torch.load`, and `safe_open`, `torch2carton.torch` and `torch2carton.numpy` that of `safetensors`.
NumPy, PyTorch and `ml_dtypes` are imported when a call needs them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._errors import CancelledError as CancelledError
    from ._errors import ChangedError as ChangedError
    from ._errors import DamagedError as DamagedError
    from ._errors import Error as Error
    from ._errors import InputError as InputError
    from ._errors import InternalError as InternalError
    from ._errors import IoError as IoError
    from ._errors import MissingPackageError as MissingPackageError
    from ._errors import NotFoundError as NotFoundError
    from ._errors import OptionError as OptionError
    from ._errors import SafetensorError as SafetensorError
    from ._errors import UnsupportedError as UnsupportedError
    from ._load import load as load
    from ._objects import Global as Global
    from ._objects import Object as Object
    from ._open import Carton as Carton
    from ._open import Checkpoint as Checkpoint
    from ._open import open as open
    from ._tensor import Tensor as Tensor
    from ._safe_open import safe_open as safe_open
    from ._serialize import TensorSpec as TensorSpec
    from ._serialize import deserialize as deserialize
    from ._serialize import serialize as serialize
    from ._serialize import serialize_file as serialize_file
    from ._verbs import Completeness as Completeness
    from ._verbs import Conversion as Conversion
    from ._verbs import Difference as Difference
    from ._verbs import Inspection as Inspection
    from ._verbs import Scan as Scan
    from ._verbs import Step as Step
    from ._verbs import Verification as Verification
    from ._verbs import check as check
    from ._verbs import convert as convert
    from ._verbs import diff as diff
    from ._verbs import digest as digest
    from ._verbs import inspect as inspect
    from ._verbs import scan as scan
    from ._verbs import trace as trace
    from ._verbs import verify as verify
    from ._views import Histogram as Histogram
    from ._views import Page as Page
    from ._views import Statistics as Statistics
    from ._views import report as report
    from ._run import Generation as Generation
    from ._run import run as run
    from ._text import Answer as Answer
    from ._text import TextModel as TextModel
    from .torch import load_file as load_file
    from .torch import save as save
    from .torch import save_file as save_file

__version__ = "0.1.0"

#: The module of each public name, which is imported when the name is first used.
_MODULES = {
    "_errors": (
        "CancelledError", "ChangedError", "DamagedError", "Error", "InputError", "InternalError", "IoError",
        "MissingPackageError", "NotFoundError", "OptionError", "SafetensorError", "UnsupportedError",
    ),
    "_load": ("load",),
    "_objects": ("Global", "Object"),
    "_open": ("Carton", "Checkpoint", "open"),
    "_tensor": ("Tensor",),
    "_run": ("Generation", "run"),
    "_text": ("Answer", "TextModel"),
    "_safe_open": ("safe_open",),
    "_serialize": ("TensorSpec", "deserialize", "serialize", "serialize_file"),
    "_verbs": (
        "Completeness", "Conversion", "Difference", "Inspection", "Scan", "Step", "Verification", "check", "convert", "diff",
        "digest", "inspect", "scan", "trace", "verify",
    ),
    "_views": ("Histogram", "Page", "Statistics", "report"),
    "torch": ("load_file", "save", "save_file"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Answer", "CancelledError", "Carton", "ChangedError", "Checkpoint", "Completeness", "Conversion", "DamagedError", "Difference", "Error",
    "Generation", "Global", "Histogram", "InputError", "Inspection", "InternalError", "IoError", "MissingPackageError",
    "NotFoundError", "Object", "OptionError", "Page", "SafetensorError", "Scan", "Statistics", "Step", "Tensor", "TensorSpec", "TextModel",
    "UnsupportedError", "Verification", "__version__", "check", "convert", "deserialize", "diff", "digest", "inspect", "load", "load_file",
    "open", "report", "run", "safe_open", "save", "save_file", "scan", "serialize", "serialize_file", "trace", "verify",
]


def __getattr__(name: str) -> object:
    module = _HOMES.get(name)
    if module is None:
        if name in ("fleet", "numpy", "torch"):
            import importlib

            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
