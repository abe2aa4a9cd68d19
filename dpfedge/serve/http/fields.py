# SPDX-License-Identifier: Apache-2.0
"""A request's fields in, checked values or a `RequestError` that names the field out.

It knows how to check, not what an endpoint supports.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from dpfedge.serve.errors import RequestError

__all__ = ["Check", "anything", "boolean", "choice", "integer", "number", "only", "read_fields", "strings", "text"]

Check = Callable[[str, Any], Any]
"""`check(name, value)` returns the value to use, or raises `RequestError`."""


def read_fields(
    data: Mapping[str, Any], checks: Mapping[str, Check], *, required: Collection[str] = (), where: str = ""
) -> dict[str, Any]:
    """The given fields after their checks; null counts as not given; a field without a check is refused by name."""
    given = {name: value for name, value in data.items() if value is not None}
    for name in given:
        if name not in checks:
            raise RequestError(
                f"parameter {name!r} is not supported",
                where=where or None,
                param=name,
                code="unsupported_parameter",
                remedy="leave it out; it would have no effect",
            )
    for name in required:
        if name not in given:
            raise RequestError(
                f"parameter {name!r} is missing", where=where or None, param=name, code="missing_required_parameter"
            )
    return {name: checks[name](name, value) for name, value in given.items()}


def wrong(name: str, found: object, allowed: object, remedy: str | None = None) -> RequestError:
    """The error for a value that cannot be used."""
    shown = repr(found)
    found = shown if len(shown) <= 80 else f"{shown[:77]}..."
    return RequestError(
        f"parameter {name!r} has a value that cannot be used",
        found=found,
        allowed=allowed,
        remedy=remedy,
        param=name,
        code="invalid_value",
    )


def anything(name: str, value: Any) -> Any:
    """Accepted as it is: checked elsewhere, or bookkeeping of the caller's own that asks for nothing."""
    return value


def text(least: int = 0, most: int | None = None) -> Check:
    """A string that UTF-8 can carry, between `least` and `most` characters."""

    def check(name: str, value: Any) -> str:
        if not isinstance(value, str):
            raise wrong(name, value, "a string")
        if not least <= len(value) <= (most if most is not None else len(value)):
            raise wrong(name, f"{len(value)} characters", f"{least} to {most} characters")
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            raise wrong(name, "half of a surrogate pair", "text that UTF-8 can carry")
        return value

    return check


def boolean(name: str, value: Any) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise wrong(name, value, "true or false")
    return value


def number(least: float, most: float) -> Check:
    """A number from `least` to `most`."""

    def check(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise wrong(name, value, f"a number from {least:g} to {most:g}")
        return float(value)

    return check


def integer(least: int, most: int) -> Check:
    """A whole number from `least` to `most`."""

    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise wrong(name, value, f"a whole number from {least} to {most}")
        return value

    return check


def choice(*allowed: str) -> Check:
    """One of a closed list of words."""

    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise wrong(name, value, ", ".join(allowed))
        return value

    return check


def strings(most: int) -> Check:
    """A string or a list of at most `most` non-empty strings."""
    item = text(1, 1024)

    def check(name: str, value: Any) -> tuple[str, ...]:
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or len(values) > most:
            raise wrong(name, value, f"a string or a list of at most {most} strings")
        return tuple(item(name, one) for one in values)

    return check


def only(*allowed: Any, remedy: str | None = None) -> Check:
    """Accepted with the values that ask for nothing; any other would be ignored, and is refused."""

    def check(name: str, value: Any) -> Any:
        if not any(type(value) is type(one) and value == one for one in allowed):
            shown = " or ".join(repr(one) for one in allowed)
            raise RequestError(
                f"parameter {name!r} is supported only as {shown}",
                found=repr(value)[:80],
                remedy=remedy,
                param=name,
                code="unsupported_parameter",
            )
        return value

    return check
