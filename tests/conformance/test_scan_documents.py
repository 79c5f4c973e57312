"""What a program runs because a document says so, a scan does not call clean.

Each attack makes the folder `ran` when its loader reads it, in a process and an empty folder of its own; a scan of the files' folder,
and of one archive of them, must not be clean. Random documents are compared with what Python's `json` and PyYAML read.
"""

import base64
import json
import os
import random
import subprocess
import tarfile
import zipfile
from io import BytesIO

import pytest
from program import CLEAN, torch2carton

MKDIR = "__import__('os').mkdir('ran')"
PICKLE = b"\x80\x02cposix\nmkdir\nX\x03\x00\x00\x00ran\x85R."
# What programs do with a document: `hydra.utils.instantiate` without hydra, and stable-baselines3's `json_to_data`.
CALLS = """
import importlib, json, sys
def instantiate(node):
    if isinstance(node, list):
        return [instantiate(item) for item in node]
    if not isinstance(node, dict):
        return node
    values = {key: instantiate(value) for key, value in node.items()}
    if '_target_' in values:
        module, name = values['_target_'].rsplit('.', 1)
        getattr(importlib.import_module(module), name)('ran')
"""
LOADERS = {
    "yaml": CALLS + "import yaml; [instantiate(it) for it in yaml.safe_load_all(open(sys.argv[1]))]",
    "full yaml": CALLS + "import yaml; instantiate(yaml.full_load(open(sys.argv[1])))",
    "unsafe yaml": "import sys, yaml; yaml.load(open(sys.argv[1], 'rb'), Loader=yaml.UnsafeLoader)",
    "json": CALLS + "instantiate(json.load(open(sys.argv[1], encoding='utf-8')))",
    "json bytes": CALLS + "instantiate(json.loads(open(sys.argv[1], 'rb').read()))",
    "sb3": "import base64, json, pickle, sys\nfor it in json.load(open(sys.argv[1])).values(): pickle.loads(base64.b64decode(it[':serialized:']))",
    "auto_map": "import json, sys, importlib, pathlib\np = pathlib.Path(sys.argv[1]); sys.path.insert(0, str(p.parent))\n"
                "text = json.dumps(json.load(open(p, encoding='utf-8')))\nassert 'modeling.X' in text; importlib.import_module('modeling')",
    "monai": "import json, sys\nfor it in json.load(open(sys.argv[1]))['imports']: exec(it[1:])",
    "keras": "import importlib, json, sys; it = json.load(open(sys.argv[1])); getattr(importlib.import_module(it['module']), it['class_name'])(it['config'])",
    "keras function": "import importlib, json, sys; it = json.load(open(sys.argv[1])); getattr(importlib.import_module(it['module']), it['config'])(*it['inbound_nodes'][0]['args'])",
    "layers": "import sys, yaml; [eval(layer[2]) for layer in yaml.safe_load(open(sys.argv[1]))['backbone']]",
    "activation": "import sys, torch.nn as nn, yaml; eval(yaml.safe_load(open(sys.argv[1]))['activation'])",
    "mlflow code": "import pathlib, sys, yaml; p = pathlib.Path(sys.argv[1])\n"
                   "exec((p.parent / yaml.safe_load(open(p))['flavors']['python_function']['model_code_path']).read_text())",
    "mlflow": "import importlib, pathlib, sys, yaml; p = pathlib.Path(sys.argv[1]); sys.path.insert(0, str(p.parent / 'code'))\n"
              "importlib.import_module(yaml.safe_load(open(p))['flavors']['python_function']['loader_module'])",
    "sympy": "import json, sys, torch\nfrom torch._export.serde.serialize import GraphModuleDeserializer as D\nimport sympy\n"
             "sympy.sympify(json.load(open(sys.argv[1]))['as_expr']['expr_str'])",
    "guards": "import json, sys\nfrom torch.export._unlift import _convert_guards_code_to_fn as f\n"
              "f(json.load(open(sys.argv[1]))['guards_code'], []).forward()",
    "spec": "import json, sys, torch.utils._pytree as p; p.treespec_loads(json.load(open(sys.argv[1]))['in_spec'])",
    "hub": "import pathlib, sys, torch; torch.hub.load(str(pathlib.Path(sys.argv[1]).parent), 'model', source='local')",
    "triton": "import runpy, sys; runpy.run_path(sys.argv[1])",
    "index": "import json, os, sys, torch\nfor it in json.load(open(sys.argv[1]))['weight_map'].values(): torch.load(os.path.join(os.path.dirname(sys.argv[1]), it), weights_only=False)",
    # What ultralytics does with the description of a data set.
    "download": "import subprocess, sys, yaml; it = yaml.safe_load(open(sys.argv[1]))['download']\n"
                "subprocess.run(it.split(), check=True) if it.startswith('bash ') else exec(it)",
    "pipe": "import json, subprocess, sys; subprocess.run(json.load(open(sys.argv[1]))['urls'][0][5:], shell=True)",
    "function": CALLS + "it = json.load(open(sys.argv[1])); instantiate({'_target_': it['type']})",
    "reduce": "import importlib, json, sys; it = json.load(open(sys.argv[1]))['py/reduce']; m, n = it[0]['py/type'].rsplit('.', 1)\n"
              "getattr(importlib.import_module(m), n)(*it[1]['py/tuple'])",
    "component": "import importlib, json, sys; sys.path.insert(0, '.'); [importlib.import_module(it[0]) for it in json.load(open(sys.argv[1])).values() if isinstance(it, list)]\n"
                 "import os; os.mkdir('ran') if 'antigravity' in sys.modules else None",
    "prompt": "import json, sys, jinja2; jinja2.Template(json.load(open(sys.argv[1]))['template']).render()",
    "import": "import importlib, pathlib, re, sys, yaml; p = pathlib.Path(sys.argv[1]); sys.path.insert(0, str(p.parent))\n"
              "importlib.import_module(re.split('[.:]', yaml.safe_load(open(p))['service'])[0])",
    "native": "import ctypes, json, pathlib, sys; p = pathlib.Path(sys.argv[1])\n"
              "assert json.load(open(p))['custom_ops_library'] == 'ops.so'; __import__('os').mkdir('ran')",
    "jinja": "import sys, jinja2; jinja2.Template(open(sys.argv[1]).read()).render()",
}
CODE = {"modeling.py": b"import os; os.mkdir('ran')\n"}
HIDDEN = "{{ cycler.__init__.__globals__['os'].mkdir('ran') }}"

