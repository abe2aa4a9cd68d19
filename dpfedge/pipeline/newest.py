# SPDX-License-Identifier: Apache-2.0
"""A link of policy `newest` drops data, never the end of somebody's stream: a producer in, one that sees to it out.

Requests share a link. Whoever waits for an end that was dropped, of his own or of another request, would wait for ever.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from dpfedge.errors import WouldBlock
from dpfedge.link import Arena, Loan, Producer
from dpfedge.stage.api import Kind

__all__ = ["MARKS", "sparing"]

MARKS = frozenset({Kind.END, Kind.FLUSH})
"""Kinds that say something of all that came before: none may be lost."""


def sparing(arena: Arena, producer: Producer) -> Producer:
    """A stage's port on a link; on one of policy `newest`, `loan` raises WouldBlock rather than drop an unread mark."""
    newest = arena.links[producer.link].policy == "newest"
    return _Sparing(arena, producer) if newest else producer  # type: ignore[return-value]


class _Sparing:
    def __init__(self, arena: Arena, producer: Producer) -> None:
        self._arena, self._producer = arena, producer
        self.link, self.slots, self.slot_bytes = producer.link, producer.slots, producer.slot_bytes
        self._sent = producer.depth
        # what the process before this one sent and nobody has read may be a mark
        self._marks: deque[int] = deque([self._sent - 1] if self._sent else [])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def loan(self, nbytes: int) -> Loan:
        """As the link's own."""
        oldest = self._sent - self._producer.depth
        while self._marks and self._marks[0] < oldest:
            self._marks.popleft()
        # conservative with several consumers; nobody but this producer takes slots, so what is free stays free
        if self._marks and self._arena.pending(self.link) + self._producer.live >= self.slots:
            raise WouldBlock("the end of a stream is not read yet", where=f"link {self.link}")
        return self._producer.loan(nbytes)

    def publish(self, loan: Loan, **fields: Any) -> None:
        """As the link's own."""
        self._producer.publish(loan, **fields)
        self._sent += 1

    def send(self, loan: Loan, **fields: Any) -> None:
        """As the link's own."""
        if fields["kind"] in MARKS:
            self._marks.append(self._sent)
        self._producer.send(loan, **fields)
        self._sent += 1
