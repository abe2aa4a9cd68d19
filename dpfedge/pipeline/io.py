# SPDX-License-Identifier: Apache-2.0
"""What a stage sees of one request: its messages in, slots and texts out, over the links; it schedules nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from typing import Any

import cbor2
import numpy as np

from dpfedge.backend.api import Array
from dpfedge.errors import WouldBlock
from dpfedge.link import LAST, Arena, Loan, Producer
from dpfedge.pipeline.messages import LinkMessage, crowded, send_bytes
from dpfedge.stage.api import Kind, Mode, Steps, Wait
from dpfedge.tensors import DTYPE_CODES, TensorSpec

__all__ = ["LinkIO", "LinkSlot"]


class LinkSlot:
    """A loan seen as a `Slot`."""

    __slots__ = ("_code", "_loan", "_producer", "_request", "_row", "array")

    def __init__(self, producer: Producer, loan: Loan, request: int, shape: tuple[int, ...], dtype: str) -> None:
        numpy = TensorSpec("slot", dtype).numpy
        self.array: Array = loan.array(numpy, shape)
        self._producer, self._loan, self._request = producer, loan, request
        self._code = DTYPE_CODES[dtype]
        self._row = self.array[:1].nbytes if shape else numpy.itemsize

    def publish(self, used: int, *, kind: Kind, turn: int, captured_ns: int = 0) -> None:
        """Show the first `used` rows and go on writing behind them."""
        self._producer.publish(self._loan, **self._fields(used, kind, turn, captured_ns))

    def send(self, used: int, *, kind: Kind, turn: int, captured_ns: int = 0, last: bool = False) -> None:
        """Hand over the first `used` rows."""
        fields = self._fields(used, kind, turn, captured_ns)
        self._release_array()
        self._producer.send(self._loan, flags=LAST if last else 0, **fields)

    def abandon(self) -> None:
        """Give the cell back unsent."""
        self._release_array()
        self._producer.abandon(self._loan)

    def _release_array(self) -> None:
        # the link keeps a slot whose memory is still exported; after the hand-over this side must not hold it
        self.array = _EMPTY

    def _fields(self, used: int, kind: Kind, turn: int, captured_ns: int) -> dict[str, Any]:
        shape = (used, *self.array.shape[1:])
        return {
            "kind": int(kind),
            "request": self._request,
            "turn": turn,
            "dtype": self._code,
            "shape": shape,
            "nbytes": used * self._row,
            "captured_ns": captured_ns,
        }


_EMPTY: Array = np.empty(0, np.uint8)


class LinkIO:
    """One request of a stage over the links of an arena."""

    def __init__(
        self, arena: Arena, outputs: Mapping[str, Producer], key: int, options: Mapping[str, Any], route: frozenset[str]
    ) -> None:
        self.key = key
        self.options = options
        self.mode = Mode(options["mode"])
        self.turn = 0
        """Of the message received or sent last: what a failure now belongs to."""
        self.inbox: deque[LinkMessage] = deque()
        self._requests = arena.requests
        self._outputs = {port: producer for port, producer in outputs.items() if port in route}

    def receive(self) -> LinkMessage | None:
        """The next message of this request, or None."""
        if not self.inbox:
            return None
        message = self.inbox.popleft()
        self.turn = message.turn
        return message

    def cancelled(self, turn: int) -> bool:
        """Whether the owner cancelled this turn."""
        return self._requests.cancelled(self.key, turn)

    def has(self, port: str) -> bool:
        """Whether this request continues on the link to `port`."""
        return port in self._outputs

    def loan(self, port: str, shape: tuple[int, ...], dtype: str) -> Generator[Wait, None, LinkSlot]:
        """A writable slot on the link to `port`."""
        producer = self._outputs[port]
        nbytes = TensorSpec("slot", dtype).numpy.itemsize * int(np.prod(shape))
        while self.mode is Mode.TRANSCRIBE and crowded(producer):
            yield Wait.SPACE  # a long file must not take every slot from those who speak now
        while True:
            try:
                return LinkSlot(producer, producer.loan(nbytes), self.key, shape, dtype)
            except WouldBlock:
                yield Wait.SPACE

    def text(self, port: str, kind: Kind, text: str, *, turn: int, last: bool = False) -> Steps:
        """Send a short text."""
        return self._bytes(port, kind, text.encode(), turn, last)

    def map(self, port: str, kind: Kind, data: Mapping[str, Any], *, turn: int, last: bool = False) -> Steps:
        """Send a small map."""
        return self._bytes(port, kind, cbor2.dumps(dict(data)), turn, last)

    def _bytes(self, port: str, kind: Kind, data: bytes, turn: int, last: bool) -> Steps:
        producer, self.turn = self._outputs[port], turn
        while True:
            try:
                return send_bytes(producer, self.key, kind, data, turn, last)
            except WouldBlock:
                yield Wait.SPACE
