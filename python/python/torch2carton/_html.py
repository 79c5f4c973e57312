"""The table that notebooks show for an open checkpoint."""

from __future__ import annotations

import html
from collections.abc import Mapping
from itertools import islice

from ._source import format_bytes
from ._tensor import Tensor

#: Rows that are shown.
_ROWS = 100


def table(checkpoint: Mapping[str, Tensor]) -> str:
    """Returns a table of the tensors in HTML; names of a file are escaped.

    >>> table(torch2carton.open("model.pt")).count("<tr>")
    3
    """

    def row(name: str) -> str:
        tensor = checkpoint[name]
        shape = " × ".join(map(str, tensor.shape)) or "scalar"
        cells = (name, tensor.dtype, shape, format_bytes(tensor.nbytes))
        return "<tr>" + "".join(f"<td style='text-align:left'>{html.escape(cell)}</td>" for cell in cells) + "</tr>"

    rows = "".join(row(name) for name in islice(checkpoint, _ROWS))
    more = len(checkpoint) - _ROWS
    rest = f"<p>and {more} more tensors</p>" if more > 0 else ""
    head = "".join(f"<th style='text-align:left'>{title}</th>" for title in ("name", "dtype", "shape", "size"))
    caption = html.escape(repr(checkpoint)[1:-1])
    return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{rest}"
