# SPDX-License-Identifier: Apache-2.0
"""Messages and descriptors between the processes of one pipeline."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from dpfedge.errors import UsageError
from dpfedge.pipeline.wire import MAX_BYTES, receive_message, send_message

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


def test_message__largest_and_larger(pair: Pair) -> None:
    """One that would arrive cut is not sent."""
    overhead = len('{"a": ""}')
    send_message(pair[0], {"a": "x" * (MAX_BYTES - overhead)})
    assert len(receive_message(pair[1])[0]["a"]) == MAX_BYTES - overhead

    with pytest.raises(UsageError, match="too long"):
        send_message(pair[0], {"a": "x" * (MAX_BYTES - overhead + 1)})
