# SPDX-License-Identifier: Apache-2.0
"""What a YAML file becomes: mappings and sequences that know the line of each key and item; and they without that.

They are made by `reader.py`; who checks them needs no YAML reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["Items", "Section", "plain"]


class Section(dict[str, Any]):
    """A YAML mapping; `where(key)` is `file:line` of that key, `where()` of the mapping itself."""

    def __init__(self, file: str, line: int) -> None:
        super().__init__()
        self.file, self.line, self.lines = file, line, dict[str, int]()

    def where(self, key: str | None = None) -> str:
        """`file:line` of `key`; of the mapping's first line when the key is missing."""
        return f"{self.file}:{self.line if key is None else self.lines.get(key, self.line)}"


class Items(list[Any]):
    """A YAML sequence; `where(index)` is `file:line` of that item."""

    def __init__(self, file: str, line: int) -> None:
        super().__init__()
        self.file, self.line, self.lines = file, line, list[int]()

    def where(self, index: int | None = None) -> str:
        """`file:line` of item `index`, or of the sequence's first line."""
        return f"{self.file}:{self.line if index is None else self.lines[index]}"


def plain(value: Any) -> Any:
    """A deep copy in builtin dicts and lists, without places."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value
