"""`torch2carton.open`, its tensors, and what they share with files."""

from __future__ import annotations

import errno
import gc
import hashlib
import multiprocessing
import os
import pickle
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import threading
import time
import traceback
import zipfile
import zlib
from pathlib import Path

import pytest
from conftest import needs_numpy, needs_torch, np, torch, write_safetensors

import torch2carton


def test_a_checkpoint_is_a_mapping_in_the_order_of_the_file(place):
    checkpoint = torch2carton.open("model.safetensors")
    assert list(checkpoint) == ["weight", "bias"]
    assert "weight" in checkpoint and "absent" not in checkpoint and len(checkpoint) == 2
    assert checkpoint.format == "safetensors" and checkpoint.metadata == {"format": "pt"}
    assert checkpoint["weight"].shape == (2, 3) and checkpoint["weight"].dtype == "float32"
    assert checkpoint["weight"].nbytes == 24 and checkpoint["weight"].stride == (3, 1)
    for key in ("absent", 0, None):
        with pytest.raises(KeyError) as error:
            checkpoint[key]
        assert error.value.args == (key,) and checkpoint.get(key) is None and key not in checkpoint


def test_the_parts_of_a_tensor_are_its_items(place):
    weight = torch2carton.open("model.safetensors")["weight"]
    assert [part.tobytes() for part in weight] == [weight[0].tobytes(), weight[1].tobytes()]
    with pytest.raises(TypeError, match="no parts"):
        iter(weight[0, 0])


def test_a_file_that_is_not_there_has_errno_and_filename(place):
    for call in (torch2carton.open, torch2carton.inspect, torch2carton.scan, lambda path: torch2carton.safe_open(path, "np")):
        with pytest.raises(FileNotFoundError) as error:
            call("absent.pt")
        for found in (error.value, pickle.loads(pickle.dumps(error.value))):
            assert (found.errno, found.filename, found.path) == (errno.ENOENT, "absent.pt", "absent.pt")
            assert "absent.pt" in str(found)


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_bytes_and_hashes_need_no_numpy(place, backend):
    weight = torch2carton.open("model.safetensors", backend=backend)["weight"]
    raw = (place / "model.safetensors").read_bytes()[-32:-8]
    assert weight.tobytes() == raw and weight.sha256() == hashlib.sha256(raw).hexdigest()
    target = bytearray(24)
    weight.read_into(target)
    assert target == raw
    with pytest.raises(torch2carton.InputError, match="24 bytes, found 23"):
        weight.read_into(bytearray(23))


def test_bytes_and_file_objects_are_opened(place):
    data = (place / "model.safetensors").read_bytes()
    with open("model.safetensors", "rb") as file:
        for checkpoint in (torch2carton.open(data), torch2carton.open(file)):
            assert checkpoint["bias"].tobytes() == bytes(8)
    with open("model.safetensors", encoding="latin1") as text, pytest.raises(TypeError, match="binary"):
        torch2carton.open(text)


def test_subscripts_are_views(place):
    weight = torch2carton.open("model.safetensors")["weight"]
    assert weight[1].shape == (3,) and weight[:, 1].shape == (2,) and weight[..., -1].stride == (3,)
    assert weight[None, 0, ::2].shape == (1, 2) and weight[5:].shape == (0, 3) and weight[-1, -1].shape == ()
    assert weight[1, ::2].tobytes() == weight.tobytes()[12:16] + weight.tobytes()[20:24]
    for key, error in (
        (2, IndexError), ((0, 3), IndexError), ((0, 0, 0), IndexError), (slice(None, None, -1), ValueError),
        ("x", TypeError), ((True, 0), TypeError), ((..., ...), IndexError),
    ):  # fmt: skip
        with pytest.raises(error):
            weight[key]


@needs_numpy
@pytest.mark.parametrize("key", [0, -1, slice(1, None), (slice(None), 1), (..., 2), (None, 1), slice(0, 2, 2), ()])
def test_subscripts_are_those_of_numpy(place, key):
    weight = torch2carton.open("model.safetensors")["weight"]
    assert np.array_equal(weight[key].numpy(), weight.numpy()[key])


@needs_numpy
def test_an_array_is_a_private_view_of_the_file(place):
    checkpoint = torch2carton.open("model.safetensors")
    one, two = checkpoint["weight"].numpy(), checkpoint["weight"].numpy()
    assert np.shares_memory(one, two)
    before = (place / "model.safetensors").read_bytes()
    one[0, 0] = 42
    assert two[0, 0] == 42 and (place / "model.safetensors").read_bytes() == before
    assert torch2carton.open("model.safetensors")["weight"].numpy()[0, 0] == 0
    copied = checkpoint["bias"].numpy(copy=True)
    copied[0] = 1
    assert checkpoint["bias"].numpy()[0] == 0


