# SPDX-License-Identifier: Apache-2.0
"""The border to foreign code: what a plugin raises inside goes to one callback as text, and the work goes on; where it
cannot, it is a BackendError.

It judges nothing; a UsageError, which is about the caller, passes through. A plugin that calls `sys.exit` has failed.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from dpfedge.errors import BackendError, DpfError, UsageError

__all__ = ["Border", "Contract"]


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


class Contract:
    """A context in which a backend works: what its contract does not allow it to raise is a BackendError at `where`."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> Contract:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, DpfError) or not issubclass(kind, Exception | SystemExit):
            return
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = f" ({trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno})" if trace is not None else ""
        found, remedy = f"{kind.__name__}: {error}{place}", "show this to the author of the plugin"
        raise BackendError("it broke its contract", where=self._where, found=found, remedy=remedy) from error
