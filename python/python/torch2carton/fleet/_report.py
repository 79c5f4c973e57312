"""A page about the results of a batch: verdicts, failures, sizes, the slowest inputs, and equal models."""

from __future__ import annotations

import heapq
import json
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

#: Rows of a table; more are counted.
_ROWS = 50
#: Members of a group of equal models that are listed.
_MEMBERS = 10
_STYLE = """\
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin-bottom: 2rem; }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; vertical-align: top; border-bottom: 1px solid #8884; }
td { overflow-wrap: anywhere; }
.n { text-align: right; white-space: nowrap; }
.bar { display: inline-block; height: .7rem; background: #4a7; }
"""


def write_report(results: Any, page: Any) -> None:
    """Writes an HTML page about the results of `torch2carton batch` or of a fleet. It needs no other file, and no network.

    Args:
        results: the file of results
        page: the path of the page; it is written as a whole or not at all

    Raises:
        OSError: a file cannot be read or written
        ValueError: a line is not a result

    >>> fleet.report("results.jsonl", "report.html")  # doctest: +SKIP
    """
    summary = _Summary(os.fspath(results))
    folder = os.path.dirname(os.path.abspath(page))
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="replace", dir=folder, prefix=".torch2carton-", delete=False) as file:
        try:
            file.writelines(summary.page())
            file.flush()
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(file.name, 0o666 & ~mask)
            os.replace(file.name, page)
        except BaseException:
            os.unlink(file.name)
            raise


