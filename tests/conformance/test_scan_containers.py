"""Containers in containers: what a loader finds where no reader of a scan looked, a scan does not call clean.

Each attack makes the folder `ran` when its loader reads it, in a process and an empty folder of its own. A scan of the files' folder and of
each archive of them must not be clean, although a harmless pickle is next to them.
"""

import json
import marshal
import os
import struct
import subprocess
import tarfile
import zipfile
import zlib
from io import BytesIO

import pytest
from program import CLEAN, torch2carton

TEXT_PICKLE = b"cposix\nmkdir\n(Vran\ntR."
PICKLE = b"\x80\x02cposix\nmkdir\nX\x03\x00\x00\x00ran\x85R."
CODE = marshal.dumps(compile("import os; os.mkdir('ran')", "code", "exec"))
PROSE = b"The model was trained for a long time, and nobody knows why.\n" * 40
LOADERS = {
    "pickles": "import pickle, sys; f = open(sys.argv[1], 'rb'); [pickle.load(f) for _ in iter(lambda: f.peek(1), b'')]",
    "streams": "import pickle, sys, zlib; data, out = open(sys.argv[1], 'rb').read(), b''\n"
               "while data:\n  it = zlib.decompressobj(); out += it.decompress(data); data = it.unused_data\npickle.loads(out)",
    "zip": "import pickle, sys, zipfile; it = zipfile.ZipFile(sys.argv[1]); pickle.loads(it.read(it.namelist()[0]))",
    "hdf5": "import h5py, pickle, sys; pickle.loads(h5py.File(sys.argv[1], 'r').attrs['a'].tobytes())",
    "lmdb": "import lmdb, pickle, sys\nwith lmdb.open(sys.argv[1], subdir=False, readonly=True, lock=False).begin() as it: pickle.loads(it.get(b'a'))",
    "marshal": "import marshal, sys; exec(marshal.load(open(sys.argv[1], 'rb')))",
    "shelf": "import dbm.dumb, pickle, sys; pickle.loads(dbm.dumb.open(sys.argv[1].removesuffix('.dat'), 'r')[b'a'])",
    "metadata": "import json, safetensors, sys; it = json.loads(safetensors.safe_open(sys.argv[1], 'np').metadata()['config'])\n"
                "module, name = it.pop('_target_').rsplit('.', 1); getattr(__import__(module), name)(**it)",
    "metadata yaml": "import safetensors, sys, yaml; yaml.unsafe_load(safetensors.safe_open(sys.argv[1], 'np').metadata()['config'])",
    "metadata template": "import jinja2, safetensors, sys; jinja2.Template(safetensors.safe_open(sys.argv[1], 'np').metadata()['config']).render()",
    "kaldi": "import kaldiio, sys; list(kaldiio.load_scp(sys.argv[1]).values())",
    "stages": "import os, sys, yaml; os.system(yaml.safe_load(open(sys.argv[1]))['stages']['train']['cmd'])",
    "project": "import os, sys, yaml; os.system(yaml.safe_load(open(sys.argv[1]))['entry_points']['main']['command'])",
}
HDF5 = "import h5py, numpy, sys; f = h5py.File(sys.argv[1], 'w', userblock_size=512); f.attrs['a'] = numpy.void({!r}); f.close()\n" \
       "f = open(sys.argv[1], 'r+b'); f.write({!r})".format(PICKLE, PROSE[:512])
# A reader of LMDB does not look at the number of a page, the first eight bytes of it.
LMDB = "import lmdb, sys\nwith lmdb.open(sys.argv[1], subdir=False).begin(write=True) as it: it.put(b'a', {!r})\n" \
       "f = open(sys.argv[1], 'r+b')\nfor at in (0, 4096): f.seek(at); f.write({!r})"


def prefixed_zip():
    made = BytesIO(PROSE)
    made.seek(len(PROSE))
    with zipfile.ZipFile(made, "a") as zip:
        zip.writestr("a.pkl", PICKLE)
    return made.getvalue()


def metadata(text):
    header = json.dumps({"__metadata__": {"config": text}}).encode()
    return struct.pack("<Q", len(header)) + header


