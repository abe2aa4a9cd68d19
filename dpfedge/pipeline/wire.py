# SPDX-License-Identifier: Apache-2.0
"""Small JSON messages with file descriptors over a SOCK_SEQPACKET pair; only this host's own processes speak it.

A message that is longer than the socket takes travels in a memfd (where those are refused, in a file without a name)
beside a short one that says so.
"""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from dpfedge.errors import UsageError

__all__ = ["LONG_MAX_BYTES", "MAX_BYTES", "receive_message", "send_message"]

MAX_BYTES = 64 * 1024
"""Of one message in the socket; the kernel's default socket buffer takes three of them."""
LONG_MAX_BYTES = 4 * 1024 * 1024
"""Of one message in a memfd; a pipeline section is at most as long as a YAML file, 1 MiB."""
_MAX_FDS = 4
_LONG = "long"


def send_message(sock: socket.socket, data: Mapping[str, Any], fds: Sequence[int] = (), *, wait: bool = True) -> None:
    """Send one message; the descriptors stay open here. OSError when the peer is gone, UsageError when too long.

    Without `wait` it is BlockingIOError when the peer has too much to read already.
    """
    text = json.dumps(data).encode()
    flags = 0 if wait else socket.MSG_DONTWAIT
    if len(text) <= MAX_BYTES:
        _send(sock, text, fds, flags)
        return
    if len(text) > LONG_MAX_BYTES:
        found, allowed = f"{len(text)} bytes", LONG_MAX_BYTES
        raise UsageError("control message is too long", where="pipeline", found=found, allowed=allowed)
    long = _in_memory(text)
    try:
        _send(sock, json.dumps({_LONG: len(text)}).encode(), [*fds, long], flags)
    finally:
        os.close(long)


def receive_message(sock: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Wait for one message; an empty map when the other side is gone. The descriptors are the caller's."""
    try:
        data, fds, _, _ = socket.recv_fds(sock, MAX_BYTES, _MAX_FDS)
    except ConnectionResetError:
        # told once, when the peer went with something unread; its own last words are still to be read
        data, fds, _, _ = socket.recv_fds(sock, MAX_BYTES, _MAX_FDS)
    for fd in fds:
        os.set_inheritable(fd, False)  # recv_fds of Python 3.11 does not pass MSG_CMSG_CLOEXEC on
    message, files = (json.loads(data) if data else {}), list(fds)
    return (_from_memory(files.pop()), files) if message.keys() == {_LONG} else (message, files)


def _send(sock: socket.socket, data: bytes, fds: Sequence[int], flags: int) -> None:
    # socket.send_fds takes flags and does not pass them on
    sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [], flags)


def _in_memory(text: bytes) -> int:
    try:
        fd = os.memfd_create("dpf-message", os.MFD_CLOEXEC)
    except OSError:  # refused here, as the links' memory is: a file without a name
        import tempfile  # and with it a dozen modules that no other start needs

        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        view = memoryview(text)
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        os.close(fd)
        raise
    return fd


def _from_memory(fd: int) -> dict[str, Any]:
    try:
        return json.loads(os.pread(fd, LONG_MAX_BYTES, 0))  # type: ignore[no-any-return]
    finally:
        os.close(fd)
