"""Files that nothing here reads are reported if a program could run them: attacks with the loaders of other programs.

Each attack makes the folder `ran` when its loader reads it, in a process and an empty folder of its own; a scan of the files' folder
must not be clean, and neither must one of an archive of them.
"""

import json
import marshal
import os
import subprocess
import textwrap

import pytest
from program import CLEAN, torch2carton
from test_scan_documents import archives

RAN = "import os; os.mkdir('ran')"
LOADERS = {
    "library": "import ctypes, os; ctypes.CDLL(os.path.join(FOLDER, 'weights'))",
    "operators": "import os, torch; torch.ops.load_library(os.path.join(FOLDER, 'weights'))",
    "marshal": "import os, marshal; exec(marshal.load(open(os.path.join(FOLDER, 'layer.dat'), 'rb')))",
    "bytecode": "import sys; sys.path.insert(0, FOLDER); import modeling",
    "shelf": "import os, shelve; shelve.open(os.path.join(FOLDER, 'params'), 'r')['a']",
    "lmdb": "import os, lmdb, pickle\nwith lmdb.open(FOLDER, readonly=True, lock=False).begin() as it: pickle.loads(it.get(b'a'))",
    "sqlite": "import os, pickle, sqlite3; pickle.loads(sqlite3.connect(os.path.join(FOLDER, 'study.db')).execute('select a from t').fetchone()[0])",
    "kernel": "from pathlib import Path; import kernels; kernels.get_local_kernel(Path(FOLDER))",
    "agent": "import smolagents; smolagents.CodeAgent.from_folder(FOLDER)",
    "agent code": "import json, os, smolagents; smolagents.CodeAgent.from_dict(json.load(open(os.path.join(FOLDER, 'agent.json'))))",
    "tool": "import os, smolagents; smolagents.Tool.from_code(open(os.path.join(FOLDER, 'tool.py')).read())",
    "parquet": "import os, pyarrow.parquet as p; p.read_table(os.path.join(FOLDER, 'a.parquet'))",
    "arrow": "import os, pyarrow as p; p.ipc.open_file(os.path.join(FOLDER, 'a.arrow')).read_all()",
    "stream": "import os, pyarrow as p; p.ipc.open_stream(os.path.join(FOLDER, 'a.arrow')).read_all()",
    "feather": "import os, pyarrow.feather as p; p.read_table(os.path.join(FOLDER, 'a.feather'))",
    # What AllenNLP's `Registrable` and RLlib's `deserialize_type` do with a name, after which the first calls the class.
    "registrable": "import importlib, json, os; it = json.load(open(os.path.join(FOLDER, 'config.json')))['model']\n"
                   "module, name = it.pop('type').rsplit('.', 1); getattr(importlib.import_module(module), name)(**it)",
    "class path": "import importlib, msgpack, os; it = msgpack.load(open(os.path.join(FOLDER, 'class_and_ctor_args.msgpck'), 'rb'))\n"
                  "module, name = it['class'].rsplit('.', 1); getattr(importlib.import_module(module), name)(*it['args'])",
    # What spacy-transformers does with the sections of its configuration.
    "spacy": "import configparser, json, os, transformers; it = configparser.ConfigParser(); it.read(os.path.join(FOLDER, 'config.cfg'))\n"
             "section = it['components.transformer.model.transformer_config']\n"
             "transformers.AutoConfig.from_pretrained(os.path.join(FOLDER, json.loads(section['name'])), trust_remote_code=json.loads(section['trust_remote_code']))",
    "pickle": "import os, msgpack, msgpack_numpy; msgpack.load(open(os.path.join(FOLDER, 'a.msgpack'), 'rb'), object_hook=msgpack_numpy.decode)",
}
# Writes the files of an attack in the current folder. Types of columns are pickled by what they reduce to.
COLUMNS = """
import os, pyarrow as pa, pyarrow.parquet, pyarrow.feather
class Type(pa.PyExtensionType):
    def __init__(self):
        super().__init__(pa.int64())
    def __reduce__(self):
        return os.mkdir, ("ran",)
table = pa.table({"a": pa.ExtensionArray.from_storage(Type(), pa.array([1, 2]))})
"""
SHELF = "import pickle\nclass A:\n def __reduce__(self):\n  import os\n  return os.mkdir, ('ran',)\n"
MAKERS = {
    "parquet": COLUMNS + "pyarrow.parquet.write_table(table, 'a.parquet')",
    "arrow": COLUMNS + "w = pa.ipc.new_file('a.arrow', table.schema); w.write_table(table); w.close()",
    "stream": COLUMNS + "w = pa.ipc.new_stream('a.arrow', table.schema); w.write_table(table); w.close()",
    "feather": COLUMNS + "pyarrow.feather.write_feather(table, 'a.feather')",
    "shelf": SHELF + "import shelve\nwith shelve.open('params') as it: it['b'] = b'b' * 300; it['a'] = A()",
    "lmdb": SHELF + "import lmdb\nwith lmdb.open('.').begin(write=True) as it: it.put(b'a', pickle.dumps(A()))",
    "sqlite": SHELF + "import sqlite3\nwith sqlite3.connect('study.db') as it: it.execute('create table t (a blob)'); it.execute('insert into t values (?)', [pickle.dumps(A())])",
    "pickle": SHELF + "import msgpack; open('a.msgpack', 'wb').write(msgpack.packb({b'nd': True, b'kind': b'O', b'type': b'O', b'shape': [], b'data': pickle.dumps(A())}))",
    "class path": "import msgpack; open('class_and_ctor_args.msgpck', 'wb').write(msgpack.packb({'class': 'os.mkdir', 'args': ['ran']}))",
}
TOOL = f"{RAN}\nfrom smolagents import Tool\nclass T(Tool):\n    name = description = 't'\n    inputs = {{}}\n    output_type = 'string'\n    def forward(self):\n        return ''\n"
AGENT = {"class": "CodeAgent", "model": {"class": "InferenceClientModel", "data": {"model_id": "x"}}, "managed_agents": {}, "max_steps": 1, "verbosity_level": 1}
KERNEL = {"name": "mine", "id": "mine", "version": 1, "license": "MIT", "python-depends": []}
FILES = {
    "marshal": {"layer.dat": marshal.dumps(compile(RAN, "layer", "exec"))},
    "kernel": {f"build/torch-{it}/{name}": text for it in ("cpu", "cuda")
               for name, text in {"__init__.py": RAN.encode(), "metadata.json": json.dumps(KERNEL | {"backend": {"type": it}}).encode()}.items()},
    "agent": {"agent.json": json.dumps(AGENT | {"tools": ["t"]}).encode(), "tools/t.py": TOOL.encode()},
    "agent code": {"agent.json": json.dumps(AGENT | {"tools": [{"name": "t", "code": TOOL}]}).encode()},
    "tool": {"tool.py": TOOL.encode()},
    "registrable": {"config.json": json.dumps({"model": {"type": "subprocess.Popen", "args": ["mkdir", "ran"]}}).encode()},
    "spacy": {"config.cfg": b"[components.transformer.model.transformer_config]\nname = \"../elsewhere\"\ntrust_remote_code = true\n"},
}
# What is next to the scanned folder.
OUTSIDE = {"spacy": {"config.json": b'{"model_type": "mine", "auto_map": {"AutoConfig": "configuration.C"}}',
                     "configuration.py": f"{RAN}\nfrom transformers import PretrainedConfig\nclass C(PretrainedConfig):\n    pass\n".encode()}}
