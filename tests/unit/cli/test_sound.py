# SPDX-License-Identifier: Apache-2.0
"""Microphone and loudspeaker over a toy sound library."""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpfedge.cli.sound import SoundCard, _Player, _put_newest, converse
from dpfedge.errors import StageDied, Unavailable, UsageError
from dpfedge.pipeline.events import (
    AudioChunk,
    Failed,
    PartialTranscript,
    SpeechStopped,
    TextDelta,
    Transcript,
    TurnDone,
)

DEVICES = [
    {"name": "Webcam Mic", "max_input_channels": 1, "max_output_channels": 0},
    {"name": "Car Speakers", "max_input_channels": 0, "max_output_channels": 2},
    {"name": "Headset", "max_input_channels": 1, "max_output_channels": 2},
]


class Stream:
    """A stream that keeps what it was made with and given."""

    def __init__(self, **options: Any) -> None:
        self.options, self.written = options, b""

    def write(self, data: bytes) -> None:
        self.written += data


class SoundError(Exception):
    """The library's own error; it is no OSError."""


class Refused(Stream):
    """A stream of a device that knows other rates only."""

    def __init__(self, **options: Any) -> None:
        raise SoundError("Invalid sample rate [PaErrorCode -9997]")


@pytest.fixture
def sound(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The library, with three devices."""
    library = SimpleNamespace(
        query_devices=lambda: DEVICES,
        default=SimpleNamespace(device=[2, 1]),
        RawInputStream=Stream,
        RawOutputStream=Stream,
        PortAudioError=SoundError,
    )
    monkeypatch.setitem(sys.modules, "sounddevice", library)
    return library


def test_card__takes_the_systems_devices(sound: Any) -> None:
    """Or the first that can, when the system has no favourite."""
    card = SoundCard(None, None)
    assert (card.input, card.output) == (2, 1)

    sound.default.device = [-1, -1]
    card = SoundCard(None, None)
    assert (card.input, card.output) == (0, 1)


def test_card__finds_devices_by_part_of_their_name(sound: Any) -> None:
    """In any case; only those that can do it."""
    card = SoundCard("headset", "HEADSET")
    assert (card.input, card.output) == (2, 2)
    with pytest.raises(UsageError, match=r"no microphone of that name; found car; allowed Webcam Mic, Headset"):
        SoundCard("car", None)


def test_card__without_a_device(sound: Any) -> None:
    """Exit 5: not available here."""
    sound.query_devices = lambda: DEVICES[:1]
    with pytest.raises(Unavailable, match="no loudspeaker"):
        SoundCard(None, None)


def test_converse__on_a_device_that_refuses(sound: Any) -> None:
    """Exit 5 with what the sound system says, not a traceback."""

    async def open_session(*_: Any) -> Any:
        return SimpleNamespace()

    sound.RawOutputStream = Refused
    runtime: Any = SimpleNamespace(converse=open_session, facts={"voice": {"rate": 22_050}})
    with pytest.raises(Unavailable, match=r"talk: the sound system refuses: Invalid sample rate .*--output"):
        asyncio.run(converse(runtime, SoundCard(None, None)))


def test_microphone__gives_blocks_and_drops_the_oldest(sound: Any) -> None:
    """A loop that is stuck does not make the conversation late."""

    async def test() -> list[bytes]:
        blocks: asyncio.Queue[bytes] = asyncio.Queue(2)
        stream = SoundCard(None, None).microphone(asyncio.get_running_loop(), blocks)
        assert stream.options["samplerate"] == 16000
        for number in range(3):
            stream.options["callback"](bytes([number]), 1, None, None)
        await asyncio.sleep(0)
        return [blocks.get_nowait() for _ in range(2)]

    assert asyncio.run(test()) == [b"\1", b"\2"]


def test_put_newest__while_there_is_room() -> None:
    """Nothing is dropped."""
    blocks: asyncio.Queue[bytes] = asyncio.Queue(2)
    _put_newest(blocks, b"1")
    assert blocks.qsize() == 1


def test_player__plays_and_shows(capsys: pytest.CaptureFixture[str]) -> None:
    """Every event leaves a trace; while it sounds the microphone is silent."""
    stream = Stream()
    player = _Player(stream)

    async def test() -> None:
        for event in (
            PartialTranscript(1, 0, "what"),
            SpeechStopped(1, 1, 0, 0, "silence"),
            Transcript(1, 0, "what is it", 0, 0),
            TextDelta(1, 0, "It is"),
            AudioChunk(1, 5_000_001, np.arange(3, dtype=np.int16), 1),
            Failed(1, 0, StageDied("gone", stage="llm")),
            TurnDone(1, 0, "stop"),
        ):
            await player.show(event)

    assert not player.speaking()
    asyncio.run(test())
    shown = capsys.readouterr().out

    assert player.speaking()
    assert stream.written == np.arange(3, dtype=np.int16).tobytes()
    for words in (
        "… what",
        "you:       what is it",
        "It is",
        "[5 ms from the endpoint to the first sound]",
        "stage llm: gone",
    ):
        assert words in shown
