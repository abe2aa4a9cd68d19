# SPDX-License-Identifier: Apache-2.0
"""POST /v1/audio/transcriptions: a form with a file in, its words out; recognition begins while the file arrives.

It decodes no audio; what the file is, the decoder stage finds out from its bytes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dpfedge.errors import DpfError
from dpfedge.pipeline.events import Event, Transcript
from dpfedge.runtime import AudioFormat
from dpfedge.serve.errors import RequestError, error_body
from dpfedge.serve.http.answer import DONE, sse, stream_answer, while_wanted
from dpfedge.serve.http.fields import Check, choice, only, read_fields, text
from dpfedge.serve.http.limits import admitted
from dpfedge.serve.http.models import check_model
from dpfedge.serve.http.transcript import FORMATS, Transcription
from dpfedge.serve.http.upload import Upload
from dpfedge.serve.provider import Provider
from dpfedge.serve.turn import run_turn

__all__ = ["CHECKS", "check_language", "transcriptions"]


def _flag(name: str, value: Any) -> bool:
    """A form's boolean."""
    return bool(choice("true", "false", "True", "False", "1", "0")(name, value) in ("true", "True", "1"))


def _zero(name: str, value: Any) -> float:
    try:
        return float(only(0.0, remedy="this recogniser does not sample")(name, float(value)))
    except ValueError as error:
        raise RequestError(f"parameter {name!r} is not a number", found=repr(value)[:80], param=name) from error


CHECKS: dict[str, Check] = {
    "model": text(1, 256),
    "language": text(0, 35),
    "response_format": choice(*FORMATS),
    "stream": _flag,
    "temperature": _zero,
    "prompt": only("", remedy="this recogniser takes no prompt"),
    "chunking_strategy": only("auto"),
    "timestamp_granularities[]": only("segment", remedy="this recogniser has no word times"),
}
"""Every form field this endpoint takes, besides `file`."""


async def transcriptions(request: Request) -> Response:
    """The endpoint."""
    provider = request.app.state.provider
    upload = Upload(request)
    early = _read(await while_wanted(provider, upload.fields_before_file(), upload.left))
    if "model" in early:
        check_model(provider, early["model"], "encoder")
    language = _language(provider, early)
    audio = upload.file()
    named, limits = early.get("language") or None, admitted(request, provider)
    events = run_turn(
        request,
        "transcribe",
        lambda runtime: runtime.transcribe(audio, AudioFormat("container"), language=named, limits=limits),
    )
    try:
        held, more = await while_wanted(provider, _while_arriving(events, upload), upload.left)
        fields = _late(provider, upload, language)
    except BaseException:
        await events.aclose()
        raise
    if fields.get("stream", False):
        return await stream_answer(request, provider, _deltas(held, more), "text/event-stream", _failed)
    words = Transcription(language)
    await while_wanted(provider, _collect(words, held, more), upload.left)
    media_type, write = FORMATS[fields.get("response_format", "json")]
    body = write(words)
    return JSONResponse(body) if isinstance(body, dict) else Response(body, media_type=media_type)


def _read(fields: Mapping[str, list[str]]) -> dict[str, Any]:
    """The fields so far; one given twice must say the same thing twice."""
    single: dict[str, str] = {}
    for name, values in fields.items():
        if len(set(values)) > 1:
            raise RequestError(f"parameter {name!r} is given {len(values)} times", where="request", param=name)
        single[name] = values[0]
    return read_fields(single, CHECKS)


def _languages(provider: Provider) -> list[str]:
    return provider.runtime.facts.get("encoder", {}).get("languages") or ["en"]


def check_language(provider: Provider, asked: str) -> str:
    """`asked`, in lower case, if the package's recogniser knows it; RequestError with the list otherwise."""
    known = _languages(provider)
    if asked.lower() not in known:
        raise RequestError(
            "the recogniser does not know this language",
            found=repr(asked),
            allowed=", ".join(known),
            param="language",
            code="unsupported_value",
        )
    return asked.lower()


def _language(provider: Provider, fields: Mapping[str, Any]) -> str:
    """The language to recognise: the one asked for, or the recogniser's first."""
    return check_language(provider, fields.get("language") or _languages(provider)[0])


def _late(provider: Any, upload: Upload, language: str) -> dict[str, Any]:
    """All fields, also those that came behind the file."""
    fields = _read(upload.fields)
    if "model" not in fields:
        raise RequestError("parameter 'model' is missing", param="model", code="missing_required_parameter")
    check_model(provider, fields["model"], "encoder")
    if _language(provider, fields) != language:
        raise RequestError("the language comes behind the file", param="language", remedy="send it before the file")
    if fields.get("stream", False) and fields.get("response_format", "json") not in ("json", "text"):
        raise RequestError(
            "a stream has no such format", param="response_format", allowed="json, text", code="invalid_value"
        )
    return fields


async def _while_arriving(
    events: AsyncGenerator[Event, None], upload: Upload
) -> tuple[list[Event], AsyncGenerator[Event, None]]:
    """The segments recognised while the file still arrived, and the rest to come."""
    held: list[Event] = []
    async for event in events:
        held.append(event)
        if upload.finished:
            break
    return held, events


async def _collect(words: Transcription, held: list[Event], more: AsyncGenerator[Event, None]) -> None:
    for event in held:
        words.add(event)
    async with aclosing(more):
        async for event in more:
            words.add(event)


async def _deltas(held: list[Event], more: AsyncGenerator[Event, None]) -> AsyncGenerator[bytes, None]:
    """Server-sent events: a delta for each final segment (partial words may still change), then the whole text."""
    words = Transcription("")

    def delta(event: Event) -> list[bytes]:
        lead = " " if words.segments else ""
        words.add(event)
        if not isinstance(event, Transcript) or not event.text:
            return []
        return [sse({"type": "transcript.text.delta", "delta": lead + event.text.strip()}, "transcript.text.delta")]

    for event in held:
        for part in delta(event):
            yield part
    async with aclosing(more):
        async for event in more:
            for part in delta(event):
                yield part
    yield sse({"type": "transcript.text.done", "text": words.text}, "transcript.text.done")
    yield DONE


def _failed(error: DpfError) -> bytes:
    return sse({"type": "error", **error_body(error)})
