# SPDX-License-Identifier: Apache-2.0
"""Asking the process that holds the kernel's routing."""

from __future__ import annotations

import os
import resource
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import RouteError, Unavailable, UsageError
from dpfedge.routing.kernel.control import Server, ask, name_of


@pytest.fixture
def name(tmp_path: Path) -> str:
    """A control socket's name of this test."""
    return name_of({"XDG_RUNTIME_DIR": str(tmp_path)})


def _handler(request: dict[str, Any], fds: list[int]) -> Mapping[str, Any]:
    if request.get("do") == "wrong":
        raise UsageError("no such request")
    return {"pid": os.getpid(), "got": request, "sizes": [os.fstat(fd).st_size for fd in fds]}


@pytest.fixture
def serving(name: str) -> Iterator[str]:
    """Answers what it is asked, in a thread; its name."""
    with Server(name) as server:
        stop = threading.Event()

        def handler(request: dict[str, Any], fds: list[int]) -> Mapping[str, Any]:
            if request.get("do") == "end":
                stop.set()
            return _handler(request, fds)

        def loop() -> None:
            while not stop.is_set():
                if (one := server.serve_once(handler)) is not None:
                    one.close()

        thread = threading.Thread(target=loop)
        thread.start()
        yield name
        ask({"do": "end"}, name=name)
        thread.join()


def test_ask__when_nobody_holds_it(name: str) -> None:
    """It says what to do."""
    with pytest.raises(Unavailable, match=r"no routing is attached.*route attach"):
        ask({"do": "status"}, name=name)


def test_ask__is_answered_and_gives_descriptors(serving: str, tmp_path: Path) -> None:
    """JSON both ways; the other process has the file while it answers."""
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    with path.open("rb") as file:
        answer = ask({"do": "x"}, file.fileno(), name=serving, until_gone=True)
    assert answer == {"pid": os.getpid(), "got": {"do": "x"}, "sizes": [5]}


def test_ask__errors_come_back(serving: str) -> None:
    """As RouteError, with the process."""
    with pytest.raises(RouteError, match=rf"process {os.getpid()}: no such request"):
        ask({"do": "wrong"}, name=serving)


def test_server__two_of_one_name(serving: str) -> None:
    """The second is told who the first is."""
    with pytest.raises(
        RouteError, match=rf"attached already; found process {os.getpid()}; `dpfedge route detach` first"
    ):
        Server(serving)


@pytest.mark.parametrize("data", [b"\xff\xff", b"[]", b"{", b"[" * 60_000])
def test_server__survives_nonsense(serving: str, data: bytes) -> None:
    """It answers with an error and goes on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
        one.connect(serving)
        one.send(data)
        assert b"a request is a JSON object" in one.recv(1000)
    assert ask({}, name=serving)["got"] == {}


def test_server__without_a_free_descriptor(name: str) -> None:
    """What it holds stays held, and who asks is answered when there is one again."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Server(name) as server, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
        one.connect(name)
        free = os.dup(one.fileno())
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
        try:
            assert server.serve_once(_handler) is None
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        one.send(b"{}")
        answered = server.serve_once(_handler)
        assert answered is not None
        answered.close()
        assert b'"got": {}' in one.recv(1000)


def test_server__leaves_no_name_behind(name: str) -> None:
    """The next one has it at once."""
    for _ in range(2):
        Server(name).close()
