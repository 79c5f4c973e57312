"""What a checkpoint looks like: statistics of tensors, the tree of modules, and `report`, the page that shows everything."""

from __future__ import annotations

import html
import json
import os
from dataclasses import dataclass, field
from typing import Any

from . import _native
from ._progress import Progress, reporting
from ._source import format_bytes
from ._verbs import Path, _path

#: Height in pixels of a page in a notebook.
_HEIGHT = 640


@dataclass(frozen=True)
class Histogram:
    """How the finite numbers of a tensor are distributed.

    Attributes:
        min: the smallest number, where the first bin begins
        max: the largest number, where the last bin ends
        counts: the numbers in each bin; all bins have the same width
    """

    min: float
    max: float
    counts: list[int] = field(repr=False)


@dataclass(frozen=True)
class Statistics:
    """Statistics of the elements of a tensor, as NumPy computes them in float64 or complex128.

    Attributes:
        count: how many numbers there are
        min: the smallest number; None without elements, NaN if one is NaN
        max: the largest number
        mean: the mean
        std: the standard deviation of the population
        zeros: how many are zero
        nan: how many are NaN
        inf: how many are infinite
        histogram: the distribution, if it was asked for and there are two different numbers
    """

    count: int
    min: float | complex | None
    max: float | complex | None
    mean: float | complex | None
    std: float | None
    zeros: int
    nan: int
    inf: int
    histogram: Histogram | None = field(default=None, repr=False)


def _number(value: Any) -> Any:
    """Returns a number of a report, where those that JSON does not have are objects."""
    if isinstance(value, dict):
        if "$complex" in value:
            return complex(*map(_number, value["$complex"]))
        return float(value["$float"])
    return value if value is None else float(value)


def _statistics(row: dict[str, Any] | None) -> Statistics | None:
    if row is None:
        return None
    numbers = {name: _number(row[name]) for name in ("min", "max", "mean", "std")}
    found = row.get("histogram")
    bins = None
    if found is not None:
        bins = Histogram(min=_number(found["min"]), max=_number(found["max"]), counts=found["counts"])
    return Statistics(count=row["count"], zeros=row["zeros"], nan=row["nan"], inf=row["inf"], histogram=bins, **numbers)


def statistics(report: str) -> dict[str, Statistics | None]:
    """Returns the statistics by name from the report of the native module."""
    return {name: _statistics(row) for name, row in json.loads(report)["stats"]}


def modules(report: str) -> str:
    """Returns the tree of modules as text from the report of the native module."""
    lines = []
    for row in json.loads(report)["tree"]:
        shape = "" if row["shape"] is None else f" {tuple(row['shape'])}"
        tensors = "" if row["tensors"] == 1 else f"{row['tensors']} tensors, "
        size = format_bytes(row["nbytes"])
        lines.append(f"{'  ' * row['depth']}{row['name']}: {row['dtype'] or 'mixed'}{shape}, {tensors}{size}")
    return "\n".join(lines)


@dataclass(frozen=True)
class Page:
    """A report as one HTML page that loads nothing. Notebooks show it.

    Attributes:
        title: the name of the file
        html: the page
    """

    title: str
    html: str = field(repr=False)

    def save(self, path: Path) -> None:
        """Writes the page to a file, which a browser opens from disk."""
        with open(_path(path), "w", encoding="utf-8", newline="") as file:
            file.write(self.html)

    def _repr_html_(self) -> str:
        """The page in a frame of its own, which cannot reach the notebook."""
        text, title = html.escape(self.html), html.escape(self.title)
        style = f"width:100%;height:{_HEIGHT}px;border:1px solid #8888"
        return f'<iframe sandbox="allow-scripts" title="{title}" srcdoc="{text}" style="{style}"></iframe>'


def report(
    path: Path,
    other: Path | None = None,
    *,
    stats: bool = False,
    trace: bool | range = False,
    progress: Progress = None,
) -> Page:
    """Makes a page that shows a checkpoint: modules, sizes, layout, values, globals, and the steps of its pickle. With two
    checkpoints, the page shows what differs.

    Args:
        path: a checkpoint, its folder, a shard or a carton
        other: another one
        stats: add statistics and a histogram of each tensor, which reads all of them
        trace: add the first 20,000 steps of the pickle, or those in a range
        progress: a callable or a progress bar of tqdm

    Raises:
        NotFoundError: there is no such file
        DamagedError: the file is damaged

    >>> page = torch2carton.report("model.pt", stats=True)
    >>> page.save("report.html")
    """
    if other is not None and (stats or trace):
        raise TypeError("stats and trace are about one checkpoint")
    steps = None
    if isinstance(trace, range):
        if trace.step != 1 or not 0 <= trace.start < trace.stop:
            raise ValueError(f"trace takes a range of steps, such as range(0, 20000), found {trace}")
        steps = (trace.start, trace.stop)
    elif trace:
        steps = (0, 20_000)
    paths = [_path(path)] + ([] if other is None else [_path(other)])
    with reporting(progress) as report_progress:
        page = _native.report(paths[0], paths[1] if other is not None else None, stats=stats, steps=steps, progress=report_progress)
    title = " and ".join(os.path.basename(path.rstrip("/")) for path in paths)
    return Page(title=title, html=page.decode())
