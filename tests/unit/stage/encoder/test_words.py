# SPDX-License-Identifier: Apache-2.0
"""Which texts are believed."""

from __future__ import annotations

import pytest

from dpfedge.stage.encoder.words import believed

INVENTED = ("you", "thank you")


@pytest.mark.parametrize(
    ("text", "speech_ms", "kept"),
    [
        ("you", 200, False),
        ("You.", 200, False),
        ("Thank you!", 200, False),
        ("Thank you!", 800, True),
        ("Stop.", 200, True),
        ("...", 5000, False),
        ("", 5000, False),
        ("21", 200, True),
        ("Для", 200, True),
    ],
)
def test_believed(text: str, speech_ms: float, kept: bool) -> None:
    """Inventions count only with enough speech; texts without a letter never do."""
    assert believed(text, speech_ms, invented=INVENTED, least_speech_ms=500) == (text if kept else "")
