# SPDX-License-Identifier: Apache-2.0
"""The llm stage's settings, from the pipeline file's mapping to one frozen record; it knows no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from dpfedge.config import check
from dpfedge.records import dataclass
from dpfedge.stage.llm.sampling import Sampling

__all__ = ["LIVE", "SCHEMA", "LlmConfig"]

LIVE = ("sampling", "first_words", "clause_words")
"""Settings that may change while the stage runs: how long answers are, and how they are cut."""


@dataclass(frozen=True, slots=True)
class LlmConfig:
    """Who the assistant is, how it chooses words, and how many talk to it at once."""

    name: str = ""
    """What the faces call the model; empty: its own name."""
    system: str = ""
    """The system prompt of requests that bring none; empty: the model's template decides."""
    examples: tuple[Mapping[str, str], ...] = ()
    """Pairs {user, assistant} shown to the model after the system prompt."""
    replies: tuple[Mapping[str, Any], ...] = ()
    """{match, say}: fixed answers in conversations, decided before the model is asked."""
    sums: bool = False
    """Answer spoken arithmetic in conversations exactly, without the model."""
    sampling: Sampling = field(default_factory=Sampling)
    warm_opening: bool = True
    """Compute the opening's keys and values once the stage is ready; else the first request does, while it can.

    Neither happens when a baked opening fits. One that does not is refused by name, and this is what is done instead.
    """
    prompt: str = "{text}\n\n{question}"
    """What it is asked in a drawn graph: of a text that other stages found, and a question about it."""
    history_turns: int | None = None
    """Earlier turns that the model is shown; None: as many as fit. Small models do better with few."""
    places: int = 4
    """How many requests can be answered at the same time; each has its own key/value memory."""
    chunk_tokens: int = 128
    """Prompt tokens per step; other requests get their token between two steps."""
    first_words: int = 7
    """Longest first clause handed to the voice, in words."""
    clause_words: int = 14
    """Longest later clause handed to the voice, in words."""
    give_way_ms: int = 60
    """After a turn's first clause nothing is computed until the voice has begun to speak it, but at most so long."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> LlmConfig:
        """The checked settings; ConfigError names an unknown key and the nearest known one."""
        check(data, SCHEMA, "stage llm")
        given = dict(data)
        given["sampling"] = Sampling().with_request(given.get("sampling"))
        for name in ("examples", "replies"):
            given[name] = tuple(given.get(name, ()))
        return cls(**given)


_TEXTS = {"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}


def _record(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": list(required)}


_NUMBER = {"type": "number"}
_COUNT = {"type": "integer", "minimum": 1}

SCHEMA: Mapping[str, Any] = _record(
    {
        "name": {"type": "string"},
        "system": {"type": "string"},
        "examples": {
            "type": "array",
            "items": _record({"user": {"type": "string"}, "assistant": {"type": "string"}}, "user", "assistant"),
        },
        "replies": {"type": "array", "items": _record({"match": _TEXTS, "say": _TEXTS}, "match", "say")},
        "sums": {"type": "boolean"},
        "prompt": {
            "type": "string",
            "pattern": r"\{(text|question)\}",
            "examples": ["The sign says: {text}. {question}"],
        },
        "history_turns": {"type": "integer", "minimum": 0},
        "sampling": _record(
            {
                "max_tokens": _COUNT,
                "temperature": {**_NUMBER, "minimum": 0, "maximum": 2},
                "top_p": {**_NUMBER, "minimum": 0, "maximum": 1},
                "seed": {"type": "integer"},
                "stop": _TEXTS,
                "repeat_penalty": {**_NUMBER, "minimum": 0.1, "maximum": 10},
                "repeat_window": {"type": "integer", "minimum": 0},
                "presence_penalty": {**_NUMBER, "minimum": -2, "maximum": 2},
                "frequency_penalty": {**_NUMBER, "minimum": -2, "maximum": 2},
            }
        ),
        "warm_opening": {"type": "boolean"},
        "places": {"type": "integer", "minimum": 1, "maximum": 64},
        "chunk_tokens": {"type": "integer", "minimum": 1, "maximum": 4096},
        "first_words": _COUNT,
        "clause_words": _COUNT,
        "give_way_ms": {"type": "integer", "minimum": 0, "maximum": 1000},
    }
)
"""JSON Schema of the `llm` section's stage settings."""
