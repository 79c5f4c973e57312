"""The newest transformers: renders conversations with `apply_chat_template`."""

import inspect

import transformers
from line_server import serve
from tokenizers import Tokenizer, models

transformers.logging.set_verbosity_error()


def render(template, tokens, conversation):
    """The text, or None if it raises."""
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **tokens)
    tokenizer.chat_template = template
    rest = {"add_generation_prompt": True, **conversation}
    variables = rest.pop("chat_template_kwargs", {})
    try:
        return {"text": tokenizer.apply_chat_template(rest.pop("messages"), tokenize=False, **rest, **variables)}
    except Exception as error:  # whatever a template raises
        return {"text": None, "error": f"{type(error).__name__}: {error}"}


def class_tokens(name):
    """The special tokens that a class of tokenizers has by itself."""
    parameters = inspect.signature(getattr(transformers, name).__init__).parameters
    return {key: parameter.default for key, parameter in parameters.items() if key.endswith("_token") and isinstance(parameter.default, str)}


serve({"render": render, "class_tokens": class_tokens})
