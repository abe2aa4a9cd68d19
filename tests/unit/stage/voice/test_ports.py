# SPDX-License-Identifier: Apache-2.0
"""The voice's ports."""

from __future__ import annotations

from dpfedge.limits import VOICE_CHUNK_MAX_SAMPLES
from dpfedge.stage.voice.ports import ports


def test_sink__holds_the_longest_chunk() -> None:
    """Samples of 16 bits, whatever the voice's rate."""
    assert ports({}, None).sink[1] == 2 * VOICE_CHUNK_MAX_SAMPLES
