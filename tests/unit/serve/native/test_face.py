# SPDX-License-Identifier: Apache-2.0
"""Who gets a native session, how many there are, and how they end."""

from __future__ import annotations

import os
import resource
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpfedge.errors import Busy, NoInstance
from dpfedge.serve.errors import RequestError
from dpfedge.serve.native import face as module
from dpfedge.serve.native.face import _check_peer
from dpfedge.serve.native.wire import Command, EventKind, Hello
from dpfedge.stage.api import Mode

HELLO = Hello(0, 16_000, 0, 0, 0, None)


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not check():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


def test_session__has_the_settings_it_asked_for(faced: Any) -> None:
    """The runtime is told of rate, instructions and modality; the client of the rate it gets."""
    client = faced.dial(Hello(2, 48_000, 16_000, 0, 50, "Be brief."))
    [(_, format, options)] = faced.session.calls
    assert (format.encoding, format.rate) == ("pcm_s16le", 48_000)
    assert options["instructions"] == "Be brief."
    assert options["spoken"] is False
    assert options["sampling"].max_tokens == 50
    assert (client.status, client.output_hz) == (0, 16_000)


@pytest.mark.parametrize(
    ("hello", "status", "words"),
    [
        (HELLO._replace(input_hz=96_000), 8, "8000"),
        (HELLO._replace(output_hz=4), 8, "rate"),
        (HELLO._replace(silence_ms=9), 8, "silence_duration_ms"),
        (HELLO._replace(max_answer_tokens=99_999), 8, "max_output_tokens"),
        (b"hello?", 8, "no hello"),
        (b"DPFC\x09\0" + bytes(58), 5, "another version"),
    ],
)
def test_refusal__says_why(faced: Any, hello: Hello | bytes, status: int, words: str) -> None:
    """And leaves no session behind."""
    client = faced.dial(hello)
    assert client.status == status
    assert words in client.why
    assert client.fds == []
    eventually(lambda: faced.face.sessions == 0)
    assert faced.runtime.sessions == []


def test_places__are_bounded_and_come_back(faced: Any) -> None:
    """The third of two is refused with both numbers, and served when one has left."""
    first, _second = faced.dial(), faced.dial()
    refused = faced.dial()
    assert refused.status == 7
    assert "found 2; allowed 2" in refused.why
    first.close()
    faced.clients.remove(first)
    eventually(lambda: faced.face.sessions == 1)
    assert faced.runtime.ended == 1
    assert faced.dial().status == 0


