"""Writes the defaults of the configuration classes that the table of families reads.

    PYTHON tests/conformance/class_defaults.py           writes crates/model/families/src/class_defaults.json
    PYTHON tests/conformance/class_defaults.py --check   fails if the file says something else

PYTHON has transformers. Of the aliases, only those count that the table asks for: the texts in its source. A class also has the base of
its rotary embeddings, and the class of a causal language model with its configuration.
"""

import json
import re
import sys
import warnings
from dataclasses import MISSING
from pathlib import Path

CRATE = Path(__file__).resolve().parents[2] / "crates/model/families/src"
UNREAD = """architectures model_type base_config_key sub_configs_defaults attribute_map _auto_class extra_files extra_config_files
transformers_version output_hidden_states return_dict chunk_size_feed_forward problem_type label2id""".split()
PLAIN = (bool, int, float, str, list, tuple, type(None))
TEXT = re.compile(r'"([A-Za-z_][A-Za-z0-9_]*)"')


def written(value):
    """A default as a configuration writes it, which has no infinity in JSON."""
    if isinstance(value, (list, tuple)):
        return [written(item) for item in value]
    return {"__float__": "Infinity"} if value == float("inf") else value


def table():
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

    keys = {key for file in CRATE.rglob("*.rs") for key in TEXT.findall(file.read_text())}
    keys |= {f"{part}_{key}" for part in ("encoder", "decoder") for key in ("layers", "ffn_dim")}
    sources = [*CRATE.glob("families/*.rs"), *(CRATE / file for file in ("multimodal.rs", "parts/towers.rs", "config.rs"))]
    types = {name for file in sources for name in TEXT.findall(file.read_text())}
    waiting = sorted(name for name in types if name in CONFIG_MAPPING)
    classes = {}
    while waiting:
        name = waiting.pop()
        if name in classes:
            continue
        cls = CONFIG_MAPPING[name]
        parts = {}
        for key in cls.sub_configs:
            part = getattr(cls(), key, None)
            if part is not None and part.model_type in CONFIG_MAPPING:
                parts[key] = part.model_type
        waiting.extend(parts.values())
        fields = {key: field.default for key, field in cls.__dataclass_fields__.items()}
        values = {
            key: written(value)
            for key, value in sorted(fields.items())
            if key not in UNREAD and not key.endswith("_plan") and value is not MISSING and isinstance(value, PLAIN)
        }
        aliases = {alias: real for alias, real in cls.attribute_map.items() if alias in keys or real in keys}
        row = {"values": values}
        if aliases:
            row["aliases"] = aliases
        if parts:
            row["parts"] = parts
        if CAUSAL.get(name, "").endswith(("ForCausalLM", "LMHeadModel")) and not parts:
            row["causal"] = CAUSAL[name]
        if isinstance(getattr(cls, "default_theta", None), float):
            row["theta"] = cls.default_theta
        classes[name] = row
    return classes


def text(classes):
    rows = [f"{json.dumps(name)}: {json.dumps(row, sort_keys=True)}" for name, row in sorted(classes.items())]
    return "{\n" + ",\n".join(rows) + "\n}\n"


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    file, new = CRATE / "class_defaults.json", text(table())
    if "--check" not in sys.argv:
        file.write_text(new)
    elif file.read_text() != new:
        sys.exit(f"{file} is not what transformers says")
