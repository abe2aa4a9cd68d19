# SPDX-License-Identifier: Apache-2.0
"""The router of a real `dpfedge serve`: what it tells, to whom, and that nothing of it is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

SESSION = ["--model", "voice", "--user", "alice", "--session-ms", "1735689600000"]


def _route(server: Any, *arguments: str) -> Any:
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(server.log.parent)}
    out = subprocess.check_output([sys.executable, "-m", "dpfedge", "route", *arguments, "--json"], env=environ)
    return json.loads(out)


@pytest.fixture
def logged(start_server: Any, voice_package: Path, tmp_path: Path) -> Any:
    """A server that writes its decisions down."""
    one = start_server(voice_package, tmp_path, "--route-log", str(tmp_path / "route.log"))
    one.wait_ready()
    yield one
    if one.process.poll() is None:
        one.stop()


def test_server__tells_of_its_devices(logged: Any, tmp_path: Path) -> None:
    """In the health map, by `explain` and `status` from other processes, in `top`; each decision is proved."""
    told = httpx.get(f"{logged.url}/v1/health-map", timeout=30)
    while told.json()["fingerprint"] is None:  # drivers are asked first, beside the requests
        time.sleep(0.1)
        told = httpx.get(f"{logged.url}/v1/health-map", timeout=30)
    body = told.json()
    assert list(body["instances"]) == [body["main"]] == ["cpu:0"]
    assert 0 < body["instances"]["cpu:0"]["health"] <= 1
    assert set(body["stages"]) == {"decoder", "encoder", "llm", "voice"}
    assert told.headers["x-dpf-hw-fp"].startswith("v1;anonymous;sha256=")

    chat = {"model": "voice", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    answer = httpx.post(f"{logged.url}/v1/chat/completions", json=chat, timeout=120)
    assert (answer.status_code, answer.headers["dpf-instance"]) == (200, "cpu:0")

    explained = _route(logged, "explain", *SESSION)
    assert (explained["instance"], explained["source"]) == ("cpu:0", body["table"]["path"])
    servers = _route(logged, "status")["servers"]
    (mine,) = [row for row in servers if row["pid"] == logged.process.pid]
    forked = {row["pid"] for row in logged.status()["stages"].values()} | {logged.status()["zygote"]["pid"]}
    assert not forked & {row["pid"] for row in servers}
    assert mine["routing"]["instances"]["cpu:0"]["healthy"] is True
    figures = _route(logged, "fingerprint")
    assert figures["digest"] == body["fingerprint"]["digest"]  # one salt for all processes of the user
    top = [sys.executable, "-m", "dpfedge", "top", str(logged.process.pid), "--once"]
    assert "instance cpu:0 (llm" in subprocess.check_output(top, text=True)

    assert logged.stop() == 0
    left = {path.name for path in (tmp_path / "dpfedge/route").iterdir()}
    assert left == {"salt"}
    replayed = _route(logged, "replay", str(tmp_path / "route.log"))
    assert (replayed["proved"], replayed["decisions"]) == (True, 1)


def test_memory__that_is_low_puts_patient_work_last(
    start_server: Any, voice_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is answered all the same, and the answer says what became of it; with room again, nothing is demoted."""
    memory = tmp_path / "machine/proc/meminfo"
    memory.parent.mkdir(parents=True)
    memory.write_text("MemTotal: 1000000 kB\nMemAvailable: 149000 kB\n")
    monkeypatch.setenv("DPFEDGE_SENSORS", str(tmp_path / "machine"))
    one = start_server(voice_package, tmp_path)
    try:
        one.wait_ready()
        chat = {"model": "voice", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}

        def ask(priority: str) -> tuple[int, str | None, str | None]:
            url, headers = f"{one.url}/v1/chat/completions", {"Priority": priority}
            answer = httpx.post(url, json=chat, headers=headers, timeout=120)
            return answer.status_code, answer.headers.get("priority"), answer.headers.get("dpf-demoted")

        assert ask("u=5") == (200, "u=7", "memory")
        assert ask("u=1") == ask("u=3") == ask("u=7") == (200, None, None)
        assert one.status()["memory"] == {"low": True, "demoted": 1}
        memory.write_text("MemTotal: 1000000 kB\nMemAvailable: 400000 kB\n")
        time.sleep(1.1)  # memory is looked at once a second at most
        assert ask("u=5") == (200, None, None)
        assert "dpfedge_demoted_total 1" in httpx.get(f"{one.url}/metrics", timeout=30).text
    finally:
        one.stop()
