# SPDX-License-Identifier: Apache-2.0
"""The grammar of whitelist expressions: decoded arrays in, the same expression as nested tuples out.

It does not evaluate them; `dpfedge.binding` does. It also says what a version is and which of two is the newer, because
a bound that is no version is refused here.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from dpfedge import limits
from dpfedge.package.fields import Node

__all__ = ["OPERATORS", "Expression", "read_expression", "split_bound", "version_key"]

Expression: TypeAlias = tuple[Any, ...]
"""`(operator, argument, …)`; arguments are expressions, texts or one integer, by operator."""

_COMBINE = ("and", "or")
_MATCH = ("board", "class", "arch", "feature")
OPERATORS = (*_COMBINE, "not", *_MATCH, "memory", "driver")
_LEAST = {"not": 1, "memory": 1, "driver": 2}
_EXACT = ("not", "memory")
_BOUND = re.compile(r"(>=|<|==)(.*)", re.DOTALL)
_VERSION = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9}){0,7}")
_BOUND_FORM = ">=, < or == and a version of 1 to 8 numbers joined by dots, such as >=550.54"


def version_key(text: str) -> tuple[int, ...] | None:
    """The numbers of a version, comparable as tuples (`1.2` equals `1.2.0`); None for text that is no version."""
    if _VERSION.fullmatch(text) is None:
        return None
    numbers = [int(number) for number in text.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def split_bound(bound: str) -> tuple[str, tuple[int, ...]] | None:
    """Relation (`>=`, `<`, `==`) and version of one bound of a driver; None when it has not that form."""
    match = _BOUND.fullmatch(bound)
    version = None if match is None else version_key(match[2])
    return None if match is None or version is None else (match[1], version)


def read_expression(node: Node) -> Expression:
    """Check one expression against the closed grammar; FormatError names the term that breaks it."""
    return _Reader(node).read(node, 1)


class _Reader:
    """Counts the operators of one whole expression, so that evaluating it takes bounded time."""

    def __init__(self, whole: Node) -> None:
        self._whole, self._count = whole, 0

    def read(self, node: Node, depth: int) -> Expression:
        terms = node.items(limits.WHITELIST_MAX_TERMS)
        if not terms:
            raise node.error("empty expression", allowed=f"[operator, …] with one of {', '.join(OPERATORS)}")
        self._bound(node, depth)
        operator = terms[0].text(limits.NAME_MAX_BYTES)
        arguments = terms[1:]
        if operator not in OPERATORS:
            raise terms[0].error("unknown operator", found=repr(operator), allowed=", ".join(OPERATORS))
        least = _LEAST.get(operator, 1)
        if len(arguments) < least or (operator in _EXACT and len(arguments) != least):
            wanted = f"{'exactly' if operator in _EXACT else 'at least'} {least}"
            raise node.error(f"wrong number of arguments of {operator!r}", found=len(arguments), allowed=wanted)
        if operator in (*_COMBINE, "not"):
            return (operator, *(self.read(argument, depth + 1) for argument in arguments))
        return (operator, *_leaf(operator, arguments))

    def _bound(self, node: Node, depth: int) -> None:
        self._count += 1
        if depth > limits.WHITELIST_MAX_DEPTH:
            raise node.error("expression nested too deep", found=depth, allowed=limits.WHITELIST_MAX_DEPTH)
        if self._count > limits.WHITELIST_MAX_OPERATORS:
            raise self._whole.error(
                "too many operators in one expression", found=f"more than {limits.WHITELIST_MAX_OPERATORS}",
                allowed=limits.WHITELIST_MAX_OPERATORS,
            )  # fmt: skip


def _leaf(operator: str, arguments: list[Node]) -> list[Any]:
    if operator == "memory":
        return [arguments[0].integer(0, limits.MEMORY_MAX_BYTES)]
    if operator in _MATCH:
        return [argument.text(limits.NAME_MAX_BYTES) for argument in arguments]
    name, *bounds = arguments
    return [name.name(), *(_driver_bound(bound) for bound in bounds)]


def _driver_bound(node: Node) -> str:
    text = node.text(limits.NAME_MAX_BYTES)
    if split_bound(text) is None:
        raise node.error("bad bound of a driver's version", found=repr(text), allowed=_BOUND_FORM)
    return text
