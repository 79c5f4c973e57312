"""`run`: runs the model of a carton on the CPU."""

from __future__ import annotations

import os
from array import array
from dataclasses import dataclass, field
from typing import Any

from . import _native
from ._progress import reporting


@dataclass(frozen=True)
class Candidate:
    """A possible next token.

    Attributes:
        id: the token
        text: its text; None without a tokenizer
        probability: its probability, from 0 to 1
        logit: the model's output for it
    """

    id: int
    text: str | None
    probability: float
    logit: float


@dataclass(frozen=True)
class Generation:
    """What a model returned for a prompt.

    Attributes:
        prompt_tokens: the tokens of the prompt
        tokens: the tokens that continue it, without the one that ended the text
        text: their text; None without a tokenizer
        ended: `max_tokens` or `stop_token`
        candidates: the most probable tokens after the prompt, the most probable first
        logits: the model's outputs for the token after the prompt, one float32 for each entry of the vocabulary
    """

    prompt_tokens: tuple[int, ...]
    tokens: tuple[int, ...]
    text: str | None
    ended: str
    candidates: tuple[Candidate, ...]
    logits: array[float] = field(repr=False, compare=False)


def run(
    carton: Any,
    prompt: str | list[int] | tuple[int, ...],
    *,
    max_tokens: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float = 1.0,
    seed: int | None = None,
    top: int = 5,
    threads: int | None = None,
    verify: bool = False,
    progress: Any = None,
) -> Generation:
    """Runs the model of a carton that torch2carton wrote. Its code is not executed, but recognised.

    Args:
        carton: the path of a carton or an unpacked folder
        prompt: a text, for which the carton needs a tokenizer, or the ids of tokens
        max_tokens: how many tokens to generate at most; 128 for a text and 0 for tokens if it is None
        temperature: choose tokens at random; below 1 favours probable ones. None always chooses the most probable token
        top_k: choose only from this many of the most probable tokens
        top_p: choose only from the most probable tokens whose probabilities add up to this
        seed: where the random numbers start; None takes a new seed
        top: how many of the most probable next tokens to list
        threads: the number of threads; None takes what the carton says
        verify: check every hash and rule of the carton first
        progress: a callable or a progress bar of tqdm, for what is verified and computed

    Raises:
        InputError: the carton holds no model
        DamagedError: the carton is damaged

    >>> done = torch2carton.run("llama.carton", [1, 2, 3], max_tokens=2)
    >>> len(done.tokens), done.ended, len(done.logits)
    (2, 'max_tokens', 256)
    """
    text = prompt if isinstance(prompt, str) else None
    tokens = [] if text is not None else [int(token) for token in prompt]
    if max_tokens is None:
        max_tokens = 0 if text is None else 128
    if seed is None:
        seed = int.from_bytes(os.urandom(4), "little")
    with reporting(progress) as report_progress:
        prompt_tokens, new, new_text, ended, logits, candidates = _native.run(
            os.fspath(getattr(carton, "_source", carton)),
            text=text,
            tokens=tokens,
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            top=top,
            threads=threads,
            verify=verify,
            progress=report_progress,
        )
    numbers = array("f")
    numbers.frombytes(logits)
    return Generation(
        prompt_tokens=tuple(prompt_tokens),
        tokens=tuple(new),
        text=new_text,
        ended=ended,
        candidates=tuple(Candidate(*row) for row in candidates),
        logits=numbers,
    )
