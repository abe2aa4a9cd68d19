# SPDX-License-Identifier: Apache-2.0
"""Chat templates that are proven to be pieces of text, and those that are not."""

from __future__ import annotations

import json
import random

import pytest

from dpfedge.chat import ROLES, JinjaTemplate, Pieces
from dpfedge.compiler.chat import Unproven, chat_pieces, prove

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
CHATML = (
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
    "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou "
    "are helpful<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
ZEPHYR = """\
{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% else %}
{{ '<|assistant|>\\n'  + message.content | trim ~ eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""
GOOD = {"chatml": CHATML, "smollm2": SMOLLM2, "zephyr": ZEPHYR}
SAID = ["", " ", "Hi", " a\n", "{{ x }}", "{% raw %}", "</s><|im_end|>", "\ue0000", "\u2003z\u00a0", "'\\n'", "é🚗"]


@pytest.mark.parametrize("source", GOOD.values(), ids=GOOD)
def test_prove__equals_the_template(source: str) -> None:
    """In long conversations too, whatever is said in them."""
    template, pieces, chance = JinjaTemplate(source, TOKENS), prove(source, TOKENS), random.Random(1)
    for _ in range(300):
        count = chance.randint(1, 12)
        talk = [{"role": chance.choice(ROLES), "content": chance.choice(SAID)} for _ in range(count)]
        answer = chance.random() < 0.5
        assert pieces.render(talk, answer=answer) == template.render(talk, answer=answer)


@pytest.mark.parametrize(("source", "why"), [
    ("{% for %}", "cannot be read"),
    ("{{ messages }}", "0 loops"),
    ("{% for m in messages %}{{ m.content }}{% endfor %}{% for m in messages %}{{ m.role }}{% endfor %}", "2 loops"),
    ("{% for m in messages[1:] %}{{ m.content }}{% endfor %}", "something else than messages"),
    ("{% for loop in messages %}{{ loop.content }}{% endfor %}", "cannot be read"),
    ("{% for messages in messages %}{{ messages.content }}{% endfor %}", "something else than messages"),
    ("{% for m in messages if m.role %}{{ m.content }}{% endfor %}", "with a condition"),
    ("{% for m in messages %}{{ m.content }}{% else %}x{% endfor %}", "with a condition, an else"),
    ("{% for m in messages %}{% if m.content %}{{ m.content }}{% endif %}{% endfor %}", "Getattr of what was said"),
    ("{% for m in messages %}{% if m.content == 'x' %}y{% endif %}{{ m.content }}{% endfor %}", "Getattr of what"),
    ("{% for m in messages %}{% if 'x' in m.content %}y{% endif %}{{ m.content }}{% endfor %}", "Compare of what"),
    ("{% for m in messages %}{{ m.content[:3] }}{% endfor %}", "of what was said"),
    ("{% for m in messages %}{{ m.content | upper }}{% endfor %}", "the filter upper"),
    ("{% for m in messages %}{{ ('x' + m.content) | trim }}{% endfor %}", "the filter trim"),
    ("{% for m in messages %}{{ m.content | trim('x') }}{% endfor %}", "the filter trim"),
    ("{% for m in messages %}{{ m.content.strip() }}{% endfor %}", "Call of what was said"),
    ("{% for m in messages %}{{ m }}{{ m.content }}{% endfor %}", "m as a whole"),
    ("{% for m in messages %}{{ messages }}{{ m.content }}{% endfor %}", "messages as a whole"),
    ("{% for m in messages %}{{ m.content }}{% if loop.index > 2 %}x{% endif %}{% endfor %}", "Compare of what"),
    ("{% for m in messages %}{{ m.content }}{% if loop.index == 9 %}x{% endif %}{% endfor %}", "Getattr of what"),
    ("{% for m in messages %}{% set x = 1 %}{{ m.content }}{% endfor %}", "Assign here"),
    ("{% set messages = 1 %}{% for m in messages %}{{ m.content }}{% endfor %}", "messages as a whole"),
    ("{% for m in messages %}{{ m.content }}{% break %}{% endfor %}", "Break here"),
    ("{% for m in messages %}{% for n in messages %}{{ n.content }}{% endfor %}{% endfor %}", "For here"),
    ("{% for m in messages %}{{ m.content }}{% endfor %}{{ messages[0].content }}", "Getattr of what was said"),
    ("{% for m in messages %}{{ m.content }}{% endfor %}{{ messages[1].role }}", "Getattr of what was said"),
    ("{% for m in messages %}{{ m.content }}{% endfor %}{{ strftime_now('%Y') }}", "Call of what was said"),
    ("{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}", "copied"),
    ("{% for m in messages %}{{ m.role }}{% endfor %}", "not copied once"),
    ("{% for m in messages %}{% if loop.first %}{{ m.content }}{% endif %}{% endfor %}", "not copied once"),
    ("{% for m in messages %}{{ m.content }}{% if messages[0].role == 'tool' %}x{% endif %}{% endfor %}",
     "two neighbours"),
    ("{% for m in messages %}{% if loop.last %}{{ m.content | trim }}{% else %}{{ m.content }}{% endif %}{% endfor %}",
     "two neighbours"),
    ("{% for m in messages %}{{ m.content + unknown }}{% endfor %}", "unknown"),
    ("{% for m in messages %}{{ m.content + add_generation_prompt }}{% endfor %}", "bool"),
    ("{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('') }}{% endif %}{{ m.content }}{% endfor %}",
     "Call of what was said"),
])  # fmt: skip
def test_prove__not_certain(source: str, why: str) -> None:
    """Whatever looks into a message, counts them, or remembers; the first such place is named."""
    with pytest.raises(Unproven, match=why):
        prove(source, TOKENS)


def _assets(template: bytes) -> dict[str, bytes]:
    added = [{"id": 1, "content": "<s>", "special": True}, {"id": 2, "content": "</s>", "special": True},
             {"id": 3, "content": "plain", "special": False}]  # fmt: skip
    return {"chat_template.jinja": template, "tokenizer.json": json.dumps({"added_tokens": added}).encode()}


def test_chat_pieces__asset_and_decision() -> None:
    """With the model's own special tokens in it."""
    found, decision = chat_pieces(_assets(ZEPHYR.encode()), {"bos": 1, "eos": [2]})
    pieces = Pieces.unpack(found["chat_template.pieces"])
    assert pieces.start["user"] == "<|user|>\n"
    assert pieces.end["user"] == ("</s>\n", "</s>\n<|assistant|>\n")
    assert pieces.trimmed == ("assistant", "tool")
    assert decision[0] == "chat=pieces"


@pytest.mark.parametrize("template", [b"{{ messages }}", b"\xff"])
def test_chat_pieces__none(template: bytes) -> None:
    """The package keeps its template, and says why."""
    found, (choice, why) = chat_pieces(_assets(template), {"bos": None, "eos": [2]})
    assert (found, choice) == ({}, "chat=jinja")
    assert "loops" in why or "utf-8" in why
