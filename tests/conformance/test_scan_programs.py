"""What a program imports, calls or evaluates because of a text, a scan does not call clean, whatever the text's key or the file's name is.

Each attack makes the folder `ran` when its loader reads it, in a process and an empty folder of its own; a scan of the files' folder, and
of one archive of them, must not be clean. Where a program is too large to install, its loader is its line.
"""

import base64
import json
import os
import subprocess

import pytest
from program import CLEAN, torch2carton
from test_scan_documents import archives

MKDIR = "__import__('os').mkdir('ran')"
PICKLE = b"\x80\x04\x8c\x05posix\x8c\x05mkdir\x93\x8c\x03ran\x85R."
READ = "import importlib, json, os, yaml\nread = lambda name: open(os.path.join(FOLDER, name)).read()\nload = lambda name: json.loads(read(name))\n"
CALL = READ + "def call(text, *args, **kwargs):\n    module, name = text.rsplit('.', 1)\n    return getattr(importlib.import_module(module), name)(*args, **kwargs)\n"
RUN = READ + "run = lambda name: exec(read(name))\n"
LOADERS = {
    "gymnasium": "import gymnasium, os; gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(open(os.path.join(FOLDER, 'spec.json')).read()))",
    "kaldiio": READ + "import kaldiio; kaldiio.load_mat(yaml.safe_load(read('conf.yaml'))['process'][0]['stats'])",
    # NeMo 2 keeps the models in `context/io.json`.
    "fiddle": READ + "import fiddle; from fiddle.experimental import serialization; fiddle.build(serialization.load_json(read('io.json')))",
    "hub": CALL + "it = load('policy_preprocessor.json')['steps'][0]; call(it['class'], **it['config'])",
    "lerobot": CALL + "it = load('policy_preprocessor.json')['steps'][0]; call(it['class'], it['config']['path'])",
    "octo": CALL + "it = load('config.json')['model']; call(it['module'] + '.' + it['name'], *it['args'], **it['kwargs'])",
    "deeppavlov": CALL + "it = load('config.json')['chainer']['pipe'][0]; call(it.pop('class_name').replace(':', '.'), **it)",
    "nni": CALL + "it = load('a.json'); call(it['__symbol__'].split(':', 1)[-1], **it['__kwargs__'])",
    "nni pickle": READ + "import base64, cloudpickle; cloudpickle.loads(base64.b64decode(load('a.json')['a']['__nni_type__'].split(':', 1)[-1]))",
    "ray": READ + "import binascii, cloudpickle; cloudpickle.loads(binascii.unhexlify(load('experiment_state.json')['a']['value']))",
    "gluonts": CALL + "it = load('predictor.json'); call(it['class'], *it['args'])",
    "monty": READ + "import sys; sys.path.insert(0, '.'); it = load('model.json'); open('evil.py', 'w').write('import os; os.mkdir(\"ran\")'); __import__(it['@module'])",
    "parlai": READ + "import subprocess; it = load('model.opt'); module, name = it['model'].split(':'); getattr(importlib.import_module(module), name)(it['args'])",
    "mlx-lm": RUN + "run(load('config.json')['model_file'])",
    "mmengine": RUN + "[run(name) for name in load('c.json')['_base_']]",
    "mlflow": RUN + "run(yaml.safe_load(read('MLmodel'))['flavors']['langchain']['model_code_path'])",
    "keras module": READ + "import sys; sys.path.insert(0, '.'); open('evil.py', 'w').write('import os; os.mkdir(\"ran\")'); importlib.import_module(read('keras_module.txt'))",
    "easyocr": "import sys; sys.path.insert(0, FOLDER); import net",
    "paddle ocr": READ + "[eval(list(it)[0])(**it[list(it)[0]]) for it in yaml.safe_load(read('inference.yml'))['PreProcess']['transform_ops']]",
    "paddle detection": READ + "[eval(it.pop('type'))(**it) for it in yaml.safe_load(read('infer_cfg.yml'))['Preprocess']]",
    "monai": READ + "[eval(it[1:]) for it in load('a.json')['imports']]",
    "axlearn": READ + "[eval(it[1]['mesh_axes']) for it in load('index')]",
    "pysr": READ + "import csv, sympy; [sympy.sympify(row['Equation']) for row in csv.DictReader(open(os.path.join(FOLDER, 'hall_of_fame.csv')))]",
    "rvc": READ + "eval(read('train.log').strip('\\n').split('\\n')[0].split('\\t')[-1])",
    "nequip": "import os, torch, yaml; it = {'config': ''}; torch.jit.load(os.path.join(FOLDER, 'a.pt'), _extra_files=it); yaml.load(it['config'], Loader=yaml.Loader)",
    "yaml": READ + "yaml.load(read('config'), Loader=yaml.Loader)",
    "sb3": READ + "import base64, pickle; [pickle.loads(base64.b64decode(it[':serialized:'])) for it in load('data').values()]",
    "kohya": CALL + "import tomllib; it = tomllib.loads(read('config.toml'))['train']; call(it['optimizer_type'], it['path'])",
    "jinja": READ + "import jinja2; jinja2.Template(read('template.txt')).render()",
    "autogen": READ + "exec(load('a.json')['config']['source_code'])",
    "other extension": CALL + "it = load('model.opt'); call(it['_target_'], it['path'])",
}
SPEC = {"id": "a-v0", "entry_point": "os:mkdir", "reward_threshold": None, "nondeterministic": False, "max_episode_steps": None, "order_enforce": True,
        "disable_env_checker": True, "kwargs": {"path": "ran"}, "additional_wrappers": [], "vector_entry_point": None}
