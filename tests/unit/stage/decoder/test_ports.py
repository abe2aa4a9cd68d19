# SPDX-License-Identifier: Apache-2.0
"""The decoder's ports."""

from __future__ import annotations

from dpfedge.limits import UTTERANCE_MAX_SAMPLES
from dpfedge.stage.decoder.ports import ports


def test_speech__holds_the_longest_utterance() -> None:
    """In one slot, as the recogniser takes it."""
    assert ports({}, None).outputs["speech"].nbytes == 4 * UTTERANCE_MAX_SAMPLES