# name: (loader, file, bytes or a program that writes them, other files)
ATTACKS = {
    **{f"pickle after {name}": ("pickles", "a.dat", first + TEXT_PICKLE, {})
       for name, first in {"none": b"N.", "a list": b"]q\0.", "a text": b"Va\np0\n.", "bytes": b"C\x01a.", "two": b"N.N."}.items()},
    "pickle after a number in a document": ("pickles", "a.yaml", b"I5\n." + TEXT_PICKLE, {}),
    "stream after an empty one": ("streams", "a.joblib", zlib.compress(b"") + zlib.compress(PICKLE), {}),
    "stream in two parts": ("streams", "a.joblib", zlib.compress(TEXT_PICKLE[:1]) + zlib.compress(TEXT_PICKLE[1:]), {}),
    "archive after a text": ("zip", "a.txt", prefixed_zip(), {}),
    "HDF5 after a text": ("hdf5", "a.txt", HDF5, {}),
    **{f"database that begins as {name}": ("lmdb", file, LMDB.format(PICKLE, start), {})
       for name, file, start in (("a picture", "a.png", b"\x89PNG\r\n\x1a\n"), ("a bitmap", "data.mdb", b"BM"), ("a font", "data.mdb", b"\0\1\0\0\0"), ("UTF-16", "data.mdb", b"\xff\xfe"))},
    **{f"database named {file}": ("lmdb", file, LMDB.format(PICKLE, b""), {}) for file in ("a.onnx_data", "events.out.tfevents.1", "a.data-00000-of-00001", "a.cfg", "a.jinja")},
    **{f"code in {file}": ("marshal", file, CODE, {}) for file in ("a.gguf", "a.jinja", "a.ini", "a.pbtxt", "a.prototxt")},
    "shelf of texts": ("shelf", "a.dat", PROSE[:512] + TEXT_PICKLE, {"a.dir": b"'a', (512, %d)\n" % len(TEXT_PICKLE)}),
    "metadata": ("metadata", "a.safetensors", metadata('{"_target_": "os.mkdir", "path": "ran"}'), {}),
    "metadata in YAML": ("metadata yaml", "a.safetensors", metadata("!!python/object/apply:os.mkdir [ran]"), {}),
    "template in metadata": ("metadata template", "a.safetensors", metadata("{{ cycler.__init__.__globals__.os.mkdir('ran') }}"), {}),
    "command of Kaldi": ("kaldi", "feats.scp", b"a mkdir ran |\n", {}),
    "command of DVC": ("stages", "dvc.yaml", b"stages:\n  train:\n    cmd: mkdir ran\n", {}),
    "command of a project": ("project", "MLproject", b"entry_points:\n  main:\n    command: mkdir ran\n", {}),
}


def run(code, *arguments, cwd):
    if why := os.environ.get("T2C_MISSING_LOADERS"):
        pytest.skip(why)
    command = [os.environ["T2C_LOADERS"], "-B", "-W", "ignore", "-c", code, *arguments]
    return subprocess.run(command, cwd=cwd, env=CLEAN, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)


def archives(files):
    """The files in archives of each kind."""
    for name, method in {"stored.zip": zipfile.ZIP_STORED, "deflated.zip": zipfile.ZIP_DEFLATED}.items():
        made = BytesIO()
        with zipfile.ZipFile(made, "w", method) as zip:
            for file, data in files.items():
                zip.writestr(file, data)
        yield name, made.getvalue()
    for name, mode in {"a.tar": "w", "a.tar.gz": "w:gz"}.items():
        made = BytesIO()
        with tarfile.open(fileobj=made, mode=mode) as tar:
            for file, data in files.items():
                member = tarfile.TarInfo(file)
                member.size = len(data)
                tar.addfile(member, BytesIO(data))
        yield name, made.getvalue()


@pytest.mark.parametrize("name", ATTACKS)
def test_what_a_loader_runs_is_found(name, tmp_path):
    loader, file, data, others = ATTACKS[name]
    folder, work = tmp_path / "folder", tmp_path / "work"
    folder.mkdir(), work.mkdir()
    if isinstance(data, str):
        done = run(data, folder / file, cwd=work)
        assert done.returncode == 0, done.stderr
        (folder / f"{file}-lock").unlink(missing_ok=True)
    else:
        (folder / file).write_bytes(data)
    for other, text in others.items():
        (folder / other).write_bytes(text)
    done = run(LOADERS[loader], folder / file, cwd=work)
    assert (work / "ran").exists(), ("the attack does not run", done.stderr[-2000:])
    (folder / "ok.pkl").write_bytes(b"\x80\x02}.")
    outcome = torch2carton("scan", folder)
    assert outcome.status in (1, 2, 3), outcome
    files = {it.name: it.read_bytes() for it in sorted(folder.iterdir())}
    for archive, whole in archives(files):
        (tmp_path / archive).write_bytes(whole)
        outcome = torch2carton("scan", tmp_path / archive)
        assert outcome.status in (1, 2, 3), (archive, outcome)
