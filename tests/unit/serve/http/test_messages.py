# SPDX-License-Identifier: Apache-2.0
"""Chat messages become role and text; what the llm could not see is refused."""

from __future__ import annotations

from typing import Any

import pytest

from dpfedge.serve.errors import RequestError
from dpfedge.serve.http.messages import read_messages


def test_messages__become_plain_pairs() -> None:
    """Parts are joined by lines; the developer is the system; empty extras do no harm."""
    given = [
        {"role": "developer", "content": "Be short."},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}, {"type": "input_text", "text": "there"}]},
        {"role": "assistant", "content": "Hi.", "tool_calls": [], "name": None},
    ]

    assert read_messages("messages", given) == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Hello\nthere"},
        {"role": "assistant", "content": "Hi."},
    ]


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ([], "messages"),
        ("hello", "messages"),
        (["hello"], "messages[0]"),
        ([{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}], "messages[1].role"),
        ([{"role": ["user"], "content": "a"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": []}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "text", "text": 1}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": "a", "tool_calls": [1]}], "messages[0].tool_calls"),
    ],
)
def test_messages__name_the_place_of_what_is_wrong(given: Any, param: str) -> None:
    """As deep as it lies."""
    with pytest.raises(RequestError) as caught:
        read_messages("messages", given)
    assert caught.value.param == param