@needs_numpy
def test_pread_copies(place):
    weight = torch2carton.open("model.safetensors", backend="pread")["weight"]
    assert not np.shares_memory(weight.numpy(), weight.numpy()) and weight.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


@needs_numpy
def test_views_outlive_everything(place):
    array = torch2carton.open("model.safetensors")["weight"].numpy()
    row = array[1]
    del array
    gc.collect()
    (place / "model.safetensors").unlink()
    assert row.tolist() == [3, 4, 5]


@needs_numpy
def test_ten_thousand_opens_and_drops_leave_nothing(place):
    import resource

    def maps():
        with open("/proc/self/maps") as file:
            return sum("model.safetensors" in line for line in file)

    def files():
        import os

        return len(os.listdir("/proc/self/fd"))

    kept = [torch2carton.open("model.safetensors")["weight"].numpy() for _ in range(10)]
    count, opened = maps(), files()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(10_000):
        array = torch2carton.open("model.safetensors")["bias"].numpy()
        assert array[1] == 0
    del array
    assert maps() == count and files() == opened
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000
    assert all(array[1, 2] == 5 for array in kept)


@needs_numpy
def test_dlpack_and_buffers_share_memory(place):
    weight = torch2carton.open("model.safetensors")["weight"]
    shared = np.from_dlpack(weight)
    assert np.shares_memory(shared, weight.numpy()) and shared.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert np.asarray(weight).tolist() == weight.numpy().tolist()
    for _ in range(100):
        weight.__dlpack__()
        weight.__dlpack__(max_version=(1, 0))
    with pytest.raises(BufferError):
        weight.__dlpack__(dl_device=(2, 0))


@needs_torch
def test_torch_shares_memory(place):
    checkpoint = torch2carton.open("model.pt")
    weight = checkpoint["weight"].torch()
    assert torch.equal(weight, torch.arange(6.0).reshape(2, 3))
    assert torch.from_dlpack(checkpoint["weight"]).data_ptr() == weight.data_ptr()
    assert checkpoint["weight"].torch(copy=True).data_ptr() != weight.data_ptr()
    weight[0, 0] = 9
    assert torch.load("model.pt")["weight"][0, 0] == 0


@needs_torch
def test_every_dtype_becomes_a_tensor_and_an_array(place):
    names = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex128 complex64 complex32".split()
    names += "uint16 uint32 uint64 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz".split()
    made = {}
    for name in names:
        dtype = getattr(torch, name, None)
        if dtype is not None:
            made[name] = torch.arange(6, dtype=torch.uint8).repeat(16).view(dtype)
    torch.save(made, "dtypes.pt")
    checkpoint = torch2carton.open("dtypes.pt")
    for name, tensor in made.items():
        found = checkpoint[name].torch()
        assert found.dtype == tensor.dtype and torch.equal(found.view(torch.uint8), tensor.view(torch.uint8)), name
        try:
            array = checkpoint[name].numpy()
        except torch2carton.Error as error:
            assert name in str(error) and (".torch()" in str(error))
        else:
            assert array.tobytes() == checkpoint[name].tobytes() and str(array.dtype) == name


@needs_torch
def test_strides_ties_and_offsets_are_kept(place):
    base = torch.arange(24.0).reshape(4, 6)
    torch.save({"t": base.t(), "part": base[1:3, ::2], "again": base, "empty": torch.empty(3, 0)}, "views.pt")
    checkpoint = torch2carton.open("views.pt")
    assert checkpoint["t"].stride == (1, 6) and checkpoint["part"].storage_offset == 6
    assert checkpoint["t"].shares_storage(checkpoint["again"]) and not checkpoint["t"].is_contiguous()
    for backend in ("mmap", "pread"):
        opened = torch2carton.open("views.pt", backend=backend)
        assert torch.equal(opened["part"].torch(), base[1:3, ::2]) and torch.equal(opened["t"].torch(), base.t())
    assert checkpoint["empty"].torch().shape == (3, 0)
    assert checkpoint["part"].tobytes() == base[1:3, ::2].contiguous().numpy().tobytes()