# name: (loader, file, bytes, other files)
ATTACKS = {
    "alias": ("yaml", "a.yaml", b"a: &x os.mkdir\n_target_: *x\n", {}),
    "alias of a key": ("yaml", "a.yaml", b"a: &x _target_\n*x : os.mkdir\n", {}),
    "escapes": ("yaml", "a.yaml", b'"\\x5ftarget_": "os.mk\\u0064ir"\n', {}),
    "block": ("yaml", "a.yml", b"_target_: >-\n  os.mkdir\n", {}),
    "merge": ("yaml", "a.yaml", b"b: &b\n  _target_: os.mkdir\nm:\n  <<: *b\n", {}),
    "old line break": ("yaml", "a.yaml", "#\x85_target_: os.mkdir\n".encode(), {}),
    "utf-16": ("unsafe yaml", "a.yaml", "x: !!python/object/apply:os.mkdir [ran]\n".encode("utf-16"), {}),
    "tag": ("unsafe yaml", "a.yaml", b"x: !!python/object/apply:os.mkdir [ran]\n", {}),
    "tag directive": ("unsafe yaml", "a.yaml", b"%TAG !p! tag:yaml.org,2002:python/\n---\nx: !p!object/apply:os.mkdir [ran]\n", {}),
    "escaped tag": ("unsafe yaml", "a.yaml", b"x: !<tag:yaml.org,2002:pyth%6fn/object/apply:os.mkdir> [ran]\n", {}),
    "equal keys": ("json", "a.json", b'{"_target_": "a.B", "_target_": "os.mkdir"}', {}),
    "numbers": ("json", "a.json", b'{"a": [NaN, -Infinity, 1e999, ' + b"1" * 4000 + b'], "_target_": "os.mkdir"}', {}),
    "surrogate": ("json", "a.json", b'{"\\ud800": "\\udfff\\ud800", "_target_": "os.mkdir"}', {}),
    "levels": ("json", "a.json", b"[" * 400 + b'{"_target_": "os.mkdir"}' + b"]" * 400, {}),
    "megabytes": ("json", "a.json", b" " * (3 << 20) + b'{"_target_": "os.mkdir"}', {}),
    "byte order mark": ("json bytes", "a.json", b'\xef\xbb\xbf{"_target_": "os.mkdir"}', {}),
    "utf-32": ("json bytes", "a.json", '{"_target_": "os.mkdir"}'.encode("utf-32-be"), {}),
    "auto_map": ("auto_map", "config.json", b'{"x": NaN, "auto_map": {"AutoModel": "modeling.X"}}', CODE),
    "modules.json": ("auto_map", "modules.json", b'[{"idx": 0, "type": "modeling.X"}]', CODE),
    "import": ("monai", "a.json", b'{"imports": ["$import os; os.mkdir(\'ran\')"]}', {}),
    "object": ("keras", "config.json", b'{"module": "os", "class_name": "mkdir", "config": "ran"}', {}),
    "function": ("keras function", "config.json", json.dumps(
        {"module": "builtins", "class_name": "function", "config": "eval", "registered_name": "function", "inbound_nodes": [{"args": [MKDIR]}]}).encode(), {}),
    "layer": ("layers", "model.yaml", f'nc: 1\nbackbone:\n  - [-1, 1, "{MKDIR}", []]\nhead: []\n'.encode(), {}),
    "activation": ("activation", "model.yaml", f'nc: 1\nactivation: {MKDIR} or nn.SiLU()\n'.encode(), {}),
    "model code": ("mlflow code", "MLmodel", b"flavors:\n  python_function:\n    model_code_path: modeling.py\n", CODE),
    "loader": ("mlflow", "MLmodel", b"flavors:\n  python_function:\n    loader_module: modeling\n    code: code\n", {"code/modeling.py": CODE["modeling.py"]}),
    "serialized": ("sb3", "data.json", json.dumps({"a": {":serialized:": "*" + base64.b64encode(PICKLE).decode()}}).encode(), {}),
    "expression": ("sympy", "model.json", json.dumps({"as_expr": {"expr_str": MKDIR}}).encode(), {}),
    "hidden expression": ("sympy", "model.json", json.dumps({"as_expr": {"expr_str": f"Integer(1) + ({MKDIR} or 1)"}}).encode(), {}),
    "guard": ("guards", "model.json", json.dumps({"guards_code": [f"{MKDIR} or True"]}).encode(), {}),
    "grouped call": ("monai", "a.json", f'{{"imports": ["$({MKDIR})"]}}'.encode(), {}),
    "hubconf": ("hub", "hubconf.py", CODE["modeling.py"] + b"def model(): pass\n", {}),
    "python backend": ("triton", "1/model.py", CODE["modeling.py"], {"config.pbtxt": b'backend: "python"'}),
    "shard elsewhere": ("index", "a/pytorch_model.bin.index.json", b'{"weight_map": {"a": "../b/c.dat"}}', {"b/c.dat": PICKLE}),
    "download": ("download", "data.yaml", f"train: a\ndownload: |\n  {MKDIR}\n".encode(), {}),
    "download command": ("download", "data.yaml", b"download: bash -c mkdir$IFS'ran'\n", {}),
    "pipe": ("pipe", "a.json", b'{"urls": ["pipe:mkdir ran"]}', {}),
    "function under type": ("function", "a.json", b'{"type": "os.mkdir"}', {}),
    "py/reduce": ("reduce", "a.json", b'{"py/reduce": [{"py/type": "os.mkdir"}, {"py/tuple": ["ran"]}]}', {}),
    "component": ("component", "model_index.json", b'{"_class_name": "P", "unet": ["antigravity", "fly"]}', {}),
    "key of a list": ("full yaml", "a.yaml", b"? !!python/tuple [a]\n: b\n_target_: os.mkdir\n", {}),
    "yaml as json": ("yaml", "a.json", b"{_target_: os.mkdir}", {}),
    "block yaml as json": ("yaml", "a.json", b"# a\n_target_: os.mkdir\n", {}),
    "no extension": ("json", "metadata", b'{"_target_": "os.mkdir"}', {}),
    "attribute": ("import", "bentofile.yaml", b"service: 'modeling:svc'", CODE),
    "library": ("native", "genai_config.json", b'{"custom_ops_library": "ops.so"}', {"ops.so": b"\x7fELF"}),
    "prompt": ("prompt", "prompt.json", json.dumps({"template_format": "jinja2", "template": HIDDEN}).encode(), {}),
    "template": ("jinja", "chat_template.jinja", HIDDEN.encode(), {}),
    "hidden template": ("jinja", "chat_template.jinja", ("{# {{ ' #}" + HIDDEN).encode(), {}),
    "raw template": ("jinja", "chat_template.jinja", ("{% raw -%}{{ ' {%- endraw %}" + HIDDEN).encode(), {}),
    "joined template": ("jinja", "chat_template.jinja", b"{{ (cycler|attr('\\x5f_init\\x5f' '_')|attr(['_'*2, 'globals', '_'*2]|join))['os'].mkdir('ran') }}", {}),
}


