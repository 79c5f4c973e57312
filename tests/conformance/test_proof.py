"""`--statement`: read by in-toto's types, signed with the output by model-signing, and true: each way of tampering is found."""

import hashlib
import json
import shutil

import pytest
from conftest import worker_fixture
from program import listing, succeed, torch2carton

proof = worker_fixture("PROOF", "proof_worker.py")


@pytest.fixture
def inputs(tmp_path, newest):
    """A folder with a model."""
    folder = tmp_path / "model"
    folder.mkdir()
    newest.ask("make_many", path=str(folder / "pytorch_model.bin"), count=6)
    (folder / "config.json").write_text('{"architectures": ["Other"]}')
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def made(inputs, tmp_path):
    """Its output in several files, with the statement."""
    out = tmp_path / "out"
    succeed(inputs, "--to", "safetensors", "--max-shard-size", "1", "-o", out, "--statement", tmp_path / "out.json")
    return out


def verify(output, statement, inputs, *flags):
    return torch2carton("verify", "--json", "--statement", statement, "--input", inputs, *flags, output)


OUTPUTS = {
    "file": ("x.safetensors",),
    "pth": ("x.pth",),
    "carton": ("x.carton",),
    "cast": ("x.safetensors", "--dtype", "bfloat16"),
    "folder": ("folder/", "--to", "safetensors"),
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_in_toto_reads_it_and_model_signing_signs_it(kind, inputs, tmp_path, proof):
    name, *flags = OUTPUTS[kind]
    output, statement = f"{tmp_path}/{name}", tmp_path / "statement.json"
    succeed(inputs, *flags, "-o", output, "--statement", statement)
    read = proof.ask("read", path=str(statement))
    given = json.loads(statement.read_text())
    assert read["subject"] == given["subject"]
    files = sorted(p for p in (tmp_path / name).rglob("*")) or [tmp_path / name]
    assert [row["digest"]["sha256"] for row in read["subject"]] == [hashlib.sha256(p.read_bytes()).hexdigest() for p in files]
    definition = read["predicate"]["buildDefinition"]
    hashes = {row["name"]: row["digest"].get("sha256") for row in definition["resolvedDependencies"]}
    assert hashes.pop(".") is None
    assert hashes == {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in inputs.iterdir()}
    digest = definition["resolvedDependencies"][-1]["digest"]["torch2carton_digest"]
    assert digest == succeed("digest", "-q", inputs).stdout[:64]
    before = listing(tmp_path)
    assert verify(output, statement, inputs).status == 0
    assert listing(tmp_path) == before
    for signed in (statement, tmp_path / name):
        proof.ask("sign", folder=str(signed), signature=str(tmp_path / "signature"))


def test_two_runs_in_two_folders_write_the_same(inputs, tmp_path):
    texts = set()
    for number, threads in enumerate(("1", "8")):
        root = tmp_path / f"run {number}"
        shutil.copytree(inputs, root / "model")
        succeed("model", "--to", "safetensors", "-o", "out/", "--statement", "s.json", cwd=root, env={"RAYON_NUM_THREADS": threads})
        texts.add((root / "s.json").read_text())
    (text,) = texts
    assert str(tmp_path) not in text


def flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def swap(one, two):
    one_bytes, two_bytes = one.read_bytes(), two.read_bytes()
    one.write_bytes(two_bytes)
    two.write_bytes(one_bytes)


def shards(out):
    return sorted(out.glob("*.safetensors"))


def rewritten(statement, change):
    document = json.loads(statement.read_text())
    change(document)
    statement.write_text(json.dumps(document))


def rehash(statement, out):
    """Gives the statement the hashes that the files have now."""
    def change(document):
        document["subject"] = [
            {"name": p.relative_to(out).as_posix(), "digest": {"sha256": hashlib.sha256(p.read_bytes()).hexdigest()}}
            for p in sorted(out.rglob("*")) if p.is_file()
        ]
    rewritten(statement, change)


def definition(document):
    return document["predicate"]["buildDefinition"]


def with_hashes(tamper):
    def both(out, inputs, statement):
        tamper(out, inputs, statement)
        rehash(statement, out)
    return both


CHANGES = {
    "a byte": lambda out, inputs, statement: flip(shards(out)[0]),
    "a header": lambda out, inputs, statement: shards(out)[0].write_bytes(shards(out)[0].read_bytes().replace(b"pt", b"np", 1)),
    "a document": lambda out, inputs, statement: (out / "config.json").write_text("{}"),
    "the index": lambda out, inputs, statement: flip(next(out.glob("*.index.json"))),
    "swapped files": lambda out, inputs, statement: swap(*shards(out)[:2]),
    "an added file": lambda out, inputs, statement: (out / "modeling_x.py").write_text("import os"),
    "an added folder": lambda out, inputs, statement: ((out / "sub").mkdir(), (out / "sub" / "x.bin").write_bytes(b"x")),
    "a dropped file": lambda out, inputs, statement: shards(out)[1].unlink(),
    "a dropped document": lambda out, inputs, statement: (out / "tokenizer.json").unlink(),
    "a renamed file": lambda out, inputs, statement: shards(out)[0].rename(out / "other.safetensors"),
    "a shorter file": lambda out, inputs, statement: shards(out)[0].write_bytes(shards(out)[0].read_bytes()[:-1]),
    "a longer file": lambda out, inputs, statement: shards(out)[0].write_bytes(shards(out)[0].read_bytes() + b"\0"),
}
TAMPERINGS = {
    **CHANGES,
    **{f"{name}, and its hash": with_hashes(change) for name, change in CHANGES.items()},
    "an input": lambda out, inputs, statement: (inputs / "tokenizer.json").write_text("{ }"),
    "the hash of an input": lambda out, inputs, statement: rewritten(
        statement, lambda document: definition(document)["resolvedDependencies"][0]["digest"].update(sha256="0" * 64)),
    "the hash of the tensors": lambda out, inputs, statement: rewritten(
        statement, lambda document: definition(document)["resolvedDependencies"][-1]["digest"].update(torch2carton_digest="0" * 64)),
    "a dropped input": lambda out, inputs, statement: rewritten(
        statement, lambda document: definition(document)["resolvedDependencies"].pop(0)),
    "the request": lambda out, inputs, statement: rewritten(
        statement, lambda document: definition(document)["externalParameters"].update(exclude=["t.1"])),
    "the hash of a file": lambda out, inputs, statement: rewritten(
        statement, lambda document: document["subject"][0]["digest"].update(sha256="0" * 64)),
    "a dropped subject": lambda out, inputs, statement: rewritten(statement, lambda document: document["subject"].pop()),
    "an added subject": lambda out, inputs, statement: rewritten(
        statement, lambda document: document["subject"].append({"name": "x", "digest": {"sha256": "0" * 64}})),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_is_found(name, made, inputs, tmp_path):
    statement = tmp_path / "out.json"
    assert verify(made, statement, inputs).status == 0
    TAMPERINGS[name](made, inputs, statement)
    outcome = verify(made, statement, inputs)
    report = json.loads(outcome.stdout)
    assert outcome.status == 1 and not report["ok"] and report["findings"], outcome


def test_what_cannot_be_judged(made, inputs, tmp_path):
    statement = tmp_path / "out.json"
    whole = statement.read_text()
    for text in ("", "[]", "{}", whole[:-3], whole.replace("https://slsa.dev/provenance/v1", "https://slsa.dev/provenance/v0.2")):
        statement.write_text(text)
        assert verify(made, statement, inputs).status == 2, text
    statement.write_text(whole)
    version = json.loads(whole)["predicate"]["runDetails"]["builder"]["version"]["torch2carton"]
    rewritten(statement, lambda document: document["predicate"]["runDetails"]["builder"]["version"].update(torch2carton="0.0.1"))
    outcome = verify(made, statement, inputs)
    assert outcome.status == 2 and "0.0.1" in outcome.stderr and version in outcome.stderr, outcome
    assert verify(made, statement, inputs, "--any-version").status == 0
    statement.write_text(whole)
    (inputs / "config.json").rename(tmp_path / "elsewhere.json")
    assert verify(made, statement, inputs).status == 2
    assert verify(made, statement, inputs, "--input", tmp_path / "elsewhere.json").status == 0
    assert verify(tmp_path / "none", statement, inputs).status == 2
