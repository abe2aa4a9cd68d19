# SPDX-License-Identifier: Apache-2.0
"""One native client: what it writes into shared memory is done to its conversation, until it leaves.

The conversation is the Realtime protocol's own; nothing here reads an event of the runtime.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

from dpfedge.errors import DpfError
from dpfedge.link import Consumer, Lease
from dpfedge.serve.errors import ClientGone, RequestError
from dpfedge.serve.native.channel import Channel
from dpfedge.serve.native.outbox import NativeOutbox
from dpfedge.serve.native.wire import HEARD_UNKNOWN, STOP, Command, Flag, Hello
from dpfedge.serve.realtime.commands import act, hear
from dpfedge.serve.realtime.conversation import Conversation

__all__ = ["NativeSession", "settings"]

_EVENTS: Mapping[int, str] = {Command.COMMIT: "input_audio_buffer.commit", Command.CLEAR: "input_audio_buffer.clear"}


def settings(hello: Hello, voice_hz: int) -> dict[str, Any]:
    """The `session.update` that says what a hello says."""
    turns: dict[str, Any] = {
        "create_response": not hello.flags & Flag.ASK_TO_ANSWER,
        "interrupt_response": not hello.flags & Flag.NO_BARGE_IN,
    }
    if hello.silence_ms:
        turns["silence_duration_ms"] = hello.silence_ms
    said: dict[str, Any] = {"format": {"type": "audio/pcm", "rate": hello.output_hz or voice_hz}}
    heard = {
        "format": {"type": "audio/pcm", "rate": hello.input_hz},
        "turn_detection": None if hello.flags & Flag.BY_HAND else turns,
    }
    update: dict[str, Any] = {
        "audio": {"input": heard, "output": said},
        "output_modalities": ["text" if hello.flags & Flag.TEXT_ONLY else "audio"],
    }
    if hello.instructions is not None:
        update["instructions"] = hello.instructions
    if hello.max_answer_tokens:
        update["max_output_tokens"] = hello.max_answer_tokens
    return update


class NativeSession:
    """Obeys the client behind `channel`; `state` is its conversation, which writes to `out`."""

    def __init__(self, channel: Channel, state: Conversation, out: NativeOutbox) -> None:
        self._channel, self._state, self._out = channel, state, out
        self._since, self._heard_bytes = time.monotonic(), 0

    def figures(self) -> dict[str, Any]:
        """What it does now, and what came and went since it was opened; no words."""
        hearing = self._state.utterances or self._state.by_hand
        return {
            "open_ms": round((time.monotonic() - self._since) * 1000),
            "state": "answering" if self._state.response is not None else "hearing" if hearing else "idle",
            "utterances": self._out.utterances, "answers": self._out.answer, "events": self._channel.events_told,
            "heard_bytes": self._heard_bytes, "sound_bytes": self._channel.sound_bytes,
            "waiting_bytes": self._channel.waiting_bytes,
        }  # fmt: skip

    async def run(self) -> None:
        """Until the client leaves. LinkError when the memory holds something impossible."""
        tasks = [asyncio.ensure_future(one) for one in (self._hear_all(), self._stop_all())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                with contextlib.suppress(ClientGone):
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _next(self, consumer: Consumer) -> Lease:
        while True:
            seen = self._channel.rings
            if (lease := consumer.receive()) is not None:
                return lease
            await self._channel.rung(seen)

    async def _hear_all(self) -> None:
        """Samples and commands, in their order."""
        while True:
            lease = await self._next(self._channel.microphone)
            with lease, _collected() as errors:
                if lease.kind == Command.SAMPLES:
                    if lease.nbytes:
                        self._heard_bytes += lease.nbytes
                        async with self._state.busy:
                            await hear(self._state, lease.view)
                    await self._state.retire()
                else:
                    await self._obey(lease)
            await self._tell(errors)

    async def _obey(self, lease: Lease) -> None:
        state = self._state
        if lease.kind == Command.SAY:
            content = [{"type": "input_text", "text": _utf8(bytes(lease.view))}]
            item = {"type": "message", "role": "user", "content": content}
            await act(state, {"type": "conversation.item.create", "item": item})
        elif lease.kind == Command.RESPOND:
            if self._channel.is_stopped(lease.turn) and state.response is None:
                await state.begin_response(None)
                await state.end_response("cancelled", reason="client_cancelled")
            else:
                await act(state, {"type": "response.create"})
        elif lease.kind == Command.CANCEL:
            if state.response is not None:
                await act(state, {"type": "response.cancel"})
        elif lease.kind in _EVENTS:
            await act(state, {"type": _EVENTS[lease.kind]})
        else:
            raise RequestError("unknown command", where="microphone", found=lease.kind, allowed="1 to 6")

    async def _stop_all(self) -> None:
        """Stops, which overtake everything, and room that the client has made."""
        while True:
            seen = self._channel.rings
            while (lease := self._channel.stops.receive()) is not None:
                with lease:
                    stop = bytes(lease.view)
                if len(stop) == STOP.size:
                    heard_ms, _ = STOP.unpack(stop)
                    await self._stop(None if heard_ms == HEARD_UNKNOWN else heard_ms)
            if self._channel.stopped:
                await self._stop(None)
            self._channel.flush()
            await self._channel.rung(seen)

    async def _stop(self, heard_ms: int | None) -> None:
        """Silence, and the history keeps what was heard of the answer, which may have been made long ago."""
        state = self._state
        answer = state.response or state.answered
        self._out.silence()
        if answer is None:
            return
        heard = answer.heard(answer.playing_ms() if heard_ms is None else heard_ms)
        with _collected() as errors:
            if answer is state.response:
                await state.interrupt("client_cancelled", heard)
            else:
                await state.shorten(answer, heard)
        await self._tell(errors)

    async def _tell(self, errors: list[DpfError]) -> None:
        for error in errors:
            await self._out.error(error)


@contextlib.contextmanager
def _collected() -> Iterator[list[DpfError]]:
    """Keeps the error of one message, for its client, instead of raising it; that the client left is raised."""
    errors: list[DpfError] = []
    try:
        yield errors
    except ClientGone:
        raise
    except DpfError as error:
        errors.append(error)


def _utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RequestError("not UTF-8", where="microphone", found=f"byte {error.start}") from error
