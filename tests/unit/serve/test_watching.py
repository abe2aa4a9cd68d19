# SPDX-License-Identifier: Apache-2.0
"""Two looks at a server become rates; what cannot be known is None."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import Unavailable
from dpfedge.hardware.source.root import Root
from dpfedge.serve import watching
from dpfedge.serve.running import Server
from dpfedge.serve.watching import Look, activity, look, temperatures

SERVER = Server(7, ("/run/x.sock",))
LINK = {"depth": 1, "loaned": 2, "in_flight": 3, "sent": 40, "dropped": 4, "corrupt": 5, "copies": 6}
TOLD: dict[str, Any] = {
    "package": "toy", "version": "1", "board": "host", "ready": True, "requests": 2, "active": 3, "last_turn": None,
    "server": {"pid": 7}, "zygote": {"pid": 8},
    "stages": {"llm": {"state": "ready", "pid": 9, "restarts": 1}, "odd": "nonsense"},
    "links": {"llm.sink": LINK}, "native": {"1": {"pid": 11}},
}  # fmt: skip


def test_activity__of_two_looks() -> None:
    """Processor time and messages per second; the rest as it is now."""
    before = Look(SERVER, 0, {**TOLD, "links": {"llm.sink": {**LINK, "sent": 20}}}, {7: 1.0, 9: 5.0})
    found = activity(Look(SERVER, 2 * 10**9, TOLD, {7: 1.5, 9: 8.0}, {9: 20}), before)

    rows = {row["name"]: row for row in found["processes"]}
    assert {name: row["cpu_percent"] for name, row in rows.items()} == {"server": 25.0, "zygote": None, "llm": 150.0}
    assert rows["llm"] == {
        "name": "llm", "pid": 9, "state": "ready", "restarts": 1, "cpu_percent": 150.0, "pss_bytes": 20,
    }  # fmt: skip
    assert found["links"] == [{"name": "llm.sink", "sent_per_s": 10.0, **LINK}]
    assert (found["package"], found["board"], found["requests"], found["error"]) == ("toy", "host", 2, None)
    assert found["native"] == {"1": {"pid": 11}}


def test_activity__of_one_look_has_no_rates() -> None:
    """Nor when a counter went back, because another runtime took over."""
    one = activity(Look(SERVER, 5, TOLD, {7: 1.0}))
    assert (one["links"][0]["sent_per_s"], one["processes"][0]["cpu_percent"]) == (None, None)

    more = {**TOLD, "links": {"llm.sink": {**LINK, "sent": 999}}}
    again = activity(Look(SERVER, 10**9, TOLD, {}), Look(SERVER, 0, more, {}))
    assert again["links"][0]["sent_per_s"] is None


def test_look__asks_server_and_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is gone has used nothing; a server that does not answer is an error in its place."""
    told = {"server": {"pid": os.getpid()}, "stages": {"llm": {"pid": 2**30}}}
    monkeypatch.setattr(watching, "ask", lambda server, memory: told)
    found = look(SERVER)
    assert list(found.cpu_s) == list(found.pss) == [os.getpid()]
    assert found.pss[os.getpid()] > 1 << 20

    def silent(server: Server, memory: bool) -> Any:
        raise Unavailable("the server does not answer")

    monkeypatch.setattr(watching, "ask", silent)
    assert activity(look(SERVER)) == {"pid": 7, "error": "the server does not answer"}


def test_activity__of_a_server_that_starts() -> None:
    """It has no stages yet."""
    found = activity(Look(SERVER, 5, {"ready": False}, {}))
    assert (found["processes"], found["links"], found["package"], found["ready"]) == ([], [], None, False)


def test_temperatures__of_every_zone_that_tells(tmp_path: Path) -> None:
    """Two of one type are told apart; a zone that sleeps is left out."""
    for number, kind, temp in (
        (0, "cpu\n", "45200\n"),
        (1, "cpu\n", "46000\n"),
        (2, "gpu\n", "asleep"),
        (3, "", "1000"),
    ):
        zone = tmp_path / f"sys/class/thermal/thermal_zone{number}"
        zone.mkdir(parents=True)
        (zone / "type").write_text(kind)
        (zone / "temp").write_text(temp)
    assert temperatures(Root(tmp_path)) == {"cpu": 45.2, "cpu 1": 46.0, "thermal_zone3": 1.0}
    assert temperatures(Root(tmp_path / "none")) == {}
