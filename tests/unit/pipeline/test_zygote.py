# SPDX-License-Identifier: Apache-2.0
"""The zygote ends with its supervisor, and refuses a file that is not the one that was opened."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpfedge.link import Arena, LinkSpec
from dpfedge.pipeline import zygote
from dpfedge.pipeline.parent import Zygote, environment
from dpfedge.pipeline.wire import receive_message, send_message


@pytest.fixture
def started() -> Iterator[Zygote]:
    """A zygote that is being warmed."""
    one = Zygote()
    yield one
    one.stop(0.0)


def ended(pid: int, seconds: float = 30) -> bool:
    """Whether the process ends; a watchdog, not a measure."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(fd)


def test_environment__keeps_libraries_quiet() -> None:
    """The rest is the caller's."""
    found = environment({"PATH": "/bin", "OMP_NUM_THREADS": "8"})

    assert (found["PATH"], found["OMP_NUM_THREADS"], found["ORT_DISABLE_TELEMETRY"]) == ("/bin", "1", "1")


def test_zygote__ends_when_its_socket_closes(started: Zygote) -> None:
    """At any time, also while it imports."""
    started.control.close()

    assert ended(started.process.pid)
    assert started.process.wait() == 0


def test_stop__ends_it_and_can_be_repeated(started: Zygote) -> None:
    """Without patience it is killed."""
    started.stop(0.0)
    started.stop(0.0)

    assert started.process.returncode in (0, -signal.SIGKILL)


def test_zygote__ends_with_its_supervisors_process() -> None:
    """Though a forked child of the supervisor holds the socket open."""
    code = (
        "import os, sys\n"
        "from dpfedge.pipeline.parent import Zygote\n"
        "one = Zygote()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    sys.stdin.read()\n"  # keeps the socket until this test lets it go
        "    os._exit(0)\n"
        "print(one.process.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert ended(pid)


def test_zygote__ignores_ctrl_c(started: Zygote) -> None:
    """It reaches the whole process group; the supervisor decides. A bad package is told on the socket."""
    specs = [LinkSpec("a.b", "a", "b", 1, 64)]
    bad = Path(__file__)
    with Arena.create(specs, requests=1) as arena, bad.open("rb") as file:
        send_message(started.control, {"chosen": {}, "path": str(bad), "manifest": ""}, [arena.fd, file.fileno()])
        message, _ = receive_message(started.control)
    started.process.send_signal(signal.SIGINT)

    assert message["error"]["type"] == "FormatError"
    assert ended(started.process.pid)
    assert started.process.wait() == 4


def test_fork__that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process, no memory: the supervisor tries again."""

    def no_room() -> int:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", no_room)
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        zygote._fork(one, {"stage": "llm"}, None, -1, -1)  # type: ignore[arg-type]
        message, fds = receive_message(other)

    assert message == {"stage": "llm", "pid": 0, "reason": "Resource temporarily unavailable"}
    assert fds == []
