# SPDX-License-Identifier: Apache-2.0
"""Connecting as a client."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from dpfedge.errors import NoInstance, RouteError, Unavailable, UsageError
from dpfedge.routing import Instance, Publisher, Router
from dpfedge.routing.kernel.client import connect, give_key, serve
from tests.unit.routing.kernel.conftest import Attach, Servers

ADDRESS = "10.255.0.1:8000"


def _number(one: socket.socket) -> int:
    with one:
        one.sendall(b"hello")
        return int(one.recv(64).split()[0])


@pytest.fixture
def _no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where no program is attached, whatever this machine has attached."""
    monkeypatch.setattr("dpfedge.routing.kernel.client.KEY_LEVEL", 0x445047)


@pytest.mark.usefixtures("_no_kernel")
def test_connect__in_user_space_by_the_same_table(servers: Servers, tmp_path: Path) -> None:
    """The kernel knows no such option: the published table is looked up here."""
    with Publisher(tmp_path / "table") as publisher:
        router = Router(publisher)
        router.assign(servers.instances)
        for user in map(str, range(20)):
            routed = connect(ADDRESS, "llm", user, 1, table=tmp_path / "table", timeout_s=10)
            assert not routed.by_kernel
            assert _number(routed.socket) == router.route("llm", user, 1).index


def test_connect__by_the_kernel_to_the_same_instance(attach: Attach, servers: Servers, tmp_path: Path) -> None:
    """Key by key; nobody there is NoInstance with the health map, and at once."""
    attachment = attach()
    with Publisher(tmp_path / "table") as publisher:
        router = Router(publisher)
        router.assign(servers.instances)
        attachment.table.publish(router.table.owners.tobytes(), servers.addresses)
        for user in map(str, range(20)):
            routed = connect(ADDRESS, "llm", user, 1, timeout_s=10)
            assert routed.by_kernel
            assert _number(routed.socket) == router.route("llm", user, 1).index
        attachment.table.publish(b"\xff" * 131072, [])
        with pytest.raises(NoInstance) as caught:
            connect(ADDRESS, "llm", "u", 1, table=tmp_path / "table")
        assert set(caught.value.health) == {one.name for one in servers.instances}


@pytest.mark.usefixtures("_no_kernel")
def test_connect__bad_input(tmp_path: Path) -> None:
    """Ids that are too long, a service that is no address, no table, nobody healthy, a name that is no address."""
    path = tmp_path / "table"
    with pytest.raises(Unavailable, match="no routing table"):
        connect(ADDRESS, "m", "u", 1, table=path)
    with pytest.raises(UsageError, match="120"):
        connect(ADDRESS, "m" * 121, "u", 1, table=path)
    with pytest.raises(UsageError, match="service: no address"):
        connect("llm.local:80", "m", "u", 1, table=path)
    with Publisher(path) as publisher:
        router = Router(publisher)
        router.assign([Instance("gpu0", 0)])
        with pytest.raises(NoInstance):
            connect(ADDRESS, "m", "u", 1, table=path)
        router.weigh("gpu0", 1)
        with pytest.raises(RouteError, match="no address; found gpu0"):
            connect(ADDRESS, b"\0\xff", "", 0, table=path)


def test_serve__where_nothing_is_attached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There is nobody to ask; an address that is none is told first."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with pytest.raises(Unavailable, match="no routing is attached"):
            serve("10.0.0.1:80", listener)
        with pytest.raises(UsageError, match="address: no address"):
            serve("gpu0", listener)


@pytest.mark.usefixtures("_no_kernel")
def test_give_key__where_nothing_is_attached() -> None:
    """The answer is how a client knows; TCP and UDP alike."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as one:
            assert not give_key(one, "m", "u", 1)