FIDDLE = "import fiddle, os; from fiddle.experimental import serialization; open('io.json', 'w').write(serialization.dump_json(fiddle.Config(os.makedirs, 'ran')))"
NEQUIP = "import torch; torch.jit.trace(torch.nn.Identity(), torch.ones(1)).save('a.pt', _extra_files={'config': 'a: !!python/object/apply:os.mkdir [ran]'})"
CODE = b"import os; os.mkdir('ran')\n"

# name: (loader, files, or the program that writes them)
ATTACKS = {
    "name with a colon": ("gymnasium", {"spec.json": SPEC}),
    "class with a colon": ("deeppavlov", {"config.json": {"chainer": {"pipe": [{"class_name": "os:mkdir", "path": "ran"}]}}}),
    "name after a prefix": ("nni", {"a.json": {"__symbol__": "path:os.mkdir", "__kwargs__": {"path": "ran"}}}),
    "module and name": ("octo", {"config.json": {"model": {"module": "os", "name": "mkdir", "args": ["ran"], "kwargs": {}}}}),
    "reference": ("fiddle", FIDDLE),
    "class": ("lerobot", {"policy_preprocessor.json": {"name": "a", "steps": [{"class": "os.mkdir", "config": {"path": "ran"}}]}}),
    "class of torch": ("hub", {"policy_preprocessor.json": {"steps": [{"class": "torch.hub.load", "config": {"repo_or_dir": ".", "model": "model", "source": "local"}}]}}),
    "instance": ("gluonts", {"predictor.json": {"__kind__": "instance", "class": "os.mkdir", "args": ["ran"]}}),
    "module with an at sign": ("monty", {"model.json": {"@module": "evil", "@class": "X"}}),
    "options": ("parlai", {"model.opt": {"model": "subprocess:run", "args": ["mkdir", "ran"]}}),
    "another extension": ("other extension", {"model.opt": {"_target_": "os.mkdir", "path": "ran"}}),
    "pickle after a prefix": ("nni pickle", {"a.json": {"a": {"__nni_type__": "bytes:" + base64.b64encode(PICKLE).decode()}}}),
    "hexadecimal pickle": ("ray", {"experiment_state.json": {"a": {"_type": "CLOUDPICKLE_FALLBACK", "value": PICKLE.hex()}}}),
    "file of code": ("mlx-lm", {"config.json": {"model_type": "x", "model_file": "custom.py"}, "custom.py": CODE}),
    "base of code": ("mmengine", {"c.json": {"_base_": ["./evil.py"]}, "evil.py": CODE}),
    "code of a chain": ("mlflow", {"MLmodel": b"flavors:\n  langchain:\n    model_code_path: chain.py\n", "chain.py": CODE}),
    "module of keras": ("keras module", {"keras_module.txt": b"evil"}),
    "module of a network": ("easyocr", {"net.yaml": b"network_params: {}\n", "net.py": CODE}),
    "evaluated key": ("paddle ocr", {"inference.yml": f'PreProcess:\n  transform_ops:\n  - "{MKDIR}": {{}}\n'.encode()}),
    "evaluated type": ("paddle detection", {"infer_cfg.yml": b"Preprocess:\n- type: \"exec('import os; os.mkdir(\\\\'ran\\\\')')\"\n"}),
    "indirect call": ("paddle detection", {"infer_cfg.yml": b"Preprocess:\n- type: \"[exec][0]('import os; os.mkdir(\\\\'ran\\\\')')if 1else 2\"\n"}),
    "formatted text": ("paddle detection", {"infer_cfg.yml": b"Preprocess:\n- type: 'f\"a b {os.mkdir(chr(114) + chr(97) + chr(110))} c d\"'\n"}),
    "continued call": ("monai", {"a.json": {"imports": ["$__import__\\\n('os').mkdir\\\n('ran')"]}}),
    "comment before a call": ("monai", {"a.json": {"imports": ["$(eval#\n('__imp' 'ort__(\"os\").mkdir(\"ran\")'))"]}}),
    "index": ("axlearn", {"index": [["a", {"mesh_axes": MKDIR}]]}),
    "column": ("pysr", {"hall_of_fame.csv": f'Complexity,Loss,Equation\n1,2,"{MKDIR}"\n'.encode()}),
    "line of a log": ("rvc", {"train.log": f"2023\tx\tINFO\t{{'sample_rate': {MKDIR}}}\n".encode()}),
    "extra file": ("nequip", NEQUIP),
    "tag without an extension": ("yaml", {"config": b"a: !!python/object/apply:os.mkdir [ran]\n"}),
    "tag with a directive": ("yaml", {"config": b"%TAG !p! tag:yaml.org,2002:pyth%6fn/\n---\na: !p!object/apply:os.mkdir [ran]\n"}),
    "blanks before a document": ("sb3", {"data": b" " * 700 + json.dumps({"a": {":serialized:": base64.b64encode(PICKLE).decode()}}).encode()}),
    "toml": ("kohya", {"config.toml": b'[train]\n"optimizer_t\\u0079pe" = """\\\n  os.mk\\u0064ir"""\npath = "ran"\n'}),
    "template in a text": ("jinja", {"template.txt": b"{{ cycler['__in' 'it__']['__glo' 'bals__'].os.mkdir('ran') }}"}),
    "source": ("autogen", {"a.json": {"provider": "autogen_core.tools.FunctionTool", "config": {"source_code": CODE.decode() + "def f():\n    return 1\n"}}}),
    "pipe": ("kaldiio", {"conf.yaml": b'process:\n- type: cmvn\n  stats: "mkdir ran |"\n'}),
}


