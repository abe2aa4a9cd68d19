# SPDX-License-Identifier: Apache-2.0
"""A native session's shared memory and doorbells: messages of the client in, events and sound out, without a copy.

It knows no conversation. Everything the client can write is checked by the core before it is looked at; nothing here
waits on anything a client could hold: sleeping is the event loop's, on this server's own end of the socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dpfedge.errors import LinkError, WouldBlock
from dpfedge.limits import NATIVE_BACKLOG_MAX_BYTES
from dpfedge.link import LAST, Arena, Loan
from dpfedge.serve.errors import ClientGone
from dpfedge.serve.media.resample import Samples
from dpfedge.serve.native.wire import EVENT, LINKS, SERVER, EventKind
from dpfedge.tensors import DTYPE_CODES

__all__ = ["Channel"]

_I16 = DTYPE_CODES["i16"]
_RINGS_AT_ONCE = 64  # doorbells read in one turn of the loop; the rest in the next
_BOUND_MAX = 0xFFFF_FFFE
_TEXT_MAX = LINKS[2].slot_bytes - EVENT.size - 1
_SOUND_BYTES = LINKS[3].slot_bytes


class _Kept(NamedTuple):
    """Sound that the ring had no room for."""

    epoch: int
    answer: int
    data: bytes
    last: bool


class Channel:
    """Of one client, connected by `sock`, which stays the caller's. Use it on the event loop; then `close` it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._loop = sock, asyncio.get_running_loop()
        self.gone = False
        """The client left, or died."""
        self.rings = 0
        """Counts the client's doorbell."""
        self.epoch = 0
        """Sound of an earlier one is not played any more."""
        self.events_told = self.sound_bytes = 0
        """Sent to the client so far."""
        self._waiting: list[asyncio.Future[None]] = []
        self._kept: deque[_Kept] = deque()
        self._kept_bytes = 0
        self._telling = asyncio.Lock()
        with contextlib.ExitStack() as stack:
            self._arena = stack.enter_context(Arena.create(LINKS, requests=1, name="dpfedge-session"))
            self.key = self._arena.requests.open()
            microphone, stops, events, sound = (spec.name for spec in LINKS)
            self.microphone = self._arena.consumer(microphone, SERVER)
            self.stops = self._arena.consumer(stops, SERVER)
            self._events, self._sound = (self._arena.producer(name, SERVER) for name in (events, sound))
            self._given = stack.enter_context(contextlib.ExitStack())
            # a pipe: unlike an eventfd's, its writing end is ours alone, and the client cannot make it block
            (self._event_bell, readable), (self._sound_bell, audible) = (self._bell(stack), self._bell(stack))
            self.descriptors = (self._arena.fd, readable, audible)
            """For the client: the memory, and what becomes readable when there are events, and sound."""
            self._open = stack.pop_all()
        self._loop.add_reader(sock, self._rung)

    def _bell(self, stack: contextlib.ExitStack) -> tuple[int, int]:
        """The writing end of a pipe, ours, and the reading end, the client's."""
        read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._given.callback(os.close, read)
        stack.callback(os.close, write)
        return write, read

    def handed_over(self) -> None:
        """The client has its descriptors; its ends of the pipes are closed here."""
        self._given.close()

    def close(self) -> None:
        """End the session for the client too."""
        self._loop.remove_reader(self._sock)
        self._open.close()
        self._lose()

    # --- from the client ---

    def _rung(self) -> None:
        for _ in range(_RINGS_AT_ONCE):
            try:
                data = self._sock.recv(16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self._loop.remove_reader(self._sock)
                self._lose()
                return
        self.rings += 1
        self._wake()

    def _lose(self) -> None:
        self.gone = True
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def rung(self, seen: int) -> None:
        """Return when `rings` is no longer `seen`, which was read before looking; ClientGone when the client left."""
        while self.rings == seen:
            if self.gone:
                raise ClientGone("the client left", where="native session")
            self._waiting.append(self._loop.create_future())
            await self._waiting[-1]

    @property
    def stopped(self) -> bool:
        """Whether the client has stopped the sound of this epoch."""
        return self.is_stopped(self.epoch)

    def is_stopped(self, epoch: int) -> bool:
        """Whether somebody has stopped what was begun in `epoch`."""
        return self._arena.requests.cancelled(self.key, epoch)

    def silence(self, answer: int) -> None:
        """No sound that was made so far is played any more, and the end of `answer` (0: none) is told again."""
        if not self.stopped:
            self._arena.requests.cancel(self.key, self.epoch + 1)
        low, high = self.epoch, _BOUND_MAX
        while low < high:  # the client may have raised the bound further, by any number
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._arena.requests.cancelled(self.key, middle) else (low, middle)
        if low >= _BOUND_MAX:
            raise LinkError("the client cancelled its session", where="native session", remedy="open a new one")
        self.epoch = low
        self._kept.clear()
        self._kept_bytes = 0
        if answer:
            self.end_sound(answer)

    # --- to the client ---

    @property
    def waiting_bytes(self) -> int:
        """Sound that the client has no room for yet."""
        return self._kept_bytes

    async def tell(self, kind: EventKind, number: int = 0, *, code: int = 0, at_ms: float = 0, text: str = "") -> None:
        """Send an event; waits while the client has no room for it."""
        async with self._telling:
            for part, more in _parts(text.encode()):
                loan = await self._room()
                view = loan.view
                EVENT.pack_into(view, 0, code, max(0, int(at_ms)), len(part), more)
                view[EVENT.size : EVENT.size + len(part) + 1] = part + b"\0"
                nbytes = EVENT.size + len(part) + 1
                self._events.send(loan, kind=kind, request=number, nbytes=nbytes, captured_ns=time.monotonic_ns())
                self._ring(self._event_bell)
                self.events_told += 1

    async def _room(self) -> Loan:
        while True:
            seen = self.rings
            with contextlib.suppress(WouldBlock):
                return self._events.loan(LINKS[2].slot_bytes)
            await self.rung(seen)

    async def play(self, samples: Samples, answer: int) -> None:
        """Send sound, i16[n]; what the client has no room for is kept, and waited for when that is too much."""
        data = np.ascontiguousarray(samples, "<i2").data.cast("B")
        for at in range(0, len(data), _SOUND_BYTES):
            if self.stopped:
                return
            part = data[at : at + _SOUND_BYTES]
            if self._kept or not self._send_sound(part, answer, False):
                self._keep(bytes(part), answer, False)
        while self._kept_bytes > NATIVE_BACKLOG_MAX_BYTES:
            seen = self.rings
            self.flush()
            if self._kept_bytes > NATIVE_BACKLOG_MAX_BYTES:
                await self.rung(seen)

    def end_sound(self, answer: int) -> None:
        """Say that the answer's sound is complete."""
        if self._kept or not self._send_sound(b"", answer, True):
            self._keep(b"", answer, True)

    def flush(self) -> None:
        """Send what was kept, as far as there is room."""
        while self._kept:
            one = self._kept[0]
            if one.epoch == self.epoch and not self._send_sound(one.data, one.answer, one.last):
                return
            self._kept.popleft()
            self._kept_bytes -= len(one.data)

    def _keep(self, data: bytes, answer: int, last: bool) -> None:
        self._kept.append(_Kept(self.epoch, answer, data, last))
        self._kept_bytes += len(data)

    def _send_sound(self, data: bytes | memoryview, answer: int, last: bool) -> bool:
        try:
            loan = self._sound.loan(len(data))
        except WouldBlock:
            return False
        if data:
            self._sound.copy_in(loan, data)
        self._sound.send(
            loan, kind=1, request=answer, turn=self.epoch, dtype=_I16, shape=(len(data) // 2,), nbytes=len(data),
            captured_ns=time.monotonic_ns(), flags=LAST if last else 0,
        )  # fmt: skip
        self._ring(self._sound_bell)
        self.sound_bytes += len(data)
        return True

    def _ring(self, bell: int) -> None:
        # a full pipe rings already, and one that nobody reads belongs to a client whose socket tells the same
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(bell, b"\0")


def _parts(text: bytes) -> Iterator[tuple[bytes, bool]]:
    """UTF-8 in pieces that fit an event, each whole characters, and whether more follows."""
    while len(text) > _TEXT_MAX:
        end = _TEXT_MAX
        while text[end] & 0xC0 == 0x80:
            end -= 1
        yield text[:end], True
        text = text[end:]
    yield text, False
