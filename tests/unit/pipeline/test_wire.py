# SPDX-License-Identifier: Apache-2.0
"""Messages and descriptors between the processes of one pipeline."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from dpfedge.errors import UsageError
from dpfedge.pipeline.wire import LONG_MAX_BYTES, MAX_BYTES, receive_message, send_message

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two ends."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        yield one, other


def test_message__arrives_whole_with_its_descriptors(pair: Pair) -> None:
    """Two messages stay two; the descriptor is a new one for the same file, and stays out of child programs."""
    send_message(pair[0], {"a": [1, None]})
    send_message(pair[0], {"b": "ä"}, [pair[0].fileno()])

    assert receive_message(pair[1]) == ({"a": [1, None]}, [])
    data, (fd,) = receive_message(pair[1])
    assert data == {"b": "ä"}
    assert os.fstat(fd).st_ino == os.fstat(pair[0].fileno()).st_ino
    assert not os.get_inheritable(fd)
    os.close(fd)


def test_peer__gone() -> None:
    """An empty message for the reader, an error for the writer."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    other.close()
    with one:
        assert receive_message(one) == ({}, [])
        with pytest.raises(BrokenPipeError):
            send_message(one, {})


def test_peer__gone_without_reading_is_heard_out() -> None:
    """What it said before it went arrives, although it left messages unread."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    send_message(one, {"a": 1})
    send_message(other, {"last": "words"})
    other.close()
    with one:
        assert receive_message(one) == ({"last": "words"}, [])
        assert receive_message(one) == ({}, [])


def test_message__longer_than_the_socket_takes_arrives_whole(pair: Pair) -> None:
    """Its descriptors, too; the memory it travels in is closed on both sides."""
    before = len(os.listdir("/proc/self/fd"))
    overhead = len('{"a": ""}')
    for size in (MAX_BYTES - overhead, MAX_BYTES - overhead + 1, LONG_MAX_BYTES - overhead):
        send_message(pair[0], {"a": "x" * size}, [pair[0].fileno()])
        data, (fd,) = receive_message(pair[1])
        os.close(fd)
        assert data == {"a": "x" * size}

    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(UsageError, match="too long"):
        send_message(pair[0], {"a": "x" * (LONG_MAX_BYTES - overhead + 1)})


def test_message__long_where_memfds_are_refused(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without a name does; nothing stays open."""

    def refuse(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "memfd_create", refuse)
    before = len(os.listdir("/proc/self/fd"))
    send_message(pair[0], {"a": "x" * MAX_BYTES})
    assert receive_message(pair[1]) == ({"a": "x" * MAX_BYTES}, [])
    assert len(os.listdir("/proc/self/fd")) == before


def test_message__for_a_peer_that_reads_nothing(pair: Pair) -> None:
    """Who must not wait is told at once."""

    def fill() -> None:
        for _ in range(10_000):
            send_message(pair[0], {"a": "x" * 1000}, wait=False)

    with pytest.raises(BlockingIOError):
        fill()
