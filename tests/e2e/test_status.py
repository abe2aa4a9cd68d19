# SPDX-License-Identifier: Apache-2.0
"""`dpfedge status` beside a real server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def status(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    command = [sys.executable, "-m", "dpfedge", "status", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_status__of_a_running_server(own_server: Any, voice_package: Path) -> None:
    """Found by itself, by process id and by socket; every process has its memory, and the package is named."""
    pid = own_server.process.pid
    for which in ([], [str(pid)], ["--socket", str(own_server.socket)]):
        done = status("--json", *which)
        assert done.returncode == 0, done.stderr
        [row] = [row for row in json.loads(done.stdout)["servers"] if row["pid"] == pid]

        assert (row["ready"], row["error"]) == (True, None)
        assert [process["name"] for process in row["processes"]][:2] == ["server", "zygote"]
        assert {process["name"] for process in row["processes"][2:]} == {"decoder", "encoder", "llm", "voice"}
        assert all(process["pss_bytes"] <= process["rss_bytes"] for process in row["processes"])
        held = row["processes"][-1]["packages"][str(voice_package.resolve())]
        assert held["sections"]["weights"]["rss"] > 0

    text = status(str(pid)).stdout
    assert f"pid {pid}" in text
    assert str(voice_package.resolve()) in text
    own_server.stop()
    assert status(str(pid)).returncode == 5
