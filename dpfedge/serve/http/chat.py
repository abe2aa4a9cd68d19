# SPDX-License-Identifier: Apache-2.0
"""POST /v1/chat/completions: messages in, one completion out, whole or as server-sent events.

It renders no prompt and samples no token; that is the llm stage's.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dpfedge.errors import DpfError, StageError
from dpfedge.pipeline.events import Event, TextDelta, TurnDone
from dpfedge.runtime import Sampling
from dpfedge.serve.errors import error_body
from dpfedge.serve.http.answer import DONE, gone, sse, stream_answer, while_wanted
from dpfedge.serve.http.body import read_json
from dpfedge.serve.http.fields import Check, anything, boolean, integer, number, only, read_fields, strings, text
from dpfedge.serve.http.limits import admitted
from dpfedge.serve.http.messages import read_messages
from dpfedge.serve.http.models import check_model
from dpfedge.serve.turn import run_turn

__all__ = ["CHECKS", "chat_completions"]


def stream_options(name: str, value: Any) -> dict[str, Any]:
    """`include_usage`; obfuscation is padding that this server never sends."""
    checks: dict[str, Check] = {"include_usage": boolean, "include_obfuscation": only(False)}
    return read_fields(value if isinstance(value, dict) else {str(value): value}, checks, where=name)


_NO_TOOLS = only([], remedy="tools are not supported yet")

CHECKS: dict[str, Check] = {
    "model": text(1, 256),
    "messages": read_messages,
    "stream": boolean,
    "stream_options": stream_options,
    "max_tokens": integer(1, 1 << 20),
    "max_completion_tokens": integer(1, 1 << 20),
    "temperature": number(0, 2),
    "top_p": number(0, 1),
    "seed": integer(-(1 << 63), (1 << 63) - 1),
    "stop": strings(4),
    "presence_penalty": number(-2, 2),
    "frequency_penalty": number(-2, 2),
    "repeat_penalty": number(0.5, 2),
    "user": text(0, 1024),
    "metadata": anything,
    "safety_identifier": anything,
    "prompt_cache_key": anything,
    "store": only(False),
    "n": only(1),
    "logprobs": only(False),
    "top_logprobs": only(0),
    "logit_bias": only({}),
    "response_format": only({"type": "text"}),
    "modalities": only(["text"]),
    "service_tier": only("auto", "default"),
    "tools": _NO_TOOLS,
    "functions": _NO_TOOLS,
    "tool_choice": only("none", "auto"),
    "function_call": only("none", "auto"),
    "parallel_tool_calls": only(True, False),
}
"""Every parameter this endpoint takes; the `only(…)` ones with the values that ask for nothing beyond the default."""


async def chat_completions(request: Request) -> Response:
    """The endpoint."""
    provider = request.app.state.provider
    fields = read_fields(await read_json(request), CHECKS, required=("model", "messages"))
    check_model(provider, fields["model"], "llm")
    asked, limits = sampling(fields), admitted(request, provider)
    events = run_turn(request, "chat", lambda runtime: runtime.chat(fields["messages"], asked, limits=limits))
    head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": fields["model"]}
    if not fields.get("stream", False):
        return JSONResponse(await while_wanted(provider, whole_answer(head, events), lambda: gone(request.receive)))
    usage = fields.get("stream_options", {}).get("include_usage", False)
    return await stream_answer(request, provider, chunks(head, events, usage), "text/event-stream", failed)


def sampling(fields: Mapping[str, Any]) -> Sampling:
    """The request's sampling parameters; what is not given keeps the package's default."""
    names = ("temperature", "top_p", "seed", "stop", "repeat_penalty", "presence_penalty", "frequency_penalty")
    given = {name: fields[name] for name in names if name in fields}
    limit = fields.get("max_completion_tokens", fields.get("max_tokens"))
    return Sampling(max_tokens=limit, **given)


def failed(error: DpfError) -> bytes:
    """An error in the middle of a stream; official clients raise it."""
    return sse(error_body(error))


async def whole_answer(head: Mapping[str, Any], events: AsyncGenerator[Event, None]) -> dict[str, Any]:
    """The completion as one object."""
    text, done = [], None
    async with aclosing(events):
        async for event in events:
            if isinstance(event, TextDelta):
                text.append(event.text)
            elif isinstance(event, TurnDone):
                done = event
    message = {"role": "assistant", "content": "".join(text), "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason(done)}
    return {**head, "object": "chat.completion", "choices": [choice], "usage": usage_of(done)}


async def chunks(
    head: Mapping[str, Any], events: AsyncGenerator[Event, None], include_usage: bool
) -> AsyncGenerator[bytes, None]:
    """The completion as server-sent events: role first, then text, one finish_reason, usage if asked for, [DONE]."""
    base = {**head, "object": "chat.completion.chunk"}
    extra = {"usage": None} if include_usage else {}
    done = None

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return sse({**base, "choices": [choice], **extra})

    role: dict[str, Any] = {"role": "assistant", "content": "", "refusal": None}
    async with aclosing(events):
        async for event in events:
            if role and isinstance(event, (TextDelta, TurnDone)):
                yield chunk(role)
                role = {}
            if isinstance(event, TextDelta) and event.text:
                yield chunk({"content": event.text})
            elif isinstance(event, TurnDone):
                done = event
    yield chunk({}, finish_reason(done))
    if include_usage:
        yield sse({**base, "choices": [], "usage": usage_of(done)})
    yield DONE


def finish_reason(done: TurnDone | None) -> str:
    """OpenAI's word for how the turn ended; a turn that was cancelled under the client is an error."""
    if done is None or done.finish not in ("stop", "length"):
        raise StageError("the answer was cancelled", stage="llm", found=done and done.finish, remedy="send it again")
    return done.finish


def usage_of(done: TurnDone | None) -> dict[str, int]:
    """The tokens the llm counted."""
    report = done.report.get("llm", {}) if done else {}
    prompt, completion = int(report.get("prompt_tokens", 0)), int(report.get("completion_tokens", 0))
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
