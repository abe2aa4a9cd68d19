# SPDX-License-Identifier: Apache-2.0
"""Whitelist expressions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfedge.binding.whitelist import Facts, Term, evaluate, show
from dpfedge.errors import FormatError

FACTS = Facts("host", "cpu.x86_64", "x86-64-v3", frozenset({"avx2", "fma"}), 4 << 30)


@pytest.mark.parametrize(
    "expression",
    [
        ["board", "orin", "host"],
        ["class", "cpu.x86_64"],
        ["arch", "x86-64-v2"],
        ["arch", "x86-64-v4", "x86-64-v3"],
        ["feature", "avx2", "fma"],
        ["memory", 4 << 30],
        ["not", ["feature", "vnni"]],
        ["not", ["and", ["board", "host"], ["arch", "x86-64-v4"]]],
        ["or", ["board", "orin"], ["class", "cpu.x86_64"]],
        ["and", ["board", "host"], ["or", ["memory", 1 << 60], ["memory", 0]]],
    ],
)
def test_evaluate__accepts(expression: list[Any]) -> None:
    """An expression that holds has no failed term."""
    assert evaluate(expression, FACTS) == ()


@pytest.mark.parametrize(
    ("expression", "terms"),
    [
        (["board", "orin"], [Term("board", "board orin", "host")]),
        (["class", "gpu.nvidia", "gpu.arm"], [Term("class", "class gpu.nvidia or gpu.arm", "cpu.x86_64")]),
        (["arch", "x86-64-v4"], [Term("arch", "arch x86-64-v4", "x86-64-v3")]),
        (["arch", "armv8.0-a"], [Term("arch", "arch armv8.0-a", "x86-64-v3")]),
        (["feature", "avx2", "vnni", "amx"], [Term("feature", "feature vnni and amx", "avx2, fma")]),
        (["memory", 8 << 30], [Term("memory", "memory at least 8.00 GiB", "4.00 GiB")]),
        (["not", ["board", "host"]], [Term("board", "not board host", "host")]),
        (
            ["and", ["board", "orin"], ["class", "cpu.x86_64"], ["feature", "vnni"]],
            [Term("board", "board orin", "host"), Term("feature", "feature vnni", "avx2, fma")],
        ),
        (
            ["or", ["board", "orin"], ["board", "thor"]],
            [Term("board", "board orin", "host"), Term("board", "board thor", "host")],
        ),
        (["not", ["or", ["board", "host"]]], [Term("or", "not board host", "host, cpu.x86_64, x86-64-v3")]),
    ],
)
def test_evaluate__names_every_failed_term(expression: list[Any], terms: list[Term]) -> None:
    """Each failed term says what it wants and what is there."""
    assert list(evaluate(expression, FACTS)) == terms


def test_evaluate__device_without_features() -> None:
    """No features are named as none."""
    facts = Facts("b", "c", "a", frozenset(), 0)

    assert evaluate(["feature", "fp16"], facts) == (Term("feature", "feature fp16", "none"),)


@pytest.mark.parametrize("expression", [["xor", ["board", "a"]], ["Board", "host"], ["driver", "1"]])
def test_evaluate__grammar_is_closed(expression: list[Any]) -> None:
    """An unknown operator is never taken as true or false."""
    with pytest.raises(FormatError, match="unknown operator"):
        evaluate(expression, FACTS)


LEAVES = st.one_of(
    st.tuples(st.just("board"), st.sampled_from(["host", "orin"])),
    st.tuples(st.just("class"), st.sampled_from(["cpu.x86_64", "gpu.arm"])),
    st.tuples(st.just("arch"), st.sampled_from(["x86-64-v2", "x86-64-v4"])),
    st.tuples(st.just("feature"), st.sampled_from(["avx2", "vnni"])),
    st.tuples(st.just("memory"), st.sampled_from([1, 1 << 50])),
)
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.lists(inner, min_size=1, max_size=3).map(lambda items: ("and", *items)),
        st.lists(inner, min_size=1, max_size=3).map(lambda items: ("or", *items)),
    ),
    max_leaves=8,
)


def truth(expression: Any) -> bool:
    """The same question answered by plain logic."""
    operator, arguments = expression[0], expression[1:]
    if operator in ("and", "or"):
        return (all if operator == "and" else any)(truth(argument) for argument in arguments)
    if operator == "not":
        return not truth(arguments[0])
    return arguments[0] in ("host", "cpu.x86_64", "x86-64-v2", "avx2", 1)


@settings(max_examples=100, deadline=None)
@given(EXPRESSIONS)
def test_evaluate__agrees_with_plain_logic(expression: Any) -> None:
    """No failed term exactly when the expression is true, and each expression can be shown."""
    assert (evaluate(expression, FACTS) == ()) is truth(expression)
    assert show(expression)


def test_show__brackets_what_is_joined() -> None:
    """Nested joins keep their meaning for the reader."""
    expression = ["and", ["or", ["board", "a"], ["board", "b"]], ["not", ["and", ["class", "c"], ["memory", 1 << 30]]]]

    assert show(expression) == "(board a or board b) and not (class c and memory at least 1.00 GiB)"