class _Summary:
    """Sums over the results. Only the digests grow with their number: 16 bytes for each."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._statuses: Counter[str] = Counter()
        self._verdicts: Counter[str] = Counter()
        self._codes: Counter[str] = Counter()
        self._failures: dict[str, list[Any]] = defaultdict(list)
        self._sizes: Counter[int] = Counter()
        self._size_bytes: Counter[int] = Counter()
        self._unsafe: list[Any] = []
        self._seconds = 0.0
        self._repeated = 0
        slowest: list[tuple[float, int, Any]] = []
        digests: Counter[bytes] = Counter()
        for number, line in enumerate(self._lines()):
            self._statuses[line["status"]] += 1
            if line.get("verdict"):
                self._verdicts[line["verdict"]] += 1
                if line["verdict"] == "unsafe" and len(self._unsafe) < _ROWS:
                    self._unsafe.append(line)
            if line["status"] != "ok":
                code = line.get("code") or "?"
                self._codes[code] += 1
                if len(self._failures[code]) < _ROWS:
                    self._failures[code].append(line)
            magnitude = len(str(line["bytes"]))
            self._sizes[magnitude] += 1
            self._size_bytes[magnitude] += line["bytes"]
            self._seconds += line["seconds"]
            self._repeated += line.get("repeated_bytes") or 0
            heapq.heappush(slowest, (line["seconds"], -number, line))
            if len(slowest) > _ROWS:
                heapq.heappop(slowest)
            if line.get("digest"):
                digests[_key(line["digest"])] += 1
        self._slowest = [line for *_, line in sorted(slowest, reverse=True)]
        self._groups = {key: count for key, count in digests.most_common() if count > 1}
        shown = dict.fromkeys(list(self._groups)[:_ROWS])
        self._members: dict[bytes, list[Any]] = {key: [] for key in shown}
        for line in self._lines() if shown else ():
            members = self._members.get(_key(line["digest"])) if line.get("digest") else None
            if members is not None and len(members) < _MEMBERS:
                members.append(line)

    def _lines(self) -> Iterator[Any]:
        with open(self._path, encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                if not text.endswith("\n"):
                    return  # the batch was ended while it wrote this line
                try:
                    line = json.loads(text)
                    _ = line["input"], line["status"], line["bytes"] + 0, line["seconds"] + 0
                except (ValueError, TypeError, KeyError) as error:
                    raise ValueError(f"{self._path}, line {number}: it is not a result of a batch: {error}") from error
                yield line

    def page(self) -> Iterator[str]:
        """Yields the parts of the page. All texts of the results are escaped."""
        title = f"Results of {os.path.basename(self._path)}"
        yield f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        yield f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
        count, nbytes = sum(self._statuses.values()), sum(self._size_bytes.values())
        ok, failed = self._statuses["ok"], count - self._statuses["ok"]
        yield f"<p>{count:,} inputs with {_size(nbytes)}: {ok:,} ok, {failed:,} failed. They took {self._seconds:,.1f} s of work.</p>"
        if self._verdicts:
            yield "<h2>Verdicts</h2>" + _bars("verdict", self._verdicts.most_common())
            if self._unsafe:
                yield _table(("unsafe inputs",), ((line["input"],) for line in self._unsafe))
                yield _more(self._verdicts["unsafe"] - len(self._unsafe))
        if self._codes:
            yield "<h2>Failures</h2>" + _bars("code", self._codes.most_common())
            for code, count in self._codes.most_common():
                lines = self._failures[code]
                yield f"<h3>{escape(code)}</h3>" + _table(("input", "error"), ((line["input"], line.get("error") or "") for line in lines))
                yield _more(count - len(lines))
        yield "<h2>Sizes</h2>"
        yield _table(
            ("size of the input", "#inputs", "#bytes"),
            ((_magnitude(size), f"{self._sizes[size]:,}", _size(self._size_bytes[size])) for size in sorted(self._sizes)),
        )
        yield "<h2>Slowest inputs</h2>"
        yield _table(("input", "#seconds", "#bytes"), ((line["input"], f"{line['seconds']:.3f}", _size(line["bytes"])) for line in self._slowest))
        yield "<h2>Equal models</h2>"
        if self._repeated:
            yield f"<p>{_size(self._repeated)} of tensors are also in other inputs, or twice in one.</p>"
        yield from self._equal_models()
        yield "</body></html>\n"

    def _equal_models(self) -> Iterator[str]:
        if not self._groups:
            yield "<p>No two inputs have the same tensors.</p>"
            return
        copies = sum(self._groups.values()) - len(self._groups)
        yield f"<p>{len(self._groups):,} groups of inputs have the same tensors; {copies:,} inputs are copies of others.</p>"
        rows = []
        for key, members in self._members.items():
            names = "\n".join(str(line["input"]) for line in members)
            rest = self._groups[key] - len(members)
            names += f"\n… {rest:,} more" if rest else ""
            rows.append((names, f"{self._groups[key]:,}", _size(members[0]["bytes"]), str(members[0]["digest"])[:16]))
        yield _table(("inputs", "#number", "#bytes of the first", "digest"), rows)
        yield _more(len(self._groups) - len(rows))


def _key(digest: Any) -> bytes:
    return str(digest).encode()[:32]


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Returns a table. A column whose name begins with `#` has numbers."""
    names = list(columns)
    classes = [' class="n"' if name.startswith("#") else "" for name in names]
    head = "".join(f"<th{kind}>{escape(name.lstrip('#'))}</th>" for name, kind in zip(names, classes))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{_text(cell)}</td>" for cell, kind in zip(row, classes)) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _bars(name: str, counts: list[tuple[str, int]]) -> str:
    most = max(count for _, count in counts)
    rows = "".join(
        f'<tr><td>{_text(key)}</td><td class="n">{count:,}</td><td><span class="bar" style="width: {15 * count / most:.2f}rem"></span></td></tr>'
        for key, count in counts
    )
    return f'<table><thead><tr><th>{name}</th><th class="n">inputs</th><th></th></tr></thead><tbody>{rows}</tbody></table>'


def visible(text: str) -> str:
    """Returns a text in which characters that are not printed, or change the direction of text, are escapes. Ends of lines stay."""
    return "".join(char if char.isprintable() or char == "\n" else char.encode("unicode_escape", "replace").decode() for char in text)


def _text(text: Any) -> str:
    """Returns a text for a cell."""
    return escape(visible(str(text))).replace("\n", "<br>")


def _more(count: int) -> str:
    return f"<p>… {count:,} more</p>" if count > 0 else ""


def _size(nbytes: int) -> str:
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if nbytes >= factor:
            return f"{nbytes / factor:.1f} {unit}"
    return f"{nbytes} B"


def _magnitude(digits: int) -> str:
    return f"below {_size(10**digits)}" if digits == 1 else f"{_size(10 ** (digits - 1))} to {_size(10**digits)}"
