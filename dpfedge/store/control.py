# SPDX-License-Identifier: Apache-2.0
"""Telling running servers of a new package, over their Unix sockets: warm it beside the old one, switch, or drop it.

Only sockets of this user are spoken to. What a server answers is believed only in that it switched or did not.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpfedge.errors import StoreError
from dpfedge.limits import STAGE_START_MAX_S
from dpfedge.store.places import Places
from dpfedge.store.record import Installed
from dpfedge.store.serving import Server, servers
from dpfedge.store.store import Activate, Switch

__all__ = ["ServerSwitch", "switching"]

_ANSWER_MAX_BYTES = 64 << 10
_WARM_S = STAGE_START_MAX_S + 60.0  # a server that binds, loads and warms a package on a cold board
_TELL_S = 10.0


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class ServerSwitch:
    """Running servers that have a package warm beside the one they serve."""

    def __init__(self, warmed: Sequence[Server], id: str) -> None:
        self.servers, self._id = warmed, id
        self.moved = False

    def commit(self) -> None:
        """Every server gives new requests to the new package; StoreError names one that does not.

        Once one of them does there is no way back: a server that is gone then starts with the new package anyway.
        """
        failed: list[tuple[Server, StoreError]] = []
        for server in self.servers:
            try:
                _tell(server, "switch", self._id, _TELL_S)
                self.moved = True
            except StoreError as error:
                failed.append((server, error))
        if failed and not self.moved:
            raise failed[0][1]
        for server, why in failed:
            if server.alive():
                what = "the new package is active, and this server serves the old one on"
                where, found = f"server pid {server.pid}", why.found or why.what
                raise StoreError(what, where=where, found=found, remedy="end it and start it again") from why

    def drop(self) -> None:
        """Tell every server to forget the new package; one that is gone has."""
        for server in self.servers:
            try:
                _tell(server, "drop", self._id, _TELL_S)
            except StoreError:
                continue


def switching(places: Places, told: Callable[[Server], None] = lambda server: None) -> Activate:
    """What `Store.install` and `rollback` need to take running servers along; `told` hears of each before it warms."""

    def warm(installed: Installed) -> Switch | None:
        warmed: list[Server] = []
        try:
            for server in servers(places, installed.name):
                told(server)
                _tell(server, "warm", installed.id, _WARM_S)
                warmed.append(server)
        except BaseException:
            ServerSwitch(warmed, installed.id).drop()
            raise
        return ServerSwitch(warmed, installed.id) if warmed else None

    return warm


def _tell(server: Server, what: str, id: str, timeout_s: float) -> None:
    path, where = _socket_of(server), f"server pid {server.pid}"
    connection = _Connection(path, timeout_s)
    try:
        body = json.dumps({"id": id})
        connection.request("POST", f"/v1/control/{what}", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        status, data = answer.status, answer.read(_ANSWER_MAX_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise _silent(server, f"the running server does not answer: {error}") from error
    finally:
        connection.close()
    if status != 200:
        raise _refused(where, data)


def _silent(server: Server, what: str, found: str | None = None) -> StoreError:
    """It cannot be told anything: `what` says why, unless it is gone."""
    remedy = "end the server and start it again"
    if not server.alive():
        what, remedy = "the running server ended meanwhile", "see its log, and start it again"
    where = f"server pid {server.pid}"
    return StoreError(what, where=where, found=found, remedy=f"the slots are as they were; {remedy}")


def _refused(where: str, data: bytes) -> StoreError:
    """The server's error, with the exit code it would have ended with."""
    try:
        answer = json.loads(data)
        error: Mapping[str, Any] = answer["error"] if isinstance(answer["error"], dict) else {}
    except (ValueError, TypeError, KeyError, RecursionError):
        error = {}
    refusal = StoreError(
        "the running server cannot take the package and serves the old one on", where=where,
        found=error.get("message"), remedy="the slots are as they were",
    )  # fmt: skip
    code = error.get("exit_code")
    refusal.exit_code = code if code in (1, 2, 3, 4, 5) else 1
    return refusal


def _socket_of(server: Server) -> str:
    """Its socket, which must be this user's: nobody else's server is told anything."""
    where = f"server pid {server.pid}"
    if server.socket is None:
        remedy = "end the server and start it again, or start it without --no-socket"
        raise StoreError("the running server has no socket to be told by", where=where, remedy=remedy)
    try:
        owner = os.stat(server.socket).st_uid
    except OSError as error:
        what = f"its socket cannot be reached: {error.strerror}"
        raise _silent(server, what, found=server.socket) from error
    if owner != os.geteuid():
        raise StoreError(
            "the running server belongs to another user", where=where, found=f"user {owner}",
            allowed=f"user {os.geteuid()}", remedy="run this as that user, or start the server again",
        )  # fmt: skip
    return server.socket
