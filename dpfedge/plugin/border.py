# SPDX-License-Identifier: Apache-2.0
"""The border to foreign code: what a plugin raises inside goes to one callback as text, and the work goes on.

It judges nothing; a UsageError, which is about the caller, passes through. A plugin that calls `sys.exit` has failed.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from dpfedge.errors import DpfError, UsageError

__all__ = ["Border"]


class Border:
    """A context in which foreign code runs; `tell(reason)` is called when it raises."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def __enter__(self) -> Border:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if kind is None or not issubclass(kind, Exception | SystemExit) or issubclass(kind, UsageError):
            return False
        self._tell(str(error) if issubclass(kind, DpfError) else f"{kind.__name__}: {error}")
        return True