ARROW = "parquet", "arrow", "stream", "feather"


def python(name):
    key = "OLD_ARROW" if name in ARROW else "LOADERS"
    if why := os.environ.get(f"T2C_MISSING_{key}"):
        pytest.skip(why)
    return os.environ[f"T2C_{key}"]


def run(name, code, folder, cwd):
    env = CLEAN | {"PYTHONDONTWRITEBYTECODE": "1", "HOME": str(cwd), "HF_HUB_OFFLINE": "1"}
    code = f"FOLDER = {str(folder)!r}\n" + code
    return subprocess.run([python(name), "-W", "ignore", "-c", code], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)


def made(name, folder):
    """Writes the files of an attack."""
    if name in ("library", "operators"):
        code = "#include <sys/stat.h>\n__attribute__((constructor)) static void run(void) { mkdir(\"ran\", 0755); }\n"
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", folder / "weights", "-"], input=code, text=True, check=True)
    elif name == "bytecode":
        (folder / "modeling.py").write_text("")
        code = "import importlib.util, marshal, pathlib, py_compile\np = pathlib.Path(py_compile.compile('modeling.py'))\n"
        code += f"p.write_bytes(p.read_bytes()[:16] + marshal.dumps(compile({RAN!r}, 'modeling.py', 'exec')))"
        done = run(name, code, folder, folder)
        assert done.returncode == 0, done.stderr
    elif name in MAKERS:
        done = run(name, textwrap.dedent(MAKERS[name]), folder, folder)
        assert done.returncode == 0, done.stderr
    for place, files in ((folder, FILES), (folder.parent / "elsewhere", OUTSIDE)):
        for file, data in files.get(name, {}).items():
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            (place / file).write_bytes(data)


