# SPDX-License-Identifier: Apache-2.0
"""Text that grows in, the part that may be shown out, up to the first stop string; it knows no tokens."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["StopFinder"]


class StopFinder:
    """Finds stop strings that straddle any split of the text. The stop string itself is never shown."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.found = False

    def push(self, text: str) -> str:
        """The text that is certain now: it holds no stop string and no beginning of one."""
        if not self._stops or self.found:
            return "" if self.found else text
        text = self._held + text
        places = [place for place in (text.find(stop) for stop in self._stops) if place >= 0]
        if places:
            self.found, self._held = True, ""
            return text[: min(places)]
        keep = max(self._overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """The beginning of a stop string that never came."""
        rest, self._held = self._held, ""
        return rest

    @staticmethod
    def _overlap(text: str, stop: str) -> int:
        longest = min(len(text), len(stop) - 1)
        return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
