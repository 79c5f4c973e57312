"""What callers may pass as `progress`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

#: A callable that takes the name of a file, what is done with it, and how many bytes are done and there are in all (or
#: None), or a progress bar of tqdm, or tqdm's class.
Progress = Any


#: Receives the name of a file, what is done with it, and the bytes that are done and that there are in all.
Report = Callable[[str, str, int, "int | None"], None]


@contextmanager
def reporting(progress: Progress) -> Iterator[Report | None]:
    """Gives the callable for the native module. A bar that is made here is closed at the end, so that it leaves a whole line."""
    if isinstance(progress, type) and hasattr(progress, "update"):
        bar: Any = progress(unit="B", unit_scale=True)
        try:
            yield _updates(bar)
        finally:
            bar.close()
    elif progress is None:
        yield None
    elif hasattr(progress, "update") and hasattr(progress, "n"):
        yield _updates(progress)
    elif callable(progress):
        yield cast(Report, progress)
    else:
        raise TypeError(f"progress takes a callable or a progress bar of tqdm, found {type(progress).__name__}")


def _updates(bar: Any) -> Report:
    """Returns a callable that moves a bar of tqdm."""

    def update(name: str, action: str, done: int, total: int | None) -> None:
        if total is not None and bar.total != total:
            bar.total = total
        if done < bar.n:
            # The next file.
            bar.reset(total=total)
        bar.set_description(f"{action} {os.path.basename(name)}", refresh=False)
        bar.update(done - bar.n)

    return update
