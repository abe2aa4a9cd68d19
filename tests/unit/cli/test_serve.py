# SPDX-License-Identifier: Apache-2.0
"""`dpfedge serve` before and around serving: addresses, refusals, what it says; the real server is in tests/e2e."""

from __future__ import annotations

import argparse
import asyncio
import grp
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpfedge.cli import main, serve
from dpfedge.errors import BindError, UsageError
from dpfedge.store.places import Places
from dpfedge.store.serving import servers

Output = pytest.CaptureFixture[str]


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What `prepare` gives; serving it notes its sockets and ends at once."""
    manifest = SimpleNamespace(name="toy")
    located = SimpleNamespace(installed=None, root=None)
    one = SimpleNamespace(
        closed=0, sockets=[], located=located, bound=SimpleNamespace(package=SimpleNamespace(manifest=manifest))
    )

    def close() -> None:
        one.closed += 1

    async def served(
        prepared: Any, sockets: list[socket.socket], say: Any, launch: Any, observe: Any, native: Any, routes: Any
    ) -> None:
        one.launch = launch
        one.native = native and (native.sock.getsockname(), native.sock.type, native.group)
        one.sockets = [sock.getsockname() for sock in sockets]
        say("ready", package="toy", ready_ms=1.0)

    one.close = close
    monkeypatch.setattr(serve, "prepare", lambda package, **options: one)
    monkeypatch.setattr(serve, "_serve", served)
    return one


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--port", "65536"], "--port: no such port; found 65536; allowed 0 to 65535"),
        (["--port", "-1"], "--port: no such port"),
        (["--host", "0.0.0.0"], "--host: only this machine may connect; found 0.0.0.0"),
        (["--host", "example.org"], "--host: only this machine may connect"),
        (["--host", "127.1"], "--host: only this machine may connect"),
    ],
)
def test_address__of_others_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: Output, arguments: list[str], text: str
) -> None:
    """Exit 2; the package is not even opened."""
    monkeypatch.setattr(serve, "prepare", lambda *args, **kwargs: pytest.fail("it was prepared"))

    assert main(["serve", "x.dpfbin", *arguments]) == 2
    assert text in capsys.readouterr().err


def test_package__that_does_not_fit_is_refused_before_the_port(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    """Exit 3; nobody could have connected."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise BindError("no target fits", where="board orin")

    monkeypatch.setattr(serve, "prepare", refuse)
    monkeypatch.setattr(serve, "listen_tcp", lambda *args: pytest.fail("it listens"))

    assert main(["serve", "x.dpfbin", "--board", "orin"]) == 3
    assert capsys.readouterr().err == "dpfedge: board orin: no target fits\n"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_serve__tells_programs_and_people(prepared: Any, tmp_path: Path, capsys: Output, host: str) -> None:
    """JSON lines on stdout, words on stderr; the socket's file is gone afterwards."""
    path = tmp_path / "s.sock"
    assert main(["serve", "x", "--host", host, "--port", "0", "--socket", str(path), "--json"]) == 0

    shown = capsys.readouterr()
    listening, ready, stopped = map(json.loads, shown.out.splitlines())
    port = prepared.sockets[0][1]
    assert (listening["event"], listening["socket"]) == ("listening", str(path))
    assert listening["http"] == f"http://127.0.0.1:{port}"
    assert (ready["event"], ready["package"], stopped) == ("ready", "toy", {"event": "stopped"})
    assert shown.err.splitlines()[-1] == "dpfedge: stopped"
    assert prepared.sockets[1] == str(path)
    assert listening["native"] == str(tmp_path / "s.native")
    assert prepared.native == (listening["native"], socket.SOCK_SEQPACKET, None)
    assert list(tmp_path.iterdir()) == []
    assert prepared.closed == 1


def test_serve__without_a_unix_socket(prepared: Any, capsys: Output) -> None:
    """TCP alone; without --json stdout stays empty."""
    assert main(["serve", "x", "--port", "0", "--no-socket"]) == 0

    assert len(prepared.sockets) == 1
    assert prepared.native is None
    assert capsys.readouterr().out == ""


