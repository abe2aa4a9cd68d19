# SPDX-License-Identifier: Apache-2.0
"""The grammar of whitelist expressions: decoded arrays in, the same expression as nested tuples out.

It does not evaluate them; `dpfedge.binding` does.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from dpfedge import limits
from dpfedge.package.fields import Node

__all__ = ["OPERATORS", "Expression", "read_expression"]

Expression: TypeAlias = tuple[Any, ...]
"""`(operator, argument, …)`; arguments are expressions, texts or one integer, by operator."""

_COMBINE = ("and", "or")
_MATCH = ("board", "class", "arch", "feature")
OPERATORS = (*_COMBINE, "not", *_MATCH, "memory")


def read_expression(node: Node) -> Expression:
    """Check one expression against the closed grammar; FormatError names the term that breaks it."""
    terms = node.items(limits.WHITELIST_MAX_TERMS)
    if not terms:
        raise node.error("empty expression", allowed=f"[operator, …] with one of {', '.join(OPERATORS)}")
    operator = terms[0].text(limits.NAME_MAX_BYTES)
    arguments = terms[1:]
    if operator not in OPERATORS:
        raise terms[0].error("unknown operator", found=repr(operator), allowed=", ".join(OPERATORS))
    if not arguments or (operator in ("not", "memory") and len(arguments) != 1):
        wanted = "exactly 1" if operator in ("not", "memory") else "at least 1"
        raise node.error(f"wrong number of arguments of {operator!r}", found=len(arguments), allowed=wanted)
    return (operator, *(_argument(operator, argument) for argument in arguments))


def _argument(operator: str, node: Node) -> Any:
    if operator in _MATCH:
        return node.text(limits.NAME_MAX_BYTES)
    if operator == "memory":
        return node.integer(0, limits.MEMORY_MAX_BYTES)
    return read_expression(node)
