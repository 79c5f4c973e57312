"""Fixtures: the three programs to check against, and checkpoints with the cartons made from them."""

import collections
import json
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from carton_file import Carton  # noqa: E402
from program import succeed  # noqa: E402
from worker_client import Worker  # noqa: E402

GOLDEN = HERE.parent / "golden"
SHARED = HERE.parent.parent.parent / "shared"  # next to the checkout, if it exists: real files and tools
TABLES = []  # lines for the end of the run
CASES = 16  # of each check, with `run.py --fast`


def worker(key, script):
    if why := os.environ.get(f"T2C_MISSING_{key}"):
        pytest.skip(why)
    return Worker(os.environ[f"T2C_{key}"], script)


def worker_fixture(key, script, scope="module"):
    """A fixture: a worker that ends with the tests of the scope."""

    @pytest.fixture(scope=scope)
    def started():
        process = worker(key, script)
        yield process
        process.close()

    return started


def workers_fixture(script):
    """A fixture: `get(key)` starts a worker in that environment, once."""

    @pytest.fixture(scope="module")
    def started():
        made = {}

        def get(key):
            if key not in made:
                made[key] = worker(key, script)
            return made[key]

        yield get
        for process in made.values():
            process.close()

    return started


newest = worker_fixture("NEWEST", "torch_worker.py", "session")
old = worker_fixture("OLD", "torch_worker.py", "session")
carton_client = worker_fixture("CARTON", "carton_worker.py", "session")
matrix_workers = workers_fixture("matrix_worker.py")  # writes and reads the objects of matrix.py
triton_client = worker_fixture("TRITON", "tritonclient_worker.py", "session")


@pytest.fixture(params=["old", "newest"], ids=["torch2.0.1", "torch-newest"])
def torch(request):
    """Each version of torch in turn."""
    return request.getfixturevalue(request.param)


class Case:
    """A checkpoint, the carton made from it, and the archive in the carton, each in a file."""

    def __init__(self, folder, checkpoint, *flags):
        self.folder, self.checkpoint = folder, checkpoint
        self.carton_path = checkpoint.with_suffix(".carton")
        self.outcome = succeed(checkpoint, *flags)
        assert self.carton_path.is_file(), f"no {self.carton_path.name} next to the checkpoint: {self.outcome}"
        self.carton = Carton(self.carton_path)
        self.archive = folder / "extracted-model.pt"
        self.archive.write_bytes(self.carton.read("model/model.pt"))


@pytest.fixture(scope="session")
def case(tmp_path_factory, newest):
    """`case(kind)` converts the checkpoint of that kind, once; `params` (a dict) is written next to it as params.json."""
    made = {}

    def get(kind, saver=None, params=None, name=None):
        key = (kind, id(saver), json.dumps(params, sort_keys=True), name)
        if key not in made:
            folder = tmp_path_factory.mktemp(kind.replace(" ", "_"))
            checkpoint = folder / (name or ("consolidated.00.pth" if params else f"{kind}.pth"))
            (saver or newest).ask("make", kind=kind, path=str(checkpoint))
            if params:
                (folder / "params.json").write_text(json.dumps(params))
            try:
                made[key] = Case(folder, checkpoint)
            except AssertionError as refused:
                made[key] = refused
        if isinstance(made[key], AssertionError):
            raise made[key]
        return made[key]

    return get


@pytest.fixture
def saved(tmp_path, newest):
    """`saved(kind, name)` writes a checkpoint into the test's own folder."""

    def save(kind="training_run", name="model.pth", folder=tmp_path):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        newest.ask("make", kind=kind, path=str(path))
        return path

    return save


def pytest_configure(config):
    config.addinivalue_line("markers", "whole: `run.py --fast` runs all cases of this check, too")


def place(item):
    """The sum of the places of a case's parameters in their lists."""
    names = (mark.args[0].split(",")[0].strip() for mark in item.iter_markers("parametrize"))
    return sum(item.callspec.indices[name] for name in names)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Leaves about CASES cases of each check, at equal distances, if T2C_SAMPLE is set."""
    if not os.environ.get("T2C_SAMPLE"):
        return
    counts = collections.Counter(item.function for item in items)
    left_out = [item for item in items if not item.get_closest_marker("whole") and place(item) % -(-counts[item.function] // CASES)]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture
def table():
    """Lines that are printed at the end of the run, whether or not the check passed."""
    return TABLES.append


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """A run in which every check was skipped proves nothing, so it fails."""
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    if exitstatus == 0 and not session.config.option.collectonly and not reporter.stats.get("passed"):
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
        TABLES.append("error: nothing was checked: every check was skipped")


def pytest_terminal_summary(terminalreporter):
    if TABLES:
        terminalreporter.section("figures")
        for line in TABLES:
            terminalreporter.write_line(line)
