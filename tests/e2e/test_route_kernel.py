# SPDX-License-Identifier: Apache-2.0
"""`dpfedge route attach` as a process: killed, with the least privilege, without; 20,000 connections to 8 servers."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from own_cgroup import own_cgroup

from dpfedge.errors import RouteError, Unavailable
from dpfedge.routing import Instance, Publisher, Router, Sample
from dpfedge.routing.kernel.addresses import Address, Service
from dpfedge.routing.kernel.attachment import Attachment, load
from dpfedge.routing.kernel.client import connect, give_key, serve
from dpfedge.routing.kernel.control import ask, name_of
from dpfedge.routing.publication import default_path

SERVICE = "10.255.0.2:8000"
CONNECTIONS, SERVERS, THREADS = 20_000, 8, 4
SERVER = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
print(listener.getsockname()[1], flush=True)
while True:
    one, _ = listener.accept()
    with one:
        one.sendall(sys.argv[1].encode())
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A cgroup of this process and its children, and a run directory; skips, with the reason, where none is allowed."""
    try:
        load(short_cut=True, receive=True).close()
    except Unavailable as error:
        pytest.skip(f"no routing in the kernel: {error}")
    with ExitStack() as stack:
        try:
            own = stack.enter_context(own_cgroup("e2e"))
        except (Unavailable, OSError) as error:
            pytest.skip(f"no cgroup can be made here: {error}")
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("XDG_RUNTIME_DIR", str(tmp_path))
        yield own


@dataclass
class Attached:
    """A `dpfedge route attach` process; `said` is what it printed."""

    process: subprocess.Popen[str]
    said: dict[str, Any]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its exit code."""
        self.process.send_signal(number)
        self.process.communicate(timeout=30)
        return self.process.returncode


def start(stack: ExitStack, cgroup: Path, *arguments: str, before: tuple[str, ...] = ()) -> Attached:
    """Attach, and wait until it says so; ended with the stack."""
    command = [*before, sys.executable, "-m", "dpfedge", "route", "attach", "--service", SERVICE, "--json"]
    command += ["--cgroup", str(cgroup), *arguments]
    process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    stack.callback(process.kill)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr and process.stderr.read()
    return Attached(process, json.loads(line))


@pytest.fixture
def servers() -> Iterator[list[tuple[subprocess.Popen[str], str]]]:
    """Eight processes that say their number to whom connects, and their addresses."""
    with ExitStack() as stack:
        found = []
        for number in range(SERVERS):
            command = [sys.executable, "-c", SERVER, str(number)]
            one = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(one.kill)
            assert one.stdout is not None
            found.append((one, f"127.0.0.1:{one.stdout.readline().strip()}"))
        yield found


def _asks(user: int) -> str:
    """Which server answers a session, or what went wrong."""
    try:
        with connect(SERVICE, "llm", str(user), 1735689600000, timeout_s=20).socket as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # no port rests in TIME_WAIT
            return one.recv(8).decode() or "nothing"
    except OSError as error:
        return type(error).__name__


def _attached() -> bool:
    with socket.socket() as one:
        return give_key(one, "m", "u", 1)


def test_attach__killed_leaves_nothing(place: Path, servers: list[tuple[subprocess.Popen[str], str]]) -> None:
    """Neither programs nor maps nor a name: it is attached again at once. Every way to end."""
    with Publisher(default_path()) as publisher, ExitStack() as stack:
        Router(publisher).assign([Instance(address) for _, address in servers])
        programs = _count_programs()
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            attached = start(stack, place, "--short-cut")
            assert attached.said["mode"] == "kernel"
            assert _attached()
            assert _count_programs() >= programs + 10
            assert _asks(1).isdigit()
            assert attached.end(number) == (-9 if number == signal.SIGKILL else 0)
            assert not _attached()
            with pytest.raises(Unavailable):
                ask({"do": "status"})
            assert _until(lambda: _count_programs() == programs), "programs are left in the kernel"


def _until(what: Any) -> bool:
    for _ in range(250):
        if what():
            return True
        time.sleep(0.02)
    return False


def _count_programs() -> int:
    """Programs of ours in the kernel, whoever holds them: those of another test's attachment too."""
    from dpfedge.routing.kernel.libbpf import loaded_programs

    return sum(name.startswith("rh_") for name in loaded_programs())


def test_attach__open_connections_lose_nothing_when_it_is_killed(place: Path) -> None:
    """With the short-cut: bytes that lie in a socket's queue are read, those sent afterwards follow in order."""
    with Publisher(default_path()) as publisher, ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        Router(publisher).assign([Instance(f"127.0.0.1:{listener.getsockname()[1]}")])
        for number in (signal.SIGKILL, signal.SIGTERM):
            attached = start(stack, place, "--short-cut")
            one = stack.enter_context(connect(SERVICE, "m", "u", 1, timeout_s=20).socket)
            other, _ = listener.accept()
            stack.enter_context(other)
            one.sendall(b"before ")
            assert ask({"do": "status"})["counters"]["redirected"] == 1
            attached.end(number)
            one.sendall(b"after")
            got = b""
            while len(got) < len(b"before after"):
                got += other.recv(64)
            assert got == b"before after"
            other.sendall(b"back")
            assert one.recv(64) == b"back"


