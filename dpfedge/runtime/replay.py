# SPDX-License-Identifier: Apache-2.0
"""A recorded request given to a runtime again: the same messages in, what is different in what comes of it out.

It gives each message as soon as everything has come that had come before it in the recording; it imitates no pace.
What cannot be the same twice (an answer sampled without a seed, a turn interrupted by hand) is not compared, by name.
A voice draws its noise from a generator that goes on from clause to clause, so its samples are compared as long as the
voice has said exactly what it had said since its start, or when the package gives it no noise.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any

import cbor2

from dpfedge.errors import DpfError, StageError
from dpfedge.pipeline.engine import Engine
from dpfedge.pipeline.events import AudioChunk, Event, Failed, TextDelta, Transcript, TurnDone
from dpfedge.pipeline.feed import Feed
from dpfedge.pipeline.session import when_space
from dpfedge.records import dataclass
from dpfedge.runtime.asynchronous import AsyncRuntime
from dpfedge.runtime.pipeline import AsyncPipeline
from dpfedge.runtime.recorded import Given, Outcome, RecordedRequest
from dpfedge.runtime.replay_drawn import again_drawn
from dpfedge.stage.api import Kind, Mode

__all__ = ["Replayed", "replay", "unrepeatable"]

PATIENCE_S = 60.0
"""How long nothing may happen before a request is given up."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of one request. `skipped` says why it, or (`skipped_turns`) a turn of it, was not compared."""

    key: int
    mode: str | None
    compared: tuple[int, ...] = ()
    skipped_turns: tuple[int, ...] = ()
    differences: tuple[str, ...] = ()
    sound: bool = True
    """Whether samples were compared, too."""
    skipped: str | None = None


def unrepeatable(request: RecordedRequest, facts: Mapping[str, Any]) -> str | None:
    """Why a request cannot give the same again; None when it must. `facts` describe the recorded runtime."""
    if request.problem is not None:
        return request.problem
    if not any(one.kind is Kind.START for one in request.given):
        return "it was never started"
    given = request.start("llm").get("sampling")
    asked = given if isinstance(given, Mapping) else {}
    temperature = asked.get("temperature", facts.get("temperature", 0.0))
    if temperature and asked.get("seed", facts.get("seed")) is None and request.start("llm"):
        return f"its words were sampled (temperature {temperature}) without a seed"
    return None


async def replay(
    runtime: AsyncRuntime | AsyncPipeline,
    requests: Sequence[RecordedRequest],
    facts: Mapping[int, Mapping[str, Any]],
    *,
    from_start: bool,
    patience_s: float = PATIENCE_S,
) -> list[Replayed]:
    """Give every request again, one after another, and compare every turn; `facts` describe the recorded runtimes.

    `from_start`: the recording begins with the server, so that the voice's history is known.
    """
    results = []
    aligned = from_start  # whether the voice has said what it had said
    for request in requests:
        about = facts.get(request.runtime, {})
        sound = bool(about.get("noiseless")) or (aligned and request.runtime == 0 and _alone(request, requests))
        found = await _one(runtime, request, about, sound, patience_s)
        same = found.skipped is None and not found.differences and not request.interrupted
        aligned = aligned and ((same and sound) or not request.voiced)
        results.append(found)
    return results


def _alone(request: RecordedRequest, requests: Sequence[RecordedRequest]) -> bool:
    """Whether no other request can have used the voice between its clauses."""
    others = [one for one in requests if one is not request and one.voiced]
    return all(_before(one, request) or _before(request, one) for one in others)


def _before(one: RecordedRequest, other: RecordedRequest) -> bool:
    return one.closed and one.closed_ns <= other.at_ns


async def _one(
    runtime: AsyncRuntime | AsyncPipeline,
    request: RecordedRequest,
    facts: Mapping[str, Any],
    sound: bool,
    patience_s: float,
) -> Replayed:
    mode = request.mode.name.lower() if request.mode is not None else None
    if (why := unrepeatable(request, facts)) is not None:
        return Replayed(request.key, mode, skipped=why)
    again = await _again(runtime._engine, request, patience_s)
    whole = request.mode is Mode.CONVERSE or request.ended > 0
    compared = [turn for turn in sorted(request.turns) if turn not in request.interrupted]
    heard = {turn for turn in compared if sound and turn < min(request.interrupted, default=turn + 1)}
    found = [
        f"turn {turn}: {text}"
        for turn in compared
        for text in _differences(
            request.turns[turn], again.get(turn, Outcome()), whole and _ended(request, turn), turn in heard
        )
    ]
    unknown = [turn for turn in sorted(again) if turn not in request.turns and request.ended and _said(again[turn])]
    found += [f"turn {turn}: it is not in the recording" for turn in unknown if request.closed]
    told = all(turn in heard or not request.turns[turn].audio for turn in compared)
    return Replayed(request.key, mode, tuple(compared), tuple(sorted(request.interrupted)), tuple(found), told)


async def _again(engine: Engine, request: RecordedRequest, patience_s: float) -> dict[int, Outcome]:
    if request.mode is Mode.RUN:
        return await again_drawn(engine, request, patience_s)
    return await _Again(engine, request, patience_s).run()


def _ended(request: RecordedRequest, turn: int) -> bool:
    return request.mode is not Mode.CONVERSE or request.turns[turn].finish is not None


def _said(outcome: Outcome) -> bool:
    return bool(outcome.transcript or outcome.text or outcome.audio)


