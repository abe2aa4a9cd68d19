# SPDX-License-Identifier: Apache-2.0
"""The Realtime protocol's server events in, a native client's events and sound out; it decides nothing but numbers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from dpfedge.errors import DpfError
from dpfedge.serve.errors import error_status
from dpfedge.serve.media.resample import Samples
from dpfedge.serve.native.channel import Channel
from dpfedge.serve.native.wire import Done, EventKind
from dpfedge.serve.realtime.outbox import Outbox

__all__ = ["NativeOutbox"]

_UTTERANCES_KEPT = 32  # an utterance that is recognised this long after it was spoken gets a new number
_DONE = {"completed": Done.COMPLETED, "incomplete": Done.TOO_LONG, "cancelled": Done.CANCELLED, "failed": Done.BROKEN}
_NOT_SENT = frozenset(
    {
        "session.updated",
        "input_audio_buffer.cleared",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "conversation.item.truncated",
        "response.output_item.added",
        "response.output_item.done",
        "response.content_part.added",
        "response.content_part.done",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.output_text.done",
    }
)
"""What says nothing to a client that keeps no list of items."""


class NativeOutbox(Outbox):
    """Writes to one native client. `interrupts`: whether speech ends an answer."""

    def __init__(self, channel: Channel, interrupts: bool) -> None:
        self._channel, self._interrupts = channel, interrupts
        self.answer = 0
        """The number of the last answer that was begun."""
        self._sounding = 0
        """The last answer that had sound."""
        self._silent = True
        """None of it may still be played."""
        self._utterances: dict[str, int] = {}
        self._spoken = 0
        self._senders: Mapping[str, Callable[..., Awaitable[None]]] = {
            "input_audio_buffer.speech_started": self._speech_started,
            "input_audio_buffer.speech_stopped": self._speech_stopped,
            "conversation.item.input_audio_transcription.delta": self._words,
            "conversation.item.input_audio_transcription.completed": self._transcript,
            "response.created": self._answer_started,
            "response.output_audio_transcript.delta": self._answer_text,
            "response.output_text.delta": self._answer_text,
            "response.done": self._answer_done,
        }

    @property
    def utterances(self) -> int:
        """How many the client was told of so far."""
        return self._spoken

    async def send(self, kind: str, **fields: Any) -> None:
        """One event of the Realtime protocol; ClientGone when the client left."""
        if kind not in _NOT_SENT:
            await self._senders[kind](**fields)

    async def error(self, error: DpfError, event_id: str | None = None) -> None:
        """Something failed, and the session goes on."""
        await self._channel.tell(EventKind.ERROR, code=error_status(error), text=str(error))

    async def sound(self, samples: Samples, rate: int, **place: Any) -> None:
        """Samples of the answer, i16[n] at `rate` Hz."""
        self._sounding, self._silent = self.answer, False
        await self._channel.play(samples, self.answer)

    def silence(self) -> None:
        """No sound that was made so far is played any more."""
        self._channel.silence(self._sounding)
        self._silent = True

    def _number(self, item_id: str) -> int:
        if item_id not in self._utterances:
            self._spoken += 1
            self._utterances[item_id] = self._spoken
            while len(self._utterances) > _UTTERANCES_KEPT:
                del self._utterances[next(iter(self._utterances))]
        return self._utterances[item_id]

    async def _speech_started(self, audio_start_ms: float, item_id: str) -> None:
        if self._interrupts and not self._silent:
            self.silence()
        await self._channel.tell(EventKind.SPEECH_STARTED, self._number(item_id), at_ms=audio_start_ms)

    async def _speech_stopped(self, audio_end_ms: float, item_id: str) -> None:
        await self._channel.tell(EventKind.SPEECH_STOPPED, self._number(item_id), at_ms=audio_end_ms)

    async def _words(self, item_id: str, delta: str, **_: Any) -> None:
        await self._channel.tell(EventKind.WORDS, self._number(item_id), text=delta)

    async def _transcript(self, item_id: str, transcript: str, **_: Any) -> None:
        await self._channel.tell(EventKind.TRANSCRIPT, self._number(item_id), text=transcript)

    async def _answer_started(self, **_: Any) -> None:
        self.answer += 1
        await self._channel.tell(EventKind.ANSWER_STARTED, self.answer)

    async def _answer_text(self, delta: str, **_: Any) -> None:
        await self._channel.tell(EventKind.ANSWER_TEXT, self.answer, text=delta)

    async def _answer_done(self, response: Mapping[str, Any]) -> None:
        done = _DONE[response["status"]]
        if done is Done.CANCELLED:
            if not self._silent:
                self.silence()
        elif self._sounding == self.answer:
            self._channel.end_sound(self.answer)
        details = response["status_details"] or {}
        why = details["error"]["message"] if details.get("error") else details.get("reason") or ""
        await self._channel.tell(EventKind.ANSWER_DONE, self.answer, code=done, text=why)
