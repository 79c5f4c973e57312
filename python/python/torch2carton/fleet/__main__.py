"""The command line of fleets: `python -m torch2carton.fleet MANIFEST.jsonl`, and `… fleet report RESULTS.jsonl`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

from .._errors import Error
from . import _open, _words, report
from ._driver import Driver
from ._report import visible

_PERIOD = 30.0
_BATCH_OPTIONS = (
    (("--task",), "TASK", "convert, scan, inspect or digest [default: convert]"),
    (("-o", "--output"), "DIR", "the folder for outputs whose line names none [default: next to each input]"),
    (("--to",), "KIND", "what `convert` writes [default: by the extension of `output`, else a carton]"),
    (("--shard",), "I/N", "do only part I of N of the manifest, counted from 0"),
    (("--blobs",), "DIR", "keep the large files of cartons in DIR, so that files that several have are stored once"),
    (("--base",), "URL", "the URL under which the files of --blobs will be served"),
)
_DESCRIPTION = """\
Does a task with each input of a manifest on a cluster of Ray, one task of Ray for each. The manifest, the
options and the results are those of `torch2carton batch`; options of the task follow `--`.

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
        allow_abbrev=False,
    )
    parser.add_argument("manifest", metavar="MANIFEST", help="the manifest: a JSON object on each line; `-` is standard input")
    for flags, metavar, text in _BATCH_OPTIONS:
        parser.add_argument(*flags, metavar=metavar, help=text)
    parser.add_argument("--no-digest", action="store_true", help="do not compute digests that the task does not need")
    parser.add_argument("--checksum", action="store_true", help="read each output of an earlier run as a whole")
    parser.add_argument("--results", metavar="FILE", help="append the results to FILE instead of printing them, and go on from those in it")
    parser.add_argument("--ray-address", metavar="ADDRESS", help="the cluster [default: $RAY_ADDRESS, else a new one on this machine]")
    parser.add_argument("--jobs", type=_count, metavar="N", help="most inputs at the same time [default: as many as keep all cores busy]")
    parser.add_argument("--per-host", type=_count, default=8, metavar="N", help="most inputs at the same time that are read from one server [default: 8]")
    parser.add_argument("--retries", type=int, default=3, metavar="N", help="how often an input is tried again whose process or node was lost [default: 3]")
    parser.add_argument("-q", "--quiet", action="store_true", help="print no progress and no summary")
    parser.add_argument("--resume", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(mine)
    names = ("task", "output", "to", "shard", "blobs", "base", "no_digest", "checksum", "results")
    arguments = [word for name in names for word in _words(name.replace("_", "-"), getattr(options, name))]
    arguments += [*(["--resume"] if options.results else []), options.manifest, *others]
    is_opened = False
    try:
        lines = iter(sys.stdin) if options.manifest == "-" else None
        driver = _open(arguments, lines, options.ray_address, jobs=options.jobs, per_host=options.per_host, retries=options.retries)
        is_opened = True
        _show(driver, options.results is None, options.quiet)
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
