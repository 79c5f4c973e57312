"""Open checkpoints and cartons as mappings of names to tensors."""

from __future__ import annotations

import builtins
import os
from collections.abc import ItemsView, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from . import _native
from ._source import Source, format_bytes, read_source
from ._tensor import Tensor, to_torch

if TYPE_CHECKING:
    import torch as _torch

    from ._progress import Progress
    from ._verbs import Inspection, Verification
    from ._views import Page, Statistics


class Checkpoint(Mapping[str, Tensor]):
    """An open checkpoint: a mapping of names to tensors in the order of the files. `open` returns it.

    It can be shared by threads, used after a fork, and pickled: a copy opens the files again.

    >>> with torch2carton.open("model.pt") as checkpoint:
    ...     print(list(checkpoint))
    ['weight', 'bias']
    """

    def __init__(self, source: Source, *, backend: str = "mmap") -> None:
        self._source = read_source(source)
        self._backend = backend
        self._native = _native.Checkpoint(self._source, backend)
        self._inspected: Inspection | None = None

    @property
    def format(self) -> str:
        """The format of the files: `zip`, `torchscript`, `legacy`, `tar`, `pickle`, `safetensors`, `gguf` or `carton`."""
        return self._native.format

    @property
    def files(self) -> list[str]:
        """The paths of the files."""
        return [os.fspath(path) for path in self._native.files]

    @property
    def notes(self) -> list[str]:
        """What is irregular about the files, each a sentence."""
        return self._native.notes

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of a safetensors file; `{"format": "pt"}` for files of PyTorch."""
        if self.format == "safetensors":
            return dict(self._native.metadata)
        return {"format": "pt"}

    @property
    def compounds(self) -> dict[str, tuple[str, str, tuple[int, ...], tuple[str, ...]]]:
        """Tensors that consist of several: for each name its kind, dtype and shape, and the names of its parts."""
        rows = self._native.compounds()
        return {name: (kind, dtype, tuple(shape), tuple(parts)) for name, kind, dtype, shape, parts in rows}

    @property
    def globals(self) -> dict[str, str]:
        """The classes and functions that the pickle names, each with its risk: `known`, `unknown`,
        `unreviewed` or `dangerous`.

        >>> torch2carton.open("model.pt").globals["torch._utils._rebuild_tensor_v2"]
        'known'
        """
        return self._inspection().risks

    @property
    def left_out(self) -> list[dict[str, Any]]:
        """What the files hold that is not listed, such as attributes of modules: kind, name, size and reason."""
        return self._inspection().left_out

    def _inspection(self) -> Inspection:
        """What `inspect` says about the files, found out once."""
        from ._verbs import inspect

        if self._inspected is None:
            if isinstance(self._source, str):
                self._inspected = inspect(self._source)
            else:
                import tempfile

                with tempfile.NamedTemporaryFile(prefix="torch2carton-") as file:
                    file.write(self._source)
                    file.flush()
                    self._inspected = inspect(file.name)
        return self._inspected

    @property
    def objects(self) -> Any:
        """The object in the pickle: dicts, lists and numbers, with `Tensor` for tensors and `Object` for calls.

        >>> torch2carton.open("model.pt").objects["bias"]
        <Tensor: float32 (2,)>
        """
        from ._objects import lazy_objects

        if self.format == "safetensors" or self.format == "carton" or len(self._native.files) > 1:
            return dict(self)
        return lazy_objects(self._source, self._backend)

    def tree(self, *, depth: int = 3) -> str:
        """Returns the objects as an indented text, down to `depth` levels.

        >>> print(torch2carton.open("model.pt").tree())
        OrderedDict of 2
          'weight': float32 (2, 3)
          'bias': float32 (2,)
        """
        from ._objects import tree

        return tree(self.objects, depth)

    def modules(self, *, depth: int | None = None) -> str:
        """Returns the modules as an indented text, with sums, down to `depth` levels. Modules that differ only in their
        number have one line.

        >>> print(torch2carton.open("model.pt").modules())
        weight: float32 (2, 3), 24 B
        bias: float32 (2,), 8 B
        """
        from ._views import modules

        return modules(self._native.tree_rows(depth))

    def stats(self, *, histograms: bool = False, progress: Progress = None) -> dict[str, Statistics | None]:
        """Computes the statistics of each tensor, on all cores and in little memory; None where the elements are not numbers.

        >>> torch2carton.open("model.pt").stats()["weight"].mean
        2.5
        """
        from ._progress import reporting
        from ._views import statistics

        with reporting(progress) as report_progress:
            return statistics(self._native.statistics(histograms=histograms, progress=report_progress))

    def report(self, *, stats: bool = False, trace: bool | range = False, progress: Progress = None) -> Page:
        """Makes a page that shows the checkpoint, as `torch2carton.report` does. A notebook shows the page.

        >>> torch2carton.open("model.pt").report()
        Page(title='model.pt')
        """
        from ._views import report

        if isinstance(self._source, str):
            return report(self._source, stats=stats, trace=trace, progress=progress)
        # The page is made of a file, which has the name that the checkpoint shows.
        import tempfile

        with tempfile.TemporaryDirectory(prefix="torch2carton-") as folder:
            path = os.path.join(folder, "bytes")
            with builtins.open(path, "wb") as file:
                file.write(self._source)
            return report(path, stats=stats, trace=trace, progress=progress)

    def close(self) -> None:
        """Does nothing: the files stay open while one of their tensors exists."""

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getitem__(self, name: str) -> Tensor:
        return self._native[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._native

    def __iter__(self) -> Iterator[str]:
        return iter(self._native.names())

    def __len__(self) -> int:
        return len(self._native)

    def items(self) -> ItemsView[str, Tensor]:
        """Returns the names and tensors, in the order of the files."""
        return _Items(self)

    def state_dict(self, device: Any = "cpu", *, copy: bool = False) -> dict[str, _torch.Tensor]:
        """Returns all tensors as tensors of PyTorch, views of the file if possible.

        >>> torch2carton.open("model.pt").state_dict()["bias"]
        tensor([0., 0.])
        """
        return {name: to_torch(tensor, device, copy) for name, tensor in self._native.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (type(self), self._source, self._backend))

    def _title(self) -> str:
        return os.path.basename(self._source.rstrip("/")) if isinstance(self._source, str) else f"{len(self._source)} bytes"

    def __repr__(self) -> str:
        size = format_bytes(self._native.nbytes)
        return f"<{type(self).__name__} {self._title()}: {self.format}, {len(self)} tensors, {size}>"

    def _repr_html_(self) -> str:
        from ._html import table

        return table(self)


class _Items(ItemsView[str, Tensor]):
    """The names and tensors of a checkpoint, which the native module makes one by one."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(checkpoint)
        self._native = checkpoint._native

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        return self._native.items()


