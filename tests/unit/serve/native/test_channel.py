# SPDX-License-Identifier: Apache-2.0
"""A session's memory: room, order, stops, and what a hostile client can do to it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from dpfedge.errors import LinkError
from dpfedge.link import Arena
from dpfedge.serve.errors import ClientGone
from dpfedge.serve.native import channel as module
from dpfedge.serve.native.channel import Channel
from dpfedge.serve.native.wire import CLIENT, EVENT, EventKind

SAMPLES = np.arange(4096, dtype=np.int16)


class Peer:
    """The client's side of a channel, on the same loop."""

    def __init__(self, channel: Channel, sock: socket.socket) -> None:
        self.channel, self.sock = channel, sock
        self.arena = Arena.attach(channel.descriptors[0])
        self.events = self.arena.consumer("events", CLIENT)
        self.sounds = self.arena.consumer("sound", CLIENT)

    def texts(self) -> list[str]:
        found = []
        while (lease := self.events.receive()) is not None:
            with lease:
                size = EVENT.unpack_from(lease.view)[2]
                found.append(bytes(lease.view[EVENT.size : EVENT.size + size]).decode())
        self.sock.send(b"\0")
        return found

    def played(self) -> list[tuple[int, int, int, bool]]:
        """Answer, epoch, samples, last."""
        found = []
        while (lease := self.sounds.receive()) is not None:
            with lease:
                found.append((lease.request, lease.turn, lease.nbytes // 2, bool(lease.flags & 1)))
        self.sock.send(b"\0")
        return found


def channelled(test: Callable[[Channel, Peer], Awaitable[None]]) -> None:
    async def run() -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            ours.setblocking(False)
            channel = Channel(ours)
            try:
                await test(channel, Peer(channel, theirs))
            finally:
                channel.close()

    asyncio.run(run())


def test_event__that_is_too_long_comes_in_parts() -> None:
    """Each part is whole characters."""
    text = "ü" * 5000

    async def test(channel: Channel, peer: Peer) -> None:
        await channel.tell(EventKind.TRANSCRIPT, 1, text=text)
        parts = peer.texts()
        assert len(parts) == 3
        assert "".join(parts) == text

    channelled(test)


def test_event__waits_for_room() -> None:
    """And goes on when the client has handed one back."""

    async def test(channel: Channel, peer: Peer) -> None:
        for index in range(128):
            await channel.tell(EventKind.WORDS, text=str(index))
        waiting = asyncio.ensure_future(channel.tell(EventKind.WORDS, text="late"))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        assert len(peer.texts()) == 128
        await waiting
        assert peer.texts() == ["late"]

    channelled(test)


def test_sound__without_room_is_kept_in_order() -> None:
    """64 pieces fit; the rest follows when there is room, the end last."""

    async def test(channel: Channel, peer: Peer) -> None:
        for _ in range(70):
            await channel.play(SAMPLES, 1)
        channel.end_sound(1)
        played = peer.played()
        assert len(played) == 64
        channel.flush()
        played += peer.played()
        assert played == [(1, 0, 4096, False)] * 70 + [(1, 0, 0, True)]
        sound = peer.arena.stats()["sound"]
        assert (sound.copies, sound.copied_bytes) == (70, 70 * 8192)

    channelled(test)


def test_sound__that_nobody_takes_is_waited_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded: whoever makes more sound waits."""
    monkeypatch.setattr(module, "NATIVE_BACKLOG_MAX_BYTES", 3 * 8192)

    async def test(channel: Channel, peer: Peer) -> None:
        for _ in range(67):
            await channel.play(SAMPLES, 1)
        waiting = asyncio.ensure_future(channel.play(SAMPLES, 1))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        assert len(peer.played()) == 64
        await waiting
        assert len(peer.played()) == 4

    channelled(test)


def test_silence__drops_what_was_made() -> None:
    """What is kept goes, what is in the ring is of an older epoch, and the end is told."""

    async def test(channel: Channel, peer: Peer) -> None:
        for _ in range(70):
            await channel.play(SAMPLES, 1)
        channel.silence(1)
        old = peer.played()
        assert {epoch for _, epoch, _, _ in old} == {0}
        assert peer.arena.requests.cancelled(channel.key, 0)
        channel.flush()
        assert peer.played() == [(1, 1, 0, True)]
        await channel.play(SAMPLES, 2)
        assert peer.played() == [(2, 1, 4096, False)]

    channelled(test)


def test_stop__of_the_client_is_seen() -> None:
    """Nothing is sent after it, until the epoch has moved on; by whatever number the client likes."""

    async def test(channel: Channel, peer: Peer) -> None:
        peer.arena.requests.cancel(channel.key, 4_000_000_000)
        assert channel.stopped
        await channel.play(SAMPLES, 1)
        assert peer.played() == []
        channel.silence(0)
        assert not channel.stopped
        assert channel.epoch == 4_000_000_000

    channelled(test)


@pytest.mark.parametrize("hostile", ["cancel", "close"])
def test_request__taken_away_ends_the_session(hostile: str) -> None:
    """A client that cancels everything, or closes its own request, is told apart in bounded time."""

    async def test(channel: Channel, peer: Peer) -> None:
        if hostile == "cancel":
            peer.arena.requests.cancel(channel.key)
        else:
            peer.arena.requests.close(channel.key)
        assert channel.stopped
        with pytest.raises(LinkError):
            channel.silence(0)

    channelled(test)


def test_client__that_leaves_wakes_who_waits() -> None:
    """ClientGone for each of them, and for whoever waits later."""

    async def test(channel: Channel, peer: Peer) -> None:
        waiting = [asyncio.ensure_future(channel.rung(channel.rings)) for _ in range(2)]
        await asyncio.sleep(0)
        peer.sock.close()
        for one in (*waiting, channel.rung(channel.rings)):
            with pytest.raises(ClientGone):
                await one
        assert channel.gone

    channelled(test)


def test_doorbells__of_a_client_that_does_not_look_block_nobody() -> None:
    """A pipe that is full, or whose reader is gone, is no error."""

    async def test(channel: Channel, peer: Peer) -> None:
        for _ in range(70_000):
            channel._ring(channel._event_bell)
        channel.handed_over()
        await channel.tell(EventKind.WORDS, text="x")
        assert peer.texts() == ["x"]

    channelled(test)


def test_close__leaves_nothing_open() -> None:
    """Neither descriptors nor readers; a second session begins like the first."""

    async def test(channel: Channel, peer: Peer) -> None:
        peer.arena.close()

    channelled(test)
    before = len(os.listdir("/proc/self/fd"))
    channelled(test)
    assert len(os.listdir("/proc/self/fd")) == before


def test_memory__overwritten_by_the_client_stays_in_bounds() -> None:
    """Random bytes over the whole arena: errors of the link or nothing, never a crash."""

    async def test(channel: Channel, peer: Peer) -> None:
        import mmap

        generator = np.random.default_rng(6)
        with mmap.mmap(channel.descriptors[0], peer.arena.nbytes) as memory:
            for _ in range(40):
                noise = generator.integers(0, 256, 64 << 10, dtype=np.uint8).tobytes()
                memory[: len(noise)] = noise
                for step in _everything(channel):
                    try:
                        result = step()
                        if asyncio.iscoroutine(result):
                            await asyncio.wait_for(result, 0.001)
                    except (LinkError, TimeoutError):
                        continue

    channelled(test)


def _everything(channel: Channel) -> list[Callable[[], Any]]:
    return [
        channel.microphone.receive,
        channel.stops.receive,
        lambda: channel.tell(EventKind.WORDS, text="x"),
        lambda: channel.play(SAMPLES, 1),
        lambda: channel.end_sound(1),
        channel.flush,
        lambda: channel.silence(1),
    ]
