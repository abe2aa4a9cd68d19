# SPDX-License-Identifier: Apache-2.0
"""Whitelist expressions, evaluated: an expression and facts of one device in, the terms that failed out.

The grammar is closed: `and`, `or`, `not`, `board`, `class`, `arch`, `feature`, `memory`. Nothing here asks the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from dpfedge.errors import FormatError
from dpfedge.hardware.architecture import runs

__all__ = ["Expression", "Facts", "Term", "evaluate", "gib", "show"]

Expression: TypeAlias = Sequence[Any]
"""`(operator, argument, …)` as in `dpfedge.package.expression`."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What an expression may ask about: the board's id and one device."""

    board: str
    kind: str
    """Device class."""
    arch: str
    features: frozenset[str]
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Term:
    """One term that failed."""

    field: str
    wanted: str
    found: str


def evaluate(expression: Expression, facts: Facts) -> tuple[Term, ...]:
    """The terms that keep the device out, in the order of the expression; none means the device may run it.

    Every term is looked at once. FormatError on an operator outside the grammar.
    """
    operator, arguments = expression[0], expression[1:]
    if operator == "and":
        return tuple(term for argument in arguments for term in evaluate(argument, facts))
    if operator == "or":
        return _either([evaluate(argument, facts) for argument in arguments])
    if operator == "not":
        if evaluate(arguments[0], facts):
            return ()
        return (Term(str(arguments[0][0]), show(expression), _found(str(arguments[0][0]), facts)),)
    return _leaf(str(operator), arguments, facts)


def _either(results: Sequence[tuple[Term, ...]]) -> tuple[Term, ...]:
    return () if any(not terms for terms in results) else tuple(term for terms in results for term in terms)


def _leaf(operator: str, wanted: Sequence[Any], facts: Facts) -> tuple[Term, ...]:
    match operator:
        case "board":
            ok = facts.board in wanted
        case "class":
            ok = facts.kind in wanted
        case "arch":
            ok = any(runs(facts.arch, name) for name in wanted)
        case "feature":
            wanted = [name for name in wanted if name not in facts.features]
            ok = not wanted
        case "memory":
            ok = facts.memory_bytes >= wanted[0]
        case _:
            raise FormatError("unknown operator in a whitelist", found=repr(operator))
    return () if ok else (Term(operator, show((operator, *wanted)), _found(operator, facts)),)


def _found(operator: str, facts: Facts) -> str:
    texts = {
        "board": facts.board,
        "class": facts.kind,
        "arch": facts.arch,
        "feature": ", ".join(sorted(facts.features)) or "none",
        "memory": gib(facts.memory_bytes),
    }
    return texts.get(operator) or f"{facts.board}, {facts.kind}, {facts.arch}"


def gib(size: int) -> str:
    """A number of bytes as a person reads it."""
    return f"{size / 2**30:.2f} GiB"


def show(expression: Expression) -> str:
    """The expression as a person reads it."""
    operator, arguments = str(expression[0]), expression[1:]
    if operator in ("and", "or"):
        return f" {operator} ".join(_bracket(argument) for argument in arguments)
    if operator == "not":
        return f"not {_bracket(arguments[0])}"
    if operator == "memory":
        return f"memory at least {gib(arguments[0])}"
    words = (" and " if operator == "feature" else " or ").join(str(argument) for argument in arguments)
    return f"{operator} {words}"


def _bracket(expression: Expression) -> str:
    text = show(expression)
    return f"({text})" if expression[0] in ("and", "or") and len(expression) > 2 else text
