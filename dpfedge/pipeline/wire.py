# SPDX-License-Identifier: Apache-2.0
"""Small JSON messages with file descriptors over a SOCK_SEQPACKET pair; only this host's own processes speak it."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["receive_message", "send_message"]

_MAX_BYTES = 64 * 1024
_MAX_FDS = 4


def send_message(sock: socket.socket, data: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
    """Send one message; the descriptors stay open here."""
    socket.send_fds(sock, [json.dumps(data).encode()], list(fds))


def receive_message(sock: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Wait for one message; an empty map when the other side is gone."""
    try:
        data, fds, _, _ = socket.recv_fds(sock, _MAX_BYTES, _MAX_FDS)
    except ConnectionResetError:
        return {}, []
    return (json.loads(data) if data else {}), list(fds)
