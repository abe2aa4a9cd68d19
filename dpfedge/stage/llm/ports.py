# SPDX-License-Identifier: Apache-2.0
"""What the llm takes and gives: texts in, clauses out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfedge.limits import KIB, LINK_TEXT_SLOTS, PROMPT_MAX_BYTES
from dpfedge.stage.ports import Ports, text_port

__all__ = ["SYNCS", "ports"]

SYNCS = True


def ports(config: Mapping[str, Any], model: Mapping[str, Any] | None) -> Ports:
    """A whole prompt fits one control message; the answer itself goes to the caller token by token."""
    clauses = text_port(8 * KIB, LINK_TEXT_SLOTS, optional=True)
    inputs = {"text": text_port(16 * KIB), "question": text_port(16 * KIB, optional=True)}
    return Ports(inputs, {"clauses": clauses}, control=(8, PROMPT_MAX_BYTES), sink=(4 * LINK_TEXT_SLOTS, 8 * KIB))
