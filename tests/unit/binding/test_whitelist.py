# SPDX-License-Identifier: Apache-2.0
"""Whitelist expressions."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfedge.binding.whitelist import Facts, Term, evaluate, for_board, show
from dpfedge.errors import FormatError
from dpfedge.package.expression import OPERATORS, read_expression
from dpfedge.package.fields import Node

DRIVERS = {"nvidia": "550.54.14", "l4t": "36.4.3", "odd": "r54p1-01eac0"}
FACTS = Facts("host", "cpu.x86_64", "x86-64-v3", frozenset({"avx2", "fma"}), 4 << 30, DRIVERS)


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
        ["driver", "nvidia", ">=550.54.14"],
        ["driver", "nvidia", ">=550", "<551"],
        ["driver", "l4t", "==36.04.3.0"],
        ["not", ["driver", "nvidia", "<550"]],
        ["or", ["driver", "rocm", ">=6"], ["driver", "nvidia", ">=550"]],
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
        (["not", ["or", ["board", "host"]]], [Term("board", "not board host", "host")]),
        (
            ["not", ["and", ["board", "host"], ["memory", 1 << 30]]],
            [Term("board", "not board host", "host"), Term("memory", "not memory at least 1.00 GiB", "4.00 GiB")],
        ),
        (["driver", "nvidia", ">=550.54.15"], [Term("driver", "driver nvidia >=550.54.15", "nvidia 550.54.14")]),
        (
            ["driver", "nvidia", ">=535", "<550.54.14"],
            [Term("driver", "driver nvidia >=535 and <550.54.14", "nvidia 550.54.14")],
        ),
        (["not", ["driver", "l4t", "==36.4.3"]], [Term("driver", "not driver l4t ==36.4.3", "l4t 36.4.3")]),
    ],
)
def test_evaluate__names_every_failed_term(expression: list[Any], terms: list[Term]) -> None:
    """Each failed term says what it wants and what is there."""
    assert list(evaluate(expression, FACTS)) == terms


def test_evaluate__device_without_features() -> None:
    """No features are named as none."""
    facts = Facts("b", "c", "a", frozenset(), 0)

    assert evaluate(["feature", "fp16"], facts) == (Term("feature", "feature fp16", "none"),)


@pytest.mark.parametrize(
    ("driver", "found"),
    [("rocm", "no driver rocm"), ("odd", "odd 'r54p1-01eac0', which is no version that can be compared")],
)
@pytest.mark.parametrize("form", ["{}", "not", "not not", "or", "and", "not and"])
def test_evaluate__unknown_driver_is_refused_whatever_is_asked(driver: str, found: str, form: str) -> None:
    """Nobody knows, so neither the question nor its opposite is true; the reason says what was found."""
    term: Any = ["driver", driver, ">=1"]
    false, true = ["board", "orin"], ["board", "host"]
    forms = {
        "{}": term, "not": ["not", term], "not not": ["not", ["not", term]], "or": ["or", false, term],
        "and": ["and", true, ["not", term]], "not and": ["not", ["and", true, term]],
    }  # fmt: skip

    assert found in [item.found for item in evaluate(forms[form], FACTS)]


@pytest.mark.parametrize("expression", [["xor", ["board", "a"]], ["Board", "host"], ["kernel", "1"]])
def test_evaluate__grammar_is_closed(expression: list[Any]) -> None:
    """An unknown operator is never taken as true or false."""
    with pytest.raises(FormatError, match="unknown operator"):
        evaluate(expression, FACTS)


@pytest.mark.parametrize("bound", ["550", ">=x", "=550"])
def test_evaluate__bound_outside_the_grammar(bound: str) -> None:
    """A bound that reading would have refused is never guessed."""
    with pytest.raises(FormatError, match="bad bound"):
        evaluate(["driver", "nvidia", bound], FACTS)


NAMES = st.sampled_from(["host", "orin", "cpu.x86_64", "gpu.arm", "x86-64-v2", "x86-64-v4", "avx2", "vnni", "fma"])
VERSIONS = st.lists(st.integers(0, 560), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
BOUNDS = st.tuples(st.sampled_from([">=", "<", "=="]), VERSIONS | st.just("550.54.14")).map("".join)
LEAVES = st.one_of(
    st.tuples(st.sampled_from(["board", "class", "arch", "feature"]), NAMES),
    st.tuples(st.sampled_from(["board", "class", "arch", "feature"]), NAMES, NAMES),
    st.tuples(st.just("memory"), st.sampled_from([0, 1, 4 << 30, 1 << 50])),
    st.tuples(st.just("driver"), st.sampled_from(["nvidia", "l4t", "odd", "rocm"]), BOUNDS),
    st.tuples(st.just("driver"), st.sampled_from(["nvidia", "l4t", "odd", "rocm"]), BOUNDS, BOUNDS),
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
FACT = st.builds(
    Facts, NAMES, NAMES, st.sampled_from(["x86-64-v3", "x86-64-v4", "sm_87", "unknown"]), st.frozensets(NAMES),
    st.integers(0, 1 << 50), st.dictionaries(st.sampled_from(["nvidia", "l4t", "odd"]), VERSIONS | st.text(max_size=9)),
)  # fmt: skip
LEVEL = {"x86-64-v3": {"x86-64-v2", "x86-64-v3"}, "x86-64-v4": {"x86-64-v2", "x86-64-v3", "x86-64-v4"}}


def truth(expression: Any, facts: Facts) -> bool | None:
    """The same question answered by plain three-valued logic; None is neither true nor false."""
    operator, arguments = expression[0], expression[1:]
    if operator in ("and", "or"):
        values = [truth(argument, facts) for argument in arguments]
        decides = operator == "or"
        return decides if decides in values else None if None in values else not decides
    if operator == "not":
        value = truth(arguments[0], facts)
        return None if value is None else not value
    if operator == "driver":
        return within(facts.drivers.get(arguments[0], ""), arguments[1:])
    return {
        "board": facts.board in arguments, "class": facts.kind in arguments,
        "arch": bool(set(arguments) & (LEVEL.get(facts.arch, set()) | {facts.arch})),
        "feature": set(arguments) <= facts.features,
        "memory": operator == "memory" and facts.memory_bytes >= arguments[0],
    }[operator]  # fmt: skip


def within(version: str, bounds: Any) -> bool | None:
    """Versions compared the long way: padded lists of numbers."""

    def numbers(text: str) -> list[int]:
        return ([int(part) for part in text.split(".")] + [0] * 9)[:9]

    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9}){0,7}", version):
        return None
    have = numbers(version)
    return all(
        have >= numbers(bound[2:]) if bound[0] == ">"
        else have == numbers(bound[2:]) if bound[0] == "="
        else have < numbers(bound[1:])
        for bound in bounds
    )  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(EXPRESSIONS, FACT)
def test_evaluate__agrees_with_plain_logic(expression: Any, facts: Facts) -> None:
    """No failed term exactly when the expression is true; each one can be shown, and each term has its texts."""
    terms = evaluate(expression, facts)

    assert (terms == ()) is (truth(expression, facts) is True)
    assert all(term.field and term.wanted and term.found for term in terms)
    assert show(expression)


def plain(expression: Any) -> Any:
    """The expression as a manifest holds it."""
    return [plain(item) for item in expression] if isinstance(expression, tuple) else expression


WILD = st.recursive(
    st.text(max_size=5) | st.integers(-1, 1 << 51) | st.sampled_from([*OPERATORS, ">=1", "<2.0", "a"]),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(WILD | EXPRESSIONS.map(plain), FACT)
def test_evaluate__never_raises_on_what_was_read(value: Any, facts: Facts) -> None:
    """Whatever the grammar lets in can be evaluated on any facts and shown."""
    try:
        expression = read_expression(Node(value, "w"))
    except FormatError:
        return
    evaluate(expression, facts)
    assert show(expression)


def test_show__brackets_what_is_joined() -> None:
    """Nested joins keep their meaning for the reader."""
    expression = ["and", ["or", ["board", "a"], ["board", "b"]], ["not", ["and", ["class", "c"], ["memory", 1 << 30]]]]

    assert show(expression) == "(board a or board b) and not (class c and memory at least 1.00 GiB)"
    assert show(["driver", "nvidia", ">=550", "<560"]) == "driver nvidia >=550 and <560"


def test_for_board__by_its_id_alone() -> None:
    """A board that a conjunction names no place for is out; anything else needs a device to tell."""
    assert for_board(["and", ["board", "orin", "thor"], ["arch", "sm_87"]], "thor")
    assert not for_board(["and", ["board", "orin"], ["arch", "sm_87"]], "host")
    assert not for_board(["board", "orin"], "host")
    assert for_board(["or", ["board", "orin"], ["memory", 0]], "host")
    assert for_board(["arch", "sm_87"], "host")
