# SPDX-License-Identifier: Apache-2.0
"""What a native client writes, done to its conversation; the runtime's session is scripted."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from dpfedge.pipeline.events import AudioChunk, SpeechStarted, SpeechStopped, TextDelta, Transcript, TurnDone
from dpfedge.serve.native.session import settings
from dpfedge.serve.native.wire import HEARD_UNKNOWN, Command, Done, EventKind, Flag, Hello

TONE = (np.sin(np.arange(22_050) / 8) * 9000).astype(np.int16)
HELLO = Hello(0, 16_000, 0, 0, 0, None)


def eventually(check: Any) -> None:
    deadline = time.monotonic() + 30
    while not check():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


def test_settings__say_what_the_hello_says() -> None:
    """Every flag and number is one of a session.update."""
    every = settings(Hello(Flag.TEXT_ONLY | Flag.NO_BARGE_IN | Flag.ASK_TO_ANSWER, 8000, 48_000, 700, 9, "Hi"), 22_050)
    assert every["output_modalities"] == ["text"]
    assert every["instructions"] == "Hi"
    assert every["max_output_tokens"] == 9
    turns = {"create_response": False, "interrupt_response": False, "silence_duration_ms": 700}
    assert every["audio"]["input"] == {"format": {"type": "audio/pcm", "rate": 8000}, "turn_detection": turns}
    plain = settings(HELLO, 22_050)
    assert plain["audio"]["output"]["format"]["rate"] == 22_050
    assert "instructions" not in plain
    assert settings(HELLO._replace(flags=Flag.BY_HAND), 22_050)["audio"]["input"]["turn_detection"] is None


def test_turn__spoken_and_answered(faced: Any) -> None:
    """Samples in, words and sound out, at the voice's own rate and unchanged."""
    client = faced.dial()
    assert (client.status, client.output_hz) == (0, 22_050)
    client.push(bytes(range(256)))
    client.push(b"\1")
    eventually(lambda: len(faced.session.heard) == 257)
    assert bytes(faced.session.heard) == bytes(range(256)) + b"\1"
    faced.session.feed(
        SpeechStarted(1024, 1, 5), SpeechStopped(1024, 1, 80, 5, "silence"), Transcript(1024, 1, "turn left", 5, 80),
        TextDelta(1024, 1, "Left."), AudioChunk(1024, 1, TONE, 22_050), TurnDone(1024, 1, "stop"),
    )  # fmt: skip
    events = client.until(EventKind.ANSWER_DONE)
    assert [EventKind(kind).name for kind, *_ in events] == [
        "SPEECH_STARTED", "SPEECH_STOPPED", "WORDS", "TRANSCRIPT", "ANSWER_STARTED", "ANSWER_TEXT", "ANSWER_DONE",
    ]  # fmt: skip
    assert events[3][3] == "turn left"
    assert events[-1][1:] == (1, Done.COMPLETED, "")
    pieces = [client.sound()]
    while not pieces[-1][3]:
        pieces.append(client.sound())
    assert np.array_equal(np.concatenate([samples for _, _, samples, _ in pieces]), TONE)


def test_commands__reach_the_session(faced: Any) -> None:
    """Typed words, a question for an answer; commit and clear keep their place among the samples."""
    client = faced.dial(HELLO._replace(flags=Flag.BY_HAND))
    client.push(bytes(640))
    client.command(Command.COMMIT)
    eventually(lambda: ("commit",) in faced.session.calls)
    client.push(bytes(640))
    client.command(Command.CLEAR)
    eventually(lambda: ("clear",) in faced.session.calls)
    client.command(Command.SAY, "wörter".encode())
    eventually(lambda: ("say", "wörter") in faced.session.calls)
    faced.session.feed(TurnDone(1024, 1, "no_speech"))
    client.command(Command.RESPOND)
    assert client.until(EventKind.ANSWER_STARTED)[-1][1] == 1


def test_stop__silences_and_keeps_what_was_heard(faced: Any) -> None:
    """While the answer is made: it is cancelled, its words are cut, and no later sound of it is of the new epoch."""
    client = faced.dial()
    faced.session.feed(Transcript(1024, 1, "tell me", 5, 80), TextDelta(1024, 1, "Once upon a time there was."))
    faced.session.feed(AudioChunk(1024, 1, TONE, 22_050))
    client.until(EventKind.ANSWER_TEXT)
    answer, epoch, _, _ = client.sound()
    assert (answer, epoch) == (1, 0)
    client.stop(500, 1)
    _, number, code, why = client.until(EventKind.ANSWER_DONE)[-1]
    assert (number, code, why) == (1, Done.CANCELLED, "client_cancelled")
    assert ("interrupt", "Once") in faced.session.calls
    faced.session.feed(AudioChunk(1024, 1, TONE, 22_050), TurnDone(1024, 1, "cancelled"))
    while client.arena.requests.cancelled(client.key, (sound := client.sound())[1]):
        continue
    assert (sound[0], sound[3], len(sound[2])) == (1, True, 0)


def test_stop__twice_tells_the_end_again(faced: Any) -> None:
    """The first end is of an epoch that is not played any more, and a client may wait for it."""
    client = faced.dial()
    faced.session.feed(Transcript(1024, 1, "tell me", 5, 80), AudioChunk(1024, 1, TONE, 22_050))
    client.until(EventKind.ANSWER_STARTED)
    client.sound()
    for bound in (1, 2):
        client.stop(100, bound)
    eventually(lambda: ("interrupt", "") in faced.session.calls)
    sound = client.sound()
    while client.arena.requests.cancelled(client.key, sound[1]) or not sound[3]:
        sound = client.sound()
    assert sound[0] == 1
    assert sound[1] >= 2


