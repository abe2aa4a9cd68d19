# SPDX-License-Identifier: Apache-2.0
"""The pipeline's far end: messages of every stage's sink link in, the receiver of the right request called.

One thread waits on the sink's bell; it decodes nothing and hands every message on as it lies in the link.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from dpfedge.errors import LinkError
from dpfedge.link import Arena, Consumer, Lease
from dpfedge.pipeline.messages import LinkMessage

__all__ = ["Receiver", "Sink"]

_log = logging.getLogger(__name__)


class Receiver(Protocol):
    """One request's end of the pipeline; called from the sink's thread, must return at once."""

    def receive(self, stage: str, message: LinkMessage, at_ns: int, scarce: bool) -> None:
        """Take one message and release it; soon when `scarce`: half of the link's slots are in use.

        `message.port` is the output it came from, empty for the stage's own link with the caller.
        """


class Sink:
    """Reads links `ends`, each (stage, port, link), and finds the receiver of each message by its request key.

    A stage's own link is behind those of its ports, and a stage behind those before it. `tap` may put something of its
    own before each consumer.
    """

    def __init__(
        self,
        arena: Arena,
        ends: Sequence[tuple[str, str, str]],
        owner: int,
        tap: Callable[[Consumer], Consumer] = lambda consumer: consumer,
    ) -> None:
        self._bell = arena.bell("sink")
        self._ends = [(stage, port, tap(arena.consumer(link, owner))) for stage, port, link in ends]
        self._receivers: dict[int, Receiver] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="dpf-sink", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; messages that are left stay in the links."""
        self._stopping = True
        self._bell.ring()
        if self._thread.ident is not None:
            self._thread.join()

    def attach(self, key: int, receiver: Receiver) -> None:
        """Messages of request `key` go to `receiver` from now on."""
        self._receivers[key] = receiver

    def detach(self, key: int) -> None:
        """Messages of request `key` that still arrive are released unread."""
        self._receivers.pop(key, None)

    def _run(self) -> None:
        while True:
            seen = self._bell.value()  # before everything that is looked at: what comes later ends the wait
            if self._stopping:
                return
            self._drain(len(self._ends))
            self._bell.wait(seen, None)

    def _drain(self, count: int) -> None:
        """Deliver what came in on the first `count` links, a cause before its effect.

        A stage tells the sink before it tells the next stage. So once a later stage's message is here, what it follows
        from lies in the earlier links already, and is delivered first.
        """
        for place, (stage, port, consumer) in enumerate(self._ends[:count]):
            while (lease := _receive(stage, consumer)) is not None:
                self._drain(place)
                self._deliver(stage, port, consumer, lease)

    def _deliver(self, stage: str, port: str, consumer: Consumer, lease: Lease) -> None:
        receiver = self._receivers.get(lease.request)
        if receiver is None:
            lease.release()
        else:
            scarce = 2 * consumer.live > consumer.slots
            receiver.receive(stage, LinkMessage(lease, port), time.monotonic_ns(), scarce)


def _receive(stage: str, consumer: Consumer) -> Lease | None:
    while True:
        try:
            return consumer.receive()
        except LinkError as error:  # the message is dropped; the other requests go on
            _log.error("stage %s: %s", stage, error)
