# SPDX-License-Identifier: Apache-2.0
"""POST /v1/audio/speech: text in, its sound out in the format asked for, while it is being made.

It synthesises nothing; the voice stage does.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from dpfedge.errors import DpfError
from dpfedge.limits import SPEECH_TEXT_MAX_CHARS
from dpfedge.pipeline.events import AudioChunk, Event, TurnDone
from dpfedge.serve.errors import RequestError, error_body
from dpfedge.serve.http.answer import sse, stream_answer
from dpfedge.serve.http.body import read_json
from dpfedge.serve.http.fields import Check, choice, number, only, read_fields, text
from dpfedge.serve.http.limits import admitted
from dpfedge.serve.http.models import check_model
from dpfedge.serve.media.encode import FORMATS, Encoder, encoder_for
from dpfedge.serve.provider import Provider
from dpfedge.serve.turn import run_turn

__all__ = ["CHECKS", "speech", "voices"]


def _voice(name: str, value: Any) -> str:
    """A voice's name, or OpenAI's `{"id": name}`."""
    return str(text(1, 128)(name, value.get("id") if isinstance(value, dict) else value))


CHECKS: dict[str, Check] = {
    "model": text(1, 256),
    "input": text(1, SPEECH_TEXT_MAX_CHARS),
    "voice": _voice,
    "response_format": choice(*FORMATS),
    "speed": number(0.25, 4.0),
    "stream_format": choice("audio", "sse"),
    "instructions": only("", remedy="this voice takes no instructions"),
}
"""Every parameter this endpoint takes."""


def voices(provider: Provider) -> tuple[str, ...]:
    """The voices of the package; `default` is the first."""
    facts = provider.runtime.facts.get("voice", {})
    named = tuple(facts.get("voices") or ((facts["name"],) if "name" in facts else ()))
    return (*named, "default") if named else ()


def check_voice(provider: Provider, name: str) -> str:
    """`name` if the package has that voice; RequestError with the list otherwise."""
    known = voices(provider)
    if name not in known:
        raise RequestError(
            "no such voice", found=repr(name)[:100], allowed=", ".join(known), param="voice", code="unsupported_value"
        )
    return name


async def speech(request: Request) -> Response:
    """The endpoint."""
    provider = request.app.state.provider
    fields = read_fields(await read_json(request), CHECKS, required=("model", "input", "voice"))
    check_model(provider, fields["model"], "voice")
    check_voice(provider, fields["voice"])
    if not fields["input"].strip():
        raise RequestError("parameter 'input' has no words", param="input", code="invalid_value")
    name = fields.get("response_format", "mp3")
    rate = int(provider.runtime.facts["voice"]["rate"])
    encoder = encoder_for(name, rate)
    speed = fields.get("speed", 1.0)
    limits = admitted(request, provider)
    events = run_turn(request, "speak", lambda runtime: runtime.speak(fields["input"], speed=speed, limits=limits))
    parts = _encoded(events, name, encoder, rate)
    if fields.get("stream_format") == "sse":
        return await stream_answer(request, provider, _events(parts), "text/event-stream", _failed)
    return await stream_answer(request, provider, parts, FORMATS[name])


async def _encoded(
    events: AsyncGenerator[Event, None], name: str, encoder: Encoder, rate: int
) -> AsyncGenerator[bytes, None]:
    """The sound's bytes, the last part even when empty; a codec runs beside the event loop."""
    async with aclosing(events):
        async for event in events:
            if isinstance(event, TurnDone) and "reason" in event.report.get("voice", {}):
                raise RequestError(event.report["voice"]["reason"], where="input", param="input", code="invalid_value")
            if not isinstance(event, AudioChunk):
                continue
            if event.rate != rate:  # the package was replaced after the request was read; nothing is encoded yet
                encoder, rate = encoder_for(name, event.rate), event.rate
            # the thread may outlive a cancelled answer, and with it the chunk's view: it gets samples of its own
            heavy = encoder.heavy
            part = await asyncio.to_thread(encoder.feed, event.samples.copy()) if heavy else encoder.feed(event.samples)
            if part:
                yield part
    yield await asyncio.to_thread(encoder.finish)


async def _events(parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(parts):
        async for part in parts:
            yield sse({"type": "speech.audio.delta", "audio": base64.b64encode(part).decode()}, "speech.audio.delta")
    usage = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}  # the voice reads no tokens
    yield sse({"type": "speech.audio.done", "usage": usage}, "speech.audio.done")


def _failed(error: DpfError) -> bytes:
    return sse({"type": "error", **error_body(error)})
