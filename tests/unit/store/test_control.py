# SPDX-License-Identifier: Apache-2.0
"""Telling running servers: what is asked, in which order, and what their refusals become."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import StoreError
from dpfedge.store import control, serving
from dpfedge.store.control import switching
from dpfedge.store.places import Places


class ToyServer:
    """Answers each request with the next of `answers`; `asked` are the requests."""

    def __init__(self, path: Path) -> None:
        self.answers: list[tuple[int, Any]] = []
        self.asked: list[tuple[str, Any]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        self._socket.listen(4)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            client, _ = self._socket.accept()
            with client, client.makefile("rb") as stream:
                line = stream.readline().decode()
                if not line:
                    return
                length = 0
                while (header := stream.readline().strip().lower()) != b"":
                    if header.startswith(b"content-length:"):
                        length = int(header.split(b":")[1])
                self.asked.append((line.split()[1], json.loads(stream.read(length))))
                status, body = self.answers.pop(0) if self.answers else (200, {})
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                client.sendall(b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n%s" % (status, len(data), data))

    def stop(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as end:
            end.connect(self._socket.getsockname())
        self._thread.join()
        self._socket.close()


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A store that this process serves `voice` from."""
    places = Places(tmp_path / "store")
    places.serving.mkdir(parents=True)
    serving.announce(places, "voice", tmp_path / "s")
    return places


@pytest.fixture
def server(places: Places, tmp_path: Path) -> Iterator[ToyServer]:
    """Its socket."""
    one = ToyServer(tmp_path / "s")
    yield one
    one.stop()


@pytest.fixture
def package() -> Any:
    """What is installed."""
    return type("Toy", (), {"name": "voice", "id": "ab"})


def test_switching__warms_then_switches(places: Places, server: ToyServer, package: Any) -> None:
    """In two requests; `told` hears before the first."""
    heard: list[int] = []
    switch = switching(places, lambda one: heard.append(one.pid))(package)
    assert switch is not None
    assert heard == [os.getpid()]
    switch.commit()
    switch.drop()

    paths = [f"/v1/control/{what}" for what in ("warm", "switch", "drop")]
    assert server.asked == [(path, {"id": "ab"}) for path in paths]


def test_switching__without_a_server(places: Places, package: Any) -> None:
    """Of another name: nobody is told."""
    package.name = "other"

    assert switching(places)(package) is None


def test_switching__refused(places: Places, server: ToyServer, package: Any) -> None:
    """The server's words and its exit code."""
    server.answers = [(409, {"error": {"message": "no target fits", "exit_code": 3}})]
    with pytest.raises(StoreError) as caught:
        switching(places)(package)

    assert str(caught.value) == (
        f"server pid {os.getpid()}: the running server cannot take the package and serves the old one on; "
        "found no target fits; the slots are as they were"
    )
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("answer", [b"not json", b"[" * 60_000, [], {"error": 1}, {"error": {"exit_code": 99}}])
def test_switching__refused_without_sense(places: Places, server: ToyServer, package: Any, answer: Any) -> None:
    """Whatever it says, it is a refusal, and fails with 1."""
    server.answers = [(500, answer)]
    with pytest.raises(StoreError, match="the running server cannot take the package") as caught:
        switching(places)(package)

    assert caught.value.exit_code == 1


def test_switching__a_server_that_does_not_answer(places: Places, tmp_path: Path, package: Any) -> None:
    """Its socket is there, nobody listens; or it is not there."""
    with pytest.raises(StoreError, match="its socket cannot be reached: No such file or directory; found "):
        switching(places)(package)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(tmp_path / "s"))
    with pytest.raises(StoreError, match=r"the running server does not answer: .* refused; the slots are as"):
        switching(places)(package)


def test_switching__a_server_without_a_socket(tmp_path: Path, package: Any) -> None:
    """It must be started again."""
    places = Places(tmp_path / "x")
    places.serving.mkdir(parents=True)
    serving.announce(places, "voice", None)
    with pytest.raises(StoreError, match="no socket to be told by; end the server and start it again"):
        switching(places)(package)


def test_switching__a_server_of_another_user(
    places: Places, server: ToyServer, package: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told nothing."""
    user = os.geteuid()
    monkeypatch.setattr(control.os, "geteuid", lambda: user + 1)
    with pytest.raises(StoreError) as caught:
        switching(places)(package)
    monkeypatch.undo()

    assert str(caught.value) == (
        f"server pid {os.getpid()}: the running server belongs to another user; found user {user}; "
        f"allowed user {user + 1}; run this as that user, or start the server again"
    )
    assert server.asked == []


def test_switching__one_of_two_refuses(
    places: Places, server: ToyServer, package: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that is warm already is told to drop it."""
    one = serving.servers(places, "voice")[0]
    monkeypatch.setattr(control, "servers", lambda places, name: [one, one])
    server.answers = [(200, {}), (500, {})]
    with pytest.raises(StoreError):
        switching(places)(package)

    assert [path for path, _ in server.asked] == [f"/v1/control/{what}" for what in ("warm", "warm", "drop")]


def test_commit__one_of_two_does_not_switch(places: Places, server: ToyServer, package: Any) -> None:
    """No way back for the first; the other is named if it is there, and forgotten if it is gone."""
    one = serving.servers(places, "voice")[0]
    switch = control.ServerSwitch([one, one], package.id)
    server.answers = [(200, {}), (500, {"error": {"message": "no such spare"}})]
    with pytest.raises(StoreError) as caught:
        switch.commit()

    assert switch.moved
    assert str(caught.value) == (
        f"server pid {os.getpid()}: the new package is active, and this server serves the old one on; "
        "found no such spare; end it and start it again"
    )
    switch = control.ServerSwitch([one, replace(one, pid=1 << 30, socket=f"{one.socket}.gone")], package.id)
    switch.commit()
    assert switch.moved


def test_commit__nobody_switches(places: Places, server: ToyServer, package: Any) -> None:
    """Then all is as before, and a server that is gone is said to be."""
    one = replace(serving.servers(places, "voice")[0], pid=1 << 30, socket="/gone")
    switch = control.ServerSwitch([one], package.id)
    with pytest.raises(StoreError, match="the running server ended meanwhile; found /gone; the slots are as they were"):
        switch.commit()

    assert not switch.moved
