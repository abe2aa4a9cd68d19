# SPDX-License-Identifier: Apache-2.0
"""What a stage sees of one request: its messages in, slots and texts out, over the links; it schedules nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from math import prod
from typing import Any

import numpy as np

from dpfedge.backend.api import Array
from dpfedge.errors import StageError, WouldBlock
from dpfedge.link import LAST, Arena, Loan, Producer
from dpfedge.pipeline.messages import TURN_MAX, LinkMessage, crowded, encoded, send_bytes
from dpfedge.pipeline.newest import MARKS
from dpfedge.stage.api import Kind, Mode, Steps, Wait
from dpfedge.stage.ports import Port, accepts
from dpfedge.tensors import DTYPE_CODES, TensorSpec

__all__ = ["LinkIO", "LinkSlot"]


class LinkSlot:
    """A loan seen as a `Slot`."""

    __slots__ = ("_code", "_io", "_loan", "_producer", "_row", "_shape", "array")

    def __init__(self, producer: Producer, loan: Loan, io: LinkIO, shape: tuple[int, ...], dtype: str) -> None:
        numpy, shape = TensorSpec("slot", dtype).numpy, shape or (1,)
        self.array: Array = loan.array(numpy, shape)
        self._producer, self._loan, self._io = producer, loan, io
        self._code = DTYPE_CODES[dtype]
        self._row = self.array[:1].nbytes
        self._shape = shape

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
        rows = self._shape[0]
        if not 0 <= used <= rows:
            where = f"link {self._producer.link}"
            raise StageError("not as many rows were loaned", where=where, found=used, allowed=f"0 to {rows}")
        shape = (used, *self._shape[1:])
        return {
            "kind": int(kind),
            "request": self._io.key,
            "deadline_ns": self._io.deadline_ns,
            "urgency": self._io.urgency,
            "turn": turn,
            "dtype": self._code,
            "shape": shape,
            "nbytes": used * self._row,
            "captured_ns": captured_ns,
        }


_EMPTY: Array = np.empty(0, np.uint8)


class LinkIO:
    """One request of a stage over the links of an arena; `outputs`: port → producer, of those it may go on through.

    `ports`: what the stage says of its outputs; StageError when it gives something else.
    """

    def __init__(
        self,
        arena: Arena,
        outputs: Mapping[str, Producer],
        key: int,
        options: Mapping[str, Any],
        inputs: frozenset[str] = frozenset(),
        failing: frozenset[str] = frozenset(),
        ports: Mapping[str, Port] | None = None,
    ) -> None:
        self.key = key
        self.options = options
        self.mode = Mode(options["mode"])
        self.inputs = inputs
        self.deadline_ns = int(options.get("deadline_ns", 0))
        self.urgency = int(options.get("urgency", 3))
        self.working: int | None = None
        self.turn = 0
        """Of the message received or sent last: what a failure now belongs to."""
        self.inbox: deque[LinkMessage] = deque()
        self._arena, self._requests = arena, arena.requests
        self._outputs, self._failing, self._ports = outputs, failing, ports or {}
        self.done = False
        """Whether the stage has said DONE of the whole request."""

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
        """Whether something is linked to the output `port`."""
        return port in self._outputs

    def pending(self, port: str) -> int:
        """Messages on the link of `port` that were not received yet, or not given back."""
        return self._arena.pending(self._output(port).link)

    def loan(self, port: str, shape: tuple[int, ...], dtype: str) -> Generator[Wait, None, LinkSlot]:
        """A writable slot on the link of `port`."""
        producer = self._output(port)
        while self.mode is Mode.TRANSCRIBE and crowded(producer):
            yield Wait.SPACE  # a long file must not take every slot from those who speak now
        while (slot := self.try_loan(port, shape, dtype)) is None:
            self._refuse_full(port)
            yield Wait.SPACE
        return slot

    def try_loan(self, port: str, shape: tuple[int, ...], dtype: str) -> LinkSlot | None:
        """A writable slot on the link of `port`, None when there is none now."""
        producer = self._output(port)
        self._check(port, dtype, shape)
        nbytes = TensorSpec("slot", dtype).numpy.itemsize * prod(shape)
        try:
            return LinkSlot(producer, producer.loan(nbytes), self, shape, dtype)
        except WouldBlock:
            return None

    def text(self, port: str, kind: Kind, text: str, *, turn: int, last: bool = False, captured_ns: int = 0) -> Steps:
        """Send a short text."""
        return self._bytes(port, kind, text.encode(), turn, last, captured_ns)

    def map(
        self, port: str, kind: Kind, data: Mapping[str, Any], *, turn: int, last: bool = False, captured_ns: int = 0
    ) -> Steps:
        """Send a small map."""
        return self._bytes(port, kind, encoded(data, f"port {port}"), turn, last, captured_ns)

    def _bytes(self, port: str, kind: Kind, data: bytes, turn: int, last: bool, captured_ns: int) -> Steps:
        producer = self._output(port)
        if not 0 <= turn <= TURN_MAX:
            raise StageError("no turn", where=f"port {port}", found=turn, allowed=f"0 to {TURN_MAX}")
        self.turn = turn
        if kind is Kind.DATA:
            self._check(port, "bytes", (len(data),))
        while True:
            try:
                send_bytes(
                    producer, self.key, kind, data, turn=turn, last=last, captured_ns=captured_ns,
                    deadline_ns=self.deadline_ns, urgency=self.urgency,
                )  # fmt: skip
                break
            except WouldBlock:
                if kind not in MARKS:  # an end waits for its place, whatever the link does with data
                    self._refuse_full(port)
                yield Wait.SPACE
        self.done |= kind is Kind.DONE and port == "sink" and turn == 0

    def _output(self, port: str) -> Producer:
        try:
            return self._outputs[port]
        except KeyError:
            allowed, remedy = ", ".join(self._outputs), "ask io.has(port) where an output may be unlinked"
            raise StageError(
                "nothing is linked to the output", where=f"port {port}", allowed=allowed, remedy=remedy
            ) from None

    def _check(self, port: str, dtype: str, shape: tuple[int, ...]) -> None:
        spec = self._ports.get(port)
        if spec is not None and not accepts(spec, dtype, shape):
            found = f"{dtype}{list(shape)}"
            raise StageError("the port is for something else", where=f"port {port}", found=found, allowed=str(spec))

    def _refuse_full(self, port: str) -> None:
        if port in self._failing:
            raise StageError(
                "the link is full", where=f"port {port}", found=f"link {self._outputs[port].link}",
                remedy="give it more slots, or another policy than fail",
            )  # fmt: skip
