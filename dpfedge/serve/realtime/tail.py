# SPDX-License-Identifier: Apache-2.0
"""The last seconds of a session's sound that belong to no utterance: what a session that takes over must hear again.

It holds samples and counts them; it decides nothing.
"""

from __future__ import annotations

__all__ = ["TAIL_S", "Tail"]

TAIL_S = 3.0
"""Longer than any recogniser takes to report that somebody began to speak, also when it is behind."""


class Tail:
    """Of 16-bit mono at `rate` Hz."""

    def __init__(self, rate: int) -> None:
        self.rate, self._per_second = rate, 2 * rate
        self._held = bytearray()
        self._end = 0  # bytes since the session's first sample
        self.before_ms = 0
        """What the connection heard before the session's first sample."""

    def push(self, pcm: bytes | memoryview) -> None:
        """Remember; sound before the last `TAIL_S` seconds is forgotten."""
        self._held += pcm
        self._end += len(pcm)
        self._keep(int(TAIL_S * self._per_second))

    def heard_until(self, at_ms: float) -> None:
        """The session's sound up to here was an utterance."""
        self._keep(self._end - int(at_ms * self._per_second / 1000))

    def clear(self) -> None:
        """Nothing that was heard counts."""
        self._keep(0)

    def align(self) -> None:
        """Forget half a sample: what comes next begins a new one, as in the decoder behind a commit or clear."""
        if self._end % 2:
            self._end -= 1
            del self._held[-1:]

    def take_over(self) -> bytes:
        """What a new session must hear first; its clock starts with it."""
        self.before_ms += (self._end - len(self._held)) * 1000 // self._per_second
        self._end = len(self._held)
        return bytes(self._held)

    def _keep(self, nbytes: int) -> None:
        gone, surplus = self._end - len(self._held), len(self._held) - max(0, nbytes)
        if surplus > 0:
            del self._held[: surplus - (gone + surplus) % 2]  # whole samples: a piece may end within one