@pytest.mark.parametrize("name", LOADERS)
def test_what_another_program_runs_is_reported(name, tmp_path):
    folder, ran = tmp_path / "folder", tmp_path / "ran"
    folder.mkdir(), ran.mkdir()
    made(name, folder)
    done = run(name, LOADERS[name], folder, ran)
    assert (ran / "ran").exists(), ("the attack does not run", done.stderr[-2000:])
    outcome = torch2carton("scan", folder)
    assert outcome.status in (1, 2, 3) and "there is no checkpoint" not in outcome.stdout, outcome
    if name in ("agent", "kernel", "tool"):
        return  # Python code that nothing in an archive names
    files = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    for archive, whole in archives(files).items():
        (tmp_path / archive).write_bytes(whole)
        outcome = torch2carton("scan", tmp_path / archive)
        assert outcome.status in (1, 2, 3) and "nothing is a model" not in outcome.stdout, outcome


def test_ordinary_files_next_to_a_checkpoint_are_skipped(tmp_path):
    """Texts in any encoding, pictures, a repository of git, and numbers that another file describes."""
    for file, data in {
        "README.md": b"# A model\n", "latin.txt": "Gr\u00f6\u00dfe\n".encode("latin-1"), "wide.txt": "text".encode("utf-16"), "empty.lock": b"", "train.py": b"import torch\n",
        "a.png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a.jpg": b"\xff\xd8\xff\xe0\0\x10JFIF", "a.mp4": b"\0\0\0\x20ftypisom", "a.pdf": b"%PDF-1.4\n\xe2\xe3\xcf\xd3\0",
        "model.ckpt.data-00000-of-00001": b"\0\1\2", "runs/events.out.tfevents.1": b"\x18\0\0\0", "tokenizer.model": b"\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02",
        "a.msgpack": b"\x81\xa1a\x01",
    }.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_bytes(data)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", tmp_path]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "a"], ["gc", "-q"], ["commit", "-qm", "b", "--allow-empty"]):
        subprocess.run([*git, *arguments], check=True)
    outcome = torch2carton("scan", "--json", "--all", tmp_path)
    verdicts = {json.loads(line)["file"]: json.loads(line)["verdict"] for line in outcome.stdout.splitlines()}
    assert {file: verdict for file, verdict in verdicts.items() if verdict not in ("clean", "skipped")} == {}
    assert outcome.status == 0 and len(verdicts) > 20
