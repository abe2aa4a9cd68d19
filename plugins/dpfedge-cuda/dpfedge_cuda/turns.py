# SPDX-License-Identifier: Apache-2.0
"""Who may use CUDA while a graph is being captured: runs and loads beside each other, a capture alone.

onnxruntime captures in the mode in which an allocation by any other thread of the process spoils the capture.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["CAPTURES", "Turns"]


class Turns:
    """A lock that many share or one has alone; who wants it alone is not passed by later sharers."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sharing, self._alone, self._wanting = 0, False, 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Beside others."""
        with self._changed:
            while self._alone or self._wanting:
                self._changed.wait()
            self._sharing += 1
        try:
            yield
        finally:
            with self._changed:
                self._sharing -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """When nobody else is inside."""
        with self._changed:
            self._wanting += 1
            while self._alone or self._sharing:
                self._changed.wait()
            self._wanting -= 1
            self._alone = True
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()


CAPTURES = Turns()
"""This process's."""
