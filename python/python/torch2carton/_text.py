"""`TextModel`: a model that takes and returns texts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from . import _native
from ._progress import reporting


@dataclass(frozen=True)
class Answer:
    """What a model answered.

    Attributes:
        text: the text of the answer
        prompt_tokens: the tokens of what stands before it
        tokens: its tokens, without the one that ended it
        ended: `max_tokens`, `stop_token`, or `stop` after one of the texts that end an answer
    """

    text: str
    prompt_tokens: tuple[int, ...]
    tokens: tuple[int, ...]
    ended: str


class TextModel:
    """A model with its tokenizer, and its chat template if it has one.

    Args:
        model: the path of a carton, a checkpoint, or a folder with one
        threads: the number of threads; None takes what the carton says, or one for each core
        verify: check every hash and rule of the carton first
        progress: a callable or a progress bar of tqdm, for what is verified

    Raises:
        InputError: the model has no tokenizer, or is none

    >>> model = torch2carton.TextModel("llama/")
    >>> model.encode("Once upon a time")
    [1, 9038, 2501, 263, 931]
    >>> model.chat([{"role": "user", "content": "Hello!"}], max_tokens=20).text
    'Hello! How can I help you today?'
    """

    def __init__(self, model: Any, *, threads: int | None = None, verify: bool = False, progress: Any = None) -> None:
        self._path = os.fspath(getattr(model, "_source", model))
        with reporting(progress) as report_progress:
            self._model = _native.TextModel(self._path, threads=threads, verify=verify, progress=report_progress)

    def __repr__(self) -> str:
        return f"<TextModel {self._path}>"

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a text, with those that the tokenizer adds."""
        return self._model.encode(text)

    def decode(self, tokens: Iterable[int]) -> str:
        """Returns the text of tokens, without special ones."""
        return self._model.decode([int(token) for token in tokens])

    def render(self, messages: Sequence[dict[str, Any]], *, tools: Sequence[dict[str, Any]] | None = None, **variables: Any) -> str:
        """Writes a conversation as the text that the model continues.

        Args:
            messages: the messages, each with its `role` and `content`
            tools: the tools that the model may call
            variables: further variables of the template, such as `enable_thinking`

        Raises:
            InputError: the model has no chat template, or it refuses the conversation
        """
        return self._model.render(_conversation(messages, tools, variables))

    def generate(
        self,
        prompt: str,
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int | None = None,
        stop: str | Sequence[str] = (),
        on_text: Callable[[str], object] | None = None,
    ) -> Answer:
        """Continues a text.

        Args:
            prompt: the text
            max_tokens: how many tokens to generate at most; None stands for 128
            temperature: choose tokens at random; below 1 favours probable ones. None always chooses the most probable token
            top_k: choose only from this many of the most probable tokens
            top_p: choose only from the most probable tokens whose probabilities add up to this
            seed: where the random numbers start; None takes a new seed
            stop: texts that end the answer, which does not have them
            on_text: called with each part of the answer as it is made; an exception in it ends the answer
        """
        return self._answer(prompt, None, max_tokens, temperature, top_k, top_p, seed, stop, on_text)

    def chat(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int | None = None,
        stop: str | Sequence[str] = (),
        on_text: Callable[[str], object] | None = None,
        **variables: Any,
    ) -> Answer:
        """Answers a conversation, with the arguments of `generate` and of `render`. Without `max_tokens`, an answer may fill the rest of
        the model's positions.

        Raises:
            InputError: the model has no chat template, or it refuses the conversation
        """
        conversation = _conversation(messages, tools, variables)
        return self._answer(None, conversation, max_tokens, temperature, top_k, top_p, seed, stop, on_text)

    def _answer(
        self,
        text: str | None,
        conversation: str | None,
        max_tokens: int | None,
        temperature: float | None,
        top_k: int | None,
        top_p: float,
        seed: int | None,
        stop: str | Sequence[str],
        on_text: Callable[[str], object] | None,
    ) -> Answer:
        if seed is None:
            seed = int.from_bytes(os.urandom(4), "little")
        answer, prompt_tokens, tokens, ended = self._model.answer(
            text=text,
            conversation=conversation,
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            stop=[stop] if isinstance(stop, str) else list(stop),
            on_text=on_text,
        )
        return Answer(text=answer, prompt_tokens=tuple(prompt_tokens), tokens=tuple(tokens), ended=ended)


def _conversation(messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None, variables: dict[str, Any]) -> str:
    whole = {"messages": list(messages), "tools": tools and list(tools), "chat_template_kwargs": variables}
    return json.dumps(whole)
