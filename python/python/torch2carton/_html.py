"""The table that notebooks show for an open checkpoint."""

from __future__ import annotations

import html
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._open import Checkpoint

#: Rows that are shown.
_ROWS = 100


def table(checkpoint: Checkpoint) -> str:
    """Returns a table of the tensors in HTML; names of a file are escaped."""
    from ._open import format_bytes

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
