# SPDX-License-Identifier: Apache-2.0
"""Speech that has nothing to say."""

from __future__ import annotations

import httpx
import pytest


@pytest.mark.parametrize("kind", ["mp3", "wav", "pcm", "flac"])
@pytest.mark.parametrize("form", ["audio", "sse"])
def test_speech__of_nothing_to_speak(http: httpx.Client, kind: str, form: str) -> None:
    """400 with the voice's reason: a file without sound is none that a player takes."""
    ask = {"model": "fake", "input": "...", "voice": "joe", "response_format": kind, "stream_format": form}
    answer = http.post("/v1/audio/speech", json=ask)

    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["param"], error["message"]) == ("input", "input: nothing to speak")
