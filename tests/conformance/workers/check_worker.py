"""transformers: makes tiny models, and says which tensors they have in memory; writes them in both layouts, and loads folders."""

import json
import sys
import warnings
from pathlib import Path

import torch
import transformers
from line_server import serve
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import checked  # noqa: E402

warnings.simplefilter("ignore")
transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
NAMES = ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES", "MODEL_MAPPING_NAMES")
MULTIMODAL = ("MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES", "MODEL_MAPPING_NAMES")


def part(model_type, changes, tiny=checked.TINY):
    cls = CONFIG_MAPPING[model_type]
    fields = {*cls.__dataclass_fields__, *cls.attribute_map}
    values = {key: value for key, value in tiny.items() if key in fields and key not in checked.LEFT_OUT.get(model_type, [])}
    return cls(**{**values, **checked.ADDED.get(model_type, {}), **changes})


def model(model_type, number):
    changes = dict(checked.CASES.get(model_type, [{}])[number])
    name, text, vision, audio = (changes.pop(key, default) for key, default in (("cls", None), ("text", {}), ("vision", {}), ("audio", None)))
    cls = CONFIG_MAPPING[model_type]
    if not cls.sub_configs:
        config = part(model_type, changes)
    else:
        kinds = checked.PARTS.get(model_type) or tuple(getattr(cls(), key).model_type for key in ("vision_config", "text_config"))
        parts = {"vision_config": part(kinds[0], vision, checked.VISION), "text_config": part(kinds[1], text)}
        if audio:
            sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, subsampling_conv_channels=[8, 6], output_proj_dims=26)
            parts["audio_config"] = CONFIG_MAPPING["gemma4_audio"](**sizes)
        if model_type == "clip":
            parts = {key: value.to_dict() for key, value in parts.items()}
        config = cls(**parts, **checked.ROOT.get(model_type, {}), **changes)
    found = (getattr(modeling_auto, names).get(model_type) for names in (MULTIMODAL if cls.sub_configs else NAMES))
    name = name or next(name for name in found if name)
    torch.manual_seed(0)
    return getattr(transformers, name)(config)


def write(model_type, number, released, modules):
    """Writes a model in both layouts, and returns the shapes of its tensors in memory and the groups of tied names."""
    made = model(model_type, number)
    made.config.architectures = [type(made).__name__]
    made.save_pretrained(released)
    made.save_pretrained(modules, save_original_format=False)
    groups = {}
    for name, tensor in made.state_dict(keep_vars=True).items():
        groups.setdefault(id(tensor), []).append(name)
    return {
        "shapes": {name: list(tensor.shape) for name, tensor in made.state_dict().items()},
        "ties": [names for names in groups.values() if len(names) > 1],
    }


def missing(folder):
    """Returns what from_pretrained misses in a folder."""
    config = json.loads(Path(folder, "config.json").read_text())
    cls = getattr(transformers, config["architectures"][0])
    _, loading = cls.from_pretrained(folder, output_loading_info=True)
    return sorted(loading["missing_keys"])


@torch.no_grad()
def part_logits(part, whole):
    """Loads a text part, and compares its logits with those of the whole model for a text."""
    tokens = torch.tensor([[5, 7, 9, 11, 23, 41]])
    text, loading = transformers.AutoModelForCausalLM.from_pretrained(part, output_loading_info=True)
    all_parts = transformers.AutoModelForImageTextToText.from_pretrained(whole)
    distance = (text.eval()(tokens).logits - all_parts.eval()(tokens).logits).abs().max().item()
    return {"missing": sorted(loading["missing_keys"]), "unexpected": sorted(loading["unexpected_keys"]), "distance": distance}


if __name__ == "__main__":
    serve({"write": write, "missing": missing, "part_logits": part_logits})
