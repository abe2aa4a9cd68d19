# SPDX-License-Identifier: Apache-2.0
"""The llm stage as its runner sees it: places, facts, warm-up and chats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dpfedge.backend.api import Budget
from dpfedge.compiler.chat import prove
from dpfedge.compiler.vocabulary import tables
from dpfedge.errors import Busy, ContextLengthError, InputError, ModelError, StageError
from dpfedge.stage.api import Kind, Mode, Wait
from dpfedge.stage.llm import LlmStage

END = 2
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def say(ids: Callable[[str], list[int]]) -> list[int]:
    """Fine, it is warm today."""
    return [*ids("Fine, it is warm today."), END]


@pytest.fixture(scope="module")
def stage(make_stage: Callable[..., LlmStage], say: list[int]) -> LlmStage:
    """Answers everything with the same words."""
    return make_stage(say, {"system": "Be brief.", "places": 2}, 200)


def chat(stage: LlmStage, driver: Any, messages: Any = None, **sampling: Any) -> Any:
    io = driver.IO(Mode.CHAT, {"messages": HELLO if messages is None else messages, "sampling": sampling}, ["sink"])
    io.waits = driver.drive(stage.request(io), io)
    return io


def test_facts__what_the_faces_need(stage: LlmStage) -> None:
    """Name, sizes and places."""
    assert stage.facts() == {"name": "toy", "context": 200, "places": 2, "max_tokens": None, "prefix": "none"}


def test_chat__text_then_report(stage: LlmStage, driver: Any) -> None:
    """Deltas token by token; a step for each; DONE last."""
    io = chat(stage, driver)
    assert io.of(Kind.TEXT) == ["Fine", ",", " it", " is", " warm", " today", "."]
    (report,) = io.of(Kind.DONE)
    assert (report["finish"], report["source"], report["completion_tokens"], report["clauses"]) == ("stop", "llm", 7, 0)
    assert report["prompt_tokens"] > 10
    assert report["ttft_ms"] > 0
    assert io.sent[-1][1:5:3] == (Kind.DONE, True)
    assert io.waits.count(Wait.STEP) >= 7


def test_chat__same_request_same_reuse(stage: LlmStage, driver: Any) -> None:
    """What is reused depends on the request alone, so the answer's last bits do too."""
    reports = [chat(stage, driver).of(Kind.DONE)[0] for _ in range(3)]
    assert len({report["cached_tokens"] for report in reports}) == 1
    assert 0 < reports[0]["cached_tokens"] < reports[0]["prompt_tokens"]


def test_chat__max_tokens_and_stop(stage: LlmStage, driver: Any) -> None:
    """`length` and `stop` as OpenAI means them."""
    io = chat(stage, driver, max_tokens=3)
    assert ("".join(io.of(Kind.TEXT)), io.of(Kind.DONE)[0]["finish"]) == ("Fine, it", "length")
    io = chat(stage, driver, stop=["is wa"])
    assert ("".join(io.of(Kind.TEXT)), io.of(Kind.DONE)[0]["finish"]) == ("Fine, it ", "stop")


@pytest.mark.parametrize("messages", [[], "x", 7, [{"role": "user", "content": None}]])
def test_chat__wrong_messages(stage: LlmStage, driver: Any, messages: Any) -> None:
    """The request fails before it takes a place."""
    with pytest.raises(InputError, match="messages"):
        chat(stage, driver, messages)
    assert stage._parts.pool.free == 2


@pytest.mark.parametrize("size", [199, 200, 201, 2000])
def test_chat__context_too_short(stage: LlmStage, driver: Any, size: int) -> None:
    """Both sizes are named, and the next request works."""
    bare = [{"role": "system", "content": ""}, {"role": "user", "content": ""}]
    spare = 200 - len(stage._parts.prompts.tokens(bare))
    bare[1]["content"] = "x" * (spare + size - 200)
    if size < 200:
        assert chat(stage, driver, bare).of(Kind.DONE)[0]["finish"] == "length"
    else:
        with pytest.raises(ContextLengthError, match=f"found {size} prompt tokens; allowed 200 tokens"):
            chat(stage, driver, bare)
    with pytest.raises(ContextLengthError, match="1000 answer tokens; allowed 200"):
        chat(stage, driver, max_tokens=1000)
    assert chat(stage, driver).of(Kind.DONE)[0]["finish"] == "stop"


def test_chat__many_at_once_interleave_and_one_too_many_is_busy(stage: LlmStage, driver: Any) -> None:
    """Each has its own place; their texts do not mix."""
    ios = [driver.IO(Mode.CHAT, {"messages": HELLO}, ["sink"]) for _ in range(3)]
    steps = [stage.request(io) for io in ios]
    next(steps[0])
    next(steps[1])
    with pytest.raises(Busy):
        next(steps[2])
    for _ in range(20):
        for step in steps[:2]:
            next(step, None)
    assert ["".join(io.of(Kind.TEXT)) for io in ios[:2]] == ["Fine, it is warm today."] * 2


def test_chat__cancelled_stops_at_the_next_step(stage: LlmStage, driver: Any) -> None:
    """And frees its place."""
    io = driver.IO(Mode.CHAT, {"messages": HELLO}, ["sink"])
    io.on_sent = lambda io: setattr(io, "cancel_before", 9)
    driver.drive(stage.request(io), io)
    assert io.of(Kind.TEXT) == ["Fine"]
    assert io.of(Kind.DONE)[0]["finish"] == "cancelled"
    assert stage._parts.pool.free == 2


def test_chat__closed_by_its_runner(stage: LlmStage, driver: Any) -> None:
    """A client that goes away frees its place at once."""
    io = driver.IO(Mode.CHAT, {"messages": HELLO}, ["sink"])
    steps = stage.request(io)
    next(steps)
    assert stage._parts.pool.free == 1
    steps.close()
    assert stage._parts.pool.free == 2


def test_chat__logits_that_are_no_numbers(make_stage: Callable[..., LlmStage], driver: Any, ids: Any) -> None:
    """The request fails at that step; the place is clean for the next one."""
    stage = make_stage([*ids("Fine, it"), -1], {"places": 1})
    for _ in range(2):
        io = driver.IO(Mode.CHAT, {"messages": HELLO}, ["sink"])
        with pytest.raises(StageError, match="no numbers"):
            driver.drive(stage.request(io), io)
        assert "".join(io.of(Kind.TEXT)) == "Fine, it"
    assert stage._parts.pool.free == 1


def test_stage__model_without_end_tokens(make_stage: Callable[..., LlmStage], say: list[int]) -> None:
    """The place in the package is named."""
    with pytest.raises(ModelError, match=r"config\.eos"):
        make_stage(say, ends=[])


def test_stage__tables_and_pieces_in_place_of_tokenizer_and_template(
    attentive: Any, assets: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same prompts, without a look at either."""
    config, both = {"system": "Be brief."}, []
    both.append(LlmStage(attentive, config, Budget()))
    pieces = prove(assets["chat_template.jinja"].decode(), {}).pack()
    words = tables(assets["tokenizer.json"])
    broken = {"chat_template.jinja": b"{% for %}", "tokenizer.json": b"{}"}
    own = {**broken, "chat_template.pieces": pieces, "vocabulary.tables": words}
    monkeypatch.setattr(attentive, "_assets", own)
    monkeypatch.setattr(attentive, "assets", tuple(own))
    both.append(LlmStage(attentive, config, Budget()))
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Bye"}]
    for messages in (talk, talk[:1]):
        one, other = (stage._parts.prompts.tokens(messages) for stage in both)
        assert one == other
    assert both[0]._parts.shared == both[1]._parts.shared
