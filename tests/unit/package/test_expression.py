# SPDX-License-Identifier: Apache-2.0
"""The whitelist grammar is closed and bounded."""

from __future__ import annotations

from typing import Any

import pytest

from dpfedge.errors import FormatError
from dpfedge.package.expression import read_expression
from dpfedge.package.fields import Node


def test_expression__every_operator() -> None:
    """Each operator with right arguments comes back as nested tuples."""
    expression = ["and", ["or", ["board", "a", "b"], ["class", "cpu.x86_64"]], ["not", ["arch", "sm_87"]],
                  ["feature", "fp16", "int8_dot"], ["memory", 1024]]  # fmt: skip

    assert read_expression(Node(expression, "w")) == (
        "and", ("or", ("board", "a", "b"), ("class", "cpu.x86_64")), ("not", ("arch", "sm_87")),
        ("feature", "fp16", "int8_dot"), ("memory", 1024),
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
    ],
)
def test_expression__refused(expression: Any, message: str) -> None:
    """The term that breaks the grammar is named by its path."""
    with pytest.raises(FormatError, match=message):
        read_expression(Node(expression, "w"))
