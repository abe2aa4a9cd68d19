# SPDX-License-Identifier: Apache-2.0
"""The contract between a stage's domain logic and whatever runs it: one generator per request.

A stage knows nothing of processes, rings or HTTP. It is given a `RequestIO` per request and yields whenever others may
run: at every token, frame or operator boundary. Nothing here copies tensor bytes. What its ports are is `ports.py`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from enum import Enum, IntEnum
from typing import Any, Protocol, runtime_checkable

from dpfedge.backend.api import Array

__all__ = [
    "TURN_STRIDE",
    "Adjusts",
    "Kind",
    "Message",
    "Mode",
    "RequestIO",
    "Settles",
    "Slot",
    "Stage",
    "Steps",
    "Wait",
]


class Kind(IntEnum):
    """What a message carries. The numbers are part of the link's wire layout."""

    START = 1
    """CBOR map: the request's mode and options; the first message of a request on each stage of its route."""
    AUDIO = 2
    """Samples. source → decoder: `bytes` in the format START named; decoder → encoder: f32[n], 16 kHz, mono, −1..1;
    voice → sink: i16[n] at the voice's rate."""
    TEXT = 3
    """UTF-8. encoder → llm: the final transcript; llm → voice: one clause; llm → sink: the text added since the
    last one; source → llm: a typed message. encoder → sink: CBOR {text, start_ms, end_ms}, the final transcript."""
    DRAFT = 4
    """What may still change. decoder → encoder: CBOR {samples, at_ns, …} at the first silence; encoder → llm: UTF-8,
    the transcript at the first silence; encoder → sink: UTF-8, the words so far."""
    SPEECH_STARTED = 5
    """CBOR {at_ms}: decoder → sink; ms since the session's first sample."""
    SPEECH_STOPPED = 6
    """CBOR {at_ms, start_ms, reason}: decoder → sink when the endpoint is decided."""
    FLUSH = 7
    """No payload. source → decoder: commit what was heard now. Any port: give out what you hold, then pass it on."""
    CLEAR = 8
    """No payload. source → decoder: drop what was heard."""
    DONE = 9
    """CBOR map of what the stage did for this turn (counts, `*_ms`, `*_ns` marks), the last of a turn on each link
    to the sink. Turn 0 of decoder and encoder: the same for the whole request, whose input has ended."""
    FAILED = 10
    """CBOR {type, what, where, found, allowed, remedy}: the turn (or request) failed in this stage; the stage lives."""
    HEARD = 11
    """CBOR {text}: source → llm after a barge-in: the words of the answer that were really heard."""
    RESPOND = 12
    """CBOR map of options: source → llm: answer now (to a text item or again) without speech before it."""
    DATA = 13
    """One message of a port: a tensor, or a text, as the port says."""
    END = 14
    """No payload, the last of its turn: nothing more comes on this port."""
    SETTINGS = 15
    """CBOR map, of no request: what the stage is to do otherwise from now on; see `Adjusts`."""


class Mode(IntEnum):
    """Which stages a request passes."""

    TRANSCRIBE = 1
    CHAT = 2
    SPEAK = 3
    CONVERSE = 4
    RUN = 5
    """All of them: the graph as it is drawn."""


class Wait(Enum):
    """Why a generator gives up the processor."""

    INPUT = "input"
    """Nothing to do until a message or a cancel arrives."""
    STEP = "step"
    """One bounded piece of work is done; more is ready."""
    SPACE = "space"
    """The outgoing link is full; try again when its consumer released a slot."""


class Message(Protocol):
    """One received message; its view ends with `release` (what a stage forgot ends with the request)."""

    kind: Kind
    port: str
    """The input it came in on; empty for what the runtime itself sends."""
    turn: int
    captured_ns: int
    """When the world was as it says: CLOCK_MONOTONIC, 0 for never told."""
    last: bool
    partial: bool
    """The slot still grows: a later message of the same turn shows the same bytes and more."""

    def array(self) -> Array:
        """The payload in place, read-only, with the sender's dtype and shape."""

    def text(self) -> str:
        """The payload decoded as UTF-8."""

    def map(self) -> Mapping[str, Any]:
        """The payload decoded as a CBOR map."""

    def release(self) -> None:
        """End the lease."""


