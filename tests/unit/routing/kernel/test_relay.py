# SPDX-License-Identifier: Apache-2.0
"""Legacy mode: the relay chooses as the kernel's programs do."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpfedge.routing import Instance, Publisher, Router, slot_of
from dpfedge.routing.kernel.addresses import Address, Service
from dpfedge.routing.kernel.relay import Relay, keyless, owner_of_socket
from tests.unit.routing.kernel.conftest import Attach, Servers


@pytest.fixture
def router(tmp_path: Path, servers: Servers) -> Iterator[Router]:
    """Publishes the servers."""
    with Publisher(tmp_path / "table") as publisher:
        made = Router(publisher)
        made.assign(servers.instances)
        yield made


def _free(host: str) -> str:
    with socket.create_server((host, 0)) as one:
        return f"{host}:{one.getsockname()[1]}"


def _ask(address: Address, text: bytes = b"hello") -> bytes:
    with socket.create_connection((address.host, address.port), 10) as one:
        one.sendall(text)
        got = b""
        while data := one.recv(1 << 16):
            got += data
        return got


def test_relay__goes_where_the_kernel_would(router: Router, servers: Servers, tmp_path: Path, attach: Attach) -> None:
    """One user of one cgroup: the same instance by the relay as by the programs."""
    service = Service.parse([_free("127.77.0.1")], "x")
    assert service.v4 is not None
    with Relay(service, tmp_path / "table") as relay:
        assert relay.problem == ""
        number, text = _ask(service.v4).split()
        assert text == b"hello"
        attachment = attach()
        attachment.table.publish(router.table.owners.tobytes(), servers.addresses)
        assert _ask(Address.parse("10.255.0.1:8000", "x")) == b"%s hello" % number
        assert relay.relayed == 1


def test_owner__of_a_socket_of_this_host() -> None:
    """User and cgroup; a socket that is not here has none."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as one:
        ends = [Address.parse("{}:{}".format(*name), "x") for name in (one.getsockname(), one.getpeername())]
        found = owner_of_socket(*ends)
        if found is None:
            pytest.skip("this kernel does not tell a socket's cgroup")
        assert found[1] == os.getuid()
        assert found[0] > 0
        assert owner_of_socket(ends[0], Address.parse("127.0.0.9:9", "x")) is None


def test_relay__nobody_healthy_is_cut_at_once(router: Router, servers: Servers, tmp_path: Path) -> None:
    """No hang; it goes on when somebody is there again."""
    service = Service.parse([_free("127.77.0.1")], "x")
    assert service.v4 is not None
    with Relay(service, tmp_path / "table") as relay:
        router.assign([])
        with pytest.raises(ConnectionResetError):
            _ask(service.v4)
        assert relay.refused == 1
        router.assign(servers.instances)
        assert _ask(service.v4).endswith(b" hello")


def test_relay__an_instance_that_is_the_service_itself(router: Router, tmp_path: Path) -> None:
    """One connection is refused; it does not go round until there is no room for another."""
    name = _free("127.77.0.1")
    service = Service.parse([name], "x")
    assert service.v4 is not None
    router.assign([Instance(name)])
    with Relay(service, tmp_path / "table") as relay:
        with pytest.raises(ConnectionResetError):
            _ask(service.v4)
        assert (relay.relayed, relay.refused) == (0, 1)


def test_relay__an_address_that_is_not_here(router: Router, tmp_path: Path) -> None:
    """It says so, and which."""
    with Relay(Service.parse(["192.0.2.1:8000"], "x"), tmp_path / "table") as relay:
        assert relay.problem.startswith("nothing is relayed for 192.0.2.1:8000: ")


def test_keyless__is_the_programs_hash() -> None:
    """XXH64 of two words, cgroup first."""
    assert 0 <= slot_of(keyless(1, 0, 7)) < 65536
    assert keyless(1, 0, 7) != keyless(0, 1, 7)
    assert keyless(1, 0, 7) != keyless(1, 0, 8)
