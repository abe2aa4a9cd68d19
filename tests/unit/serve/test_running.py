# SPDX-License-Identifier: Apache-2.0
"""Finding servers in /proc and asking them."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dpfedge.errors import Unavailable
from dpfedge.serve.running import Server, ask, running, server_at

Answer = Callable[[bytes], Path]


def process(proc: Path, pid: int, command: str, *inodes: int, parent: int = 1, name: str = "dpfedge") -> None:
    """One process with these sockets open."""
    place = proc / str(pid)
    (place / "fd").mkdir(parents=True)
    (place / "cmdline").write_bytes(command.replace(" ", "\0").encode() + b"\0")
    (place / "stat").write_text(f"{pid} ({name}) S {parent} {pid} {pid} 0 -1\n")
    (place / "cwd").symlink_to("/home/me")
    for number, inode in enumerate(inodes):
        (place / "fd" / str(number)).symlink_to(f"socket:[{inode}]")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc with sockets 11, 17 (Unix, listening), 12 (Unix, connected), 13 (TCP), 14 (a Unix path with a space)."""
    (tmp_path / "net").mkdir()
    (tmp_path / "net/unix").write_text(
        "Num       RefCount Protocol Flags    Type St Inode Path\n"
        "0000: 00000002 00000000 00010000 0001 01 11 /run/a.sock\n"
        "0000: 00000003 00000000 00000000 0001 03 12 /run/b.sock\n"
        "0000: 00000002 00000000 00010000 0001 01 14 my place/c.sock\n"
        "0000: 00000002 00000000 00010000 0001 01 15\n"
        "0000: 00000002 00000000 00010000 0005 01 17 /run/a.native\n"
    )
    (tmp_path / "net/tcp").write_text(
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 13 1 0\n"
        "   1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 16 1 0\n"
    )
    return tmp_path


def test_running__finds_servers_and_where_they_listen(proc: Path) -> None:
    """As a script or as a module, by process id; relative paths are those of the server's folder."""
    process(proc, 30, "/venv/bin/python -P /venv/bin/dpfedge serve voice.dpfbin", 17, 11, 12, 13)
    process(proc, 7, "python3.12 -m dpfedge serve x.dpfbin", 14, 14, 16)
    process(proc, 8, "python -m dpfedge bind x.dpfbin", 11)
    process(proc, 9, "timeout 5 /venv/bin/dpfedge serve x.dpfbin", 11)
    process(proc, 10, "vim dpfedge serve", 11)
    process(proc, 11, "")
    (proc / "12").mkdir()

    assert running(proc) == [
        Server(7, ("/home/me/my place/c.sock",)),
        Server(30, ("/run/a.sock",), (("127.0.0.1", 8080),)),
    ]


def test_running__of_nobody(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of other users are not ours to look at."""
    process(proc, 7, "python -m dpfedge serve x.dpfbin", 11)
    monkeypatch.setattr(os, "getuid", lambda: 4242)

    assert running(proc) == []


@pytest.fixture
def answer(tmp_path: Path) -> Iterator[Answer]:
    """A function that listens on a Unix socket and answers one request with these bytes."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    threads: list[threading.Thread] = []

    def _answer(data: bytes) -> Path:
        listener.bind(str(tmp_path / "s"))
        listener.listen()

        def _once() -> None:
            link, _ = listener.accept()
            with link:
                link.recv(4096)
                link.sendall(data)

        threads.append(threading.Thread(target=_once))
        threads[0].start()
        return tmp_path / "s"

    yield _answer
    for thread in threads:
        thread.join(5)
    listener.close()


def response(body: bytes, status: str = "200 OK") -> bytes:
    """One HTTP answer."""
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def test_ask__over_a_unix_socket(answer: Answer) -> None:
    """What the server says, as it said it."""
    assert ask(Server(1, (str(answer(response(b'{"ready": true}'))),))) == {"ready": True}


def test_ask__without_memory(answer: Answer) -> None:
    """The same answer, which is cheaper."""
    assert ask(Server(1, (str(answer(response(b"{}"))),)), memory=False) == {}


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "the server does not answer"), (b"no http", "the server does not answer"),
        (response(b"{"), "the server does not answer"), (response(b"[]"), "the server gives no status"),
        (response(b"{}", "503 Busy"), "the server gives no status; found HTTP 503"),
        (response(b'{"stages":5,"links":[1]}'), "the server's status makes no sense; found stages, links"),
        (response(b'{"seal":"x","stages":{"llm":1}}'), "the server's status makes no sense; found seal, stages"),
    ],
)  # fmt: skip
def test_ask__what_is_no_server(answer: Answer, data: bytes, what: str) -> None:
    """Silence, noise and errors become one kind of error that names the process."""
    with pytest.raises(Unavailable, match=f"process 1: {what}"):
        ask(Server(1, (str(answer(data)),)))


def test_ask__server_without_sockets() -> None:
    """It is still starting."""
    with pytest.raises(Unavailable, match="does not listen yet"):
        ask(Server(1))


def test_server_at__names_the_process(tmp_path: Path) -> None:
    """The kernel tells who listens; a socket nobody listens on is named."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        assert server_at(path) == Server(os.getpid(), (str(path),))

    with pytest.raises(Unavailable, match="no server listens there; found Connection refused"):
        server_at(path)
    with pytest.raises(Unavailable, match="No such file"):
        server_at(tmp_path / "none")


def test_running__what_a_server_forked_is_none(proc: Path) -> None:
    """The parent of its stages and the stages have its command line; also when it has died before them."""
    command = "/venv/bin/python /venv/bin/dpfedge serve voice.dpfbin"
    process(proc, 30, command, 11)
    process(proc, 31, command, parent=30)  # before it has its name
    process(proc, 32, command, parent=31, name="dpf-llm")
    process(proc, 40, command, name="dpf-a (b) c")
    assert running(proc) == [Server(30, ("/run/a.sock",))]