class Slot(Protocol):
    """A loaned, writable cell of an outgoing link."""

    array: Array
    """The cell in place, with the dtype and shape asked for."""

    def publish(self, used: int, *, kind: Kind, turn: int, captured_ns: int = 0) -> None:
        """Show the first `used` elements to the consumer and go on writing behind them."""

    def send(self, used: int, *, kind: Kind, turn: int, captured_ns: int = 0, last: bool = False) -> None:
        """Hand over the first `used` elements along axis 0 and end the loan."""

    def abandon(self) -> None:
        """Give the cell back unsent."""


Steps = Generator[Wait, None, None]


class RequestIO(Protocol):
    """One request as its stage sees it."""

    key: int
    mode: Mode
    options: Mapping[str, Any]
    """The START message's map."""
    inputs: frozenset[str]
    """The input ports that something is linked to."""
    deadline_ns: int
    """When nobody waits any more (CLOCK_MONOTONIC), 0 for never; the runner ends the request by itself then."""
    urgency: int
    """0 (first) to 7, as in RFC 9218."""

    working: int | None
    """The turn that is computed now, as the stage says: when it is cancelled, a run in progress ends at its next
    operator with RunCancelled. None: only the end of the whole request, or of its time, ends a run."""

    def receive(self) -> Message | None:
        """The next message of this request, or None when none waits."""

    def cancelled(self, turn: int) -> bool:
        """Whether the owner cancelled this turn (or the whole request); one memory read."""

    def has(self, port: str) -> bool:
        """Whether something is linked to the output `port`; `sink`, the caller, always is."""

    def pending(self, port: str) -> int:
        """Messages on the link of `port`, of all requests, that were not received yet, or not given back."""

    def loan(self, port: str, shape: tuple[int, ...], dtype: str) -> Generator[Wait, None, Slot]:
        """`slot = yield from io.loan("speech", (n,), "f32")`; waits for space without blocking other requests."""

    def try_loan(self, port: str, shape: tuple[int, ...], dtype: str) -> Slot | None:
        """As `loan`, but None at once when there is no space: a source drops what it would have written."""

    def text(self, port: str, kind: Kind, text: str, *, turn: int, last: bool = False, captured_ns: int = 0) -> Steps:
        """`yield from io.text(...)`: send a short UTF-8 text (it is written into the slot; no tensor is copied)."""

    def map(
        self, port: str, kind: Kind, data: Mapping[str, Any], *, turn: int, last: bool = False, captured_ns: int = 0
    ) -> Steps:
        """`yield from io.map(...)`: send a small CBOR map."""


class Stage(Protocol):
    """A step of a pipeline that owns executables."""

    name: str

    def warm(self) -> None:
        """Run every executable once for real; the stage is not ready before."""

    def request(self, io: RequestIO) -> Steps:
        """The life of one request; returning ends it. A DpfError raised here fails this request only."""

    def facts(self) -> Mapping[str, Any]:
        """What the faces need to know before a request (`rate` of the voice, `context` of the llm, …)."""


@runtime_checkable
class Settles(Protocol):
    """A stage that has more to prepare once it is ready."""

    def settle(self) -> Steps:
        """Work that makes the first request faster: done once, a step at a time, while no request waits."""


@runtime_checkable
class Adjusts(Protocol):
    """A stage whose settings may change while it runs."""

    def adjust(self, settings: Mapping[str, Any]) -> None:
        """From now on use these settings before the stage's own; those of an earlier call count no more.

        ConfigError when one cannot change now, and then none has. `stage.live.adjusted` puts both together. A class may
        name in `LIVE` the settings that can change, so that a ladder with another one is refused before it starts.
        """


TURN_STRIDE = 1024
"""Turns of speech are numbered in multiples of this by the decoder; typed turns lie between, so that numbers rise."""
