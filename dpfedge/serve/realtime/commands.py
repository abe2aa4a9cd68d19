# SPDX-License-Identifier: Apache-2.0
"""The client's events of a realtime connection in, changes of the conversation out; a wrong event is an `error` event.

It reads no event of the runtime.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from dpfedge.errors import DpfError
from dpfedge.serve.errors import RequestError
from dpfedge.serve.http.body import parse_object
from dpfedge.serve.http.fields import Check, anything, integer, only, read_fields, text
from dpfedge.serve.realtime.config import Known
from dpfedge.serve.realtime.conversation import Conversation, Utterance
from dpfedge.serve.realtime.outbox import new_id
from dpfedge.serve.realtime.turns import commit

__all__ = ["act", "hear", "obey"]

_TEXT_PARTS = {"user": "input_text", "system": "input_text", "assistant": "output_text"}


async def obey(state: Conversation, message: str) -> None:
    """Do what one client event asks; the connection survives any mistake in it."""
    event_id: Any = None
    try:
        event = parse_object(message)
        event_id = event.get("event_id")
        await act(state, event)
    except DpfError as error:
        await state.out.error(error, event_id if isinstance(event_id, str) else None)


async def act(state: Conversation, event: Mapping[str, Any]) -> None:
    """Do what one client event asks, or raise what is wrong with it."""
    kind = event.get("type")
    if not isinstance(kind, str) or kind not in _COMMANDS:
        raise RequestError(
            "unknown event", found=repr(kind)[:80], allowed=", ".join(_COMMANDS), param="type", code="unknown_event"
        )
    command, checks, required = _COMMANDS[kind]
    fields = read_fields(event, {**_EVENT_CHECKS, **checks}, required=required)
    async with state.busy:
        await command(state, fields)
    await state.retire()


async def hear(state: Conversation, pcm: bytes | memoryview) -> None:
    """Samples of the person; `pcm` is read until this returns."""
    session = await state.session()
    state.buffered += len(pcm)
    state.tail.push(pcm)
    await session.push(pcm)


async def _update(state: Conversation, event: Mapping[str, Any]) -> None:
    changed = state.config.updated(event.get("session"), Known.of(state.provider))
    state.stale = state.stale or changed != state.config
    state.config = changed
    await state.out.send("session.updated", session=changed.as_json())


async def _append(state: Conversation, event: Mapping[str, Any]) -> None:
    data = event.get("audio")
    if not isinstance(data, str):
        raise RequestError("not base64 text", found=type(data).__name__, param="audio", code="invalid_value")
    try:
        pcm = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError(f"not base64: {error}", where="audio", param="audio", code="invalid_value") from error
    if pcm:
        await hear(state, pcm)


async def _commit(state: Conversation, event: Mapping[str, Any]) -> None:
    if not state.buffered:
        raise RequestError(
            "nothing to commit",
            where="input_audio_buffer",
            found="0 bytes",
            allowed="audio sent with input_audio_buffer.append",
            code="input_audio_buffer_commit_empty",
        )
    session = await state.session()
    state.buffered = 0
    state.tail.align()
    if state.config.turn_detection is None and not state.utterances:
        item_id = new_id("item")
        state.by_hand = Utterance(item_id, state.add_item(item_id))
        state.tail.clear()
    for utterance in (state.by_hand, *state.utterances.values()):
        if utterance is not None:
            await commit(state, utterance)
    await session.commit()


async def _clear(state: Conversation, event: Mapping[str, Any]) -> None:
    if state.buffered:
        await (await state.session()).clear()
        state.tail.align()
        state.tail.clear()
    state.buffered = 0
    await state.out.send("input_audio_buffer.cleared")


async def _create_item(state: Conversation, event: Mapping[str, Any]) -> None:
    _check_place(event.get("previous_item_id"), state.last_item or "root")
    item = event.get("item") if isinstance(event.get("item"), dict) else {}
    fields = read_fields(item or {}, _ITEM_CHECKS, required=("type", "role", "content"), where="item")
    parts = (_part(f"item.content[{index}]", fields["role"], one) for index, one in enumerate(fields["content"]))
    words = "\n".join(parts)
    item_id = fields.get("id") or new_id("item")
    if fields["role"] == "user":
        await (await state.session()).say(words)
    else:
        state.unsaid.append({"role": fields["role"], "content": words})
        state.stale = True
    head = {"id": item_id, "object": "realtime.item", "status": "completed", "type": "message"}
    shown = {**head, "role": fields["role"], "content": fields["content"]}
    previous = state.add_item(item_id)
    await state.out.send("conversation.item.added", item=shown, previous_item_id=previous)
    await state.out.send("conversation.item.done", item=shown, previous_item_id=previous)


def _check_place(asked: str | None, last: str) -> None:
    if asked not in (None, last):
        raise RequestError(
            "an item can only be added at the end",
            where="conversation.item.create",
            found=repr(asked),
            allowed=last,
            param="previous_item_id",
            code="unsupported_value",
            remedy="leave it out",
        )


def _role(name: str, value: Any) -> str:
    if not isinstance(value, str) or value not in _TEXT_PARTS:
        raise RequestError("no such role", found=repr(value)[:80], allowed=", ".join(_TEXT_PARTS), param=f"item.{name}")
    return value


def _content(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise RequestError("not a list of parts", found=repr(value)[:80], param=f"item.{name}", code="invalid_value")
    return value


def _part(where: str, role: str, part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind != _TEXT_PARTS[role]:
        raise RequestError(
            "not supported in a message",
            where=where,
            found=repr(kind),
            allowed=_TEXT_PARTS[role],
            param=f"{where}.type",
            remedy="send sound with input_audio_buffer.append",
        )
    return str(text(1, 65_536)(f"{where}.text", part.get("text")))


_ITEM_CHECKS = {
    "id": text(1, 64),
    "type": only("message"),
    "role": _role,
    "content": _content,
    "object": only("realtime.item"),
    "status": only("completed"),
}


async def _truncate(state: Conversation, event: Mapping[str, Any]) -> None:
    known = (state.response, state.answered)
    answer = next((one for one in known if one and one.item_id == event["item_id"]), None)
    if answer is None:
        raise RequestError(
            "not the last answer",
            found=event["item_id"],
            param="item_id",
            code="item_not_found",
            remedy="truncate the answer that is being played",
        )
    heard = answer.heard(event["audio_end_ms"])
    if answer is state.response:
        await state.interrupt("client_cancelled", heard)
    else:
        await state.shorten(answer, heard)
    place = {"content_index": 0, "audio_end_ms": event["audio_end_ms"]}
    await state.out.send("conversation.item.truncated", item_id=answer.item_id, **place)


async def _create_response(state: Conversation, event: Mapping[str, Any]) -> None:
    options = event.get("response") or {}
    read_fields(
        options if isinstance(options, dict) else {"response": options},
        {
            "conversation": only("auto"),
            "metadata": only({}),
            "output_modalities": only([state.config.modality]),
            "tools": only([]),
            "instructions": text(0, 65_536),
        },
        where="response",
    )
    if state.response is not None:
        raise RequestError(
            "an answer is being given",
            found=state.response.id,
            code="conversation_already_has_active_response",
            remedy="wait for response.done, or send response.cancel",
        )
    session = await state.session()
    instructions = options.get("instructions")
    awaited = state.by_hand is not None or any(one.committed for one in state.utterances.values())
    if awaited and instructions is not None:
        raise RequestError(
            "speech that is being recognised is answered with the session's instructions",
            param="response.instructions",
            remedy="send response.create after conversation.item.done, or use session.update",
        )
    await state.begin_response(None)
    state.asked = awaited
    if not awaited:
        await session.respond({} if instructions is None else {"instructions": instructions})


async def _cancel(state: Conversation, event: Mapping[str, Any]) -> None:
    named = event.get("response_id")
    if state.response is None or (named is not None and named != state.response.id):
        raise RequestError("no such answer is being given", found=named, code="response_cancel_not_active")
    await state.interrupt("client_cancelled")


_EVENT_CHECKS: dict[str, Check] = {"type": text(), "event_id": text()}
_TRUNCATION: dict[str, Check] = {"item_id": text(1, 64), "content_index": only(0), "audio_end_ms": integer(0, 1 << 31)}
_Command = Callable[[Conversation, Mapping[str, Any]], Awaitable[None]]
_COMMANDS: dict[str, tuple[_Command, dict[str, Check], tuple[str, ...]]] = {
    "session.update": (_update, {"session": anything}, ()),
    "input_audio_buffer.append": (_append, {"audio": anything}, ()),
    "input_audio_buffer.commit": (_commit, {}, ()),
    "input_audio_buffer.clear": (_clear, {}, ()),
    "conversation.item.create": (_create_item, {"item": anything, "previous_item_id": text(1, 64)}, ()),
    "conversation.item.truncate": (_truncate, _TRUNCATION, ("item_id", "audio_end_ms")),
    "response.create": (_create_response, {"response": anything}, ()),
    "response.cancel": (_cancel, {"response_id": text()}, ()),
}
"""Event → what does it, the checks of its fields, and those it must have."""