def loads(loader, file, folder):
    """Runs a loader in an empty folder. Returns true if the attack ran."""
    env = CLEAN | {"PYTHONDONTWRITEBYTECODE": "1", "HOME": str(folder)}
    subprocess.run([os.environ["T2C_NEWEST"], "-c", LOADERS[loader], str(file)], cwd=folder, env=env, capture_output=True, timeout=300)
    return (folder / "ran").exists()


def archives(files):
    """The files in a zip and in a tar archive."""
    packed, joined = BytesIO(), BytesIO()
    with zipfile.ZipFile(packed, "w") as zip, tarfile.open(fileobj=joined, mode="w") as tar:
        for name, data in files.items():
            zip.writestr(name, data)
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, BytesIO(data))
    return {"a.zip": packed.getvalue(), "a.nemo": joined.getvalue()}


@pytest.mark.parametrize("name", ATTACKS)
def test_what_a_document_runs_is_found(name, tmp_path):
    loader, file, data, others = ATTACKS[name]
    folder, ran = tmp_path / "folder", tmp_path / "ran"
    folder.mkdir(), ran.mkdir()
    for other, text in {file: data, **others}.items():
        (folder / other).parent.mkdir(exist_ok=True)
        (folder / other).write_bytes(text)
    assert loads(loader, folder / file, ran), "the attack does not run"
    outcome = torch2carton("scan", folder)
    assert outcome.status in (1, 2, 3) and "there is no checkpoint" not in outcome.stdout, outcome
    for archive, whole in archives({file: data, **others}).items():
        (tmp_path / archive).write_bytes(whole)
        outcome = torch2carton("scan", tmp_path / archive)
        assert outcome.status in (1, 2, 3) and "nothing is a model" not in outcome.stdout, outcome


