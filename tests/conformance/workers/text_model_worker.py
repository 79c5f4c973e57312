"""Writes models of several parts, and runs them with text alone, with transformers and as our archives. Runs with the newest torch."""

import json
from pathlib import Path

import model_worker
import numpy
import random_model_worker
import torch
from line_server import serve


def make(config, folder, is_published, dtype):
    """Writes a model with the names of published files or of its modules; its logits entirely in float64 are `exact.npy`."""
    from transformers import AutoConfig, AutoModelForImageTextToText

    folder = Path(folder)
    (folder / "config.json").write_text(json.dumps(config))
    settings = AutoConfig.from_pretrained(folder, local_files_only=True)
    settings.dtype = torch.float32
    tokens = torch.from_numpy(numpy.load(folder / "tokens.npy"))
    with model_worker.Exact(True), torch.no_grad():
        model = AutoModelForImageTextToText.from_config(settings, attn_implementation="eager", experts_implementation="eager")
        model = model.to(torch.float64).eval()
        centre, kept = model_worker.norm_centre(settings.model_type), model.state_dict()
        members = [*model.named_parameters(), *((name, buffer) for name, buffer in model.named_buffers() if name in kept)]
        for number, (name, parameter) in enumerate(members):
            values = model_worker.random_like(name, tuple(parameter.shape), number, centre)
            parameter.copy_(values.to(getattr(torch, dtype)))
        numpy.save(folder / "exact.npy", model(input_ids=tokens).logits.numpy())
    model.to(getattr(torch, dtype))
    if is_published:
        model.save_pretrained(folder)
        (folder / "config.json").write_text(json.dumps(config))
    else:
        state = {name: parameter.detach() for name, parameter in members}
        model_worker.save(state, folder / "model.safetensors")


if __name__ == "__main__":
    serve({"make": make, "run": random_model_worker.run})