@pytest.mark.skipif(not shutil.which("setpriv"), reason="no setpriv here")
@pytest.mark.parametrize("bits", [16, 20])
def test_attach__needs_two_capabilities_only(
    place: Path, servers: list[tuple[subprocess.Popen[str], str]], bits: int
) -> None:
    """CAP_BPF and CAP_NET_ADMIN: every part is attached; without one of them it is user space, which says so."""
    with Publisher(default_path(), bits=bits) as publisher, ExitStack() as stack:
        Router(publisher).assign([Instance(address) for _, address in servers])
        for capabilities, mode in (("+bpf,+net_admin", "kernel"), ("+bpf", "user space"), ("+net_admin", "user space")):
            least = ("setpriv", "--bounding-set", f"-all,{capabilities}", "--inh-caps", "-all")
            attached = start(stack, place, "--short-cut", before=least)
            assert attached.said["mode"] == mode
            with connect(SERVICE, "m", "u", 1, timeout_s=20).socket as one:
                assert one.recv(8).isdigit()
            if mode == "user space":
                assert "not permitted" in attached.said["why"]
            assert ask({"do": "detach"}, until_gone=True)["pid"] == attached.said["pid"]
            attached.process.communicate(timeout=30)
            assert attached.process.returncode == 0


@pytest.mark.skipif(not shutil.which("setpriv"), reason="no setpriv here")
def test_device_users__needs_the_same_two(place: Path) -> None:
    """The kernel tells who opens a device; without the capabilities /proc does, and it says why."""
    code = (
        "from dpfedge.routing.kernel.users import DeviceUsers\n"
        "with DeviceUsers(devices=('full',)) as users, open('/dev/full', 'rb'):\n"
        "    users.look()\n"
        "    print(users.why or 'kernel', *{one.opens for one in users.look()}, sep='|')\n"
    )
    for capabilities, said in (("+bpf,+net_admin", "kernel|1"), ("+net_raw", "Operation not permitted")):
        least = ["setpriv", "--bounding-set", f"-all,{capabilities}", "--inh-caps", "-all"]
        assert said in subprocess.check_output([*least, sys.executable, "-c", code], text=True)


def test_serve__a_socket_of_this_process(place: Path) -> None:
    """It gets what arrives for the instance's address; a socket that cannot is refused with words."""
    with Publisher(default_path()) as publisher, ExitStack() as stack:
        Router(publisher).assign([Instance("127.0.0.9:7")])
        start(stack, place)
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        serve("127.0.0.9:7", listener)
        with connect(SERVICE, "m", "u", 1, timeout_s=20).socket as one, listener.accept()[0] as other:
            other.sendall(b"here")
            assert one.recv(8) == b"here"
        assert ask({"do": "status"})["counters"]["received"] == 1
        with socket.socket() as one, pytest.raises(RouteError, match="listening TCP socket or a bound UDP socket"):
            serve("127.0.0.9:7", one)


def test_switch__is_never_seen_half(place: Path, servers: list[tuple[subprocess.Popen[str], str]]) -> None:
    """Every table has one instance, at an index that the one before does not have: half of each would be nobody."""
    addresses = [Address.of(address) for _, address in servers]
    nobody: list[Address | None] = [None]
    tables = [(i.to_bytes(2, "little") * 65536, nobody * i + [addresses[i]]) for i in range(SERVERS)]
    stop = threading.Event()
    with Attachment(Service.parse([SERVICE], "x"), cgroup=place) as attachment, ThreadPoolExecutor(2) as pool:
        attachment.table.publish(*tables[0])
        asking = [pool.submit(lambda: Counter(_asks(1) for _ in iter(stop.is_set, True))) for _ in range(2)]
        for turn in range(1, 300):
            attachment.table.publish(*tables[turn % SERVERS])
        stop.set()
        answers = sum((one.result() for one in asking), Counter())
    assert set(answers) <= set(map(str, range(SERVERS)))
    assert len(answers) > 1


def test_connections__none_is_misdirected_after_the_flip(
    place: Path, servers: list[tuple[subprocess.Popen[str], str]]
) -> None:
    """20,000 real connections over 8 servers, one killed at about half of them: sessions of the others never move."""
    with Publisher(default_path()) as publisher, ExitStack() as stack, ThreadPoolExecutor(THREADS) as pool:
        router = Router(publisher)
        router.assign([Instance(address) for _, address in servers])
        start(stack, place)
        half = CONNECTIONS // 2
        owners = _owners(router, CONNECTIONS)
        assert [*pool.map(_asks, range(half), chunksize=64)] == owners[:half]
        victim = 3
        servers[victim][0].kill()
        servers[victim][0].wait()
        generation = ask({"do": "status"})["generation"]
        late = [*pool.map(_asks, range(half, half + 200))]  # dead and not known to be
        router.sample(servers[victim][1], Sample(0.1, 0.9, fatal_errors=1))
        assert _until(lambda: ask({"do": "status"})["generation"] > generation)
        after = _owners(router, CONNECTIONS)
        found = [*pool.map(_asks, range(half + 200, CONNECTIONS), chunksize=64)]
    wrong = sum(one != want for one, want in zip(found, after[half + 200 :], strict=True))
    moved = sum(a != b for a, b in zip(owners, after, strict=True))
    print(
        f"misdirected {wrong} of {len(found)}; before the flip {Counter(late)['ConnectionRefusedError']} of 200 refused"
    )
    assert wrong == 0
    assert str(victim) not in after
    assert moved == owners.count(str(victim))
    assert all(
        one in (want, "ConnectionRefusedError") for one, want in zip(late, owners[half : half + 200], strict=True)
    )


def _owners(router: Router, count: int) -> list[str]:
    return [str(router.route("llm", str(user), 1735689600000).index) for user in range(count)]


def test_name__is_of_the_run_directory(place: Path) -> None:
    """Two run directories have two holders."""
    assert name_of() != name_of({"XDG_RUNTIME_DIR": "/other"})
