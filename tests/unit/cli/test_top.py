# SPDX-License-Identifier: Apache-2.0
"""`dpfedge top`: once, again and again, as JSON, and with servers that come and go."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dpfedge.cli import main, status, top
from dpfedge.errors import UsageError
from dpfedge.serve.running import Server
from dpfedge.serve.watching import Look

Output = pytest.CaptureFixture[str]
SERVERS = [Server(7, ("/a.sock",)), Server(8, ("/b.sock",))]
LINK = {"depth": 0, "loaned": 0, "in_flight": 0, "dropped": 2, "corrupt": 0, "copies": 0}
LAST = {"mode": "converse", "turn": 1024, "finish": "stop", "ago_ms": 1500.0, "stages": {"llm": {"ttft_ms": 12.5}}}


class Looks:
    """Servers whose counters rise by ten at each look."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, server: Server) -> Look:
        self.count += 1
        told = {
            "ready": True, "package": "toy", "version": "1", "board": "host", "requests": 1, "last_turn": LAST,
            "server": {"pid": server.pid},
            "stages": {"llm": {"state": "failed", "pid": 9, "restarts": 3}},
            "links": {"llm.sink": {**LINK, "sent": 10 * self.count}},
        }  # fmt: skip
        return Look(server, self.count * 10**9, told, {server.pid: float(self.count)}, {server.pid: 5 * 10**6})


@pytest.fixture(autouse=True)
def _servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "running", lambda: SERVERS[:1])
    monkeypatch.setattr(top, "look", Looks())
    monkeypatch.setattr(top, "temperatures", lambda: {"cpu": 91.0})
    monkeypatch.setattr(top.time, "sleep", lambda seconds: None)


def test_top__once_for_people(capsys: Output) -> None:
    """Also when stdout is no terminal: one table, with rates of two looks."""
    for words in (["top", "--once"], ["top"]):
        assert main(words) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].split() == ["temperature", "cpu", "91", "°C"]
        assert lines[1] == "toy 1 on host: ready, 1 requests, pid 7"
        assert lines[3].split() == ["server", "7", "-", "100.0", "5.0", "-"]
        assert lines[4].split() == ["llm", "9", "failed", "-", "-", "3"]
        assert lines[6].split()[:4] == ["llm.sink", "0", "0", "0"]
        assert lines[6].split()[6:] == ["2", "0"]
        assert lines[7:] == ["last turn  converse 1024, stop, 1.5 s ago", "  llm      ttft 12.5 ms"]


def test_top__json_again_and_again(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """One object a line, until it is ended."""
    rounds = 0

    def sleep(seconds: float) -> None:
        nonlocal rounds
        rounds += 1
        assert seconds == 3
        if rounds == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(top.time, "sleep", sleep)
    assert main(["top", "--json", "--interval", "3"]) == 130
    views: list[dict[str, Any]] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [view["servers"][0]["links"][0]["sent_per_s"] for view in views] == [10.0, 10.0, 10.0]
    assert views[0]["temperatures_c"] == {"cpu": 91.0}


def test_top__of_a_server_that_came_between(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no rates yet; one that is gone is not shown."""
    seen = iter((SERVERS[:1], SERVERS[1:]))
    monkeypatch.setattr(status, "running", lambda: next(seen))
    assert main(["top", "--once", "--json"]) == 0
    [server] = json.loads(capsys.readouterr().out)["servers"]
    assert (server["pid"], server["links"][0]["sent_per_s"]) == (8, None)


def test_top__without_servers(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so; a named one that is not there is an error."""
    monkeypatch.setattr(status, "running", list)
    assert main(["top", "--once"]) == 0
    assert "no dpfedge serve process" in capsys.readouterr().out
    assert main(["top", "--once", "77"]) == 5


@pytest.mark.parametrize("interval", ["0", "-1", "nan", "1e9"])
def test_interval__out_of_range(interval: str) -> None:
    """Before anything is asked."""
    assert main(["top", "--interval", interval]) == UsageError.exit_code
