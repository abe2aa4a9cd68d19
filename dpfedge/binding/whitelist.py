# SPDX-License-Identifier: Apache-2.0
"""Whitelist expressions, evaluated: an expression and facts of one device in, the terms that failed out.

The grammar is closed (`dpfedge.package.expression`); a term about a driver nobody knows the version of is neither true
nor false, and an expression is accepted only when it is true. Nothing here asks the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

from dpfedge.errors import FormatError
from dpfedge.hardware.architecture import runs
from dpfedge.package.expression import split_bound, version_key
from dpfedge.records import dataclass

__all__ = ["Expression", "Facts", "Term", "evaluate", "for_board", "gib", "show"]

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
    drivers: Mapping[str, str] = field(default_factory=dict)
    """Driver → its version as text."""


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
    return _against(expression, facts, True)


def for_board(expression: Expression, board: str) -> bool:
    """Whether some device of `board` could be accepted, as far as the board's id tells: what can be said unasked."""
    terms = expression[1:] if expression[0] == "and" else [expression]
    return all(board in term[1:] for term in terms if term[0] == "board")


def _against(expression: Expression, facts: Facts, wanted: bool) -> tuple[Term, ...]:
    """Why the expression is not `wanted`; none when it is. `not` turns what is wanted of the terms below it."""
    operator, arguments = expression[0], expression[1:]
    if operator == "not":
        return _against(arguments[0], facts, not wanted)
    if operator in ("and", "or"):
        results = [_against(argument, facts, wanted) for argument in arguments]
        every = (operator == "and") is wanted
        if not every and any(not terms for terms in results):
            return ()
        return tuple(term for terms in results for term in terms)
    return _leaf(str(operator), arguments, facts, wanted)


def _leaf(operator: str, arguments: Sequence[Any], facts: Facts, wanted: bool) -> tuple[Term, ...]:
    if operator == "driver":
        return _driver(arguments, facts, wanted)
    match operator:
        case "board":
            ok = facts.board in arguments
        case "class":
            ok = facts.kind in arguments
        case "arch":
            ok = any(runs(facts.arch, name) for name in arguments)
        case "feature":
            missing = [name for name in arguments if name not in facts.features]
            ok = not missing
            arguments = missing or arguments
        case "memory":
            ok = facts.memory_bytes >= arguments[0]
        case _:
            raise FormatError("unknown operator in a whitelist", found=repr(operator))
    return () if ok is wanted else (_term(operator, arguments, _found(operator, facts), wanted),)


def _term(operator: str, arguments: Sequence[Any], found: str, wanted: bool) -> Term:
    text = show((operator, *arguments))
    return Term(operator, text if wanted else f"not {text}", found)


def _found(operator: str, facts: Facts) -> str:
    texts = {
        "board": facts.board,
        "class": facts.kind,
        "arch": facts.arch,
        "feature": ", ".join(sorted(facts.features)) or "none",
        "memory": gib(facts.memory_bytes),
    }
    return texts[operator]


def _driver(arguments: Sequence[Any], facts: Facts, wanted: bool) -> tuple[Term, ...]:
    name, *bounds = arguments
    text = facts.drivers.get(name)
    version = None if text is None else version_key(text)
    if version is not None and all(_within(version, bound) for bound in bounds) is wanted:
        return ()
    if text is None:
        found = f"no driver {name}"
    elif version is None:
        found = f"{name} {text[:64]!r}, which is no version that can be compared"
    else:
        found = f"{name} {text}"
    return (_term("driver", arguments, found, wanted),)


def _within(version: tuple[int, ...], bound: str) -> bool:
    parts = split_bound(bound)
    if parts is None:
        raise FormatError("bad bound of a driver's version in a whitelist", found=repr(bound))
    relation, limit = parts
    return version >= limit if relation == ">=" else version < limit if relation == "<" else version == limit


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
    if operator == "driver":
        return f"driver {arguments[0]} {' and '.join(arguments[1:])}"
    words = (" and " if operator == "feature" else " or ").join(str(argument) for argument in arguments)
    return f"{operator} {words}"


def _bracket(expression: Expression) -> str:
    text = show(expression)
    return f"({text})" if expression[0] in ("and", "or") and len(expression) > 2 else text