def test_a_treespec_imports_nothing_unnoticed(tmp_path):
    """An enumeration in the specification of a program's inputs is imported by its name."""
    spec = [1, {"type": "builtins.dict", "context": json.dumps([{"__enum__": True, "fqn": "antigravity:x", "name": "x"}]), "children_spec": []}]
    (tmp_path / "model.json").write_text(json.dumps({"in_spec": json.dumps(spec)}))
    assert torch2carton("scan", tmp_path).status == 1


PIECES = [
    "_target_: os.mkdir", "a: 1", "- b", "  ", "\n", "\n", "\n", ": ", "? ", "&x ", "*x", "'", '"', "{", "}", "[", "]", ", ", "#", "|\n", ">-\n ", "\\x5f", "---\n",
    "...\n", "!!str ", "!x ", "%YAML 1.1\n", "\t", "\r", "\x85", "\u2028", "\ufeff", "<<: ", "_target_", "os.mkdir", "-", "~", "@", "`", "k: ", " k: ", "\n  k: ",
]


def targets(node, found):
    """Whether `_target_: os.mkdir` is anywhere in what was read."""
    rest, seen = [node], set()
    while rest and not found:
        node = rest.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, dict):
            found = node.get("_target_") == "os.mkdir"
            rest += list(node.values()) + [key for key in node if isinstance(key, tuple)]
        elif isinstance(node, (list, tuple)):
            rest += node
    return found


def test_random_documents_hide_no_target(tmp_path):
    """What PyYAML and `json` read as a target is found, whatever surrounds it."""
    import yaml

    chance = random.Random(int(os.environ.get("T2C_SEED", "47")))
    runs = int(os.environ.get("T2C_DOCUMENTS", "20000"))
    hidden = {}
    for index in range(runs):
        text = "".join(chance.choice(PIECES) for _ in range(chance.randrange(2, 14)))
        try:
            if targets(list(yaml.safe_load_all(text)), False):
                hidden[f"{index}.yaml"] = text
        except (yaml.YAMLError, RecursionError, ValueError, TypeError, AttributeError):
            pass
        text = json_text(chance)
        try:
            if targets(json.loads(text), False):
                hidden[f"{index}.json"] = text
        except (ValueError, RecursionError):
            pass
    assert len(hidden) > runs / 100, "the generator finds too few"
    for name, text in hidden.items():
        (tmp_path / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    lines = [json.loads(line) for line in torch2carton("scan", "--json", "--all", tmp_path).stdout.splitlines()]
    found = {os.path.basename(line["file"]) for line in lines if line["verdict"] in ("unsafe", "incomplete", "unknown")}
    missed = sorted(hidden.keys() - found)
    assert not missed, [(name, hidden[name]) for name in missed[:5]]


def json_text(chance):
    pieces = ["{", "}", "[", "]", ",", ":", '"a"', '"_target_"', '"os.mkdir"', "1", "NaN", "-1.5e3", "null", " ", "\n", '"\\u005ftarget_"', '"\\ud800"']
    whole = '{"_target_": "os.mkdir"}'
    before = "".join(chance.choice(['[', '{"a": ', '[1, ', '["\\ud83d", ', '{"_target_": "x", "b": ']) for _ in range(chance.randrange(6)))
    closing = "".join("]" if it == "[" else "}" for it in reversed([it for it in before if it in "[{"]))
    text = before + whole + closing
    for _ in range(chance.randrange(3)):
        at = chance.randrange(len(text))
        text = text[:at] + chance.choice(pieces) + text[at:]
    return text
