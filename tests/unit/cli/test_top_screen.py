# SPDX-License-Identifier: Apache-2.0
"""What `dpfedge top` draws."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from dpfedge.cli.top_screen import screen


def _drawn(view: dict[str, Any], **options: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=90, highlight=False, **options).print(screen(view))
    return out.getvalue()


def _server(**change: Any) -> dict[str, Any]:
    row = {"name": "llm", "pid": 9, "state": "ready", "restarts": 0, "cpu_percent": 3.0, "pss_bytes": 10**6}
    link = {"name": "a.b", "sent_per_s": 1.0, "sent": 1, "depth": 0, "loaned": 0, "in_flight": 0}
    link |= {"dropped": 0, "corrupt": 0, "copies": 0}
    named = {"package": "toy", "version": "1", "board": "host", "ready": True, "requests": 0, "last_turn": None}
    return {"pid": 7, "error": None, **named, "processes": [row], "links": [link], **change}


def _view(*servers: dict[str, Any], **zones: float) -> dict[str, Any]:
    return {"temperatures_c": zones, "servers": list(servers)}


def test_screen__shows_what_a_server_says_as_text() -> None:
    """Square brackets in a name are no markup."""
    drawn = _drawn(_view(_server(board="[red]x[/]", links=[{**_server()["links"][0], "name": "[bold]y"}])))
    assert "toy 1 on [red]x[/]: ready, 0 requests, pid 7" in drawn
    assert "[bold]y" in drawn


def test_screen__of_a_server_that_does_not_answer() -> None:
    """In its place, beside one that does."""
    drawn = _drawn(_view({"pid": 3, "error": "process 3: the server does not answer"}, _server()))
    assert drawn.splitlines()[0] == "process 3: the server does not answer"
    assert "pid 7" in drawn


def test_screen__of_a_server_that_starts() -> None:
    """Nothing is known of it yet."""
    none = dict.fromkeys(("package", "version", "board", "requests"))
    drawn = _drawn(_view(_server(**none, ready=False, processes=[], links=[])))
    assert "no package yet on unknown board: not ready, 0 requests, pid 7" in drawn


def test_screen__shows_the_devices_and_who_goes_last() -> None:
    """Health of each, what is there, what is out."""
    rows = {"cuda:0": {"health": 0.04, "healthy": False}, "cpu:0": {"health": 0.814, "healthy": True}}
    routing = {"instances": rows, "stages": {"llm": "cuda:0", "voice": "cpu:0", "encoder": "cpu:0"}}
    drawn = _drawn(_view(_server(routing=routing, memory={"low": True, "demoted": 3})))
    assert "instance cuda:0 (llm) health 0.04, out  instance cpu:0 (voice, encoder) health 0.81" in drawn
    assert "memory is low: work that is not urgent goes last" in drawn


def test_screen__shows_native_sessions() -> None:
    """A line for each."""
    row = {"pid": 11, "open_ms": 1000, "state": "idle", "utterances": 1, "answers": 1}
    row |= dict.fromkeys(("heard_bytes", "sound_bytes", "waiting_bytes"), 0)
    drawn = _drawn(_view(_server(native={"2": row})))
    assert "native session 2 of process 11: idle, open for 1 s, utterances 1, answers 1, 0.0 MB" in drawn


def test_screen__shows_the_ladder_and_what_happened() -> None:
    """The machine as the server sees it, the steps in force, the last events and why."""
    pressure = {
        "temperature_c": 91.0, "headroom_c": 8.0, "zone": "gpu", "memory_free": 0.34, "power_mode": "15W",
    }  # fmt: skip
    steps = [{"what": "step entered", "step": f"s{n}", "reason": f"heat {n}", "ago_ms": 2000.0} for n in range(9)]
    swap = {"what": "replaced", "stage": "llm", "ago_ms": 400.0}
    degrade = {"pressure": pressure, "level": 2, "steps": ["warm", "hot", "last"], "events": [*steps, swap]}
    drawn = _drawn(_view(_server(degrade=degrade)))

    assert "gpu 91 °C, 8 °C left  memory 34 % free  power mode 15W" in drawn
    assert "ladder step 2 of 3 (warm, hot)" in drawn
    assert "2 s ago  step entered s8: heat 8\n0 s ago  llm replaced" in drawn
    assert "s4" not in drawn
    assert "ladder" not in _drawn(_view(_server(degrade={**degrade, "steps": [], "level": 0, "events": []})))


def test_screen__is_red_where_it_is_bad() -> None:
    """A stage that is down, a message that was lost, a hot zone; and only there."""
    bad = _server()
    bad["processes"][0]["state"] = "failed"
    bad["links"][0]["corrupt"] = 1
    options: dict[str, Any] = {"force_terminal": True, "color_system": "standard"}
    assert _drawn(_view(bad, cpu=99.0), **options).count("\x1b[31m") == 3
    assert "\x1b[31m" not in _drawn(_view(_server(), cpu=40.0), **options)


def test_screen__who_uses_an_accelerator() -> None:
    """One line for each device; what was closed is left out."""
    use = {"device": "/dev/nvidia0", "pid": 7, "name": "python", "open": True, "opens": None}
    uses = [use, use | {"pid": 9, "name": "mpv"}, use | {"pid": 10, "open": False}]
    assert "/dev/nvidia0  python (7), mpv (9)\n" in _drawn(_view() | {"devices": {"uses": uses}})
