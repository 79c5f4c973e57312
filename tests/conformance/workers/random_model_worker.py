"""Writes the models of random documents, and runs them with transformers and as our archives. Runs with the newest torch."""

import json
from pathlib import Path

import model_worker
import numpy
import torch
from line_server import serve

import random_models


def make(seed, folder):
    """Writes a model and its tokens. Returns what transformers says against the document, or None.

    The logits of transformers, computed entirely in float64, are `exact.npy`.
    """
    from transformers import AutoConfig

    made, folder = random_models.random_model(seed), Path(folder)
    (folder / "config.json").write_text(json.dumps(made.config))
    tokens = torch.tensor(made.tokens)
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        config.dtype = torch.float32  # constants of a model have this dtype; they would be rounded to bfloat16
        with model_worker.Exact(True), torch.no_grad():
            model = model_worker.hugging_face_model(config).to(torch.float64).eval()
            state = random_state(model, config, seed, made.dtype)
            logits = model(tokens).logits
    except Exception as error:  # transformers refuses a document with any kind of exception
        return f"{type(error).__name__}: {error}"
    assert logits.dtype == torch.float64
    numpy.save(folder / "exact.npy", logits.numpy())
    numpy.save(folder / "tokens.npy", tokens.numpy())
    if made.is_saved:
        model.to(getattr(torch, made.dtype)).save_pretrained(folder)
    else:
        model_worker.save({name: tensor.to(getattr(torch, made.dtype)) for name, tensor in state.items()}, folder / "model.safetensors")
    return None


def random_state(model, config, seed, dtype):
    """Gives a model random weights that `dtype` has exactly. Returns them by name, without an output that is tied."""
    tied = "lm_head.weight" if config.tie_word_embeddings else ""
    centre = model_worker.norm_centre(config.model_type)
    kept = model.state_dict()
    members = [*model.named_parameters(), *model.named_buffers()]
    shapes = {name: tuple(member.shape) for name, member in members if name != tied and name in kept}
    state = {name: model_worker.random_like(name, shape, seed * 1000 + number, centre).to(getattr(torch, dtype)).to(torch.float64)
             for number, (name, shape) in enumerate(shapes.items())}
    left = model.load_state_dict(state, strict=False)
    assert set(left.missing_keys) <= {tied} and not left.unexpected_keys, left
    model.tie_weights()
    return state


def run(archive, folder, part):
    """Writes the logits of our archive, in one call (`whole.npy`) and in two calls with a cache (`parts.npy`).

    `part` is the number of tokens of the first of two calls; 0 leaves them out.
    """
    module, folder = model_worker.load(archive), Path(folder)
    tokens = torch.from_numpy(numpy.load(folder / "tokens.npy"))
    numpy.save(folder / "whole.npy", module.forward({"tokens": tokens})["logits"].numpy())
    if part:
        first = module.forward({"tokens": tokens[:, :part], "use_cache": torch.tensor(1)})
        rest = module.forward({"tokens": tokens[:, part:], **model_worker.past_of(first)})
        numpy.save(folder / "parts.npy", torch.cat([first["logits"], rest["logits"]], 1).numpy())


if __name__ == "__main__":
    serve({"make": make, "run": run})
