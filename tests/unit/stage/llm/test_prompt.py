# SPDX-License-Identifier: Apache-2.0
"""Conversations and the prompts they become."""

from __future__ import annotations

import pytest

from dpfedge.chat import JinjaTemplate
from dpfedge.errors import ContextLengthError, InputError
from dpfedge.stage.llm.prompt import Conversation, Prompts, opening
from dpfedge.stage.llm.template import ChatTemplate
from dpfedge.stage.llm.tokenizer import Library, Tokenizer

OPENING = opening("Be brief.", [{"user": "a?", "assistant": "b."}])


@pytest.fixture
def prompts(assets: dict[str, bytes]) -> Prompts:
    """The toy's prompts."""
    return _prompts(assets, None)


def _prompts(assets: dict[str, bytes], bos: int | None) -> Prompts:
    template = ChatTemplate(JinjaTemplate(assets["chat_template.jinja"].decode(), {}))
    return Prompts(template, Tokenizer(Library(assets["tokenizer.json"])), bos)


def test_opening__system_then_examples() -> None:
    """As chat messages."""
    assert [(message["role"], message["content"]) for message in OPENING] == [
        ("system", "Be brief."), ("user", "a?"), ("assistant", "b."),
    ]  # fmt: skip
    assert opening("", []) == []


@pytest.mark.parametrize(("bos", "leads"), [(None, [1]), (1, [1]), (0, [0, 1])])
def test_tokens__exactly_the_bos_that_is_wanted(assets: dict[str, bytes], bos: int | None, leads: list[int]) -> None:
    """None is added where the template writes it already."""
    tokens = _prompts(assets, bos).tokens([{"role": "user", "content": "x"}])
    assert tokens[: len(leads)] == leads
    assert tokens.count(1) == 2


def test_shared__begins_every_prompt(prompts: Prompts) -> None:
    """And nothing longer does."""
    shared = prompts.shared(OPENING)
    for text in ("hello", "What?", "Zebra"):
        assert prompts.tokens([*OPENING, {"role": "user", "content": text}])[: len(shared)] == shared
    assert len(shared) > len(prompts.tokens(OPENING, answer=False))


def test_shared__template_that_leaves_the_newest_out(assets: dict[str, bytes]) -> None:
    """Then every prompt is the same, and all of it is shared."""
    template = ChatTemplate(JinjaTemplate("{{ messages[0].content }}", {}))
    prompts = Prompts(template, Tokenizer(Library(assets["tokenizer.json"])), None)
    assert prompts.shared(OPENING) == prompts.tokens(OPENING) != []


def test_heard__replaces_what_was_said() -> None:
    """Only the words that were heard stay; an answer nobody heard was never given."""
    talk = Conversation(OPENING)
    talk.add("user", "one?", 1024)
    talk.add("assistant", "long answer", 1024)
    talk.add("user", "two?", 2048)
    talk.heard(1024, "long")
    assert [entry.content for entry in talk.entries] == ["one?", "long", "two?"]
    talk.heard(1024, "")
    assert [entry.content for entry in talk.entries] == ["one?", "two?"]
    talk.heard(2048, "sure")
    assert [entry.content for entry in talk.entries] == ["one?", "two?", "sure"]


def test_of__checks_the_history() -> None:
    """A session may bring one."""
    assert len(Conversation.of(OPENING, [{"role": "user", "content": "x"}]).messages()) == 4
    with pytest.raises(InputError, match=r"messages\[0\]"):
        Conversation.of(OPENING, [7])


def test_fit__forgets_the_oldest_turns(prompts: Prompts) -> None:
    """The opening and the newest message stay, and the first one kept is the person's."""
    talk = Conversation(OPENING)
    for number in range(10):
        talk.add("user", f"question {number}", number)
        talk.add("assistant", f"answer {number}", number)
    talk.add("user", "last question", 99)
    room = len(prompts.tokens(OPENING)) + 150
    tokens = talk.fit(prompts, room)
    assert len(tokens) <= room
    assert talk.messages()[:3] == OPENING
    assert talk.entries[0].role == "user"
    assert talk.entries[-1].content == "last question"
    assert tokens == prompts.tokens(talk.messages())
    assert 1 <= len(talk.entries) < 21


def test_fit__thousands_of_entries(prompts: Prompts, monkeypatch: pytest.MonkeyPatch) -> None:
    """As few prompts are made as there are halvings of their number, and as much is kept as has room."""
    talk = Conversation(OPENING)
    for number in range(2000):
        talk.add("user", f"question {number}", number)
    made, tokens_of = [], prompts.tokens
    monkeypatch.setattr(prompts, "tokens", lambda messages: made.append(len(messages)) or tokens_of(messages))
    room = len(tokens_of(OPENING)) + 300

    talk.fit(prompts, room)

    assert len(made) < 16
    kept = talk.messages()
    longer = [*OPENING, {"role": "user", "content": f"question {2000 - len(talk.entries) - 1}"}, *kept[len(OPENING) :]]
    assert len(tokens_of(kept)) <= 0.6 * room < len(tokens_of(longer))


def test_fit__one_message_too_long(prompts: Prompts) -> None:
    """Both sizes are named."""
    talk = Conversation(OPENING)
    talk.add("user", "x" * 500, 1)
    with pytest.raises(ContextLengthError, match="allowed 200 tokens"):
        talk.fit(prompts, 200)


@pytest.mark.parametrize(
    ("turns", "kept"), [(0, ["u3"]), (1, ["u2", "a2", "u3"]), (None, ["u1", "a1", "u2", "a2", "u3"])]
)
def test_conversation__shows_the_model_so_many_turns(prompts: Prompts, turns: int | None, kept: list[str]) -> None:
    """The newest message and `turns` turns before it stay; None keeps all that fit."""
    talk = Conversation(OPENING, turns=turns)
    for number in (1, 2):
        talk.add("user", f"u{number}", number)
        talk.add("assistant", f"a{number}", number)
    talk.add("user", "u3", 3)

    talk.fit(prompts, 10_000)

    assert [entry.content for entry in talk.entries] == kept
