# SPDX-License-Identifier: Apache-2.0
"""The router of a real `dpfedge serve`: what it tells, to whom, and that nothing of it is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
