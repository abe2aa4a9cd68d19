# SPDX-License-Identifier: Apache-2.0
"""Typed access to manifest values: right types pass, everything else is refused with its path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dpfedge.errors import FormatError
from dpfedge.package.fields import Node, is_name


@pytest.mark.parametrize("name", ["a", "weights/llm", "v1.0.0+build", "_x", "A@b-c.d", "a" * 128])
def test_is_name__valid(name: str) -> None:
    """Names of sections, versions and files."""
    assert is_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "/a", "a/", "a//b", "a/../b", "a/.b", "a b", "é", "a\n", "a" * 129])
def test_is_name__invalid(name: str) -> None:
    """Nothing that could leave a folder, hide, or break a log line."""
    assert not is_name(name)


@pytest.mark.parametrize(
    ("read", "value", "message"),
    [
        (lambda n: n.integer(0, 9), 10, r"m: number out of range; found 10; allowed 0 to 9"),
        (lambda n: n.integer(0, 9), True, "m: wrong type or missing; found boolean; allowed integer"),
        (lambda n: n.integer(0, 9), 1.0, "m: wrong type or missing; found number; allowed integer"),
        (lambda n: n.boolean(), 1, "m: wrong type or missing; found integer; allowed boolean"),
        (lambda n: n.text(4), "fünf!", "m: text is too long; found 6 bytes; allowed 4"),
        (lambda n: n.text(), "a\u202eb", r"m: text holds a control character; found U\+202E"),
        (lambda n: n.digest(16), b"", "m: digest has a wrong length; found 0; allowed 16"),
        (lambda n: n.find("a").name(), {}, r"m\.a: wrong type or missing; found nothing; allowed text"),
        (lambda n: n.items(1), [1, 2], "m: too many elements; found 2; allowed 1"),
        (lambda n: dict(n.entries()), {"../x": 1}, "m: bad name; found '../x'"),
        (lambda n: dict(n.entries(1)), {"a": 1, "b": 2}, "m: too many elements; found 2; allowed 1"),
        (lambda n: n.free(), [], "m: wrong type or missing; found array; allowed map"),
    ],
)
def test_node__refused(read: Callable[[Node], Any], value: Any, message: str) -> None:
    """Path, what was found and what is allowed are in the message."""
    with pytest.raises(FormatError, match=message):
        read(Node(value, "m"))


def test_node__absent_reads_as_empty() -> None:
    """Absent arrays and maps are empty."""
    node = Node({}, "m").find("x")
    assert (node.items(), dict(node.entries()), node.free(), node.absent()) == ([], {}, {}, True)


@pytest.mark.parametrize("text", ["", "a\tb\nc", "a\u00a0b", "é", "\u200d", "\U0010ffff", "\ue000"])
def test_text__what_is_no_control_character(text: str) -> None:
    """Spaces, joiners and characters that some Unicode versions do not know are text like any other."""
    assert Node(text, "m").text() == text


def test_text__control_characters_are_a_closed_list() -> None:
    """Exactly the characters that FORMAT.md lists are refused, whatever the Python version."""
    refused = set()
    for code in range(0x11000):
        if not 0xD800 <= code < 0xE000:
            try:
                Node("a" + chr(code), "m").text()
            except FormatError:
                refused.add(code)

    lines, directions = [*range(9), *range(0x0B, 0x20), *range(0x7F, 0xA0)], [0x61C, 0x200E, 0x200F]
    assert refused == {*lines, *directions, *range(0x2028, 0x202F), *range(0x2066, 0x206A)}
