# SPDX-License-Identifier: Apache-2.0
"""An address in, a listening socket out, or an error that names the process that has the address already.

It accepts no connection.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path

from dpfedge.errors import DpfError, UsageError
from dpfedge.store.places import runtime_folder

__all__ = ["BACKLOG", "AddressInUse", "default_socket_path", "listen_tcp", "listen_unix", "native_path", "port_owner"]

BACKLOG = 128
"""Connections that may wait to be accepted."""
_UNREAD_BYTES = 128 << 10  # that a client left is seen only behind what it sent, and that is recognised first
_UNIX_PATH_MAX = 107  # sun_path, without its final zero
_LISTEN = "0A"  # the state in /proc/net/tcp


class AddressInUse(DpfError):
    """Another process listens there."""


def listen_tcp(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. AddressInUse names the owner."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets that name their protocol; without it small parts wait 40 ms for an ACK
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _UNREAD_BYTES)
    try:
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        if error.errno != errno.EADDRINUSE:
            raise UsageError(
                f"cannot listen: {error.strerror}", where=f"{host}:{port}", remedy="choose another --port"
            ) from error
        raise AddressInUse(
            "the port is in use",
            where=f"{host}:{port}",
            found=port_owner(port) or "a process of another user",
            remedy="end it, or choose another --port (0 takes a free one)",
        ) from error
    sock.setblocking(False)
    return sock


def port_owner(port: int, proc: Path = Path("/proc")) -> str | None:
    """`pid N (command)` of the process that listens on a TCP port; None when /proc does not tell."""
    inodes = {inode for table in ("tcp", "tcp6") for inode in _listeners(proc / "net" / table, port)}
    links = {f"socket:[{inode}]" for inode in inodes}
    for fds in proc.glob("[0-9]*/fd") if links else ():
        # processes end while they are looked at, and those of others are closed to us
        with contextlib.suppress(OSError):
            if any(os.readlink(fd) in links for fd in fds.iterdir()):
                return _describe(fds.parent)
    return None


def _listeners(table: Path, port: int) -> list[str]:
    try:
        rows = [line.split() for line in table.read_text().splitlines()[1:]]
    except OSError:
        return []
    return [row[9] for row in rows if row[3] == _LISTEN and int(row[1].rpartition(":")[2], 16) == port]


def _describe(process: Path) -> str:
    command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return f"pid {process.name} ({command[:120] or (process / 'comm').read_text().strip()})"


def default_socket_path(port: int, environ: Mapping[str, str] = os.environ) -> Path:
    """The default place: the user's runtime directory, else dpfedge's home, else a private folder in /tmp."""
    name = f"serve-{port}.sock"
    if environ.get("DPFEDGE_HOME") and not environ.get("XDG_RUNTIME_DIR"):
        return Path(environ["DPFEDGE_HOME"], "run", name)
    return runtime_folder(environ) / name


def native_path(path: Path) -> Path:
    """Where native clients connect: beside the HTTP socket, `.native` for its `.sock`."""
    return path.with_suffix(".native") if path.suffix == ".sock" else Path(f"{path}.native")


def listen_unix(path: Path, *, kind: socket.SocketKind = socket.SOCK_STREAM, group: int | None = None) -> socket.socket:
    """A listening Unix socket that only this user, and `group` where given, may open.

    A socket nobody listens on any more is replaced.
    """
    if len(os.fsencode(path)) > _UNIX_PATH_MAX:
        raise UsageError(
            "the path is too long for a Unix socket",
            where=str(path),
            found=f"{len(os.fsencode(path))} bytes",
            allowed=f"{_UNIX_PATH_MAX} bytes",
            remedy="give a shorter one with --socket, or --no-socket",
        )
    sock = socket.socket(socket.AF_UNIX, kind)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.parent.stat().st_uid not in (os.getuid(), 0):
            raise UsageError(
                "the socket's folder belongs to somebody else", where=str(path.parent), remedy="use --socket"
            )
        _remove_stale(path, kind)
        before = os.umask(0o177)
        try:
            sock.bind(str(path))
        finally:
            os.umask(before)
        if group is not None:
            os.chown(path, -1, group)
            path.chmod(0o660)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise UsageError(
            f"cannot listen: {error.strerror}", where=str(path), remedy="use --socket PATH or --no-socket"
        ) from error
    except DpfError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def _remove_stale(path: Path, kind: socket.SocketKind) -> None:
    if not path.is_socket():
        if path.exists():
            raise UsageError("exists and is no socket", where=str(path), remedy="use another --socket")
        return
    with socket.socket(socket.AF_UNIX, kind) as probe:
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        pid = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    raise AddressInUse(
        "the socket is in use",
        where=str(path),
        found=_describe(Path(f"/proc/{pid}")),
        remedy="end it, or choose another --socket",
    )
