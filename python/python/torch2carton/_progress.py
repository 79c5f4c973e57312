"""What callers may pass as `progress`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

#: A callable that takes the name of a file, what is done with it, and how many bytes are done and there are in all (or
#: None), or a progress bar of tqdm, or tqdm's class.
Progress = Any


def progress_callable(progress: Progress) -> Callable[[str, str, int, int | None], None] | None:
    """Returns the callable for the native module."""
    if progress is None:
        return None
    bar = progress
    if isinstance(progress, type) and hasattr(progress, "update"):
        bar = progress(unit="B", unit_scale=True)
    if not hasattr(bar, "update") or not hasattr(bar, "n"):
        if not callable(progress):
            raise TypeError(f"progress takes a callable or a progress bar of tqdm, found {type(progress).__name__}")
        return progress  # type: ignore[no-any-return]

    def update(name: str, action: str, done: int, total: int | None) -> None:
        if total is not None and bar.total != total:
            bar.total = total
        if done < bar.n:
            # The next file.
            bar.reset(total=total)
        bar.set_description(f"{action} {os.path.basename(name)}", refresh=False)
        bar.update(done - bar.n)

    return update
