# SPDX-License-Identifier: Apache-2.0
"""Microphone and loudspeaker through `sounddevice`: a conversation's samples, half duplex, no echo canceller."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any

from dpfedge.errors import Unavailable, UsageError
from dpfedge.pipeline.events import (
    AudioChunk,
    Failed,
    PartialTranscript,
    SpeechStopped,
    TextDelta,
    Transcript,
    TurnDone,
)
from dpfedge.runtime import AsyncRuntime, AudioFormat, Session

__all__ = ["SoundCard", "converse"]

RATE = 16000
_BLOCK = RATE // 50
_QUEUE = 100  # two seconds of microphone blocks; older ones are dropped when the loop is stuck


class SoundCard:
    """The sound system's two devices, chosen by name; Unavailable when there is none."""

    def __init__(self, input_name: str | None, output_name: str | None) -> None:
        try:
            import sounddevice
        except (ImportError, OSError) as error:  # OSError: the wheel is there, the system's PortAudio library is not
            raise Unavailable(
                f"no sound library: {error}",
                where="talk",
                remedy="install the system's PortAudio (Debian: libportaudio2) and the extra dpfedge[talk]",
            ) from error
        self._sound = sounddevice
        self.input = _find(sounddevice, input_name, "max_input_channels", "microphone")
        self.output = _find(sounddevice, output_name, "max_output_channels", "loudspeaker")

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Unavailable for what the sound system refuses below: a rate a device cannot do, one that was taken away."""
        try:
            yield
        except self._sound.PortAudioError as error:
            raise Unavailable(
                f"the sound system refuses: {error}", where="talk",
                remedy="connect the device, or choose others with --input and --output",
            ) from error  # fmt: skip

    def microphone(self, loop: asyncio.AbstractEventLoop, blocks: asyncio.Queue[bytes]) -> Any:
        """A stream that puts 20 ms blocks of 16 kHz s16le into `blocks`."""

        def arrived(data: Any, _frames: int, _time: Any, _status: Any) -> None:
            loop.call_soon_threadsafe(_put_newest, blocks, bytes(data))

        return self._sound.RawInputStream(
            samplerate=RATE, channels=1, dtype="int16", blocksize=_BLOCK, device=self.input, callback=arrived
        )

    def loudspeaker(self, rate: int) -> Any:
        """A stream to write i16 samples to."""
        return self._sound.RawOutputStream(samplerate=rate, channels=1, dtype="int16", device=self.output)


def _find(sound: Any, name: str | None, channels: str, what: str) -> int:
    devices = [(i, d) for i, d in enumerate(sound.query_devices()) if d[channels] > 0]
    if not devices:
        raise Unavailable(f"no {what}", where="talk", remedy="connect one, or use `dpfedge run` with audio files")
    if name is None:
        default = sound.default.device[0 if channels == "max_input_channels" else 1]
        return int(default) if default >= 0 else devices[0][0]
    for index, device in devices:
        if name.lower() in device["name"].lower():
            return index
    raise UsageError(
        f"no {what} of that name", where="talk", found=name, allowed=", ".join(d["name"] for _, d in devices)
    )


def _put_newest(blocks: asyncio.Queue[bytes], data: bytes) -> None:
    if blocks.full():
        blocks.get_nowait()
    blocks.put_nowait(data)


async def converse(runtime: AsyncRuntime, card: SoundCard) -> None:
    """Talk until cancelled."""
    session = await runtime.converse(AudioFormat("pcm_s16le", RATE))
    blocks: asyncio.Queue[bytes] = asyncio.Queue(_QUEUE)
    with card.working(), contextlib.ExitStack() as devices:
        speaker = devices.enter_context(card.loudspeaker(runtime.facts["voice"]["rate"]))
        devices.enter_context(card.microphone(asyncio.get_running_loop(), blocks))
        player = _Player(speaker)
        print("listening; speak, and press Ctrl-C to end")
        hearing = asyncio.create_task(_hear(session, blocks, player))
        try:
            async for event in session.events():
                await player.show(event)
        finally:
            hearing.cancel()
            await runtime.end(session)


async def _hear(session: Session, blocks: asyncio.Queue[bytes], player: _Player) -> None:
    while True:
        data = await blocks.get()
        # without an echo canceller the assistant would answer its own voice: the microphone is silent while it speaks
        await session.push(bytes(len(data)) if player.speaking() else data)


class _Player:
    """Plays chunks in order and knows until when the loudspeaker sounds."""

    def __init__(self, speaker: Any) -> None:
        self._speaker = speaker
        self._until = 0.0
        self._stopped_ns = 0

    def speaking(self) -> bool:
        return time.monotonic() < self._until + 0.2  # the room's own echo

    async def show(self, event: object) -> None:
        if isinstance(event, AudioChunk):
            if self._stopped_ns:
                waited_ms = (event.at_ns - self._stopped_ns) / 1e6
                print(f"\n[{waited_ms:.0f} ms from the endpoint to the first sound]")
                self._stopped_ns = 0
            self._until = max(self._until, time.monotonic()) + len(event.samples) / event.rate
            await asyncio.to_thread(self._speaker.write, event.samples.tobytes())
        elif isinstance(event, SpeechStopped):
            self._stopped_ns = event.at_ns
        elif isinstance(event, PartialTranscript):
            print(f"\r… {event.text}", end="", flush=True)
        elif isinstance(event, Transcript):
            print(f"\ryou:       {event.text}")
        elif isinstance(event, TextDelta):
            print(event.text, end="", flush=True)
        elif isinstance(event, TurnDone):
            print()
        elif isinstance(event, Failed):
            print(f"\n{event.error}")
