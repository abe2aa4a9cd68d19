# SPDX-License-Identifier: Apache-2.0
"""Who may use CUDA while a graph is being captured: runs and loads beside each other, a capture alone.

onnxruntime captures in the mode in which an allocation by any other thread of the process spoils the capture. A load
may take minutes: no capture waits for one, and so no run does; `claim` says whether a capture may be made now.
"""

from __future__ import annotations

import threading

__all__ = ["CAPTURES", "Turns"]


class Turns:
    """A lock that many share or one has alone; who claimed it alone is not passed by later sharers."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sharing, self._alone, self._wanting, self._loading = 0, False, 0, 0
        self.shared, self.alone, self.loading = _Shared(self), _Alone(self), _Loading(self)

    def claim(self) -> bool:
        """Be the next in `alone`, which must be entered then; False while something is being loaded."""
        with self._changed:
            self._wanting += not self._loading
            return not self._loading


class _Shared:
    """Inside it beside others; it is entered on every run, and so no generator."""

    def __init__(self, turns: Turns) -> None:
        self._turns, self._changed = turns, turns._changed

    def __enter__(self) -> None:
        turns = self._turns
        with self._changed:
            while turns._alone or turns._wanting:
                self._changed.wait()
            turns._sharing += 1

    def __exit__(self, *raised: object) -> None:
        turns = self._turns
        with self._changed:
            turns._sharing -= 1
            if turns._wanting and not turns._sharing:
                self._changed.notify_all()


class _Loading:
    """Inside it beside others and for long: nobody claims `alone` meanwhile."""

    def __init__(self, turns: Turns) -> None:
        self._turns, self._changed = turns, turns._changed

    def __enter__(self) -> None:
        with self._changed:
            while self._turns._alone or self._turns._wanting:
                self._changed.wait()
            self._turns._loading += 1

    def __exit__(self, *raised: object) -> None:
        with self._changed:
            self._turns._loading -= 1


class _Alone:
    """Inside it when nobody else is; for who claimed it."""

    def __init__(self, turns: Turns) -> None:
        self._turns, self._changed = turns, turns._changed

    def __enter__(self) -> None:
        turns = self._turns
        with self._changed:
            try:
                while turns._alone or turns._sharing:
                    self._changed.wait()
                turns._alone = True
            finally:  # also when an interrupt ends the wait
                turns._wanting -= 1
                if not turns._alone:
                    self._changed.notify_all()

    def __exit__(self, *raised: object) -> None:
        with self._changed:
            self._turns._alone = False
            self._changed.notify_all()


CAPTURES = Turns()
"""This process's."""
