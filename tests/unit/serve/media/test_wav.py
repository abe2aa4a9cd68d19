# SPDX-License-Identifier: Apache-2.0
"""The head of a WAV stream of unknown length."""

from __future__ import annotations

import io
import wave

import pytest

from dpfedge.serve.media.wav import stream_header


@pytest.mark.parametrize("rate", [8000, 22050, 48000])
def test_header__is_read_by_others(rate: int) -> None:
    """Mono, 16 bits, the rate; every sample behind it is found."""
    samples = bytes(range(64))

    with wave.open(io.BytesIO(stream_header(rate) + samples)) as wav:
        assert (wav.getnchannels(), wav.getsampwidth(), wav.getframerate()) == (1, 2, rate)
        assert wav.readframes(32) == samples


def test_header__has_the_shortest_form() -> None:
    """44 bytes; both sizes say that the end is not known."""
    head = stream_header(16000)

    assert len(head) == 44
    assert head[4:8] == head[40:44] == b"\xff" * 4
