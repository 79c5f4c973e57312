"""Runs the examples in the docstrings, and the notebook."""

from __future__ import annotations

import doctest
import importlib
import json
from pathlib import Path

import pytest
from conftest import needs_torch, np, torch

import torch2carton
import torch2carton.torch

MODULES = [
    "torch2carton", *(f"torch2carton.{name}" for name in ("_dtypes", "_errors", "_html", "_load", "_objects", "_open", "_safe_open", "_serialize", "_tensor", "_verbs", "_views")),
    "torch2carton.torch", "torch2carton.numpy",
]  # fmt: skip


def save_llama(folder):
    """Saves a model of one layer, which lacks nothing."""
    folder.mkdir()
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "tie_word_embeddings": True, "vocab_size": 8, "hidden_size": 4}
    config |= {"intermediate_size": 6, "num_hidden_layers": 1, "num_attention_heads": 2}
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {"embed_tokens": (8, 4), "norm": (4,)} | {f"layers.0.self_attn.{part}_proj": (4, 4) for part in "qkvo"}
    shapes |= {"layers.0.mlp.gate_proj": (6, 4), "layers.0.mlp.up_proj": (6, 4), "layers.0.mlp.down_proj": (4, 6)}
    shapes |= {"layers.0.input_layernorm": (4,), "layers.0.post_attention_layernorm": (4,)}
    torch2carton.torch.save_file({f"model.{name}.weight": torch.zeros(shape) for name, shape in shapes.items()}, folder / "model.safetensors")


@needs_torch
@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_say(place, name):
    torch2carton.convert("model.pt", "model.carton", name="model")
    save_llama(place / "llama")
    # The exceptions are found under the name that tracebacks show.
    assert torch2carton.Error.__module__ == "torch2carton"
    module = importlib.import_module(name)
    names = {"torch2carton": torch2carton, "torch": torch, "numpy": np, "open": open}
    finder = doctest.DocTestFinder(recurse=True)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    for test in finder.find(module, name, extraglobs=names):
        runner.run(test)
    results = runner.summarize()
    assert results.failed == 0 and (results.attempted or name in ("torch2carton._serialize", "torch2carton._errors"))


def test_the_example_of_run(llama):
    import torch2carton._run as module

    assert doctest.testmod(module, extraglobs={"torch2carton": torch2carton}).failed == 0


@needs_torch
def test_public_functions_have_examples():
    for name in torch2carton.__all__:
        value = getattr(torch2carton, name)
        if callable(value) and not (isinstance(value, type) and issubclass(value, (Exception, tuple))):
            text = value.__doc__ or ""
            assert text, name
            is_result = isinstance(value, type) and hasattr(value, "__dataclass_fields__")
            assert ">>>" in text or is_result, name


@needs_torch
def test_the_notebook_runs(place):
    notebook = Path(__file__).parents[2] / "examples" / "python.ipynb"
    if not notebook.exists():
        pytest.skip("the tests are not in a checkout")
    names: dict = {}
    cells = json.loads(notebook.read_text())["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), str(notebook), "exec"), names)
    assert len(cells) >= 10
