"""`check`, `convert`, `diff`, `digest`, `inspect`, `scan`, `trace` and `verify`: the verbs of the command line, with results as frozen dataclasses.

Each result has the most used members as attributes, and the whole report of `--json` as `report`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from . import _native
from ._errors import NotFoundError, OptionError
from ._progress import Progress, reporting

Path = Any
#: Seconds between two calls that report the progress of a trace.
_PERIOD = 0.05


def _path(path: Path) -> str:
    source: Any = getattr(path, "_source", path)
    given: str | bytes = os.fspath(source)
    return os.fsdecode(given)


def _paths(paths: Path | Iterable[Path] | None) -> list[str]:
    if paths is None:
        return []
    if isinstance(paths, (str, bytes, os.PathLike)) or hasattr(paths, "_source"):
        return [_path(paths)]
    return [_path(path) for path in paths]


def _texts(texts: str | Iterable[str] | None) -> list[str]:
    if texts is None:
        return []
    return [texts] if isinstance(texts, str) else list(texts)


@dataclass(frozen=True)
class Inspection:
    """What is in a checkpoint or carton.

    Attributes:
        file: the path
        format: the format, such as `zip`
        tensors: a dict for each tensor, with `name`, `dtype`, `shape`, `nbytes` and more
        risks: the globals that the pickle names, each `known`, `unknown` or `dangerous`
        left_out: what is in the files and not listed
        notes: sentences for people
        report: all of it, as `torch2carton inspect --json` prints it
    """

    file: str
    format: str
    tensors: list[dict[str, Any]] = field(repr=False)
    risks: dict[str, str] = field(repr=False)
    left_out: list[dict[str, Any]] = field(repr=False)
    notes: list[str] = field(repr=False)
    report: dict[str, Any] = field(repr=False, compare=False)


def inspect(
    path: Path, *, sha256: bool = False, all: bool = False, packed: bool = False, progress: Progress = None
) -> Inspection:
    """Lists the tensors of a checkpoint, or the contents of a carton.

    Args:
        path: a file or a folder
        sha256: hash the elements of each tensor
        all: list the values that are not tensors, too
        packed: list quantized weights as they are stored: codes, scales and zero points
        progress: a callable or a progress bar of tqdm

    Raises:
        NotFoundError: there is no such file
        DamagedError: the file is damaged

    >>> [row["name"] for row in torch2carton.inspect("model.pt").tensors]
    ['weight', 'bias']
    """
    options = _options(sha256=sha256, all=all, packed=packed)
    with reporting(progress) as report_progress:
        report = json.loads(_native.inspect(_path(path), options, progress=report_progress))
    return Inspection(
        file=report["file"],
        format=report["format"],
        tensors=report["tensors"],
        risks=report.get("risks", {}),
        left_out=report.get("left_out", []),
        notes=report.get("notes", []),
        report=report,
    )


@dataclass(frozen=True)
class ScannedFile:
    """What a scan found in a file.

    Attributes:
        file: the path
        verdict: `clean`, `unknown`, `unsafe`, `incomplete`, `not_a_checkpoint` or `skipped`, as docs/scan.md describes them
        findings: a sentence for each finding: a global with the first call of it, an irregularity, a damaged pickle, Python code that a
            configuration names
        globals: the classes and functions that its pickles name, each `known`, `unknown`, `unreviewed` or `dangerous`
        report: all of it, as `torch2carton scan --json` prints it
    """

    file: str
    verdict: str
    findings: tuple[str, ...] = field(repr=False)
    globals: dict[str, str] = field(repr=False)
    report: dict[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Scan:
    """What a scan found: a result for each file, and the worst verdict.

    Attributes:
        files: the results of the files
        verdict: the worst verdict
        status: the exit status of the command: 0 clean, 1 unsafe, 2 not read whole or not a checkpoint, 3 unknown, or 1 with
            `deny_unknown`; of several files the first of 1, 2 and 3 that occurs
    """

    files: tuple[ScannedFile, ...]
    verdict: str
    status: int

    @property
    def ok(self) -> bool:
        """Whether all files are clean."""
        return self.status == 0

    def __bool__(self) -> bool:
        """The same as `ok`."""
        return self.ok


def scan(
    paths: Path | Iterable[Path], *, deny_unknown: bool = False, checksums: bool = False, pickles_only: bool = False,
    allow: str | Iterable[str] | None = None, policy: Path | None = None, progress: Progress = None
) -> Scan:
    """Reports what files would execute if Python's unpickler loaded them. Nothing is executed.

    Args:
        paths: a file, a folder whose files are all scanned, or several
        deny_unknown: unknown globals are findings, and `status` is 1 for them; for files that you do not trust
        checksums: compare the checksums of all records
        pickles_only: do not search the storages of archives for hidden pickles
        allow: patterns of unknown globals that you know, such as `ultralytics.*`
        policy: a TOML file of such patterns, with a reason and a date for each
        progress: a callable or a progress bar of tqdm

    Raises:
        NotFoundError: there is no such file

    >>> torch2carton.scan("model.pt").verdict
    'clean'
    """
    given = _paths(paths)
    if not given:
        # A pattern that matches no file must not look like files that are clean.
        raise OptionError("scan takes at least one path, found none")
    for path in given:
        if "://" not in path and not os.path.lexists(path):
            raise NotFoundError(f"there is no file {path}", path=path)
    options = _options(checksums=checksums, pickles_only=pickles_only, allow=_texts(allow), policy=_portable(policy))
    with reporting(progress) as report_progress:
        rows, verdict = _native.scan(given, options, progress=report_progress)
    counted = ("dangerous", "unreviewed", *(["unknown"] if deny_unknown else []))
    files = tuple(_scanned(row, counted) for row in json.loads(rows))
    statuses = {"unsafe": 1, "incomplete": 2, "not_a_checkpoint": 2, "unknown": 1 if deny_unknown else 3}
    status = min((statuses[file.verdict] for file in files if file.verdict in statuses), default=0)
    return Scan(files=files, verdict=verdict, status=status)


def _scanned(row: dict[str, Any], counted: tuple[str, ...]) -> ScannedFile:
    """Returns the result of a file; `counted` are the risks that are findings."""
    globals: dict[str, str] = {}
    findings: list[str] = []
    for pickle in row.get("pickles", []):
        if pickle.get("error"):
            findings.append(pickle["error"])
        for found in pickle.get("globals", []):
            name = found.get("alias_of") or f"{found['module']}.{found['name']}"
            globals[name] = found["risk"]
            if found["risk"] in counted:
                calls = found.get("calls") or [{"text": name}]
                findings.append(f"{calls[0]['text']} at offset 0x{calls[0].get('offset', found['offset']):x}")
    findings += [irregularity["text"] for irregularity in row.get("irregularities", [])]
    if "unknown" in counted:
        code = row.get("custom_code", [])
        findings += [f"{found['class']} of {found['file'] or found['repository']}" for found in code]
    return ScannedFile(
        file=row["file"], verdict=row["verdict"], findings=tuple(findings), globals=globals, report=row
    )


@dataclass(frozen=True)
class Verification:
    """What a check of a carton found.

    Attributes:
        file: the path
        ok: whether there are no findings
        findings: a dict for each problem, with `entry` and `what`; by a statement, with `file`, `offset` and `what`
        notes: sentences for people
        report: all of it, as `torch2carton verify --json` prints it
    """

    file: str
    ok: bool
    findings: list[dict[str, Any]]
    notes: list[str] = field(repr=False)
    report: dict[str, Any] = field(repr=False, compare=False)

    def __bool__(self) -> bool:
        """True if there are no findings."""
        return self.ok


@dataclass(frozen=True)
class Completeness:
    """What a folder or a carton has of its model. Each tensor is in one list, under its name in the folder.

    Attributes:
        file: the path
        whole: whether every tensor is there, once, and nothing else
        model_type: the `model_type` of the configuration
        layout: `released`, or `modules` if the names are those in memory
        missing: the shapes of the tensors that are missing, by their names
        unexpected: the names that the model does not have
        misshaped: a pair of shapes for each tensor of another shape: the one that it has and the one expected
        report: all of it, as `torch2carton check --json` prints it
    """

    file: str
    whole: bool
    model_type: str
    layout: str
    missing: dict[str, list[int]]
    unexpected: list[str]
    misshaped: dict[str, tuple[list[int], list[int]]]
    report: dict[str, Any] = field(repr=False, compare=False)

    def __bool__(self) -> bool:
        """True if it is whole."""
        return self.whole


def check(path: Path, *, progress: Progress = None) -> Completeness:
    """Compares the tensors of a folder with those that its configuration asks for. Only headers are read.

    Args:
        path: a folder with a config.json, a carton, or a file with a config.json next to it
        progress: a callable or a progress bar of tqdm

    Raises:
        InputError: there is no config.json
        UnsupportedError: the model type is not known

    >>> torch2carton.check("llama").missing
    {}
    """
    with reporting(progress) as report_progress:
        report = json.loads(_native.check(_path(path), progress=report_progress))
    return Completeness(
        file=report["file"],
        whole=report["whole"],
        model_type=report["model_type"],
        layout=report["layout"],
        missing={row["name"]: row["shape"] for row in report["missing"]},
        unexpected=report["unexpected"],
        misshaped={row["name"]: (row["shape"], row["expected"]) for row in report["misshaped"]},
        report=report,
    )


def verify(
    path: Path,
    *,
    against: Path | Iterable[Path] | None = None,
    statement: Path | None = None,
    input: Path | Iterable[Path] | None = None,
    any_version: bool = False,
    single: bool = False,
    key: str | None = None,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    strip_prefix: str | None = None,
    rename: str | Iterable[str] | dict[str, str] | None = None,
    names: str | None = None,
    dtype: str | None = None,
    cast: str | Iterable[str] | dict[str, str] | None = None,
    progress: Progress = None,
) -> Verification:
    """Checks every hash and every rule of a carton, compares any output with the checkpoint that it was made of, or repeats the
    conversion of a statement.

    Args:
        path: a carton, or an unpacked folder; with `against`, any output of `convert`
        against: the checkpoint that it was made of, whose tensors are compared bit by bit
        statement: the statement of its conversion, which is repeated and compared bit by bit; `path` is a file or a folder
        input: with `statement`, the files and folders that have the inputs, under any names
        any_version: with `statement`, another version may have made the output
        single: the checkpoint is one shard that was converted alone
        key: the key of the checkpoint that was converted
        include: the patterns of names that were converted
        exclude: the patterns of names that were left out
        strip_prefix: the prefix that was removed from the names
        rename: the replacements in the names, as for `convert`
        names: the layout of the names, as for `convert`
        dtype: the dtype of the floating-point tensors, as for `convert`
        cast: the casts, as for `convert`
        progress: a callable or a progress bar of tqdm

    Raises:
        InputError: it is not a carton; or an input of the statement is missing
        UnsupportedError: another version made the output of the statement

    >>> torch2carton.verify("model.carton", against="model.pt").ok
    True
    """
    options = _options(
        single=single, key=key, include=_texts(include), exclude=_texts(exclude), strip_prefix=strip_prefix,
        rename=_pairs(rename), names=names, dtype=dtype, cast=_pairs(cast),
    )  # fmt: skip
    with reporting(progress) as report_progress:
        if statement is None:
            text = _native.verify(_path(path), _paths(against), options, progress=report_progress)
        else:
            text = _native.verify_statement(_path(path), _path(statement), _paths(input), any_version, progress=report_progress)
    report = json.loads(text)
    return Verification(
        file=report["file"],
        ok=report["ok"],
        findings=report["findings"],
        notes=report.get("notes", []),
        report=report,
    )


@dataclass(frozen=True)
class Difference:
    """What differs between two checkpoints or cartons.

    Attributes:
        same: whether nothing differs
        counts: the number of tensors with each change
        tensors: a dict for each tensor that differs, those that changed most first, with `changes`, `a`, `b` and more
        values: a dict for each value that differs, with `path`, `change`, `a` and `b`
        notes: sentences for people
        report: all of it, as `torch2carton diff --json` prints it
    """

    same: bool
    counts: dict[str, int]
    tensors: list[dict[str, Any]] = field(repr=False)
    values: list[dict[str, Any]] = field(repr=False)
    notes: list[str] = field(repr=False)
    report: dict[str, Any] = field(repr=False, compare=False)

    def __bool__(self) -> bool:
        """True if something differs."""
        return not self.same


def diff(
    a: Path,
    b: Path,
    *,
    tolerance: float | None = None,
    limit: int | None = None,
    no_values: bool = False,
    dequantize: bool = False,
    single: bool = False,
    key: str | None = None,
    key_a: str | None = None,
    key_b: str | None = None,
    include: str | Iterable[str] | None = None,
    include_a: str | Iterable[str] | None = None,
    include_b: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    exclude_a: str | Iterable[str] | None = None,
    exclude_b: str | Iterable[str] | None = None,
    strip_prefix: str | None = None,
    strip_prefix_a: str | None = None,
    strip_prefix_b: str | None = None,
    progress: Progress = None,
) -> Difference:
    """Lists what differs between two checkpoints or cartons: changed, cast, renamed, reshaped, transposed and permuted
    tensors, and values.

    The keywords are the flags of `torch2carton diff`: see its `--help`. Those with `_a` and `_b` apply to one of the two.

    Args:
        a: a checkpoint, its folder, or a carton
        b: another one
        tolerance: the largest difference of elements that counts as equal; None compares bits
        limit: the largest number of tensors, and of values, that are listed
        no_values: compare tensors only
        dequantize: compare the numbers that quantized weights stand for
        single: both are single shards
        progress: a callable or a progress bar of tqdm

    Raises:
        InputError: one of them is not a checkpoint

    >>> torch2carton.diff("model.pt", "model.carton", no_values=True).same
    True
    """
    options = _options(
        tolerance=tolerance, limit=limit, no_values=no_values, dequantize=dequantize, single=single,
        key=key, key_a=key_a, key_b=key_b,
        include=_texts(include), include_a=_texts(include_a), include_b=_texts(include_b),
        exclude=_texts(exclude), exclude_a=_texts(exclude_a), exclude_b=_texts(exclude_b),
        strip_prefix=strip_prefix, strip_prefix_a=strip_prefix_a, strip_prefix_b=strip_prefix_b,
    )  # fmt: skip
    with reporting(progress) as report_progress:
        report = json.loads(_native.diff(_path(a), _path(b), options, progress=report_progress))
    return Difference(
        same=report["same"],
        counts=report["counts"],
        tensors=report["tensors"],
        values=report["values"],
        notes=report.get("notes", []),
        report=report,
    )


def digest(
    path: Path,
    *,
    dequantize: bool = False,
    single: bool = False,
    key: str | None = None,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    strip_prefix: str | None = None,
    progress: Progress = None,
) -> str:
    """Returns one SHA-256 for the tensors of a checkpoint or carton, which is the same for the same tensors in any format.

    The tensors are those that `convert` selects. docs/digest.md defines the digest.

    Args:
        path: a checkpoint, its folder, or a carton
        dequantize: hash the numbers that quantized weights stand for
        single: it is a single shard
        key: the key of the checkpoint to use
        include: the patterns of names to use
        exclude: the patterns of names to leave out
        strip_prefix: the prefix to remove from the names
        progress: a callable or a progress bar of tqdm

    Raises:
        InputError: it is not a checkpoint

    >>> torch2carton.digest("model.pt") == torch2carton.digest("model.carton")
    True
    """
    options = _options(
        dequantize=dequantize, single=single, key=key, include=_texts(include), exclude=_texts(exclude),
        strip_prefix=strip_prefix,
    )  # fmt: skip
    with reporting(progress) as report_progress:
        return _native.digest(_path(path), options, progress=report_progress)


@dataclass(frozen=True)
class Step:
    """An instruction of a pickle and what it did.

    Attributes:
        offset: where the instruction is, in bytes from the start of the pickle
        opcode: its name in `pickletools`
        arg: its argument; None if it has none
        effect: what it did
        report: all of it, as `torch2carton trace --json` prints it
    """

    offset: int
    opcode: str
    arg: Any
    effect: Any = field(repr=False)
    report: dict[str, Any] = field(repr=False, compare=False)


def trace(
    path: Path, *, full: bool = False, limit: int | None = None, pickle: int | None = None, progress: Progress = None
) -> Iterator[Step]:
    """Yields the instructions of a pickle, while the pickle machine executes them. Nothing is called.

    Args:
        path: a checkpoint, or a bare pickle
        full: values in full, instead of abbreviated
        limit: stop after this many instructions
        pickle: which pickle to trace, counted from 0, if several follow each other
        progress: a callable or a progress bar of tqdm, which gets the offset of an instruction about every 50 ms, and of the last
            one

    Raises:
        DamagedError: the pickle is damaged, after its instructions up to there

    >>> [step.opcode for step in torch2carton.trace("model.pt", limit=2)]
    ['PROTO', 'GLOBAL']
    """
    file, reported, offset = _path(path), 0.0, 0
    with reporting(progress) as report:
        for line in _native.trace(file, full=full, limit=limit, pickle=pickle):
            row = json.loads(line)
            offset = row["offset"]
            if report is not None and (now := time.monotonic()) - reported >= _PERIOD:
                reported = now
                report(file, "trace", offset, None)
            yield Step(
                offset=row["offset"], opcode=row["opcode"], arg=row.get("arg"), effect=row.get("effect"), report=row
            )
        if report is not None:
            report(file, "trace", offset, None)


@dataclass(frozen=True)
class Conversion:
    """What a conversion made.

    Attributes:
        output: the path of the output, a file or a folder
        to: `carton`, `safetensors`, `pth` or `triton`
        tensors: the number of tensors
        nbytes: the size of the output
        written: False for a dry run
        notes: sentences for people
        report: all of it, as `torch2carton convert --json` prints it
    """

    output: str
    to: str
    tensors: int
    nbytes: int
    written: bool
    notes: list[str] = field(repr=False)
    report: dict[str, Any] = field(repr=False, compare=False)


def convert(
    src: Path | Iterable[Path],
    dst: Path | None = None,
    *,
    to: str | None = None,
    no_clobber: bool = False,
    force: bool = False,
    dry_run: bool = False,
    no_sync: bool = False,
    digest: bool = False,
    statement: Path | None = None,
    single: bool = False,
    incomplete: bool = False,
    name: str | None = None,
    description: str | None = None,
    short_description: str | None = None,
    license: str | None = None,
    repository: str | None = None,
    homepage: str | None = None,
    misc: Path | Iterable[Path] | None = None,
    self_test: bool = False,
    torch: str | None = None,
    allow_dangerous: bool = False,
    deny_unknown: bool = False,
    config: Path | None = None,
    no_values: bool = False,
    arch: str | None = None,
    require_model: bool = False,
    n_heads: int | None = None,
    rope_theta: float | None = None,
    rope_factor: float | None = None,
    norm_eps: float | None = None,
    keep_extra: bool = False,
    errors: str | None = None,
    input: str | Iterable[str] | None = None,
    output_type: str | Iterable[str] | None = None,
    output_names: str | Iterable[str] | None = None,
    no_wrap: bool = False,
    key: str | None = None,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    strip_prefix: str | None = None,
    rename: str | Iterable[str] | dict[str, str] | None = None,
    names: str | None = None,
    part: str | None = None,
    complete_from: Path | None = None,
    merge: Path | Iterable[Path] | dict[str, float] | None = None,
    add: Path | Iterable[Path] | dict[str, float] | None = None,
    average: Path | Iterable[Path] | None = None,
    common: bool = False,
    dequantize: bool = False,
    dtype: str | None = None,
    cast: str | Iterable[str] | dict[str, str] | None = None,
    ties: str | None = None,
    max_shard_size: str | int | None = None,
    keep_values: bool = False,
    pre_tokenizer: str | None = None,
    split_max_size: str | int | None = None,
    max_expansion: int | None = None,
    progress: Progress = None,
) -> Conversion:
    """Converts a checkpoint into a carton, safetensors, a `.pth` file, a GGUF file or a model for Triton.

    The keywords are the flags of `torch2carton convert`, with `_` for `-`, and mean the same: see its `--help`. A flag that
    can be repeated takes a list; `rename`, `merge`, `add` and `cast` also take a dict.

    Args:
        src: a checkpoint, its folder, or a list of all its shards
        dst: the file or folder to write, whose extension chooses what it becomes; next to the checkpoint if it is None
        progress: a callable or a progress bar of tqdm. An exception in it, and Ctrl-C, stop the conversion, and no output
            is left

    Raises:
        OptionError: an option has an invalid value, or does not fit the input
        InputError: the input is not a checkpoint, or names globals that can run code
        DamagedError: the input is damaged

    >>> torch2carton.convert("model.pt", "converted.safetensors").tensors
    2
    """
    options = _options(
        to=to, output=_portable(dst), no_clobber=no_clobber, force=force, dry_run=dry_run, no_sync=no_sync, digest=digest,
        statement=_portable(statement), single=single, incomplete=incomplete, name=name, description=description, short_description=short_description,
        license=license, repository=repository, homepage=homepage, misc=[_portable(path) for path in _paths(misc)], self_test=self_test,
        torch=torch, allow_dangerous=allow_dangerous, deny_unknown=deny_unknown, config=_portable(config),
        no_values=no_values, arch=arch, require_model=require_model, n_heads=n_heads, rope_theta=rope_theta,
        rope_factor=rope_factor, norm_eps=norm_eps, keep_extra=keep_extra, errors=errors, input=_texts(input),
        output_type=_texts(output_type), output_names=_texts(output_names), no_wrap=no_wrap, key=key,
        include=_texts(include), exclude=_texts(exclude), strip_prefix=strip_prefix, rename=_pairs(rename), names=names,
        part=part, complete_from=_portable(complete_from), merge=_weighted(merge), add=_weighted(add), average=[_portable(path) for path in _paths(average)], common=common,
        dequantize=dequantize, dtype=dtype, cast=_pairs(cast), ties=ties, max_shard_size=max_shard_size,
        keep_values=keep_values, pre_tokenizer=pre_tokenizer, split_max_size=split_max_size, max_expansion=max_expansion,
    )  # fmt: skip
    with reporting(progress) as report_progress:
        report = json.loads(_native.convert(_paths(src), options, progress=report_progress))
    return Conversion(
        output=report["output"],
        to=report["to"],
        tensors=report["tensors"],
        nbytes=report["nbytes"],
        written=report["written"],
        notes=report.get("notes", []),
        report=report,
    )


def _portable(path: Path | None) -> str | list[int] | None:
    """Returns a path for JSON: its text, or the bytes of one that is not UTF-8."""
    if path is None:
        return None
    text = _path(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        return list(os.fsencode(text))
    return text


def _weighted(
    files: Path | Iterable[Path] | dict[str, float] | None,
) -> list[Any]:
    """Returns each path, with its weight if there is one."""
    if isinstance(files, dict):
        return [{"path": _portable(path), "weight": float(weight)} for path, weight in files.items()]
    return [_portable(path) for path in _paths(files)]


def _pairs(pairs: str | Iterable[str] | dict[str, str] | None) -> list[str]:
    """Returns `FROM=TO` for each pair."""
    return [f"{old}={new}" for old, new in pairs.items()] if isinstance(pairs, dict) else _texts(pairs)


def _options(**options: Any) -> str:
    """Returns the options as JSON, without those that have no value."""
    return json.dumps({name: value for name, value in options.items() if value is not None})
