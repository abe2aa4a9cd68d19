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
