# SPDX-License-Identifier: Apache-2.0
"""Typed, bounded access to decoded manifest values; every refusal names the path of the value (`targets[0].backend`).

It knows types and bounds, not which fields a manifest has. Fields nobody asks for are ignored, as FORMAT.md promises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from dpfedge import limits
from dpfedge.errors import FormatError

__all__ = ["CONTROL", "Node", "is_name"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@-]*(?:/[A-Za-z0-9_][A-Za-z0-9._+@-]*)*")
_NAME_RULE = f"1 to {limits.NAME_MAX_BYTES} of A-Z a-z 0-9 . _ + @ -, no dot or sign first, segments parted by /"
# a closed list: what str.isprintable() refuses differs from one Python version to the next
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""The characters no text of a package may have: a terminal would obey them, or show another text than there is."""
_TYPES = {dict: "map", list: "array", str: "text", bytes: "bytes", bool: "boolean", int: "integer", float: "number"}


def is_name(text: str) -> bool:
    """Whether `text` may name a section, model, target, graph or asset: safe in paths, logs and C buffers."""
    return len(text) <= limits.NAME_MAX_BYTES and _NAME.fullmatch(text) is not None


class Node:
    """One value of a manifest with the path that leads to it; `find` and `items` go down, the others read the value."""

    __slots__ = ("_key", "_parent", "value")

    def __init__(self, value: Any, where: str | int, parent: Node | None = None) -> None:
        self.value, self._key, self._parent = value, where, parent

    @property
    def where(self) -> str:
        """The path, put together only when a refusal needs it."""
        if self._parent is None:
            return str(self._key)
        step = f"[{self._key}]" if isinstance(self._key, int) else f".{self._key}"
        return self._parent.where + step

    def error(self, what: str, *, found: object = None, allowed: object = None) -> FormatError:
        """The refusal of this value."""
        return FormatError(what, where=self.where, found=found, allowed=allowed)

    def _typed(self, kind: type) -> Any:
        if type(self.value) is not kind:
            found = "nothing" if self.value is None else _TYPES.get(type(self.value), "another type")
            raise self.error("wrong type or missing", found=found, allowed=_TYPES[kind])
        return self.value

    def find(self, key: str) -> Node:
        """The value under `key` of this map; absent reads as null."""
        value = self.value
        return Node((value if type(value) is dict else self._typed(dict)).get(key), key, self)

    def absent(self) -> bool:
        """Whether the value is null or was not there."""
        return self.value is None

    def items(self, most: int = limits.MANIFEST_MAX_ITEMS) -> list[Node]:
        """The elements of this array; absent reads as empty."""
        values = [] if self.value is None else self._typed(list)
        if len(values) > most:
            raise self.error("too many elements", found=len(values), allowed=most)
        return [Node(value, index, self) for index, value in enumerate(values)]

    def entries(self, most: int = limits.MANIFEST_MAX_ITEMS) -> Iterator[tuple[str, Node]]:
        """Name and value of each entry of this map; absent reads as empty."""
        for key, value in self._counted(most).items():
            if not is_name(key):
                raise self.error("bad name", found=repr(key[:40]), allowed=_NAME_RULE)
            yield key, Node(value, key, self)

    def ports(self) -> Iterator[tuple[str, Node]]:
        """Port name and value of each entry of this map; absent reads as empty."""
        for key, value in self._counted(limits.PORTS_MAX).items():
            Node(key, "name", self).text(limits.NAME_MAX_BYTES)
            yield key, Node(value, key, self)

    def _counted(self, most: int) -> dict[str, Any]:
        values: dict[str, Any] = {} if self.value is None else self._typed(dict)
        if len(values) > most:
            raise self.error("too many elements", found=len(values), allowed=most)
        return values

    def free(self) -> dict[str, Any]:
        """This map as it is; absent reads as empty."""
        return {} if self.value is None else dict(self._typed(dict))

    def integer(self, least: int, most: int) -> int:
        """This integer, in [least, most]."""
        value: int = self.value
        if type(value) is not int:
            self._typed(int)
        if not least <= value <= most:
            raise self.error("number out of range", found=value, allowed=f"{least} to {most}")
        return value

    def number(self, least: float) -> float:
        """This number, at least `least`; a manifest holds no NaN and no infinity."""
        value: float = self.value if type(self.value) is int else self._typed(float)
        if value < least:
            raise self.error("number out of range", found=value, allowed=f"at least {least:g}")
        return float(value)

    def boolean(self) -> bool:
        """This truth value."""
        return bool(self._typed(bool))

    def octets(self) -> bytes:
        """This byte string."""
        return bytes(self._typed(bytes))

    def digest(self, size: int) -> bytes:
        """This byte string of exactly `size` bytes."""
        value = self.octets()
        if len(value) != size:
            raise self.error("digest has a wrong length", found=len(value), allowed=size)
        return value

    def text(self, most: int = limits.TEXT_MAX_BYTES) -> str:
        """This text of at most `most` bytes, without the control characters that FORMAT.md names."""
        value: str = self.value
        if type(value) is not str:
            self._typed(str)
        size = len(value) if value.isascii() else len(value.encode())
        if size > most:
            raise self.error("text is too long", found=f"{size} bytes", allowed=most)
        if not (value.isascii() and value.isprintable()) and (bad := CONTROL.search(value)):
            raise self.error("text holds a control character", found=f"U+{ord(bad[0]):04X}")
        return value

    def name(self) -> str:
        """This text, where it has the form of a name."""
        value: str = self._typed(str)
        if not is_name(value):
            raise self.error("bad name", found=repr(value[:40]), allowed=_NAME_RULE)
        return value
