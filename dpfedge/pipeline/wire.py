# SPDX-License-Identifier: Apache-2.0
"""Small JSON messages with file descriptors over a SOCK_SEQPACKET pair; only this host's own processes speak it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from dpfedge.errors import UsageError

__all__ = ["MAX_BYTES", "receive_message", "send_message"]

MAX_BYTES = 64 * 1024
"""Of one message; the kernel's default socket buffer takes three of them."""
_MAX_FDS = 4


def send_message(sock: socket.socket, data: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
    """Send one message; the descriptors stay open here. OSError when the peer is gone, UsageError when too long."""
    text = json.dumps(data).encode()
    if len(text) > MAX_BYTES:
        # the receiver would get a cut message, and no error
        raise UsageError("control message is too long", where="pipeline", found=f"{len(text)} bytes", allowed=MAX_BYTES)
    socket.send_fds(sock, [text], list(fds))


def receive_message(sock: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Wait for one message; an empty map when the other side is gone. The descriptors are the caller's."""
    try:
        data, fds, _, _ = socket.recv_fds(sock, MAX_BYTES, _MAX_FDS)
    except ConnectionResetError:
        # told once, when the peer went with something unread; its own last words are still to be read
        data, fds, _, _ = socket.recv_fds(sock, MAX_BYTES, _MAX_FDS)
    for fd in fds:
        os.set_inheritable(fd, False)  # recv_fds of Python 3.11 does not pass MSG_CMSG_CLOEXEC on
    return (json.loads(data) if data else {}), list(fds)
