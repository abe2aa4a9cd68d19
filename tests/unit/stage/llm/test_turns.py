# SPDX-License-Identifier: Apache-2.0
"""Conversations of the llm stage, turn after turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dpfedge.errors import ConfigError, RunCancelled
from dpfedge.stage.api import TURN_STRIDE, Kind, Mode, Wait
from dpfedge.stage.llm import LlmStage
from dpfedge.stage.llm.cache import Place
from dpfedge.stage.llm.template import ChatTemplate

END = 2
FIRST, SECOND, THIRD = TURN_STRIDE, 2 * TURN_STRIDE, 3 * TURN_STRIDE
WORDS = "Fine, it is warm today."
CONFIG = {
    "system": "Be brief.",
    "examples": [{"user": "a?", "assistant": "b."}],
    "replies": [{"match": "hello", "say": "Hello, driver."}],
    "sums": True,
    "sampling": {"max_tokens": 20},
    "places": 2,
}


class Talk:
    """One session on the driver; `run` drives it until it waits, `prompts` are the tokens of each answer's prompt."""

    def __init__(self, stage: LlmStage, driver: Any, **options: Any) -> None:
        ports = options.pop("ports", ("sink", "clauses"))
        self.io = driver.IO(Mode.CONVERSE, options, ports)
        self.stage, self._driver, self._steps = stage, driver, stage.request(self.io)

    def run(self) -> Talk:
        self._driver.drive(self._steps, self.io)
        return self

    def hear(self, text: str, turn: int) -> Talk:
        self.io.put(Kind.TEXT, text, turn=turn)
        return self.run()

    def report(self, turn: int) -> dict[str, Any]:
        (found,) = self.io.of(Kind.DONE, turn=turn)
        return dict(found)

    def text(self, turn: int) -> str:
        return "".join(self.io.of(Kind.TEXT, turn=turn))

    def close(self) -> None:
        self._steps.close()


@pytest.fixture(scope="module")
def stage(make_stage: Callable[..., LlmStage], ids: Callable[[str], list[int]]) -> LlmStage:
    """Answers everything but replies and sums with the same words."""
    return make_stage([*ids(WORDS), END], CONFIG, 400)


@pytest.fixture
def talk(stage: LlmStage, driver: Any) -> Any:
    """`talk(**options)`: a session, closed after the test."""
    opened: list[Talk] = []

    def open_session(**options: Any) -> Talk:
        opened.append(Talk(stage, driver, **options).run())
        return opened[-1]

    yield open_session
    for session in opened:
        session.close()
    assert stage._parts.pool.free == CONFIG["places"]


def test_turn__text_to_the_sink_and_clauses_to_the_voice(talk: Callable[..., Talk]) -> None:
    """A clause leaves before the answer is complete; the last one says so."""
    session = talk().hear("How is the weather?", FIRST)
    assert session.text(FIRST) == WORDS
    voice = [row for row in session.io.sent if row[0] == "clauses"]
    assert [(row[3], row[4]) for row in voice] == [("Fine, it is warm today.", True)]
    report = session.report(FIRST)
    assert (report["source"], report["finish"], report["clauses"]) == ("llm", "stop", 1)
    assert report["first_clause_ns"] >= report["first_token_ns"]


def test_turn__without_a_voice(talk: Callable[..., Talk]) -> None:
    """Text only."""
    session = talk(ports=("sink",)).hear("How is the weather?", FIRST)
    assert session.text(FIRST) == WORDS
    assert session.report(FIRST)["clauses"] == 0


def test_turn__nothing_was_said(talk: Callable[..., Talk]) -> None:
    """No answer, nothing remembered."""
    session = talk().hear("  ", FIRST)
    assert session.report(FIRST)["finish"] == "no_speech"
    assert session.text(FIRST) == ""
    assert session.io.of(Kind.TEXT, "clauses") == []


@pytest.mark.parametrize(("asked", "said"), [("Hello!", "Hello, driver."), ("What is two plus two?", "2 plus 2 is 4.")])
def test_turn__replies_need_no_model(talk: Callable[..., Talk], asked: str, said: str) -> None:
    """Fixed texts and sums; they are spoken and remembered like any answer."""
    session = talk().hear(asked, FIRST)
    assert session.text(FIRST) == said
    assert session.report(FIRST)["source"] == "reply"
    assert [row[3:] for row in session.io.sent if row[0] == "clauses"][-1] == (said, True)
    assert session.hear("How is the weather?", SECOND).report(SECOND)["source"] == "llm"


def test_draft__right_one_makes_the_prompt_free(talk: Callable[..., Talk]) -> None:
    """Nothing leaves for a draft; the transcript that equals it costs no prefill."""
    session = talk()
    session.io.put(Kind.DRAFT, "How is the weather?", turn=FIRST)
    session.run()
    assert session.io.sent == []
    report = session.hear("How is the weather?", FIRST).report(FIRST)
    assert report["cached_tokens"] == report["prompt_tokens"]
    assert session.text(FIRST) == WORDS


