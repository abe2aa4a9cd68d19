# SPDX-License-Identifier: Apache-2.0
"""Addresses become listening sockets; one that is taken names who has it."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from dpfedge.errors import UsageError
from dpfedge.serve.sockets import AddressInUse, default_socket_path, listen_tcp, listen_unix, native_path, port_owner

ME = rf"pid {os.getpid()} \("


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_tcp__a_free_port_is_chosen(host: str) -> None:
    """Port 0; it can be connected to."""
    if host == "::1" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 here")
    with listen_tcp(host, 0) as sock, socket.create_connection(sock.getsockname()[:2]):
        assert sock.getsockname()[1] > 0
        assert not sock.getblocking()


def test_tcp__port_in_use_names_its_owner() -> None:
    """The process, and what to do."""
    with listen_tcp("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(AddressInUse, match=rf"127.0.0.1:{port}: the port is in use; found {ME}.*--port"):
            listen_tcp("127.0.0.1", port)


def test_tcp__address_of_another_machine_is_refused() -> None:
    """Documentation's address is nobody's."""
    with pytest.raises(UsageError, match=r"192\.0\.2\.1:0: cannot listen"):
        listen_tcp("192.0.2.1", 0)


def test_owner__of_a_port_nobody_has() -> None:
    """There is none; nor is there without a /proc."""
    with listen_tcp("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        assert port_owner(port, Path("/nonexistent")) is None
    assert port_owner(port) is None


def test_unix__is_this_users_only(tmp_path: Path) -> None:
    """Socket 0600, its folder 0700 and made when missing."""
    path = tmp_path / "run" / "s.sock"
    with listen_unix(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_unix__nobody_listens_is_replaced(tmp_path: Path) -> None:
    """What a killed server leaves behind."""
    path = tmp_path / "s.sock"
    listen_unix(path).close()
    assert path.is_socket()

    with listen_unix(path), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(path))


def test_unix__in_use_names_its_owner(tmp_path: Path) -> None:
    """A live server keeps its socket."""
    path = tmp_path / "s.sock"
    with listen_unix(path), pytest.raises(AddressInUse, match=rf"the socket is in use; found {ME}"):
        listen_unix(path)


def test_unix__a_file_stays(tmp_path: Path) -> None:
    """Nothing but a socket is ever removed."""
    path = tmp_path / "notes"
    path.write_text("x")

    with pytest.raises(UsageError, match="exists and is no socket"):
        listen_unix(path)
    assert path.read_text() == "x"


def test_unix__path_length_has_a_limit(tmp_path: Path) -> None:
    """Bytes, not characters; the message says how many."""
    folder = tmp_path / ("ü" * 60)

    with pytest.raises(UsageError, match=r"found \d+ bytes; allowed 107 bytes"):
        listen_unix(folder / "s.sock")
    assert not folder.exists()


@pytest.mark.parametrize(
    ("environ", "start"),
    [
        ({"XDG_RUNTIME_DIR": "/run/user/7", "DPFEDGE_HOME": "/h"}, "/run/user/7/dpfedge/"),
        ({"XDG_RUNTIME_DIR": "", "DPFEDGE_HOME": "/h"}, "/h/run/"),
        ({}, "/"),
    ],
)
def test_default_path__is_the_users_own(environ: dict[str, str], start: str) -> None:
    """The runtime directory, dpfedge's home, or a private folder."""
    path = default_socket_path(8080, environ)

    assert str(path).startswith(start)
    assert path.name == "serve-8080.sock"
    if not environ:
        assert path.parent.name == f"dpfedge-{os.getuid()}"


@pytest.mark.parametrize(
    ("path", "native"),
    [("/run/serve-1.sock", "/run/serve-1.native"), ("/run/a.b", "/run/a.b.native"), ("a", "a.native")],
)
def test_native_path__is_beside(path: str, native: str) -> None:
    """Never the same."""
    assert native_path(Path(path)) == Path(native)


def test_unix__of_another_kind_and_for_a_group(tmp_path: Path) -> None:
    """The group may connect, nobody else; a stale socket of that kind is replaced, one in use is not."""
    path = tmp_path / "s.native"
    listen_unix(path, kind=socket.SOCK_SEQPACKET).close()
    with listen_unix(path, kind=socket.SOCK_SEQPACKET, group=os.getegid()) as sock:
        assert sock.type == socket.SOCK_SEQPACKET
        assert path.stat().st_mode & 0o777 == 0o660
        assert path.stat().st_gid == os.getegid()
        with pytest.raises(AddressInUse, match="pid"):
            listen_unix(path, kind=socket.SOCK_SEQPACKET)


def test_connection__keeps_little_that_is_unread() -> None:
    """What a client sent before it left must not keep a stage busy for long: under ten seconds of 16 kHz samples."""
    with listen_tcp("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        listening.setblocking(True)
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) < 320_000
