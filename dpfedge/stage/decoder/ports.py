# SPDX-License-Identifier: Apache-2.0
"""What the decoder takes and gives: bytes of audio from the caller in, utterances out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfedge.limits import KIB, LINK_TEXT_SLOTS, UTTERANCE_MAX_SAMPLES
from dpfedge.stage.ports import Dim, Port, Ports

__all__ = ["ports"]


def ports(config: Mapping[str, Any], model: Mapping[str, Any] | None) -> Ports:
    """A slot holds the longest utterance, so that it never has to be put together again.

    `audio` is the input of a drawn graph; in a conversation the control link carries it.
    """
    samples = Dim("samples", 0, UTTERANCE_MAX_SAMPLES)
    speech = Port("f32", (samples,), rate=16000, layout="mono", unit="amplitude", slots=12)
    audio = Port("bytes", (Dim("bytes", 0, 64 * KIB),), unit="audio", slots=32)
    return Ports({"audio": audio}, {"speech": speech}, control=(32, 64 * KIB), sink=(LINK_TEXT_SLOTS, 4 * KIB))