def test_draft__wrong_one_is_rolled_back(talk: Callable[..., Talk]) -> None:
    """The common beginning stays, and the answer is that of a session without a draft."""
    session = talk()
    session.io.put(Kind.DRAFT, "How is the weather in the mountains two", turn=FIRST)
    session.run()
    report = session.hear("How is the weather in the mountains today?", FIRST).report(FIRST)
    plain = talk().hear("How is the weather in the mountains today?", FIRST).report(FIRST)
    assert report["prompt_tokens"] == plain["prompt_tokens"]
    assert plain["cached_tokens"] < report["cached_tokens"] < report["prompt_tokens"]
    assert session.text(FIRST) == WORDS


def test_turn__history_grows_and_is_prepared(talk: Callable[..., Talk], ids: Callable[[str], list[int]]) -> None:
    """The second prompt holds the first turn; only the new words are left to run when they come."""
    session = talk().hear("How is the weather?", FIRST).hear("And now?", SECOND)
    first, second = session.report(FIRST), session.report(SECOND)
    assert second["prompt_tokens"] > first["prompt_tokens"] + 7
    assert second["prompt_tokens"] - second["cached_tokens"] == len(ids("And now?<|im_end|>\n<|im_start|>assistant\n"))


def test_opening__computed_by_the_first_request(make_stage: Any, driver: Any, ids: Any) -> None:
    """When the warm-up leaves it out; what is reused, and so the answer, is the same."""
    late = make_stage([*ids(WORDS), END], {**CONFIG, "warm_opening": False})
    assert late._parts.pool.prefix is None
    sessions = [Talk(late, driver).run() for _ in range(2)]
    assert late._parts.pool.prefix.tokens == tuple(late._parts.shared)
    reports = [session.hear("How is the weather?", FIRST).report(FIRST) for session in sessions]
    assert [report["cached_tokens"] for report in reports] == [len(late._parts.shared)] * 2


def test_turn__history_given_at_the_start(talk: Callable[..., Talk]) -> None:
    """A session may bring one along."""
    history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    longer = talk(history=history).hear("Now?", FIRST).report(FIRST)["prompt_tokens"]
    shorter = talk().hear("Now?", FIRST).report(FIRST)["prompt_tokens"]
    assert longer > shorter


def test_turn__instructions_replace_the_opening(talk: Callable[..., Talk]) -> None:
    """Prompt and examples of the package are left out then."""
    own = talk(instructions="x").hear("Now?", FIRST).report(FIRST)
    usual = talk().hear("Now?", FIRST).report(FIRST)
    assert own["prompt_tokens"] < usual["prompt_tokens"]


def test_cancel__stops_the_answer_and_keeps_what_was_heard(talk: Callable[..., Talk]) -> None:
    """HEARD corrects the history; the voice is told that the turn is over."""
    session = talk()
    session.io.on_sent = lambda io: setattr(io, "cancel_before", FIRST + 1) if len(io.of(Kind.TEXT)) == 4 else None
    session.hear("How is the weather?", FIRST)
    assert session.text(FIRST) == "Fine, it is"
    assert session.report(FIRST)["finish"] == "cancelled"
    session.io.put(Kind.HEARD, {"text": "Fine"}, turn=FIRST)
    after = session.hear("Go on", SECOND).report(SECOND)
    whole = talk().hear("How is the weather?", FIRST).hear("Go on", SECOND).report(SECOND)
    assert after["finish"] == "stop"
    assert after["prompt_tokens"] == whole["prompt_tokens"] - 6


