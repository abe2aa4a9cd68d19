# SPDX-License-Identifier: Apache-2.0
"""One answer in a realtime conversation: text and samples in, `response.*` events in OpenAI's order out.

It makes no text and no sound, and cancels nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from dpfedge.errors import DpfError
from dpfedge.pipeline.events import TurnDone
from dpfedge.serve.errors import error_body
from dpfedge.serve.media.resample import Resampler, Samples
from dpfedge.serve.realtime.config import SessionConfig
from dpfedge.serve.realtime.outbox import Outbox, new_id

__all__ = ["Response"]

_SPEECH_CHARS_PER_MS = 0.015
"""About 2.5 English words a second; only for an answer whose length is not known yet."""


class Response:
    """The answer to turn `turn` (None until its first event tells the number)."""

    def __init__(self, out: Outbox, config: SessionConfig, turn: int | None, previous_item: str | None) -> None:
        self.id, self.item_id, self.turn = new_id("resp"), new_id("item"), turn
        self._out, self._config, self._previous = out, config, previous_item
        self._spoken = config.modality == "audio"
        self._words: list[str] = []
        self._resampler: Resampler | None = None
        self._samples = 0
        self._first_audio_s = 0.0
        self._item_open = self._complete = False

    @property
    def text(self) -> str:
        """The words so far."""
        return "".join(self._words)

    @property
    def sent_ms(self) -> float:
        """The length of the sound sent so far."""
        return self._samples * 1000 / self._config.output_hz

    def playing_ms(self) -> float:
        """How much a client that plays in real time can have played by now."""
        elapsed = (time.monotonic() - self._first_audio_s) * 1000 if self._samples else 0.0
        return min(self.sent_ms, elapsed)

    def heard(self, played_ms: float) -> str:
        """The whole words within the first `played_ms` of the sound, by proportion."""
        if not self._spoken:
            return self.text
        if self._complete:
            count = int(len(self.text) * min(1.0, played_ms / self.sent_ms)) if self._samples else 0
        else:
            count = int(min(played_ms, self.sent_ms) * _SPEECH_CHARS_PER_MS)
        if count >= len(self.text):
            return self.text
        return self.text[:count].rpartition(" ")[0]

    async def begin(self) -> None:
        """response.created."""
        await self._out.send("response.created", response=self._as_json("in_progress"))

    async def add_text(self, delta: str) -> None:
        """Words of the answer."""
        await self._open_item()
        self._words.append(delta)
        kind = "response.output_audio_transcript.delta" if self._spoken else "response.output_text.delta"
        await self._out.send(kind, **self._place(), delta=delta)

    async def add_audio(self, samples: Samples, rate: int) -> None:
        """Sound of the answer: i16[n] at `rate` Hz."""
        if not self._spoken:
            return
        await self._open_item()
        if self._resampler is None:
            self._resampler, self._first_audio_s = Resampler(rate, self._config.output_hz), time.monotonic()
        await self._send_audio(self._resampler.feed(samples))

    async def finish(
        self, status: str, *, reason: str | None = None, done: TurnDone | None = None, error: DpfError | None = None
    ) -> None:
        """Close everything that is open; `status` is completed, incomplete, cancelled or failed."""
        self._complete = True
        if self._item_open:
            await self._close_item(status)
        body = self._as_json(status)
        if reason or error:
            body["status_details"] = {"type": status, "reason": reason, "error": error and error_body(error)["error"]}
        body["usage"] = _usage(done)
        await self._out.send("response.done", response=body)

    async def _open_item(self) -> None:
        if self._item_open:
            return
        self._item_open = True
        item = self._item("in_progress", [])
        await self._out.send("response.output_item.added", response_id=self.id, output_index=0, item=item)
        await self._out.send("conversation.item.added", previous_item_id=self._previous, item=item)
        part = {"type": "audio", "transcript": ""} if self._spoken else {"type": "text", "text": ""}
        await self._out.send("response.content_part.added", **self._place(), part=part)

    async def _close_item(self, status: str) -> None:
        if self._spoken:
            if self._resampler is not None and status != "cancelled":
                await self._send_audio(self._resampler.flush())
            await self._out.send("response.output_audio.done", **self._place())
            await self._out.send("response.output_audio_transcript.done", **self._place(), transcript=self.text)
            part = {"type": "audio", "transcript": self.text}
        else:
            await self._out.send("response.output_text.done", **self._place(), text=self.text)
            part = {"type": "text", "text": self.text}
        await self._out.send("response.content_part.done", **self._place(), part=part)
        item = self._item("completed" if status == "completed" else "incomplete", [self._content()])
        await self._out.send("response.output_item.done", response_id=self.id, output_index=0, item=item)
        await self._out.send("conversation.item.done", previous_item_id=self._previous, item=item)

    async def _send_audio(self, samples: Samples) -> None:
        if len(samples):
            self._samples += len(samples)
            await self._out.sound(samples, self._config.output_hz, **self._place())

    def _place(self) -> dict[str, Any]:
        return {"response_id": self.id, "item_id": self.item_id, "output_index": 0, "content_index": 0}

    def _content(self) -> dict[str, str]:
        if self._spoken:
            return {"type": "output_audio", "transcript": self.text}
        return {"type": "output_text", "text": self.text}

    def _item(self, status: str, content: list[dict[str, str]]) -> dict[str, Any]:
        head = {"id": self.item_id, "object": "realtime.item", "type": "message", "role": "assistant"}
        return {**head, "status": status, "content": content}

    def _as_json(self, status: str) -> dict[str, Any]:
        output = [self._item(status, [self._content()])] if self._item_open and status != "in_progress" else []
        if output:
            output[0]["status"] = "completed" if status == "completed" else "incomplete"
        said = {"format": {"type": "audio/pcm", "rate": self._config.output_hz}, "voice": self._config.voice}
        return {
            "object": "realtime.response",
            "id": self.id,
            "status": status,
            "status_details": None,
            "output": output,
            "conversation_id": f"conv_{self._config.id}",
            "output_modalities": [self._config.modality],
            "max_output_tokens": self._config.max_output_tokens or "inf",
            "audio": {"output": said},
            "usage": None,
            "metadata": None,
        }


def _usage(done: TurnDone | None) -> Mapping[str, int] | None:
    report = done.report.get("llm") if done is not None else None
    if not report:
        return None
    read, written = int(report.get("prompt_tokens", 0)), int(report.get("completion_tokens", 0))
    return {"total_tokens": read + written, "input_tokens": read, "output_tokens": written}
