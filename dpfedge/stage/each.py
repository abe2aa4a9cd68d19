# SPDX-License-Identifier: Apache-2.0
"""A base for stages of one message at a time: override `each` (or `produce`), and the rest of the contract is kept.

It passes ends and flushes on, releases what it was given, counts, and says when it is done. It converts nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from dpfedge.backend.api import Budget
from dpfedge.stage.api import Kind, Message, RequestIO, Steps, Wait
from dpfedge.stage.ports import Ports

__all__ = ["Each", "Inbox", "ending"]


class Each:
    """A stage of one message after the other; `config` are its settings, `model` its bound model or None."""

    ports: ClassVar[Any] = Ports()
    """`Ports(...)`, or a function of (settings, the model's config) that makes them."""
    idempotent: ClassVar[bool] = True
    """Whether the same request may be given to it twice: it changes nothing outside."""
    name = ""

    def __init__(self, model: Any, config: Mapping[str, Any], budget: Budget) -> None:
        self.model, self.config, self.budget = model, dict(config), budget

    def warm(self) -> None:
        """Run every executable once; override it when there is one."""

    def facts(self) -> Mapping[str, Any]:
        """Nothing; override it for what callers need to know."""
        return {}

    def each(self, io: RequestIO, message: Message) -> Steps:
        """Treat one message; it is released afterwards. `message.port` says where it came in.

        A plain function, which yields nothing, will do where nothing is sent; the same holds for the methods below.
        An array of it that is kept keeps its slot of the link, too: copy what is to stay.
        """
        raise NotImplementedError

    def produce(self, io: RequestIO) -> Steps:
        """The whole of a request of a stage without inputs."""
        raise NotImplementedError

    def flush(self, io: RequestIO) -> Steps:
        """Give out what is held back of this request; nothing unless overridden."""
        yield from ()

    def finish(self, io: RequestIO) -> Steps:
        """After the last message of every input, before the end is passed on; nothing unless overridden."""
        yield from ()

    def report(self, io: RequestIO) -> Mapping[str, Any]:
        """What DONE says beside the count; nothing unless overridden."""
        return {}

    def request(self, io: RequestIO) -> Steps:
        """Messages in the order they came, until every input has ended."""
        started, count = time.monotonic_ns(), 0
        if io.inputs:
            count = yield from self._messages(io)
        else:
            yield from self.produce(io) or ()
        yield from self.ended(io, lambda: {"messages": count, "span_ms": (time.monotonic_ns() - started) / 1e6})

    def ended(self, io: RequestIO, counts: Callable[[], Mapping[str, Any]]) -> Steps:
        """What follows the last message: `finish`, the end on every output, DONE with `counts` and the report."""
        yield from self.finish(io) or ()
        yield from self.pass_on(io, Kind.END)
        yield from io.map("sink", Kind.DONE, {**counts(), **self.report(io)}, turn=0, last=True)

    def pass_on(self, io: RequestIO, kind: Kind) -> Steps:
        """Say END or FLUSH on every output."""
        for port in self.declared().outputs:
            if io.has(port):
                yield from io.text(port, kind, "", turn=0, last=kind is Kind.END)

    def declared(self) -> Ports:
        """What `ports` says, of these settings and this model."""
        if isinstance(self.ports, Ports):
            return self.ports
        made: Ports = self.ports(self.config, getattr(self.model, "config", None))
        return made

    def _messages(self, io: RequestIO) -> Generator[Wait, None, int]:
        inbox, count = Inbox(io), 0
        try:
            while inbox.open:
                message = inbox.next()
                if message is None:
                    yield Wait.INPUT
                    continue
                with ending(message):
                    if message.kind is Kind.DATA and not io.cancelled(message.turn):
                        count += 1
                        yield from self.each(io, message) or ()
                    else:
                        inbox.mark(message)
                yield from self.flush_when_due(io, inbox)
                yield Wait.STEP
        finally:
            inbox.close()
        return count

    def flush_when_due(self, io: RequestIO, inbox: Inbox) -> Steps:
        """Flush, and pass it on, once every open input was flushed."""
        if inbox.flushed and inbox.flushed >= inbox.open:
            inbox.flushed.clear()
            yield from self.flush(io) or ()
            yield from self.pass_on(io, Kind.FLUSH)


class Inbox:
    """A request's messages in order. What follows a flush on its port waits until every open port was flushed.

    So a flush lies at the same place in all inputs, whatever arrives first: Chandy and Lamport's marker ("Distributed
    Snapshots", 1985), as dataflow engines align their barriers.
    """

    def __init__(self, io: RequestIO) -> None:
        self._io = io
        self._behind: deque[Message] = deque()
        self.open = set(io.inputs)
        """Input ports that have not ended."""
        self.flushed: set[str] = set()
        """Those of them that were flushed, while not all were."""

    def next(self) -> Message | None:
        """The next message that may be treated now; it is the caller's."""
        for waiting in tuple(self._behind):
            if waiting.port not in self.flushed:
                self._behind.remove(waiting)
                return waiting
        while (message := self._io.receive()) is not None:
            if message.port not in self.flushed:
                return message
            self._behind.append(message)
        return None

    def mark(self, message: Message) -> None:
        """Note the end of a port, or a flush on it; nobody waits for those of a link that leads back."""
        if message.kind is Kind.END:
            self.open.discard(message.port)
        elif message.kind is Kind.FLUSH and message.port in self.open:
            self.flushed.add(message.port)

    def close(self) -> None:
        """Release what waits."""
        while self._behind:
            self._behind.popleft().release()


@contextmanager
def ending(message: Message) -> Iterator[None]:
    """Release the message behind what is done with it."""
    try:
        yield
    finally:
        message.release()
