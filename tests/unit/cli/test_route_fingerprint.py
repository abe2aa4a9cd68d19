# SPDX-License-Identifier: Apache-2.0
"""`dpfedge route fingerprint`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpfedge.cli import main

Capture = pytest.CaptureFixture[str]
MACHINES = Path(__file__).parents[2] / "fixtures/machines"


@pytest.fixture(autouse=True)
def _own_run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def test_fingerprint__of_a_recording_as_json(capsys: Capture) -> None:
    """Plain: the same again and again, with seventeen fields for each device."""
    found = []
    for _ in range(2):
        assert main(["route", "fingerprint", "--sysroot", str(MACHINES / "h100"), "--plain", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1]
    assert found[0]["header"] == f"v1;plain;sha256={found[0]['digest']}"
    assert [device["kind"] for device in found[0]["devices"]] == ["cpu.x86_64", "gpu.nvidia", "gpu.nvidia"]
    assert {len(device) for device in found[0]["devices"]} == {17}


def test_fingerprint__of_this_machine_as_text(capsys: Capture, tmp_path: Path) -> None:
    """Anonymous unless said; the salt lies beside the routing table."""
    assert main(["route", "fingerprint"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("digest      ")
    assert "\nprivacy     anonymous\n" in out
    assert "\n  kind            cpu." in out
    assert (tmp_path / "dpfedge/route/salt").exists()


def test_fingerprint__no_such_machine(capsys: Capture) -> None:
    """Exit code 2."""
    assert main(["route", "fingerprint", "--sysroot", "/no/such"]) == 2
    assert "there is no such folder or recording" in capsys.readouterr().err