def python():
    if why := os.environ.get("T2C_MISSING_LOADERS"):
        pytest.skip(why)
    return os.environ["T2C_LOADERS"]


def run(code, folder, work):
    env = CLEAN | {"PYTHONDONTWRITEBYTECODE": "1", "HOME": str(work)}
    command = [python(), "-W", "ignore", "-c", f"FOLDER = {str(folder)!r}\n{code}"]
    subprocess.run(command, cwd=work, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=300)


@pytest.mark.parametrize("name", ATTACKS)
def test_what_a_text_runs_is_found(name, tmp_path):
    loader, files = ATTACKS[name]
    folder, work = tmp_path / "folder", tmp_path / "work"
    folder.mkdir(), work.mkdir()
    if isinstance(files, str):
        run(files, folder, folder)
        files = {file.name: file.read_bytes() for file in folder.iterdir()}
    if loader == "hub":
        (work / "hubconf.py").write_bytes(CODE + b"def model(): pass\n")
    files = {file: data if isinstance(data, bytes) else json.dumps(data).encode() for file, data in files.items()}
    for file, data in files.items():
        (folder / file).write_bytes(data)
    run(LOADERS[loader], folder, work)
    assert (work / "ran").exists(), "the attack does not run"
    # A checkpoint next to it, so that the folder holds something.
    (folder / "weights.pkl").write_bytes(b"\x80\x02}.")
    outcome = torch2carton("scan", folder)
    assert outcome.status in (1, 2, 3), outcome
    for archive, whole in archives(files | {"weights.pkl": b"\x80\x02}."}).items():
        (tmp_path / archive).write_bytes(whole)
        outcome = torch2carton("scan", tmp_path / archive)
        assert outcome.status in (1, 2, 3), (archive, outcome)
