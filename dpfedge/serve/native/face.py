# SPDX-License-Identifier: Apache-2.0
"""A listening Unix socket in, native sessions served behind it: who may connect, how many, and how they begin and end.

It does nothing with a conversation; `session.py` does. NATIVE.md is the protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
from itertools import count
from typing import Any

from dpfedge.errors import Busy, DpfError
from dpfedge.limits import NATIVE_HELLO_MAX_BYTES, NATIVE_HELLO_MAX_S, NATIVE_SESSIONS_MAX, NATIVE_WAITING_MAX
from dpfedge.serve.errors import RequestError
from dpfedge.serve.http.models import check_model
from dpfedge.serve.http.speech import voices
from dpfedge.serve.metrics import Metrics
from dpfedge.serve.native.channel import Channel
from dpfedge.serve.native.outbox import NativeOutbox
from dpfedge.serve.native.session import NativeSession, settings
from dpfedge.serve.native.wire import Hello, refusal, welcome
from dpfedge.serve.provider import Provider
from dpfedge.serve.realtime.attend import attend
from dpfedge.serve.realtime.config import Known, SessionConfig
from dpfedge.serve.realtime.conversation import Conversation
from dpfedge.serve.realtime.turns import read_session

__all__ = ["NativeFace"]

_log = logging.getLogger(__name__)
_SO_PEERGROUPS = 59
_GROUPS_BYTES = 1024  # the most that getsockopt takes; 256 groups
_ACCEPT_AGAIN_S = 1.0
_NO_VOICE_HZ = 24_000  # of sound that is never made


class NativeFace:
    """Serves native sessions of `provider` on `sock`, which stays the caller's.

    Clients are this user's, or in `group` (its number) where one is given.
    """

    def __init__(
        self,
        provider: Provider,
        metrics: Metrics,
        sock: socket.socket,
        *,
        group: int | None = None,
        most: int = NATIVE_SESSIONS_MAX,
    ) -> None:
        self._provider, self._metrics, self._sock, self._group, self._most = provider, metrics, sock, group, most
        self._clients: set[asyncio.Task[None]] = set()
        self.sessions = 0
        """Open now, and being opened."""
        self._resuming: asyncio.TimerHandle | None = None
        self._numbers, self._open = count(1), dict[int, tuple[tuple[int, int, int], NativeSession]]()

    def figures(self) -> dict[str, dict[str, Any]]:
        """Number of each open session → its client's process and user, and what it does; on the event loop."""
        return {
            str(number): {"pid": pid, "user": uid, **session.figures()}
            for number, ((pid, uid, _), session) in self._open.items()
        }

    def start(self) -> None:
        """Begin to accept; on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._resume()

    def _resume(self) -> None:
        self._resuming = None
        self._loop.add_reader(self._sock, self._accept)

    async def close(self) -> None:
        """Accept no more, and end what is open."""
        self._loop.remove_reader(self._sock)
        if self._resuming is not None:
            self._resuming.cancel()
        for task in self._clients:
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    def _accept(self) -> None:
        try:
            client, _ = self._sock.accept()
        except OSError as error:  # it left before it was accepted, or no descriptor is free
            _log.warning("a native client cannot be accepted: %s", error.strerror)
            self._loop.remove_reader(self._sock)  # the client still waits: the loop would do nothing else
            self._resuming = self._loop.call_later(_ACCEPT_AGAIN_S, self._resume)
            return
        client.setblocking(False)
        if len(self._clients) >= self._most + NATIVE_WAITING_MAX:
            client.close()
            return
        task = asyncio.ensure_future(self._serve(client))
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)

    async def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                packet = await asyncio.wait_for(
                    self._loop.sock_recv(client, NATIVE_HELLO_MAX_BYTES + 1), NATIVE_HELLO_MAX_S
                )
                if packet:
                    await self._admit(client, packet)
            except DpfError as error:
                _refuse(client, error)
            except (TimeoutError, OSError) as error:
                _log.info("a native client left without a session: %s", error)

    async def _admit(self, client: socket.socket, packet: bytes) -> None:
        _check_peer(client, self._group)
        hello = Hello.read(packet)
        with self._provider.connected():
            if self.sessions >= self._most:
                raise Busy("every native session is taken", where="native", found=self.sessions, allowed=self._most)
            self.sessions += 1
            try:
                await self._converse(client, hello)
            finally:
                self.sessions -= 1

    async def _converse(self, client: socket.socket, hello: Hello) -> None:
        config = self._config(hello)
        with contextlib.closing(Channel(client)) as channel:
            out = NativeOutbox(channel, config.interrupts)
            state = Conversation(self._provider, self._metrics, out, config, read_session)
            try:
                await state.session()
                socket.send_fds(client, [welcome(channel.key, config.input_hz, config.output_hz)], channel.descriptors)
            except BaseException:
                await state.close()
                raise
            channel.handed_over()
            await self._attend(_peer(client), state, NativeSession(channel, state, out))

    async def _attend(self, peer: tuple[int, int, int], state: Conversation, session: NativeSession) -> None:
        number = next(self._numbers)
        self._open[number] = peer, session
        try:
            await attend(state, session.run())
        except DpfError as error:
            # after the welcome there is nobody to refuse; a client that broke the protocol sees its session end
            _log.warning("a native session was ended: %s", error)
        finally:
            del self._open[number]

    def _config(self, hello: Hello) -> SessionConfig:
        provider = self._provider
        model = check_model(provider, provider.name, "llm")
        config = SessionConfig(model, next(iter(voices(provider)), ""))
        voice_hz = int(provider.runtime.facts.get("voice", {}).get("rate", _NO_VOICE_HZ))
        return config.updated(settings(hello, voice_hz), Known.of(provider))


def _check_peer(client: socket.socket, group: int | None) -> None:
    """RequestError (403) unless the client is this user's, root's, or in the group."""
    pid, uid, gid = _peer(client)
    if uid in (os.geteuid(), 0) or (group is not None and group in (gid, *_groups(client))):
        return
    raise RequestError(
        "not a client of this server", where="native", status=403, found=f"user {uid}, process {pid}",
        allowed=f"user {os.geteuid()}" + ("" if group is None else f", group {group}"),
        remedy="serve with --native-group",
    )  # fmt: skip


def _peer(client: socket.socket) -> tuple[int, int, int]:
    """Process, user and group that connected; process 0 is one that this server's PID namespace does not show."""
    pid, uid, gid = struct.unpack("iII", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid, gid


def _groups(client: socket.socket) -> tuple[int, ...]:
    """The client's further groups; none where the kernel does not tell: before 4.13, or of more than 256."""
    try:
        data = client.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES)
    except OSError:
        return ()
    return struct.unpack(f"{len(data) // 4}I", data)


def _refuse(client: socket.socket, error: DpfError) -> None:
    with contextlib.suppress(OSError):  # it left
        client.send(refusal(error), socket.MSG_DONTWAIT)