def test_stop__of_an_answer_that_is_complete_shortens_it(faced: Any) -> None:
    """It was made long before it was played."""
    client = faced.dial()
    faced.session.feed(Transcript(1024, 1, "tell me", 5, 80), TextDelta(1024, 1, "one two three four"))
    faced.session.feed(AudioChunk(1024, 1, TONE, 22_050), TurnDone(1024, 1, "stop"))
    client.until(EventKind.ANSWER_DONE)
    client.stop(500, 1)
    eventually(lambda: ("interrupt", "one two") in faced.session.calls)


def test_stop__in_the_table_alone_is_enough(faced: Any) -> None:
    """The client had no room for a command."""
    client = faced.dial()
    faced.session.feed(Transcript(1024, 1, "tell me", 5, 80), AudioChunk(1024, 1, TONE, 22_050))
    client.until(EventKind.ANSWER_STARTED)
    client.sound()
    client.arena.requests.cancel(client.key, 1)
    client.ring()
    assert client.until(EventKind.ANSWER_DONE)[-1][2] == Done.CANCELLED


def test_stop__with_nothing_to_stop_is_fine(faced: Any) -> None:
    """Before the first answer; a cancel too."""
    client = faced.dial()
    client.stop(HEARD_UNKNOWN, 1)
    client.command(Command.CANCEL)
    client.command(99)
    assert client.event()[2:] == (400, "microphone: unknown command; found 99; allowed 1 to 6")


def test_barge_in__silences(faced: Any) -> None:
    """Speech ends the sound of an answer that was made but not played."""
    client = faced.dial()
    faced.session.feed(Transcript(1024, 1, "tell me", 5, 80), AudioChunk(1024, 1, TONE, 22_050))
    faced.session.feed(TurnDone(1024, 1, "stop"), SpeechStarted(2048, 1, 900))
    client.until(EventKind.SPEECH_STARTED)
    assert client.arena.requests.cancelled(client.key, 0)
    assert not client.arena.requests.cancelled(client.key, 1)


def test_respond__that_was_asked_for_before_a_stop_is_not_begun(faced: Any) -> None:
    """The client sees it end; one that is asked for behind the stop is given."""
    client = faced.dial()
    client.arena.requests.cancel(client.key, 1)
    client.command(Command.RESPOND, turn=0)
    assert client.until(EventKind.ANSWER_DONE)[-1][1:3] == (1, Done.CANCELLED)
    assert ("respond",) not in faced.session.calls
    client.command(Command.RESPOND, turn=1)
    eventually(lambda: ("respond",) in faced.session.calls)


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        (Command.SAY, b"\xff\xfe", "not UTF-8"),
        (Command.SAY, b"", "item.content"),
        (Command.COMMIT, b"", "nothing to commit"),
        (77, b"", "unknown command"),
        (0, b"x", "unknown command"),
    ],
)
def test_mistakes__are_told_and_the_session_goes_on(faced: Any, kind: int, data: bytes, words: str) -> None:
    """Each with an error event; the next sample is heard."""
    client = faced.dial()
    client.command(kind, data)
    got, _, code, text = client.event()
    assert (got, code) == (EventKind.ERROR, 400)
    assert words in text
    client.push(bytes(32))
    eventually(lambda: len(faced.session.heard) == 32)


def test_stop__of_another_size_is_a_stop_all_the_same(faced: Any) -> None:
    """What it says is not read; the bound it set counts."""
    client = faced.dial()
    loan = client.stops.loan(1)
    client.stops.send(loan, kind=1, request=client.key, nbytes=1)
    client.arena.requests.cancel(client.key, 1)
    client.ring()
    client.push(bytes(32))
    eventually(lambda: len(faced.session.heard) == 32)


def test_figures__of_a_turn(faced: Any) -> None:
    """State by state; what came and went is counted here, also what waits for room that the client does not make."""
    client = faced.dial()

    def now() -> dict[str, Any]:
        [row] = faced.run(faced.face.figures).values()
        return dict(row)

    assert {key: value for key, value in now().items() if key not in ("pid", "user", "open_ms")} == {
        "state": "idle", "utterances": 0, "answers": 0, "events": 0,
        "heard_bytes": 0, "sound_bytes": 0, "waiting_bytes": 0,
    }  # fmt: skip
    client.push(bytes(640))
    faced.session.feed(SpeechStarted(1024, 1, 5))
    eventually(lambda: (now()["state"], now()["heard_bytes"], now()["utterances"]) == ("hearing", 640, 1))
    faced.session.feed(SpeechStopped(1024, 1, 80, 5, "silence"), Transcript(1024, 1, "turn left", 5, 80))
    faced.session.feed(*(AudioChunk(1024, 1, TONE, 22_050) for _ in range(20)))
    eventually(lambda: now()["sound_bytes"] + now()["waiting_bytes"] == 20 * TONE.nbytes)
    assert (now()["state"], now()["answers"]) == ("answering", 1)
    assert now()["waiting_bytes"] > 0  # the ring has room for 64 slots
    faced.session.feed(TurnDone(1024, 1, "stop"))
    eventually(lambda: now()["state"] == "idle")
    assert now()["events"] == len(client.until(EventKind.ANSWER_DONE))
