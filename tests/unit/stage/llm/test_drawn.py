# SPDX-License-Identifier: Apache-2.0
"""The llm inside a drawn graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dpfedge.errors import InputError, StageError
from dpfedge.stage.api import Kind, Mode
from dpfedge.stage.join import Sync
from dpfedge.stage.llm import LlmStage

END = 2
ANSWER = "Fine, it is warm today."


@pytest.fixture
def stage(make_stage: Callable[..., LlmStage], ids: Callable[[str], list[int]]) -> LlmStage:
    """Answers everything with the same words; its prompts are kept in `asked`."""
    one = make_stage([*ids(ANSWER), END], {"prompt": "Read: {text} Asked: {question}", "system": "Be brief."}, 200)
    one.asked = []  # type: ignore[attr-defined]
    inner = one._parts.prompts.tokens

    def tokens(messages: Any) -> list[int]:
        if messages[-1]["content"].startswith("Read:"):  # the prompts are also measured with other words
            one.asked.append(messages[-1]["content"])  # type: ignore[attr-defined]
        return inner(messages)

    one._parts.prompts.tokens = tokens  # type: ignore[method-assign]
    return one


def _run(driver: Any, stage: LlmStage, rows: list[tuple[str, Any, int]], inputs: str = "text", **options: Any) -> Any:
    """`rows`: (port, text, or None for its end, captured_ms)."""
    io = driver.IO(Mode.RUN, options, options.pop("ports", ("sink",)))
    io.inputs = frozenset(inputs.split())
    for port, text, at_ms in rows:
        message = io.put(Kind.END if text is None else Kind.DATA, text)
        message.port, message.captured_ns = port, at_ms * 1_000_000
    io.given = list(io.inbox)
    driver.drive(stage.request(io), io)
    assert all(message.released == 1 for message in io.given)
    return io


def _answers(io: Any, count: int) -> list[str]:
    return ["".join(io.of(Kind.TEXT, turn=turn)) for turn in range(1, count + 1)]


def test_text__each_is_answered_with_the_requests_question(driver: Any, stage: LlmStage) -> None:
    """A report for each, one of the whole; an empty text is none."""
    rows = [("text", "STOP", 1), ("text", "", 2), ("text", "EXIT 5", 3), ("text", None, 0)]
    io = _run(driver, stage, rows, question="What now?")

    assert stage.asked == ["Read: STOP Asked: What now?", "Read: EXIT 5 Asked: What now?"]  # type: ignore[attr-defined]
    assert _answers(io, 2) == [ANSWER, ANSWER]
    assert io.of(Kind.DONE, turn=0) == [{"answers": 2}]


def test_text__the_last_at_the_end(driver: Any, stage: LlmStage) -> None:
    """One answer however many frames were read."""
    rows = [("text", "ST", 1), ("text", "STOP", 2), ("text", None, 0)]
    io = _run(driver, stage, rows, answer="end")

    assert stage.asked == ["Read: STOP Asked:"]  # type: ignore[attr-defined]
    assert io.of(Kind.DONE, turn=0) == [{"answers": 1}]


def test_question__is_asked_of_the_newest_text(driver: Any, stage: LlmStage) -> None:
    """Where a stage asks, texts alone are not answered."""
    rows = [("text", "A", 1), ("text", "B", 2), ("question", "What?", 3), ("text", None, 0), ("question", None, 0)]
    _run(driver, stage, rows, "text question")

    assert stage.asked == ["Read: B Asked: What?"]  # type: ignore[attr-defined]


def test_question__of_the_text_at_its_time(driver: Any, stage: LlmStage) -> None:
    """As the pipeline's sync says, however late the texts come."""
    stage.sync = Sync("question", "nearest", 50_000_000, 4)
    rows = [
        ("question", "What?", 100), ("text", "old", 20), ("text", "then", 110), ("text", "new", 200),
        ("question", "Now?", 400), ("text", None, 0), ("question", None, 0),
    ]  # fmt: skip
    io = _run(driver, stage, rows, "text question")

    assert stage.asked == ["Read: then Asked: What?"]  # type: ignore[attr-defined]
    (done,) = io.of(Kind.DONE, turn=0)
    assert done["dropped"]["question"] == 1


def test_clauses__go_to_the_voice_and_end(driver: Any, stage: LlmStage) -> None:
    """Where one is linked."""
    io = _run(driver, stage, [("text", "STOP", 1), ("text", None, 0)], ports=("sink", "clauses"))

    assert "".join(io.of(Kind.TEXT, "clauses")).replace(" ", "") == ANSWER.replace(" ", "")
    assert [row[1] for row in io.sent if row[0] == "clauses"][-1] is Kind.END


@pytest.mark.parametrize(("options", "words"), [({"answer": "some"}, "allowed each, end"), ({"question": 3}, "string")])
def test_options__that_are_wrong(driver: Any, stage: LlmStage, options: Any, words: str) -> None:
    """Before anything is computed."""
    with pytest.raises(InputError, match=words):
        _run(driver, stage, [], **options)


def test_message__without_a_time_is_refused_and_given_back(driver: Any, stage: LlmStage) -> None:
    """By the stage's name; its slot is free again."""
    stage.sync = Sync("question", "nearest", 50_000_000, 4)
    io = driver.IO(Mode.RUN, {})
    io.inputs = frozenset({"text", "question"})
    message = io.put(Kind.DATA, "STOP")
    message.port = "text"

    with pytest.raises(StageError, match="stage llm: port text: the message has no time"):
        driver.drive(stage.request(io), io)
    assert message.released == 1
