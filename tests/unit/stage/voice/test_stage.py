# SPDX-License-Identifier: Apache-2.0
"""Turns of the voice stage on a toy voice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dpfedge.backend.api import Budget
from dpfedge.errors import InputError, ModelError, RunCancelled
from dpfedge.stage.api import Kind, Mode, Wait
from dpfedge.stage.voice import VoiceStage
from dpfedge.stage.voice import stage as module

pytest.importorskip("piper")


@pytest.fixture(scope="module", params=["split", "whole"])
def stage(request: Any, graphs: Any, card: Any, driver: Any) -> VoiceStage:
    """A warm stage over two graphs, and over one."""
    names = ("encode", "decode") if request.param == "split" else ("synthesise",)
    model = driver.Model("toy-voice", {name: graphs[name] for name in names}, {"voice.json": card})
    stage = VoiceStage(model, {}, Budget())
    stage.warm()
    return stage


def test_warm__one_chunk_while_it_is_valid(stage: VoiceStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every graph runs with the first; what made it is not given up before it is read."""
    seen: list[Any] = []

    def chunks(*_: Any) -> Iterator[Any]:
        samples = np.ones(8, np.float32)
        try:
            yield samples
            seen.append("a second one")
        finally:
            samples[:] = 0

    monkeypatch.setattr(stage, "_chunks", chunks)
    monkeypatch.setattr(module, "write_pcm", lambda samples, *_: seen.append(samples.tolist()))
    stage.warm()
    assert seen == [[1.0] * 8]


def test_facts__name_the_voice(stage: VoiceStage) -> None:
    """What the faces need before a request."""
    assert stage.facts() == {"rate": 22050, "name": "toy-voice", "chunk_samples": 64 * 256}


def test_speak__sends_samples_and_a_report(stage: VoiceStage, driver: Any) -> None:
    """Chunks of i16, silence between sentences, DONE last."""
    io = driver.IO(Mode.SPEAK, {"text": "Hello there. How are you?"})
    waits = driver.drive(stage.request(io), io)
    audio = io.of(Kind.AUDIO)
    report = io.of(Kind.DONE)[0]
    assert all(chunk.dtype == np.int16 and chunk.size <= 64 * 256 for chunk in audio)
    assert sum(chunk.size == 3307 and not chunk.any() for chunk in audio) == 1
    assert report["audio_ms"] == pytest.approx(sum(chunk.size for chunk in audio) / 22.05)
    assert (report["clauses"], report["finish"]) == (2, "stop")
    assert report["first_audio_ns"] >= report["started_ns"]
    assert waits.count(Wait.STEP) >= 2
    assert io.sent[-1][1:3] == (Kind.DONE, 1)
    assert io.sent[-1][4]


def test_speak__text_in_messages(stage: VoiceStage, driver: Any) -> None:
    """The text may come from the source instead of START."""
    said = []
    for options, messages in (({"text": "Hello there."}, ()), ({}, ("Hello ", "there."))):
        io = driver.IO(Mode.SPEAK, options)
        for index, text in enumerate(messages):
            io.put(Kind.TEXT, text, last=index == 1)
        driver.drive(stage.request(io), io)
        said.append(np.concatenate(io.of(Kind.AUDIO)))
    np.testing.assert_array_equal(*said)


@pytest.mark.parametrize("text", ["", "...", "😀"])
def test_speak__nothing_to_say(stage: VoiceStage, driver: Any, text: str) -> None:
    """No samples, and the report says why."""
    io = driver.IO(Mode.SPEAK, {"text": text})
    driver.drive(stage.request(io), io)
    assert io.of(Kind.AUDIO) == []
    assert io.of(Kind.DONE)[0]["audio_ms"] == 0
    assert "nothing to speak" in io.of(Kind.DONE)[0]["reason"]


@pytest.mark.parametrize(
    "options", [{"text": 7}, {"text": "x" * 5000}, {"text": "a", "speed": 9}, {"text": "a", "speed": "fast"}]
)
def test_speak__wrong_options(stage: VoiceStage, driver: Any, options: dict[str, Any]) -> None:
    """The request is refused, not the stage."""
    io = driver.IO(Mode.SPEAK, options)
    with pytest.raises(InputError):
        driver.drive(stage.request(io), io)


def test_converse__turn_after_turn(stage: VoiceStage, driver: Any) -> None:
    """Each turn ends with its own report, and the clauses' leases are given back."""
    io = driver.IO(Mode.CONVERSE, {})
    messages = [io.put(Kind.TEXT, "One thing,", turn=1), io.put(Kind.TEXT, " then two.", turn=1, last=True)]
    messages.append(io.put(Kind.TEXT, "Second.", turn=2, last=True))
    driver.drive(stage.request(io), io)
    assert [row[2] for row in io.sent if row[1] is Kind.DONE] == [1, 2]
    assert [report["clauses"] for report in io.of(Kind.DONE)] == [2, 1]
    assert all(message.released >= 1 for message in messages)


def test_converse__cancelled_turn_stops_and_the_next_one_speaks(stage: VoiceStage, driver: Any) -> None:
    """After a barge-in no more samples of that turn leave."""
    io = driver.IO(Mode.CONVERSE, {})
    io.put(Kind.TEXT, "A long sentence that will not be heard to its end.", turn=1)
    io.put(Kind.TEXT, " More of it.", turn=1, last=True)
    io.put(Kind.TEXT, "Hello.", turn=2, last=True)

    def cancel(io: Any) -> None:
        io.cancel_before = 2

    io.on_sent = cancel
    driver.drive(stage.request(io), io)
    assert len(io.of(Kind.AUDIO, turn=1)) == 1
    assert [report["finish"] for report in io.of(Kind.DONE)] == ["cancelled", "stop"]
    assert io.of(Kind.AUDIO, turn=2)


def test_converse__cancelled_within_a_run(stage: VoiceStage, driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn ends as cancelled, and the next one speaks; a run that was ended for another reason is told."""
    io = driver.IO(Mode.CONVERSE, {})
    io.put(Kind.TEXT, "A long sentence that will not be heard.", turn=1, last=True)
    io.put(Kind.TEXT, "Hello.", turn=2, last=True)
    whole, working = stage._synthesiser.chunks, []

    def chunks(feeds: Any, first: int) -> Any:
        working.append(io.working)
        if io.working == 1:
            io.cancel_before = 2
            raise RunCancelled("nobody waits")
        yield from whole(feeds, first)

    monkeypatch.setattr(stage._synthesiser, "chunks", chunks)
    driver.drive(stage.request(io), io)
    assert [report["finish"] for report in io.of(Kind.DONE)] == ["cancelled", "stop"]
    assert not io.of(Kind.AUDIO, turn=1)
    assert io.of(Kind.AUDIO, turn=2)
    assert (working, io.working) == ([1, 2], None)

    def late(feeds: Any, first: int) -> Any:
        raise RunCancelled("its time is over")
        yield

    io = driver.IO(Mode.CONVERSE, {})
    io.put(Kind.TEXT, "Hello.", turn=1, last=True)
    monkeypatch.setattr(stage._synthesiser, "chunks", late)
    with pytest.raises(RunCancelled):
        driver.drive(stage.request(io), io)


def test_stage__model_without_a_voice(graphs: Any, card: Any, driver: Any) -> None:
    """The message lists the graphs found and the ones needed."""
    with pytest.raises(ModelError, match="encode and decode, or synthesise"):
        VoiceStage(driver.Model("toy", {"decode": graphs["decode"]}, {"voice.json": card}), {}, Budget())
