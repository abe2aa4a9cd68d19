# SPDX-License-Identifier: Apache-2.0
"""What the encoder takes and gives: utterances in, their words out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfedge.limits import KIB, LINK_TEXT_SLOTS, UTTERANCE_MAX_SAMPLES
from dpfedge.stage.ports import Dim, Port, Ports, text_port

__all__ = ["ports"]


def ports(config: Mapping[str, Any], model: Mapping[str, Any] | None) -> Ports:
    """The recogniser hears 16 kHz; what it drafts and decides goes to the next stage and to the caller."""
    samples = Dim("samples", 0, UTTERANCE_MAX_SAMPLES)
    speech = Port("f32", (samples,), rate=16000, layout="mono", unit="amplitude")
    text = text_port(16 * KIB, LINK_TEXT_SLOTS, optional=True)
    return Ports({"speech": speech}, {"text": text}, control=(16, 4 * KIB), sink=(LINK_TEXT_SLOTS, 16 * KIB))