def test_accept__without_a_free_descriptor(faced: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It is told of once for each try, a second apart; the client is served when there is one again."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as late:
        late.settimeout(20)
        free = os.dup(late.fileno())
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
        try:
            late.connect(str(faced.path))
            eventually(lambda: "Too many open files" in caplog.text)
            time.sleep(0.5)
            tries = caplog.text.count("a native client cannot be accepted")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert tries < 50  # without a pause 15,000
        late.send(b"hello?")
        assert b"no hello" in late.recv(8192)


def test_figures__name_each_session_and_its_client(faced: Any) -> None:
    """Numbers are not given again; who was refused, or has said nothing yet, is not among them."""
    first, _second, refused = faced.dial(), faced.dial(), faced.dial()
    rows = faced.run(faced.face.figures)
    assert list(rows) == ["1", "2"]
    assert {(row["pid"], row["user"]) for row in rows.values()} == {(os.getpid(), os.geteuid())}
    assert 0 <= rows["2"]["open_ms"] <= rows["1"]["open_ms"]
    assert refused.status == 7
    first.close()
    faced.clients.remove(first)
    eventually(lambda: list(faced.run(faced.face.figures)) == ["2"])
    eventually(lambda: faced.face.sessions == 1)
    faced.dial()
    assert list(faced.run(faced.face.figures)) == ["2", "3"]


def test_runtime__that_has_no_place_refuses(faced: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its own words."""

    async def full(*_: Any, **__: Any) -> Any:
        raise Busy("every place is taken")

    monkeypatch.setattr(faced.runtime, "converse", full)
    client = faced.dial()
    assert client.status == 7
    assert "every place is taken" in client.why


def test_device__that_is_out_gets_no_new_session(faced: Any) -> None:
    """503 with why; the next one after it is well again is served, and who talks already goes on."""
    talking = faced.dial()

    def admit(mode: Mode) -> str:
        raise NoInstance("no instance can serve the request", where="instance cuda:0", health={"cuda:0": {}})

    faced.provider.instances = SimpleNamespace(admit=admit, healthy=False)
    refused = faced.dial()
    assert (refused.status, "instance cuda:0: no instance can serve the request" in refused.why) == (6, True)
    assert talking.status == 0
    faced.provider.instances = None
    assert faced.dial().status == 0


def test_server__that_ends_tells_its_clients(faced: Any) -> None:
    """An error event, then the descriptors hang up; a later client finds nobody."""
    client = faced.dial()
    faced.end()
    kind, _, code, text = _event(client)
    assert (kind, code) == (EventKind.ERROR, 503)
    assert "shutting down" in text
    assert client.sock.recv(1) == b""
    with pytest.raises(OSError, match="refused"):
        faced.dial()


def _event(client: Any) -> tuple[int, int, int, str]:
    client.ring = lambda: None  # nobody listens any more
    got: tuple[int, int, int, str] = client.event()
    return got


def test_package__that_is_replaced_takes_the_session_along(faced: Any) -> None:
    """At its next word the client talks to the new one, which knows what was said; it sees nothing of it."""
    client = faced.dial()
    client.command(Command.SAY, b"hello")
    eventually(lambda: ("say", "hello") in faced.session.calls)
    old, new = faced.runtime, faced.run(type(faced.runtime))
    faced.run(lambda: faced.provider.replace(new))
    eventually(lambda: old.ended == 1)
    client.push(bytes(640))
    eventually(lambda: bool(new.sessions))
    eventually(lambda: len(new.sessions[0].heard) == 640)
    assert new.sessions[0].history == [{"role": "user", "content": "hello"}]
    faced.runtime = new


def test_connection__that_says_nothing_is_closed(faced: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds no place for long."""
    monkeypatch.setattr(module, "NATIVE_HELLO_MAX_S", 0.05)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.settimeout(20)
        silent.connect(str(faced.path))
        assert silent.recv(1) == b""


def _closed(sock: socket.socket) -> bool:
    try:
        return not sock.recv(1)
    except BlockingIOError:
        return False


def test_connections__are_bounded(faced: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, the loop goes on and a client that leaves makes room."""
    monkeypatch.setattr(module, "NATIVE_HELLO_MAX_S", 60)
    idle = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(40)]
    for one in idle:
        one.connect(str(faced.path))
        one.setblocking(False)
    eventually(lambda: sum(_closed(one) for one in idle) == 22)
    assert faced.run(lambda: len(faced.face._clients)) == 18
    for one in idle:
        one.close()
    eventually(lambda: faced.run(lambda: len(faced.face._clients)) == 0)
    assert faced.dial().status == 0


def test_client__that_is_killed_frees_its_session(faced: Any) -> None:
    """kill -9 in mid sentence: the runtime's session is ended, no descriptor is left."""
    before = faced.run(lambda: len(os.listdir("/proc/self/fd")))
    script = f"""
import socket, time
from dpfedge.serve.native.wire import Hello
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect({str(faced.path)!r})
sock.send(Hello(0, 16000, 0, 0, 0, None).pack())
fds = socket.recv_fds(sock, 8192, 8)
print("ready", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"ready\n"
        assert faced.face.sessions == 1
        client.kill()
    eventually(lambda: faced.face.sessions == 0)
    assert faced.runtime.ended == 1
    eventually(lambda: faced.run(lambda: len(os.listdir("/proc/self/fd"))) == before)


def test_hostile_client__is_ended_alone(faced: Any) -> None:
    """Its memory full of noise, its doorbell rung without end: it loses its session, the other one goes on."""
    good, bad = faced.dial(), faced.dial()
    import mmap

    with mmap.mmap(bad.fds[0], bad.arena.nbytes) as memory:
        for index in range(200):
            memory[: 64 << 10] = os.urandom(64 << 10)
            try:
                bad.sock.send(bytes(index % 16 + 1), socket.MSG_DONTWAIT)
            except (BlockingIOError, BrokenPipeError, ConnectionResetError):
                break
    good.push(bytes(640))
    eventually(lambda: any(len(one.heard) == 640 for one in faced.runtime.sessions))
    bad.sock.close()
    eventually(lambda: faced.face.sessions == 1)


class Peer:
    """A socket whose other end is whoever a test likes."""

    def __init__(self, uid: int, gid: int, groups: tuple[int, ...] = ()) -> None:
        self.credentials = struct.pack("iII", 4711, uid, gid)
        self.groups = struct.pack(f"{len(groups)}I", *groups)

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        return self.credentials if option == socket.SO_PEERCRED else self.groups


@pytest.mark.parametrize(
    ("peer", "group", "may"),
    [
        (Peer(os.geteuid(), 1), None, True),
        (Peer(0, 0), None, True),
        (Peer(4242, 7), None, False),
        (Peer(4242, 7), 7, True),
        (Peer(4242, 8, (5, 7)), 7, True),
        (Peer(4242, 8, (5, 6)), 7, False),
        (Peer(3_000_000_000, 8), 7, False),
        (Peer(3_000_000_000, 4_000_000_000), 4_000_000_000, True),
    ],
)
def test_peer__is_this_user_or_in_the_group(peer: Any, group: int | None, may: bool) -> None:
    """Whatever the socket's file lets through."""
    if may:
        _check_peer(peer, group)
        return
    with pytest.raises(RequestError, match=r"user (4242|3000000000), process 4711") as caught:
        _check_peer(peer, group)
    assert caught.value.http_status == 403


def test_socket_file__is_closed_to_others(faced: Any) -> None:
    """Only this user opens it, unless a group is named."""
    assert Path(faced.path).stat().st_mode & 0o777 == 0o600