def _differences(before: Outcome, now: Outcome, whole: bool, sound: bool) -> Iterator[str]:
    """What differs; of a turn that had not ended, what there is must be the beginning of what comes."""
    for name in ("transcript", "text"):
        old, new = getattr(before, name), getattr(now, name)
        if not (old == new if whole else new.startswith(old)):
            yield f"{name} was {old!r}, is {new!r}"
    if sound and not (before.audio == now.audio if whole else now.audio.startswith(before.audio)):
        pairs = zip(before.audio, now.audio, strict=False)
        at = next((index for index, (old, new) in enumerate(pairs) if old != new), None)
        where = f"first different at sample {at // 2}" if at is not None else "one is the beginning of the other"
        yield f"audio was {len(before.audio) // 2} samples, is {len(now.audio) // 2}: {where}"
    places = before.outputs.keys() | now.outputs.keys()
    for place in sorted(places - ({"voice"} if not sound else set())):
        yield from _different(place, before.outputs.get(place, []), now.outputs.get(place, []), whole)
    if before.finish is not None and (before.finish, before.error) != (now.finish, now.error):
        yield f"it ended with {before.error or before.finish}, now with {now.error or now.finish}"


def _different(place: str, old: Sequence[bytes], new: Sequence[bytes], whole: bool) -> Iterator[str]:
    if (old == new) if whole else (old == new[: len(old)]):
        return
    at = next((index for index, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), None)
    where = f"message {at} is another" if at is not None else "one is the beginning of the other"
    yield f"{place} was {len(old)} messages, is {len(new)}: {where}"


@dataclass(slots=True)
class _Again:
    """One request while it is given again."""

    engine: Engine
    request: RecordedRequest
    patience_s: float
    turns: dict[int, Outcome] = field(default_factory=dict)
    ended: int = 0
    pieces: dict[int, int] = field(default_factory=dict)
    over: bool = False
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> dict[int, Outcome]:
        first = next(one for one in self.request.given if one.kind is Kind.START)
        options = cbor2.loads(first.payload)
        mode, route = Mode(options["mode"]), tuple(options["route"])
        self.engine.check_up(mode)
        one_file = self.request.start("decoder").get("format", {}).get("encoding") == "container"
        rate = int(self.engine.facts().get("voice", {}).get("rate", 0))
        feed = Feed(mode, route, rate, one_file=one_file)
        key = self.engine.open_request(feed)
        reading = asyncio.create_task(self._read(feed))
        try:
            for one in self.request.given:
                await self._until(one.ended_before, one.progress)
                await self._give(key, one, feed)
            await self._until(self._expected())
        finally:
            self.engine.close_request(key)
            reading.cancel()
            await asyncio.wait({reading})
            feed.close()
        return self.turns

    def _expected(self) -> int:
        """Turns to wait for: those that ended, and those that had begun when the recording ends."""
        if self.request.mode is not Mode.CONVERSE:
            return max(1, self.request.ended)
        begun = [one for turn, one in self.request.turns.items() if one.finish is None and turn and _said(one)]
        return self.request.ended + len(begun)

    async def _read(self, feed: Feed) -> None:
        try:
            while (event := await feed.next()) is not None:
                self._add(event)
                self.moved.set()
        except DpfError as error:  # of the whole request
            outcome = self.turns.setdefault(0, Outcome())
            outcome.finish, outcome.error = "failed", f"{type(error).__name__}: {error.what}"
        self.over = True
        self.moved.set()

    def _add(self, event: Event) -> None:
        outcome = self.turns.setdefault(event.turn, Outcome())
        if isinstance(event, Transcript | TextDelta):
            self.pieces[event.turn] = self.pieces.get(event.turn, 0) + 1
        if isinstance(event, Transcript):
            outcome.transcript += event.text
        elif isinstance(event, TextDelta):
            outcome.text += event.text
        elif isinstance(event, AudioChunk):
            outcome.audio += event.samples.tobytes()
        elif isinstance(event, TurnDone):
            outcome.finish = event.finish
            self.ended += 1
        elif isinstance(event, Failed):
            outcome.finish, outcome.error = "failed", f"{type(event.error).__name__}: {event.error.what}"
            self.ended += 1

    def _come(self, progress: tuple[tuple[int, int], ...]) -> bool:
        """Whether as many pieces of words have come of these turns; one that has ended gives no more."""
        return all(
            self.pieces.get(turn, 0) >= count or (turn in self.turns and self.turns[turn].finish is not None)
            for turn, count in progress
        )

    async def _until(self, ended: int, progress: tuple[tuple[int, int], ...] = ()) -> None:
        """Until so many turns have ended and so much of others has come, or nothing more can come."""
        while not self.over and (self.ended < ended or not self._come(progress)):
            self.moved.clear()
            try:
                await asyncio.wait_for(self.moved.wait(), self.patience_s)
            except TimeoutError:
                what = f"nothing happened for {self.patience_s:g} s"
                raise StageError(what, where=f"request {self.request.key:016x}") from None

    async def _give(self, key: int, one: Given, feed: Feed) -> None:
        engine = self.engine
        if one.cancel_before:
            engine.cancel_turns(key, one.cancel_before)
            return
        if one.kind is Kind.AUDIO:
            data, now = memoryview(one.payload), time.monotonic_ns()
            send = partial(engine.send_audio, key, data, now, last=one.last)
        elif one.kind is Kind.TEXT:
            send = partial(engine.send_text, one.stage, key, one.kind, one.payload.decode(), one.turn)
        elif one.kind is Kind.START:
            send = partial(engine.send_start, one.stage, key, cbor2.loads(one.payload))
        else:
            send = partial(engine.send_map, one.stage, key, one.kind, cbor2.loads(one.payload), one.turn)
        await when_space(engine, key, send)
        if one.kind is Kind.RESPOND:
            feed.expect(one.turn)
