# SPDX-License-Identifier: Apache-2.0
"""The whitelist grammar is closed and bounded."""

from __future__ import annotations

from typing import Any

import pytest

from dpfedge.errors import FormatError
from dpfedge.package.expression import read_expression, split_bound, version_key
from dpfedge.package.fields import Node


def nested(depth: int) -> Any:
    """`depth` operators inside each other."""
    return ["memory", 1] if depth == 1 else ["not", nested(depth - 1)]


def test_expression__every_operator() -> None:
    """Each operator with right arguments comes back as nested tuples."""
    expression = ["and", ["or", ["board", "a", "b"], ["class", "cpu.x86_64"]], ["not", ["arch", "sm_87"]],
                  ["feature", "fp16", "int8_dot"], ["memory", 1024],
                  ["driver", "nvidia", ">=550.54", "<600"]]  # fmt: skip

    assert read_expression(Node(expression, "w")) == (
        "and", ("or", ("board", "a", "b"), ("class", "cpu.x86_64")), ("not", ("arch", "sm_87")),
        ("feature", "fp16", "int8_dot"), ("memory", 1024), ("driver", "nvidia", ">=550.54", "<600"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (None, "w: empty expression"),
        ([], "w: empty expression"),
        ("board", "w: wrong type or missing; found text; allowed array"),
        (["xor", ["board", "a"]], r"w\[0\]: unknown operator; found 'xor'"),
        ([["and"]], r"w\[0\]: wrong type"),
        (["and"], "w: wrong number of arguments of 'and'; found 0; allowed at least 1"),
        (["board"], "w: wrong number of arguments of 'board'"),
        (["not", ["board", "a"], ["board", "b"]], "w: wrong number of arguments of 'not'; found 2; allowed exactly 1"),
        (["memory", 1, 2], "w: wrong number of arguments of 'memory'"),
        (["memory", "8GiB"], r"w\[1\]: wrong type"),
        (["memory", -1], r"w\[1\]: number out of range"),
        (["board", 3], r"w\[1\]: wrong type"),
        (["or", ["board", "a"], ["and", ["feature", 1.5]]], r"w\[2\]\[1\]\[1\]: wrong type"),
        (["board", *["a"] * 256], "w: too many elements; found 257; allowed 256"),
        (["driver"], "w: wrong number of arguments of 'driver'; found 0; allowed at least 2"),
        (["driver", "nvidia"], "w: wrong number of arguments of 'driver'; found 1; allowed at least 2"),
        (["driver", "a b", ">=1"], r"w\[1\]: bad name"),
        (["driver", "nvidia", "550"], r"w\[2\]: bad bound of a driver's version; found '550'; allowed >=, < or == and"),
        (["driver", "nvidia", ">=1", "<1.x"], r"w\[3\]: bad bound"),
        (["driver", "nvidia", ">= 1"], r"w\[2\]: bad bound"),
        (["driver", "nvidia", ">=1\n"], r"w\[2\]: bad bound"),
        (["driver", "nvidia", ">=" + ".".join("1" * 9)], r"w\[2\]: bad bound"),
        (["driver", "nvidia", ["memory", 1]], r"w\[2\]: wrong type"),
        (nested(9), r"w(\[1\]){8}: expression nested too deep; found 9; allowed 8"),
        (["and", *[["or", *[["memory", 1]] * 254]] * 5], "w: too many operators in one expression"),
    ],
)
def test_expression__refused(expression: Any, message: str) -> None:
    """The term that breaks the grammar is named by its path."""
    with pytest.raises(FormatError, match=message):
        read_expression(Node(expression, "w"))


def test_expression__as_large_as_allowed() -> None:
    """The limits themselves are inside."""
    assert read_expression(Node(nested(8), "w"))
    assert read_expression(Node(["and", *[["or", *[["memory", 1]] * 254]] * 4], "w"))


@pytest.mark.parametrize(
    ("older", "newer"),
    [("550.9", "550.54"), ("550.54.6", "550.54.07.1"), ("1", "1.0.1"), ("0", "0.1"), ("535.104.05", "535.104.12")],
)
def test_version__order_is_that_of_numbers(older: str, newer: str) -> None:
    """Number by number, missing ones are 0."""
    first, second = version_key(older), version_key(newer)

    assert first is not None
    assert second is not None
    assert first < second


@pytest.mark.parametrize("same", [("550.54.07", "550.54.7.0"), ("1", "1.0.0"), ("0", "0.0"), ("007", "7")])
def test_version__spellings_of_one_version(same: tuple[str, str]) -> None:
    """Leading zeros and trailing zero numbers do not count."""
    assert version_key(same[0]) == version_key(same[1])


@pytest.mark.parametrize(
    "text", ["", ".", "1.", ".1", "1..2", "v1", "1.2-rc1", "r54p1", "1,2", " 1", "1 ", "1\n", "1234567890", "١.٢",
             "1.1.1.1.1.1.1.1.1"],
)  # fmt: skip
def test_version__what_is_none(text: str) -> None:
    """Text that cannot be compared is no version, and no bound can name it."""
    assert version_key(text) is None
    assert split_bound(f">={text}") is None
