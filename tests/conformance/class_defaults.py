"""Writes the defaults of the configuration classes that the table of families reads.

    PYTHON tests/conformance/class_defaults.py           writes crates/model/families/src/class_defaults.json
    PYTHON tests/conformance/class_defaults.py --check   fails if the file says something else

PYTHON has transformers. Of each class, only the keys count that the table asks for: the texts in its source.
"""

import json
import re
import sys
import warnings
from dataclasses import MISSING
from pathlib import Path

CRATE = Path(__file__).resolve().parents[2] / "crates/model/families/src"
UNREAD = {"architectures", "model_type"}
PLAIN = (bool, int, float, str, list, tuple, type(None))
TEXT = re.compile(r'"([A-Za-z_][A-Za-z0-9_]*)"')


def table():
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    keys = {key for file in CRATE.rglob("*.rs") for key in TEXT.findall(file.read_text())}
    keys |= {f"{part}_{key}" for part in ("encoder", "decoder") for key in ("layers", "ffn_dim")}
    sources = ("families/mod.rs", "families/multimodal.rs", "parts/towers.rs", "config.rs")
    types = {name for file in sources for name in TEXT.findall((CRATE / file).read_text())}
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
        wanted = keys | {real for alias, real in cls.attribute_map.items() if alias in keys}
        values = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in sorted(fields.items())
            if key in wanted and key not in UNREAD and value is not MISSING and isinstance(value, PLAIN)
        }
        aliases = {alias: real for alias, real in cls.attribute_map.items() if alias in keys or real in keys}
        row = {"values": values}
        if aliases:
            row["aliases"] = aliases
        if parts:
            row["parts"] = parts
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
