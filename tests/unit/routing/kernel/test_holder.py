# SPDX-License-Identifier: Apache-2.0
"""Following a published table, and answering."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import Unavailable, UsageError
from dpfedge.routing import Instance, Publisher, Router
from dpfedge.routing.kernel.addresses import Address, Service
from dpfedge.routing.kernel.control import Server, ask, name_of
from dpfedge.routing.kernel.holder import Follower, Holder

SERVICE = Service.parse(["10.255.0.1:8000"], "service")


class FakeAttachment:
    """Notes what it is given."""

    def __init__(self) -> None:
        self.table, self.bits, self.seeds, self.closed = self, 16, list[int](), False
        self.published: list[tuple[bytes, Sequence[Address | None]]] = []

    def publish(self, owners: bytes, addresses: Sequence[Address | None]) -> None:
        self.published.append((owners, addresses))

    def settle(self) -> None:
        """At once."""

    def use_seed(self, seed: int) -> None:
        self.seeds.append(seed)

    def figures(self) -> dict[str, Any]:
        return {"mode": "kernel"}

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a table is published."""
    return tmp_path / "table"


def test_follower__copies_each_generation_once(path: Path) -> None:
    """Owners and addresses by index; a name that is no address is told."""
    fake = FakeAttachment()
    with Publisher(path) as publisher:
        router = Router(publisher)
        router.assign([Instance("10.0.0.1:80"), Instance("gpu0")])
        follower = Follower(fake, path)  # type: ignore[arg-type]
        assert not follower.follow()
        router.weigh("gpu0", 0)
        assert follower.follow()
    assert len(fake.published) == 2
    assert [str(one) for one in fake.published[0][1]] == ["10.0.0.1:80", "None"]
    assert follower.unreachable == ["gpu0"]
    assert fake.published[1][0] == bytes(131072)


def test_follower__opens_a_table_that_took_the_place(path: Path) -> None:
    """Of other bits and another key seed; one that does not fit is told, and the kernel keeps what it has."""
    fake = FakeAttachment()
    with Publisher(path) as publisher:
        Router(publisher).assign([Instance("10.0.0.1:80")])
        follower = Follower(fake, path)  # type: ignore[arg-type]
    with Publisher(path, bits=8, key_seed=7) as publisher:
        Router(publisher).assign([Instance("10.0.0.1:80")])
        assert follower.follow()
        assert fake.seeds[-1] == 7
    with Publisher(path, bits=18) as publisher:
        Router(publisher).assign([Instance("10.0.0.1:80")])
        assert not follower.follow()
        assert "allowed up to 16" in follower.problem
    assert len(fake.published) == 2


def test_follower__without_a_table(path: Path) -> None:
    """There is nothing to follow."""
    with pytest.raises(Unavailable, match="no routing table"):
        Follower(FakeAttachment(), path)  # type: ignore[arg-type]


@pytest.fixture
def _published(path: Path) -> None:
    with Publisher(path) as publisher:
        Router(publisher).assign([Instance("10.0.0.1:80")])


@pytest.mark.usefixtures("_published")
def test_holder__in_user_space_says_why(path: Path) -> None:
    """Status has the reason, and why nothing is relayed; detach ends it."""
    name = name_of({"XDG_RUNTIME_DIR": str(path)})
    holder = Holder(SERVICE, None, "no privilege", path)
    reader, writer = os.pipe()
    thread = threading.Thread(target=holder.run, args=(Server(name), reader))
    thread.start()
    status = ask({"do": "status"}, name=name)
    assert (status["mode"], status["why"], status["service"]) == ("user space", "no privilege", "10.255.0.1:8000")
    assert status["problem"].startswith("nothing is relayed for 10.255.0.1:8000")
    assert ask({"do": "detach"}, name=name, until_gone=True)["pid"] == os.getpid()
    thread.join()
    os.close(reader)
    os.close(writer)
    with pytest.raises(Unavailable, match="nobody holds it"):
        ask({"do": "status"}, name=name)


def test_holder__ends_by_its_descriptor(path: Path) -> None:
    """What a signal makes readable; the attachment is closed."""
    fake = FakeAttachment()
    with Publisher(path) as publisher:
        Router(publisher).assign([Instance("10.0.0.1:80")])
        holder = Holder(SERVICE, fake, "", path)  # type: ignore[arg-type]
        reader, writer = os.pipe()
        os.write(writer, b"x")
        holder.run(Server(name_of({"XDG_RUNTIME_DIR": str(path)})), reader)
        os.close(reader)
        os.close(writer)
    assert fake.closed


def test_holder__that_is_asked_slowly_follows_all_the_same(path: Path) -> None:
    """A connection that says nothing holds up no change of the table."""
    fake, name = FakeAttachment(), name_of({"XDG_RUNTIME_DIR": str(path)})
    reader, writer = os.pipe()
    with Publisher(path) as publisher, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        router = Router(publisher)
        router.assign([Instance("10.0.0.1:80"), Instance("10.0.0.2:80")])
        holder = Holder(SERVICE, fake, "", path)  # type: ignore[arg-type]
        thread = threading.Thread(target=holder.run, args=(Server(name), reader))
        thread.start()
        silent.connect(name)
        router.weigh("10.0.0.2:80", 0)
        for _ in range(1000):
            if len(fake.published) == 2:
                break
            time.sleep(0.005)
        os.write(writer, b"x")
        silent.close()
        thread.join()
    os.close(reader)
    os.close(writer)
    assert len(fake.published) == 2


@pytest.mark.usefixtures("_published")
def test_holder__refuses_other_requests(path: Path) -> None:
    """It says which there are; a socket to serve needs the kernel."""
    holder = Holder(SERVICE, None, "no privilege", path)
    for request in ({"do": "x"}, {}, {"do": "serve"}):
        with pytest.raises(UsageError, match="status, detach, serve"):
            holder.answer(request, [])
    with pytest.raises(Unavailable, match="no privilege"):
        holder.answer({"do": "serve", "address": "10.0.0.1:80"}, [0])
    holder.close()