class Carton(Checkpoint):
    """An open carton: a checkpoint with a description, which `run` can run if it is a model.

    >>> carton = torch2carton.open("model.carton")
    >>> carton.config["model_name"]
    'model'
    """

    @property
    def config(self) -> dict[str, Any]:
        """The fields of carton.toml under their names there."""
        config: dict[str, Any] = self._contents()["config"]
        return config

    @property
    def manifest_sha256(self) -> str | None:
        """The SHA-256 of MANIFEST, which identifies the model; None without a MANIFEST."""
        found: str | None = self._contents()["manifest_sha256"]
        return found

    def _contents(self) -> dict[str, Any]:
        return self._inspection().report

    def verify(self, *, against: Any = None) -> Verification:
        """Checks every hash and every rule of the carton: `torch2carton.verify`."""
        from ._verbs import verify

        return verify(self._source, against=against)


def _reopen(kind: type[Checkpoint], source: str | bytes, backend: str) -> Checkpoint:
    return kind(source, backend=backend)


def open(source: Source, *, backend: str = "mmap") -> Checkpoint:
    """Opens a checkpoint: a file of any format, a folder that holds one in one or several files, or a carton.

    `source` is a path, the bytes of a file, or a binary file object. One shard of several is opened alone. `backend` is
    `"mmap"`, which shares the memory of the file, or `"pread"`, which never maps it: use that on slow network disks.

    Raises:
        NotFoundError: there is no such file
        DamagedError: the file is damaged
        InputError: it is not a checkpoint, or the folder holds several

    >>> torch2carton.open("model.safetensors")
    <Checkpoint model.safetensors: safetensors, 2 tensors, 32 B>
    """
    checkpoint = Checkpoint(source, backend=backend)
    if checkpoint.format == "carton":
        checkpoint.__class__ = Carton
    return checkpoint