@pytest.mark.parametrize("count", [1, 5])
def test_cancel__within_a_run_is_a_cancel(
    talk: Callable[..., Talk], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the prompt and of a token: the turn is cancelled, not failed, and the conversation goes on."""
    session, run, ran = talk(), Place.run, [0]

    def ended(place: Place, tokens: Any) -> None:
        ran[0] += session.io.working == FIRST
        if ran[0] == count and session.io.working == FIRST:
            session.io.cancel_before = FIRST + 1
            raise RunCancelled("nobody waits")
        run(place, tokens)

    session.io.working = None
    monkeypatch.setattr(Place, "run", ended)
    session.hear("How is the weather?", FIRST)
    assert session.report(FIRST)["finish"] == "cancelled"
    assert not session.io.of(Kind.FAILED)
    assert session.io.working is None
    assert session.hear("Go on", SECOND).report(SECOND)["finish"] == "stop"


def test_run__ended_for_the_request_is_told_to_who_runs_it(
    talk: Callable[..., Talk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is over, or nobody is there: that is no failure of a turn."""
    session = talk()
    session.io.working = None

    def ended(place: Place, tokens: Any) -> None:
        raise RunCancelled("nobody waits")

    monkeypatch.setattr(Place, "run", ended)
    with pytest.raises(RunCancelled):
        session.hear("How is the weather?", FIRST)
    assert not session.io.of(Kind.FAILED)


def test_cancel__after_a_clause_ends_the_voice_turn(stage: LlmStage, driver: Any, make_stage: Any, ids: Any) -> None:
    """Exactly one message says that no more clauses come."""
    session = Talk(make_stage([*ids("Drive on! Fine, it is"), END], CONFIG), driver).run()

    def cancel(io: Any) -> None:
        if io.of(Kind.TEXT, "clauses"):
            io.cancel_before = FIRST + 1

    session.io.on_sent = cancel
    session.hear("What now?", FIRST)
    assert [row[3:] for row in session.io.sent if row[0] == "clauses"] == [("Drive on!", False), ("", True)]
    assert session.report(FIRST)["clauses"] == 1


def test_typed__text_waits_for_respond(talk: Callable[..., Talk]) -> None:
    """Turns between those of speech are typed ones."""
    session = talk().hear("Typed question", 1)
    assert session.io.sent == []
    session.io.put(Kind.RESPOND, {}, turn=2)
    assert session.run().text(2) == WORDS
    session.io.put(Kind.RESPOND, {"instructions": "x"}, turn=3)
    assert session.run().report(3)["prompt_tokens"] < session.report(2)["prompt_tokens"]


def test_typed__what_has_no_room_is_forgotten_at_once(talk: Callable[..., Talk], monkeypatch: Any) -> None:
    """A client that types and never asks keeps nobody busy with more than the context; the newest is answered."""
    shown: list[int] = []
    render = ChatTemplate.render

    def counted(self: ChatTemplate, messages: Any, **options: Any) -> str:
        shown.append(len(messages))
        return render(self, messages, **options)

    monkeypatch.setattr(ChatTemplate, "render", counted)
    session = talk()
    for turn in range(1, 200):
        session.hear(f"Typed question {turn}", turn)
    session.hear("y" * 600, 200).hear("And now?", 201)
    session.io.put(Kind.RESPOND, {}, turn=202)
    assert session.run().text(202) == WORDS
    assert max(shown) < 20
    assert session.io.of(Kind.FAILED) == []


def test_turn__that_fails_is_reported_and_the_session_goes_on(talk: Callable[..., Talk]) -> None:
    """FAILED with the error's parts; the draft of it fails silently."""
    session = talk()
    session.io.put(Kind.DRAFT, "x" * 600, turn=FIRST)
    assert session.run().io.sent == []
    session.hear("x" * 600, FIRST)
    (failure,) = session.io.of(Kind.FAILED)
    assert (failure["type"], failure["stage"]) == ("ContextLengthError", "llm")
    assert "allowed" in failure
    assert session.hear("How is the weather?", SECOND).text(SECOND) == WORDS


def test_turn__long_session_trims_itself(talk: Callable[..., Talk]) -> None:
    """Old turns go; no turn fails for want of context."""
    session = talk()
    for number in range(1, 15):
        session.hear(f"Question number {number} is this one?", number * TURN_STRIDE)
    reports = session.io.of(Kind.DONE)
    assert [report["finish"] for report in reports] == ["stop"] * 14
    assert max(report["prompt_tokens"] for report in reports) <= 380
    assert session.io.of(Kind.FAILED) == []


def test_session__every_lease_is_given_back(talk: Callable[..., Talk]) -> None:
    """Before the answer is made."""
    session = talk()
    messages = [session.io.put(Kind.TEXT, "Now?", turn=FIRST), session.io.put(Kind.HEARD, {"text": "Fine"}, turn=FIRST)]
    messages.append(session.io.put(Kind.RESPOND, {}, turn=FIRST + 1))
    session.run()
    assert all(message.released == 1 for message in messages)


def test_adjust__counts_from_the_next_answer_on(
    make_stage: Callable[..., LlmStage], ids: Callable[[str], list[int]], driver: Any
) -> None:
    """A conversation's answers get shorter and long again; what the session asks for by itself still counts."""
    stage = make_stage([*ids(WORDS), END], CONFIG, 400)
    talk, asking = Talk(stage, driver).run(), Talk(stage, driver, sampling={"max_tokens": 5}).run()

    stage.adjust({"sampling": {"max_tokens": 2}})
    assert talk.hear("what now?", FIRST).text(FIRST) == "Fine,"
    assert asking.hear("what now?", FIRST).report(FIRST)["completion_tokens"] == 5
    with pytest.raises(ConfigError, match="stage llm: this setting cannot change while the stage runs; found places"):
        stage.adjust({"places": 1})
    assert talk.hear("what now?", SECOND).text(SECOND) == "Fine,"
    stage.adjust({})
    assert talk.hear("what now?", THIRD).text(THIRD) == WORDS
    talk.close()
    asking.close()


def test_first_clause__the_voice_goes_first(driver: Any, make_stage: Any, ids: Any) -> None:
    """No token until it has begun to speak; not for ever, and for no later clause."""
    two = make_stage([*ids("Drive on! It is warm today."), END], CONFIG, 400)
    io = driver.IO(Mode.CONVERSE, {}, ("sink", "clauses"))
    steps = two.request(io)
    driver.drive(steps, io)
    io.unread = [1, 1, 1, 0, 1, 1]
    io.put(Kind.TEXT, "What now?", turn=FIRST)

    waits = driver.drive(steps, io)

    assert waits.count(Wait.SPACE) == 3
    assert io.unread == [1, 1]
    steps.close()
