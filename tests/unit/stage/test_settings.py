# SPDX-License-Identifier: Apache-2.0
"""Settings as a JSON Schema."""

from __future__ import annotations

from dataclasses import dataclass

from dpfedge.stage.settings import schema_of


@dataclass(frozen=True)
class _Settings:
    loud: bool = False
    count: int = 3
    share: float = 0.5
    words: tuple[str, ...] = ("a",)
    name: str = "x"
    rate: float | None = None


def test_schema__follows_from_the_defaults() -> None:
    """Types, defaults, bounds; nothing else is allowed."""
    schema = schema_of(_Settings(), {"count": (1, 9), "rate": {"type": "number", "minimum": 1}})

    assert schema["additionalProperties"] is False
    assert schema["properties"] == {
        "loud": {"type": "boolean", "default": False},
        "count": {"type": "integer", "default": 3, "minimum": 1, "maximum": 9},
        "share": {"type": "number", "default": 0.5},
        "words": {"type": "array", "items": {"type": "string"}, "default": ["a"]},
        "name": {"type": "string", "default": "x"},
        "rate": {"type": ["number", "null"], "minimum": 1, "default": None},
    }
