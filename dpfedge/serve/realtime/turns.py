# SPDX-License-Identifier: Apache-2.0
"""The runtime's events of a conversation in, the Realtime protocol's server events out.

It reads no client event. Partial words may change, the protocol's deltas may not: only words that two partial
transcripts in a row agree on are shown before the final ones (after Liu et al. 2020, local agreement).
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

from starlette.websockets import WebSocketDisconnect

from dpfedge.errors import DpfError
from dpfedge.pipeline.events import (
    AudioChunk,
    Event,
    Failed,
    PartialTranscript,
    SpeechStarted,
    SpeechStopped,
    TextDelta,
    Transcript,
    TurnDone,
)
from dpfedge.serve.api import ServedSession
from dpfedge.serve.errors import ClientGone
from dpfedge.serve.realtime.conversation import Conversation, Utterance
from dpfedge.serve.realtime.outbox import new_id
from dpfedge.stage.api import TURN_STRIDE

__all__ = ["read_session"]

_FINISH = {"stop": ("completed", None), "length": ("incomplete", "max_output_tokens"), "no_speech": ("completed", None)}


async def read_session(state: Conversation, session: ServedSession) -> None:
    """Pass on everything that happens in `session`; an error that ends the session does not end the connection.

    A client that left in mid event is the connection's to notice; it ends the session.
    """
    with contextlib.suppress(WebSocketDisconnect, ClientGone):
        await _read(state, session)


async def _read(state: Conversation, session: ServedSession) -> None:
    try:
        async with aclosing(state.metrics.watch("converse", session.events())) as events:
            async for event in events:
                state.handling = True
                try:
                    await _HANDLERS[type(event)](state, session, event)
                finally:
                    state.handling = False
                if await state.retire():
                    return
    except DpfError as error:
        await state.end_response("failed", error=error)
        await state.out.error(error)
    await state.lost(session)


def _user_item(utterance: Utterance, transcript: str | None) -> dict[str, Any]:
    content = [{"type": "input_audio", "transcript": transcript}]
    head = {"id": utterance.item_id, "object": "realtime.item", "type": "message", "role": "user"}
    return {**head, "status": "completed", "content": content}


def _utterance(state: Conversation, turn: int) -> Utterance:
    """The user item of a turn: the one a `commit` announced, or a new one."""
    if turn not in state.utterances:
        waiting, state.by_hand = state.by_hand, None
        if waiting is None:
            item_id = new_id("item")
            waiting = Utterance(item_id, state.add_item(item_id))
        state.utterances[turn] = waiting
    return state.utterances[turn]


async def commit(state: Conversation, utterance: Utterance) -> None:
    """Say that the utterance is an item of the conversation now; once."""
    if not utterance.committed:
        utterance.committed = True
        place = {"previous_item_id": utterance.previous}
        await state.out.send("input_audio_buffer.committed", item_id=utterance.item_id, **place)
        await state.out.send("conversation.item.added", item=_user_item(utterance, None), **place)


async def _started(state: Conversation, session: ServedSession, event: SpeechStarted) -> None:
    utterance = _utterance(state, event.turn)
    if state.config.turn_detection is None:
        return
    at_ms = state.tail.before_ms + event.at_ms
    await state.out.send("input_audio_buffer.speech_started", audio_start_ms=at_ms, item_id=utterance.item_id)
    if state.config.interrupts:
        await state.interrupt("turn_detected")


async def _stopped(state: Conversation, session: ServedSession, event: SpeechStopped) -> None:
    state.tail.heard_until(event.at_ms)
    if state.config.turn_detection is None:
        return
    utterance = _utterance(state, event.turn)
    at_ms = state.tail.before_ms + event.at_ms
    await state.out.send("input_audio_buffer.speech_stopped", audio_end_ms=at_ms, item_id=utterance.item_id)
    state.buffered = 0
    await commit(state, utterance)


async def _partial(state: Conversation, session: ServedSession, event: PartialTranscript) -> None:
    if not state.config.transcription:
        return
    utterance = _utterance(state, event.turn)
    agreed = agreed_words(utterance.partial, event.text)
    utterance.partial = event.text
    if len(agreed) > len(utterance.shown) and agreed.startswith(utterance.shown):
        await _show(state, utterance, agreed)


def agreed_words(before: str, now: str) -> str:
    """The whole words that both texts begin with, without the last word of either (it may still grow)."""
    words: list[str] = []
    for one, other in zip(before.split(" ")[:-1], now.split(" ")[:-1], strict=False):
        if one != other:
            break
        words.append(one)
    return " ".join(words)


async def _show(state: Conversation, utterance: Utterance, text: str) -> None:
    delta, utterance.shown = text[len(utterance.shown) :], text
    kind = "conversation.item.input_audio_transcription.delta"
    await state.out.send(kind, item_id=utterance.item_id, content_index=0, delta=delta)


async def _transcript(state: Conversation, session: ServedSession, event: Transcript) -> None:
    utterance = _utterance(state, event.turn)
    await commit(state, utterance)
    if state.config.transcription:
        if event.text.startswith(utterance.shown) and len(event.text) > len(utterance.shown):
            await _show(state, utterance, event.text)
        usage = {"type": "duration", "seconds": (event.end_ms - event.start_ms) / 1000}
        kind = "conversation.item.input_audio_transcription.completed"
        await state.out.send(kind, item_id=utterance.item_id, content_index=0, transcript=event.text, usage=usage)
    item = _user_item(utterance, event.text if state.config.transcription else None)
    await state.out.send("conversation.item.done", item=item, previous_item_id=utterance.previous)
    state.utterances.pop(event.turn)
    if not event.text:
        if state.asked:
            await _end_asked(state)
        return
    if state.asked and state.response is not None:
        state.response.turn, state.asked = event.turn, False
    elif state.config.answers_by_itself:
        await state.begin_response(event.turn)
    else:
        # the pipeline answers every utterance; this client wants to ask first
        state.dropped = max(state.dropped, event.turn)
        await session.interrupt("")


async def _answering(state: Conversation, turn: int) -> bool:
    """Whether words or sound of this turn belong to the answer being given."""
    if turn <= state.dropped:
        return False
    if state.response is None:
        return state.config.answers_by_itself and await state.begin_response(turn) is not None
    if state.response.turn is None:
        state.response.turn = turn
    if turn > state.response.turn:
        await state.begin_response(turn)
    return state.response.turn == turn


async def _text(state: Conversation, session: ServedSession, event: TextDelta) -> None:
    if await _answering(state, event.turn) and state.response is not None:
        await state.response.add_text(event.text)


async def _audio(state: Conversation, session: ServedSession, event: AudioChunk) -> None:
    if await _answering(state, event.turn) and state.response is not None:
        await state.response.add_audio(event.samples, event.rate)


async def _end_asked(state: Conversation) -> None:
    """An answer was asked for and there was nothing to answer."""
    state.asked = False
    await state.end_response("completed")


async def _done(state: Conversation, session: ServedSession, event: TurnDone) -> None:
    wordless = state.utterances.pop(event.turn, None) is not None
    if event.finish == "no_speech" and state.by_hand is not None:
        state.by_hand, wordless = None, True
    response = state.response
    if response is None or event.turn <= state.dropped:
        return
    if state.asked and wordless:
        await _end_asked(state)
        return
    typed = not state.asked and response.turn is None and event.turn % TURN_STRIDE != 0
    if response.turn == event.turn or typed:
        status, reason = _FINISH.get(event.finish, ("cancelled", "client_cancelled"))
        await state.end_response(status, reason=reason, done=event)


async def _failed(state: Conversation, session: ServedSession, event: Failed) -> None:
    state.utterances.pop(event.turn, None)
    state.asked = False
    await state.end_response("failed", error=event.error)
    await state.out.error(event.error)


_HANDLERS: dict[type[Event], Callable[[Conversation, ServedSession, Any], Awaitable[None]]] = {
    SpeechStarted: _started,
    SpeechStopped: _stopped,
    PartialTranscript: _partial,
    Transcript: _transcript,
    TextDelta: _text,
    AudioChunk: _audio,
    TurnDone: _done,
    Failed: _failed,
}
