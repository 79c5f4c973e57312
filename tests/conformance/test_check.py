"""`check`: what transformers writes is whole in both layouts, and what is taken away is found under its name.

The tensors that a model has are those of transformers' own models; nothing here comes from our table. `T2C_CHECK_TYPES` chooses types.
"""

import json
import random
import shutil
import zlib

import checked
import pytest
from conftest import worker_fixture
from folders import read, write, write_shards
from program import torch2carton

newest = worker_fixture("NEWEST", "check_worker.py")


def check(folder, status):
    outcome = torch2carton("check", "--json", folder)
    assert outcome.status == status, f"{outcome}\n{(folder / 'config.json').read_text()}"
    return json.loads(outcome.stdout)


def names(rows):
    return [row["name"] for row in rows]


@pytest.mark.parametrize("model_type, number", checked.chosen())
def test_what_transformers_writes_is_whole_and_what_is_taken_is_found(newest, tmp_path, model_type, number):
    folders = {layout: tmp_path / layout for layout in ("released", "modules")}
    model = newest.ask("write", model_type=model_type, number=number, **{layout: str(folder) for layout, folder in folders.items()})
    in_memory = {name: shape for name, (_, shape, _) in read(folders["modules"] / "model.safetensors").items()}
    assert in_memory.items() <= model["shapes"].items()
    for layout, folder in folders.items():
        if model_type in checked.DECLARED:
            report = check(folder, 1)
            assert report["absent"] == ["mtp"] and not report["unexpected"] and not report["misshaped"]
            checked.undeclare(folder)
        report = check(folder, 0)
        same = read(folders["released"] / "model.safetensors").keys() == in_memory.keys()
        assert report["layout"] == layout or same, report
        damage(folder, random.Random(zlib.crc32(f"{model_type} {number} {layout}".encode())), model)


def damage(folder, chance, model):
    """Seeded damages, each to a copy of the folder."""
    tensors = read(folder / "model.safetensors")
    tied = {name for group in model["ties"] for name in group}
    free = [name for name in tensors if name not in tied]
    # A tensor whose absence is none: transformers has it from elsewhere.
    free = [name for name in free if not name.endswith("final_logits_bias")]

    def copy(changed):
        other = folder.with_name(f"{folder.name}-damaged")
        shutil.rmtree(other, ignore_errors=True)
        shutil.copytree(folder, other)
        write(other / "model.safetensors", changed)
        return other

    one = chance.choice(free)
    report = check(copy({name: row for name, row in tensors.items() if name != one}), 1)
    assert [(row["name"], row["shape"]) for row in report["missing"]] == [(one, tensors[one][1])] and not report["unexpected"]
    # All tensors of a layer, or of an expert.
    stems = sorted({name[: name.index(f".{number}.") + len(number) + 2] for name in free for number in name.split(".") if number.isdecimal()})
    if stems:
        stem = chance.choice(stems)
        gone = sorted(name for name in free if name.startswith(stem))
        report = check(copy({name: row for name, row in tensors.items() if name not in gone}), 1)
        assert sorted(names(report["missing"])) == gone and not report["unexpected"]
    # Another shape, an unknown name, and a prefix.
    dtype, shape, data = tensors[one]
    if shape:
        report = check(copy({**tensors, one: (dtype, [*shape[:-1], shape[-1] * 2], data * 2)}), 1)
        assert [(row["name"], row["expected"]) for row in report["misshaped"]] == [(one, shape)] and not report["missing"]
    report = check(copy({**tensors, "model.extra.weight": tensors[one]}), 1)
    assert report["unexpected"] == ["model.extra.weight"] and not report["missing"]
    assert check(copy({f"module.{name}": row for name, row in tensors.items()}), 1)["unexpected"]
    # Shards: whole, one missing behind an index that was made again, one that no index names, an index that is stale.
    whole = copy(tensors)
    index = write_shards(whole, tensors)
    check(whole, 0)
    shard = chance.choice(sorted(set(index.values())))
    here = {name for name, file in index.items() if file == shard}
    (whole / shard).rename(whole / "kept")
    lost = check(whole, 1)
    assert set(names(lost["missing"])) >= here & set(free)
    (whole / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {name: file for name, file in index.items() if file != shard}}))
    assert names(check(whole, 1)["missing"]) == names(lost["missing"])
    (whole / "kept").rename(whole / shard)
    assert check(whole, 1)["unindexed"] == [{"file": shard, "tensors": sorted(here)}]
    other = next(file for file in index.values() if file != shard)
    (whole / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {**index, one: other if index[one] == shard else shard}}))
    assert check(whole, 1)["stale"] == [one]


def test_trouble_has_status_2(tmp_path):
    for config in ("{", "{}", '{"model_type": "unheard_of"}', '{"model_type": "llama", "architectures": ["LlamaForHearing"]}'):
        (tmp_path / "config.json").write_text(config)
        outcome = torch2carton("check", tmp_path)
        assert outcome.status == 2 and outcome.stderr.startswith("error: "), outcome
    (tmp_path / "config.json").unlink()
    assert torch2carton("check", tmp_path).status == 2