@needs_torch
def test_folders_and_shards(place):
    from safetensors.torch import save_file

    folder = place / "shards"
    folder.mkdir()
    save_file({"a": torch.ones(2)}, folder / "model-00001-of-00002.safetensors")
    save_file({"b": torch.zeros(3)}, folder / "model-00002-of-00002.safetensors")
    checkpoint = torch2carton.open(folder)
    assert list(checkpoint) == ["a", "b"] and len(checkpoint.files) == 2
    assert list(torch2carton.open(folder / "model-00001-of-00002.safetensors")) == ["a"]
    assert torch.equal(torch2carton.load_file(folder)["b"], torch.zeros(3))


def test_errors_have_kinds_and_places(place):
    with pytest.raises(FileNotFoundError, match="absent.pt") as caught:
        torch2carton.open("absent.pt")
    assert isinstance(caught.value, torch2carton.NotFoundError) and caught.value.path == "absent.pt"
    (place / "broken.pkl").write_bytes(b"\x80\x02]K\x01K\x02s.")
    with pytest.raises(torch2carton.DamagedError, match="broken.pkl") as caught:
        torch2carton.open("broken.pkl")
    assert caught.value.offset == 7 and caught.value.kind == "damaged"
    with pytest.raises(torch2carton.OptionError, match="backend"):
        torch2carton.open("model.safetensors", backend="other")
    (place / "text.pt").write_text("hello, this is not a checkpoint")
    with pytest.raises(torch2carton.Error, match="text.pt"):
        torch2carton.open("text.pt")
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and again.offset == 7
    assert "torch2carton.DamagedError: " in "".join(traceback.format_exception_only(again))
    with open("model.safetensors") as text, pytest.raises(TypeError, match="binary mode"):
        torch2carton.open(text)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes in folders")
def test_a_named_pipe_is_refused_and_not_waited_for(place):
    import os

    os.mkfifo("pipe")
    for call in (torch2carton.open, torch2carton.inspect):
        with pytest.raises(torch2carton.InputError, match="named pipe"):
            call("pipe")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have names of Unicode only")
def test_names_of_files_need_not_be_unicode(place):
    import os

    name = os.fsdecode(b"\xff\xfe.safetensors")
    write_safetensors(place / name)
    tensor = pickle.loads(pickle.dumps(torch2carton.open(name)["bias"]))
    assert tensor.tobytes() == bytes(8) and torch2carton.open(name).files == [name]
    with pytest.raises(torch2carton.NotFoundError) as caught:
        torch2carton.open(name + "x")
    assert caught.value.path == name + "x"


def test_truncated_files_are_errors(place):
    data = (place / "model.safetensors").read_bytes()
    for length in range(0, len(data), 7):
        with pytest.raises(torch2carton.Error):
            torch2carton.open(data[:length])


def test_handles_are_pickled_and_shared_by_threads(place):
    checkpoint = torch2carton.open("model.safetensors")
    again = pickle.loads(pickle.dumps(checkpoint))
    assert list(again) == list(checkpoint)
    hashes = []

    def work():
        for _ in range(200):
            hashes.append(checkpoint["weight"].sha256())
            torch2carton.open("model.safetensors")["bias"].tobytes()

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(hashes) == 800 and len(set(hashes)) == 1


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_tensors_of_files_and_their_parts_are_pickled(place, backend):
    checkpoint = torch2carton.open("model.safetensors", backend=backend)
    for tensor in (checkpoint["weight"], checkpoint["weight"][1, ::2], checkpoint["bias"][1:1]):
        again = pickle.loads(pickle.dumps(tensor))
        assert repr(again) == repr(tensor) and again.tobytes() == tensor.tobytes()
    with pytest.raises(torch2carton.UnsupportedError, match="weight"):
        pickle.dumps(torch2carton.open((place / "model.safetensors").read_bytes())["weight"])


def test_items_are_made_one_by_one(place):
    checkpoint = torch2carton.open("model.safetensors")
    items = iter(checkpoint.items())
    assert [(name, tensor.name, tensor.ndim) for name, tensor in items] == [("weight", "weight", 2), ("bias", "bias", 1)]
    assert next(items, None) is None and len(checkpoint.items()) == 2


@needs_torch
def test_globals_and_omissions_of_bytes_and_file_objects(place):
    expected = torch2carton.open("model.pt")
    assert expected.globals
    for source in ((place / "model.pt").read_bytes(), open("model.pt", "rb")):
        checkpoint = torch2carton.open(source)
        assert checkpoint.globals == expected.globals and checkpoint.left_out == expected.left_out


