# SPDX-License-Identifier: Apache-2.0
"""The pipeline's far end: messages of every stage's sink link in, events of the right request out.

One thread waits on the sink's bell; it decodes small payloads and hands audio on as it lies in the link.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Protocol

from dpfedge.link import Arena, Consumer
from dpfedge.pipeline.io import LinkMessage

__all__ = ["Receiver", "Sink"]


class Receiver(Protocol):
    """One request's end of the pipeline; called from the sink's thread, must return at once."""

    def receive(self, stage: str, message: LinkMessage, at_ns: int) -> None:
        """Take one message; the receiver releases it."""


class Sink:
    """Reads the sink links of `stages` and finds the receiver of each message by its request key."""

    def __init__(self, arena: Arena, stages: tuple[str, ...], owner: int) -> None:
        self._bell = arena.bell("sink")
        self._consumers: Mapping[str, Consumer] = {name: arena.consumer(f"{name}.sink", owner) for name in stages}
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
        self._thread.join(timeout=2)

    def attach(self, key: int, receiver: Receiver) -> None:
        """Messages of request `key` go to `receiver` from now on."""
        self._receivers[key] = receiver

    def detach(self, key: int) -> None:
        """Messages of request `key` that still arrive are released unread."""
        self._receivers.pop(key, None)

    def _run(self) -> None:
        seen = self._bell.value()
        while not self._stopping:
            if not self._drain():
                seen = self._bell.wait(seen, None)

    def _drain(self) -> bool:
        found = False
        for stage, consumer in self._consumers.items():
            while (lease := consumer.receive()) is not None:
                found = True
                message = LinkMessage(lease)
                receiver = self._receivers.get(lease.request)
                if receiver is None:
                    message.release()
                else:
                    receiver.receive(stage, message, time.monotonic_ns())
        return found
