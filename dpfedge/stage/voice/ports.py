# SPDX-License-Identifier: Apache-2.0
"""What the voice takes and gives: clauses in, samples for the caller out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfedge.limits import KIB, LINK_TEXT_SLOTS, VOICE_CHUNK_MAX_SAMPLES
from dpfedge.stage.ports import Ports, text_port

__all__ = ["ports"]


def ports(config: Mapping[str, Any], model: Mapping[str, Any] | None) -> Ports:
    """A slot holds the longest chunk of speech, i16 mono at the voice's rate."""
    clauses = text_port(8 * KIB, LINK_TEXT_SLOTS)
    return Ports({"clauses": clauses}, control=(16, 32 * KIB), sink=(24, 2 * VOICE_CHUNK_MAX_SAMPLES))