def _first_number(checkpoint):
    return checkpoint["weight"].tobytes()[4:8]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_use_handles(place, method):
    checkpoint = torch2carton.open("model.safetensors")
    expected = _first_number(checkpoint)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(_first_number, [checkpoint] * 4) == [expected] * 4


@needs_torch
def test_data_loader_workers_read_tensors(place):
    class Rows(torch.utils.data.Dataset):
        def __init__(self):
            self.weight = torch2carton.open("model.pt")["weight"]

        def __len__(self):
            return 2

        def __getitem__(self, index):
            return self.weight[index].torch()

    loader = torch.utils.data.DataLoader(Rows(), num_workers=2, multiprocessing_context="fork")
    assert torch.equal(torch.cat(list(loader)), torch.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_a_missing_package_is_named_with_its_remedy(place, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    weight = torch2carton.open("model.safetensors")["weight"]
    with pytest.raises(ImportError, match=f"pip install {name}") as caught:
        getattr(weight, name)()
    assert isinstance(caught.value, torch2carton.MissingPackageError) and "weight" in str(caught.value)
    if name == "torch":
        with pytest.raises(torch2carton.MissingPackageError):
            torch2carton.load("model.safetensors")


def test_import_is_quick_and_light(place):
    script = (
        "import sys, time; start = time.perf_counter(); import torch2carton; took = time.perf_counter() - start\n"
        "assert not {'numpy', 'torch', 'dataclasses', 'json'} & set(sys.modules), sorted(sys.modules)\n"
        "print(took)"
    )
    runs = [subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True) for _ in range(10)]
    # The shortest of ten: other programs on the machine only make an import longer.
    assert min(float(run.stdout) for run in runs) < 0.02


def test_notebooks_show_a_table(place):
    write_safetensors(place / "<i>.safetensors")
    html = torch2carton.open("<i>.safetensors")._repr_html_()
    assert "&lt;i&gt;" in html and "<i>" not in html and "2 × 3" in html


def test_the_version_is_that_of_the_native_module():
    assert torch2carton.__version__ == torch2carton._native.__version__
    for name in torch2carton.__all__:
        assert getattr(torch2carton, name) is not None
    with pytest.raises(AttributeError):
        torch2carton.absent


def test_ctrl_c_stops_the_reading_of_a_pickle(place):
    (place / "large.pkl").write_bytes(pickle.dumps([(number, str(number)) for number in range(1_000_000)], 2))
    for work in (torch2carton.open, torch2carton.inspect, lambda path: torch2carton.open(path).objects):
        start, before = time.perf_counter(), time.process_time()
        work("large.pkl")
        seconds, whole = time.perf_counter() - start, time.process_time() - before
        timer = threading.Timer(seconds / 10, lambda: os.kill(os.getpid(), signal.SIGINT))
        before = time.process_time()
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            work("large.pkl")
        # Processor time, because other programs may take the cores.
        assert time.process_time() - before < 0.7 * whole
        timer.join()


@needs_numpy
def test_a_bool_is_an_index_as_in_numpy(place):
    for tensor in (torch2carton.open("model.safetensors")["weight"], torch2carton.open("model.safetensors")["bias"][0]):
        for key in (True, False, (True,), (True, ...), (..., False), (slice(None, 1), True) if tensor.ndim else True):
            part, expected = tensor[key].numpy(), tensor.numpy()[key]
            assert part.shape == expected.shape and part.tolist() == expected.tolist()
        for key in ((True, True), (0, True)):
            with pytest.raises(TypeError, match="one bool"):
                tensor[key if tensor.ndim else (True, True)]


def test_pread_maps_nothing(place):
    """Every kind of file and folder whose tensors are read."""
    paths = ["model.safetensors", "data.pkl"]
    torch2carton.convert("model.safetensors", "made.carton")
    paths.append("made.carton")
    with zipfile.ZipFile("made.carton") as archive:
        archive.extractall("unpacked")
    paths.append("unpacked")
    os.mkdir("shards")
    shutil.copy("model.safetensors", "shards/model.safetensors")
    paths.append("shards")
    if torch:
        state = {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.zeros(2)}
        torch.save(state, "legacy.pt", _use_new_zipfile_serialization=False)
        torch.jit.save(torch.jit.script(torch.nn.Linear(3, 2)), "script.pt")
        torch.save(state, "model_weights.ckpt")
        for name, mode in (("plain.nemo", "w"), ("zipped.nemo", "w:gz")):
            with tarfile.open(name, mode) as archive:
                archive.add("model_weights.ckpt")
        from torch.distributed import checkpoint as distributed

        distributed.save(state, checkpoint_id="trainer", no_dist=True)
        paths += ["model.pt", "legacy.pt", "script.pt", "plain.nemo", "zipped.nemo", "trainer"]
    for path in paths:
        checkpoint = torch2carton.open(path, backend="pread")
        values = {name: tensor.tobytes() for name, tensor in checkpoint.items()}
        buffers = [tensor._buffer(False, False) for tensor in checkpoint.values()]
        # Unlinked temporary files, of what is decompressed, may be mapped.
        lines = [line for line in Path("/proc/self/maps").read_text().splitlines() if "(deleted)" not in line]
        assert not any(str(place) in line for line in lines), path
        mapped = torch2carton.open(path)
        assert values == {name: tensor.tobytes() for name, tensor in mapped.items()}
        assert [tensor.file_offset for tensor in checkpoint.values()] == [tensor.file_offset for tensor in mapped.values()]
        assert path == "data.pkl" or values and buffers, path
        del mapped
        gc.collect()
    os.mkfifo("pipe")
    with pytest.raises(torch2carton.Error, match="named pipe"):
        torch2carton.open("pipe", backend="pread")


@needs_torch
def test_a_damaged_local_header_is_found_when_its_tensor_is_read(place):
    torch.save({"first": torch.ones(3), "second": torch.ones(3)}, "torn.pt")
    with zipfile.ZipFile("torn.pt") as archive:
        record = next(entry for entry in archive.infolist() if entry.filename.endswith("data/1"))
    with open("torn.pt", "r+b") as file:
        file.seek(record.header_offset + 30)
        file.write(b"~")
    for backend in ("mmap", "pread"):
        checkpoint = torch2carton.open("torn.pt", backend=backend)
        assert checkpoint["second"].shape == (3,) and checkpoint["first"].torch().tolist() == [1, 1, 1]
        for read in (lambda: checkpoint["second"].torch(), checkpoint["second"].tobytes, checkpoint["second"].sha256):
            with pytest.raises(torch2carton.DamagedError, match="local header") as caught:
                read()
            assert caught.value.tensor == "second"
    for work in (lambda: torch2carton.load("torn.pt"), lambda: torch2carton.convert("torn.pt", "torn.safetensors")):
        with pytest.raises(torch2carton.DamagedError, match="local header"):
            work()


def interrupted(work: str, path: str) -> float:
    """The processor time that `work` takes to end after a KeyboardInterrupt, as a part of the time that it takes without one."""
    code = f"""
import os, signal, threading, time
import torch2carton
start = time.process_time()
{work}({path!r})
whole = time.process_time() - start
sent = []
def send():
    sent.append(time.process_time())
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(0.1 * whole, send).start()
try:
    {work}({path!r})
    time.sleep(1)
except KeyboardInterrupt:
    print((time.process_time() - sent[0]) / whole)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def test_ctrl_c_stops_the_reading_of_directories_and_legacy_pickles(place):
    entries, directory, end = [], [], 0
    for number in range(300_000):
        name = b"a/data.pkl" if number == 0 else b"a/data/%d" % number
        data = b"}." if number == 0 else b""
        sums = struct.pack("<3I", zlib.crc32(data), len(data), len(data))
        entries.append(struct.pack("<4s5H", b"PK\3\4", 20, 0, 0, 0, 0) + sums + struct.pack("<2H", len(name), 0) + name + data)
        fixed = struct.pack("<4s6H", b"PK\1\2", 20, 20, 0, 0, 0, 0) + sums
        directory.append(fixed + struct.pack("<5H2I", len(name), 0, 0, 0, 0, 0, end) + name)
        end += len(entries[-1])
    count, size = len(entries), sum(map(len, directory))
    wide = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, end)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, end + size, 1)
    narrow = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    Path("huge.zip").write_bytes(b"".join(entries + directory) + wide + locator + narrow)
    parts = [pickle.dumps(0x1950A86A20F9469CFC6C, 2), pickle.dumps(1001, 2), pickle.dumps({}, 2)]
    Path("huge.pt").write_bytes(b"".join(parts) + b"\x80\x02" + b"N0" * 2_000_000 + b"}." + pickle.dumps([], 2))
    for path in ("huge.zip", "huge.pt"):
        for work in ("torch2carton.open", "torch2carton.inspect", "torch2carton.scan", *(["torch2carton.load"] if torch else [])):
            # The time varies on a busy machine, and one short run is enough.
            assert any(interrupted(work, path) < 0.7 for _ in range(5)), (work, path)
