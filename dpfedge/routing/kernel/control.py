# SPDX-License-Identifier: Apache-2.0
"""How others reach the process that holds the kernel's routing: a request and perhaps a socket in, an answer out.

A Unix socket without a file, so that nothing is left when that process dies; its name is of the user's run directory.
Each end looks at who the other is: the same user, or root.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, Self

from dpfedge.errors import DpfError, RouteError, Unavailable
from dpfedge.store.places import runtime_folder

__all__ = ["Handler", "Server", "ask", "name_of"]

_MESSAGE_MAX_BYTES = 1 << 16
_ANSWER_S, _AGAIN_S = 5.0, 0.1
_CREDENTIALS = struct.Struct("=iII")

Handler = Callable[[dict[str, Any], list[int]], Mapping[str, Any]]
"""A request and the descriptors that came with it, closed afterwards, in; the answer out."""


def name_of(environ: Mapping[str, str] = os.environ) -> str:
    """The name of the host's control socket for this user."""
    return f"\0dpfedge-route:{runtime_folder(environ)}"


def _peer(connection: socket.socket) -> tuple[int, int]:
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(data)
    return pid, uid


def ask(request: Mapping[str, Any], *fds: int, until_gone: bool = False, name: str | None = None) -> dict[str, Any]:
    """What the holder answers; Unavailable when nobody holds the kernel's routing, RouteError as it says.

    `until_gone`: return when that process has ended.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
        one.settimeout(_ANSWER_S)
        try:
            one.connect(name_of() if name is None else name)
        except ConnectionRefusedError:
            what, remedy = "no routing is attached", "`dpfedge route attach` does it"
            raise Unavailable(what, found="nobody holds it", remedy=remedy) from None
        pid, uid = _peer(one)
        if uid not in (os.getuid(), 0):
            raise RouteError("another user holds the name of the control socket", found=f"user {uid}, process {pid}")
        try:
            socket.send_fds(one, [json.dumps(request).encode()], list(fds))
            data = one.recv(_MESSAGE_MAX_BYTES)
            if until_gone:
                one.recv(1)
        except OSError as error:
            raise RouteError("the process that holds the routing does not answer", found=f"process {pid}") from error
    answer: dict[str, Any] = json.loads(data) if data else {"error": "it ended"}
    if "error" in answer:
        raise RouteError(str(answer["error"]), where=f"process {pid}")
    return answer


class Server:
    """The holder's end; `serve_once` answers one request."""

    def __init__(self, name: str | None = None) -> None:
        """RouteError names the process that has it already."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        place = name_of() if name is None else name
        try:
            self._socket.bind(place)
        except OSError as error:
            self._socket.close()
            if error.errno != errno.EADDRINUSE:
                raise RouteError("the control socket cannot be made", found=error.strerror) from error
            holder = ask({"do": "status"}, name=place)
            what, found = "routing is attached already", f"process {holder.get('pid')}"
            raise RouteError(what, found=found, remedy="`dpfedge route detach` first") from None
        self._socket.listen(8)

    def fileno(self) -> int:
        """For select: readable when somebody asks."""
        return self._socket.fileno()

    def serve_once(self, handler: Handler) -> socket.socket | None:
        """Answer one request; the connection is open still: who closes it last shows when it ended.

        None when the peer may not ask, said nothing sensible, or could not be accepted.
        """
        try:
            connection, _ = self._socket.accept()
        except OSError:  # no descriptor is free: who asks waits, and what is held stays held
            time.sleep(_AGAIN_S)
            return None
        connection.settimeout(_ANSWER_S)
        fds: list[int] = []
        try:
            if _peer(connection)[1] not in (os.getuid(), 0):
                connection.close()
                return None
            data, fds, _, _ = socket.recv_fds(connection, _MESSAGE_MAX_BYTES, 4)
            connection.send(json.dumps(_answer(handler, data, fds)).encode())
        except OSError:  # it went away: nobody is there to be told
            connection.close()
            return None
        finally:
            for fd in fds:
                os.close(fd)
        return connection

    def close(self) -> None:
        """Give the name up."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _answer(handler: Handler, data: bytes, fds: list[int]) -> Mapping[str, Any]:
    try:
        request = json.loads(data)
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict):
        return {"error": "a request is a JSON object"}
    try:
        return handler(request, fds)
    except DpfError as error:
        return {"error": str(error)}