def test_native_group__is_a_group_of_this_machine(prepared: Any, tmp_path: Path, capsys: Output) -> None:
    """By name; an unknown one is refused before anybody could connect."""
    arguments = ["serve", "x", "--port", "0", "--socket", str(tmp_path / "s.sock"), "--native-group"]
    own = grp.getgrgid(os.getegid())
    assert main([*arguments, own.gr_name]) == 0
    assert prepared.native[2] == own.gr_gid
    assert main([*arguments, "nobody-is-here"]) == 2
    assert "--native-group: no such group" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_socket__and_no_socket_exclude_each_other() -> None:
    """argparse says so."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    serve.add_arguments(parser)
    with pytest.raises(argparse.ArgumentError, match="not allowed with"):
        parser.parse_args(["x", "--socket", "a", "--no-socket"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal__is_heard_and_the_second_kills(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    """The first asks for an orderly end; so long as that takes, the second one asks nobody."""
    codes: list[int] = []
    monkeypatch.setattr(serve, "die_at_once", codes.append)

    async def test() -> None:
        told = serve._told_to_end()
        os.kill(os.getpid(), number)
        await asyncio.wait_for(told.wait(), 30)
        assert codes == []
        os.kill(os.getpid(), number)
        while not codes:
            await asyncio.sleep(0.001)
        for one in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(one)

    asyncio.run(asyncio.wait_for(test(), 30))  # type: ignore[arg-type]
    assert codes == [1]


@pytest.fixture
def installed(prepared: Any, tmp_path: Path) -> Any:
    """The package that is served comes from a store."""
    prepared.located.installed, prepared.located.root = SimpleNamespace(name="toy"), tmp_path / "store"
    return prepared


def test_serve__leaves_a_note_of_an_installed_package(
    installed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it runs, in the store or in the user's folder; what it may be told to open is of the same name only."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("dpfedge.store.find.by_id", lambda places, id: SimpleNamespace(name="other"))
    seen: list[Any] = []
    real = serve._announce

    def announce(*arguments: Any) -> Any:
        launch = real(*arguments)
        seen.extend(servers(Places(tmp_path / "store"), "toy"))
        return launch

    monkeypatch.setattr(serve, "_announce", announce)
    assert main(["serve", "toy", "--port", "0", "--socket", str(tmp_path / "s")]) == 0

    assert [(one.pid, one.socket) for one in seen] == [(os.getpid(), str(tmp_path / "s"))]
    assert servers(Places(tmp_path / "store"), "toy") == []
    with pytest.raises(UsageError, match="another name is served here; found other; allowed toy"):
        asyncio.run(installed.launch("a" * 64))


def test_serve__that_can_leave_no_note_says_so(
    installed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    """It serves all the same."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    assert main(["serve", "toy", "--port", "0", "--no-socket"]) == 0

    assert "`install --activate` finds no server" in capsys.readouterr().err


def test_route_log__that_cannot_be_written_is_told_before_anything_is_warm(
    prepared: Any, tmp_path: Path, capsys: Output
) -> None:
    """With its name; the package is given back."""
    assert main(["serve", "x.dpfbin", "--port", "0", "--no-socket", "--route-log", str(tmp_path / "no/log")]) == 1
    assert f"{tmp_path}/no/log: the log cannot be written" in capsys.readouterr().err
    assert prepared.closed == 1


def test_say__whoever_reads_goes_away(capfd: pytest.CaptureFixture[str]) -> None:
    """A pipe that was closed, a disk that is full: the server goes on, and ends with 0."""
    script = """
import os, sys
from dpfedge.cli.serve import _Say
say = _Say(True)
say("first")
say("second", more=1)
"""
    for stream in ("stdout", "stderr"):
        reading, writing = os.pipe()
        os.close(reading)
        ended = subprocess.run([sys.executable, "-c", script], timeout=60, **{stream: writing})  # type: ignore[call-overload]
        os.close(writing)
        assert ended.returncode == 0
    with open("/dev/full", "wb") as full:
        assert subprocess.run([sys.executable, "-c", script], timeout=60, stderr=full).returncode == 0
    assert "second" in capfd.readouterr().out


def test_serve__sigterm_before_the_event_loop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its sockets are taken away as at any orderly end."""
    there, before = list[str](), signal.getsignal(signal.SIGTERM)

    def run(serving: Any) -> None:
        serving.close()
        there.extend(sorted(path.name for path in tmp_path.iterdir()))
        os.kill(os.getpid(), signal.SIGTERM)
        signal.sigtimedwait([], 0)

    prepared = SimpleNamespace(located=SimpleNamespace(installed=None, root=None), close=lambda: None)
    monkeypatch.setattr(serve, "prepare", lambda package, **options: prepared)
    monkeypatch.setattr(serve.asyncio, "run", run)
    try:
        with pytest.raises(SystemExit, match=r"^0$"):
            main(["serve", "x.dpfbin", "--port", "0", "--socket", str(tmp_path / "a.sock")])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (there, list(tmp_path.iterdir())) == (["a.native", "a.sock"], [])
