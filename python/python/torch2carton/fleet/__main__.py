"""The command line of fleets: `python -m torch2carton.fleet MANIFEST.jsonl`, and `… fleet report RESULTS.jsonl`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

from .. import _native
from .._errors import Error
from . import _open, report
from ._driver import Driver
from ._report import visible

_PERIOD = 30.0
_DESCRIPTION = """\
Does a task with each input of a manifest on a cluster of Ray, one task of Ray for each. The manifest, the
options and the results are those of `torch2carton batch`, whose --help lists them; options of the task follow `--`.

Examples:
  python -m torch2carton.fleet models.jsonl --to safetensors -o out/ --results results.jsonl
  python -m torch2carton.fleet models.jsonl --task scan --results results.jsonl --ray-address auto
  python -m torch2carton.fleet report results.jsonl -o report.html

The same command goes on where an earlier one ended, as `batch --resume` does."""
_END = "Exit status: 0 done, 1 an input failed, 2 a line of the manifest is wrong, or bad usage."


def main(words: Sequence[str] | None = None) -> int:
    """Runs the command line, and returns its exit status."""
    words = list(sys.argv[1:] if words is None else words)
    if words[:1] == ["report"]:
        return _report(words[1:])
    mine, others = (words[: words.index("--")], words[words.index("--") :]) if "--" in words else (words, [])
    parser = argparse.ArgumentParser(
        prog="python -m torch2carton.fleet", description=_DESCRIPTION, epilog=_END, formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False, usage="%(prog)s [OPTIONS] [OPTIONS OF BATCH] MANIFEST [-- OPTIONS OF THE TASK]",
    )
    parser.add_argument("--ray-address", metavar="ADDRESS", help="the cluster [default: $RAY_ADDRESS, else a new one on this machine]")
    parser.add_argument("--jobs", type=_count, metavar="N", help="most inputs at the same time [default: as many as keep all cores busy]")
    parser.add_argument("--per-host", type=_count, default=8, metavar="N", help="most inputs at the same time that are read from one server [default: 8]")
    parser.add_argument("--retries", type=int, default=3, metavar="N", help="how often an input is tried again whose process or node was lost [default: 3]")
    parser.add_argument("-q", "--quiet", action="store_true", help="print no progress and no summary")
    options, rest = parser.parse_known_args(mine)
    if "--resume" not in rest and any(word.split("=")[0] == "--results" for word in rest):
        rest.append("--resume")
    is_opened = False
    try:
        request = _native.batch_request([*rest, *others])
        batch = json.loads(request)
        lines = iter(sys.stdin) if batch["manifest"] == "-" else None
        driver = _open(request, lines, options.ray_address, jobs=options.jobs, per_host=options.per_host, retries=options.retries)
        is_opened = True
        _show(driver, batch["results"] is None, options.quiet)
    except Error as error:
        print(f"error: {visible(str(error))}", file=sys.stderr)
        return 2 if not is_opened or error.kind in ("input", "option") else 1
    except KeyboardInterrupt:
        return 130
    return 1 if driver.counts.failed else 0


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _show(driver: Driver, is_printed: bool, is_quiet: bool) -> None:
    """Prints results if they go to no file, errors, progress, and how many there were."""
    total, start, shown, done, kept = driver.batch.total, time.monotonic(), time.monotonic(), 0, 0
    for line, is_kept in driver.results():
        done, kept = done + 1, kept + is_kept
        if is_printed:
            print(line, flush=True)
        if not is_kept:
            error = json.loads(line)["error"]
            if error is not None:
                print(f"error: {visible(error)}", file=sys.stderr)
        now = time.monotonic()
        if not is_quiet and now - shown >= _PERIOD:
            shown, speed = now, (done - kept) / (now - start)
            left = f", about {(total - done) / speed:.0f}s left" if total is not None and speed > 0 else ""
            print(f"{done} of {total or '?'}, {speed:.1f} a second{left}", file=sys.stderr)
    if not is_quiet:
        counts = driver.counts
        lost = f"; {counts.lost} attempts were lost" if counts.lost else ""
        print(f"{counts.ok} ok, {counts.failed} failed, {counts.kept} of them from before{lost}", file=sys.stderr)


def _report(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m torch2carton.fleet report", description="Writes a page about the results of a batch or a fleet.")
    parser.add_argument("results", metavar="RESULTS", help="the file of results")
    parser.add_argument("-o", "--output", default="report.html", metavar="FILE", help="the page [default: report.html]")
    options = parser.parse_args(words)
    try:
        report(options.results, options.output)
    except (OSError, ValueError) as error:
        print(f"error: {visible(str(error))}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
