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
from dpfedge.pipeline.stage_record import StageRecord
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


def test_zygote__has_a_name(started: Zygote) -> None:
    """Forked or started, `ps` and `top` tell it from its parent."""
    send_message(started.control, {"folder": None, "arena": ""}, [os.open(os.devnull, os.O_RDONLY)])
    while (comm := Path(f"/proc/{started.process.pid}/comm").read_text()).startswith("python"):
        select.select([], [], [], 0.01)

    assert comm == "dpf-zygote\n"


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
        send_message(
            started.control,
            {"folder": None, "chosen": {}, "path": str(bad), "manifest": ""},
            [arena.fd, file.fileno()],
        )
        message, _ = receive_message(started.control)
    started.process.send_signal(signal.SIGINT)

    assert message["error"]["type"] == "FormatError"
    assert ended(started.process.pid)
    assert started.process.wait() == 4


STAGE = """
from dpfedge.stage.ports import Ports

class Toy:
    ports = Ports(inputs={}, outputs={})
    name = "toy"

    def __init__(self, model, config, budget):
        self.config = config

    def warm(self):
        pass

    def facts(self):
        return {"module": __name__, "note": len(self.config["note"])}

    def request(self, io):
        yield
"""


@pytest.mark.parametrize("length", [1, 100_000])
def test_zygote__forks_stages_of_a_pipeline_file_without_a_package(
    started: Zygote, tmp_path: Path, length: int
) -> None:
    """Their classes are in the file's folder; what it is told of them may be longer than a message."""
    (tmp_path / "mine.py").write_text(STAGE)
    stages = [StageRecord(name, "mine:Toy", config={"note": "x" * length}) for name in ("one", "two")]
    row = {
        "threads": 1, "cores": [], "nice": 0, "fifo": 0, "spin_ns": 0, "load_cores": [], "model": None, "settings": {},
    }  # fmt: skip
    rows = [{**row, "stage": stage.as_map(), "owner": owner} for owner, stage in enumerate(stages, 1)]
    pairs = [pair for stage in stages for pair in (("source", stage.name), (stage.name, "sink"))]
    specs = [LinkSpec(f"{a}.{b}", a, b, 1, 64) for a, b in pairs]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with Arena.create(specs, requests=1) as arena, ours:
        send_message(started.control, {"folder": str(tmp_path)}, [arena.fd])
        with theirs:
            send_message(started.control, {"unit": "one", "stages": rows}, [theirs.fileno()])
        told, (pidfd,) = receive_message(started.control)
        messages = [receive_message(ours)[0] for _ in stages]
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        assert receive_message(ours)[0] == {}  # it ended
        os.close(pidfd)

    assert told["unit"] == "one"
    assert sorted(message["ready"] for message in messages) == ["one", "two"]
    assert [message["facts"]["note"] for message in messages] == [length] * 2


def test_fork__that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process, no memory: the supervisor tries again."""

    def no_room() -> int:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", no_room)
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        zygote._fork(one, {"unit": "llm"}, None, -1, -1)  # type: ignore[arg-type]
        message, fds = receive_message(other)

    assert message == {"unit": "llm", "pid": 0, "reason": "Resource temporarily unavailable"}
    assert fds == []


def test_fork__of_a_process_nobody_could_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor for it: it is dead before it is said to be."""
    fork, forked = os.fork, []

    def sleeper() -> int:
        pid = fork()
        if pid == 0:
            signal.pause()
        forked.append(pid)
        return pid

    def no_descriptor(pid: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "fork", sleeper)
    monkeypatch.setattr(os, "pidfd_open", no_descriptor)
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        zygote._fork(one, {"unit": "llm"}, None, -1, -1)  # type: ignore[arg-type]
        message, _ = receive_message(other)

    assert message == {"unit": "llm", "pid": 0, "reason": "Too many open files"}
    assert not Path(f"/proc/{forked[0]}").exists()


def test_warm__collects_nothing_and_leaves_it_to_the_stages() -> None:
    """What was imported is out of the collector's sight, and it is off until a stage is ready."""
    code = (
        "import gc; from dpfedge.pipeline import zygote; zygote._warm();"
        "print(gc.isenabled(), gc.get_freeze_count() > 10_000)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stdout.split() == ["False", "True"], done.stderr
