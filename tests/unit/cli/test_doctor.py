# SPDX-License-Identifier: Apache-2.0
"""`dpfedge doctor` prints findings and paths; the checks have tests of their own."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpfedge.backend.api import ABI
from dpfedge.backend.registry import Registry
from dpfedge.cli import doctor, main

Output = pytest.CaptureFixture[str]
MACHINES = Path(__file__).parents[2] / "fixtures" / "machines"


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A CPU backend with one device, and folders below one."""
    made = Registry()
    backend: Any = SimpleNamespace(
        name="cpu",
        abi=ABI,
        devices=lambda root: [SimpleNamespace(id="cpu:0", arch="x86-64-v3")],
        health=lambda device: None,
    )
    made.add(backend)
    monkeypatch.setattr(doctor, "Registry", SimpleNamespace(load=lambda: made))
    monkeypatch.setenv("DPFEDGE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DPFEDGE_PLUGINS", raising=False)


def test_doctor__prints_every_path(capsys: Output, tmp_path: Path) -> None:
    """Models, store, trust, boards, run and temporary folder, each with the variable that moves it."""
    main(["doctor"])
    lines = capsys.readouterr().out.splitlines()

    assert "note: backend cpu: devices cpu:0 (x86-64-v3)" in lines
    assert f"models     {tmp_path / 'home' / 'models'}  not there yet  ($DPFEDGE_HOME)" in lines
    assert {"models", "store", "trust", "boards", "run", "temporary"} <= {line.split()[0] for line in lines}


def test_doctor__of_a_recording(capsys: Output) -> None:
    """No paths of ours; the last line counts the faults."""
    code = main(["doctor", "--sysroot", str(MACHINES / "rk3588")])
    lines = capsys.readouterr().out.splitlines()

    assert code == 0
    assert lines[-1] == "no fault"
    assert not [line for line in lines if "$DPFEDGE_HOME" in line]


def test_doctor__as_json_for_one_backend(capsys: Output) -> None:
    """The same for programs; no plugin for what was asked is exit code 5."""
    assert main(["doctor", "--json", "--backend", "opencl", "--sysroot", str(MACHINES / "rk3588")]) == 5
    data = json.loads(capsys.readouterr().out)

    assert not data["ok"]
    assert data["places"] == []
    assert {one["check"] for one in data["findings"] if one["level"] == "fault"} == {"plugins"}


def test_verify__hands_everything_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend, where the report goes, the package and the board; the steps have tests of their own."""
    seen: list[Any] = []

    def fake_main(registry: Registry, *more: Any) -> int:
        seen.extend(more)
        return 5

    monkeypatch.setattr(doctor, "main", fake_main)
    asked = ["doctor", "--backend", "cpu", "--verify", "--report", "r.json", "--package", "p.dpfbin", "--board", "host"]
    assert main(asked) == 5
    assert seen == ["cpu", "r.json", "p.dpfbin", "host"]


@pytest.mark.parametrize("more", [[], ["--backend", "cpu", "--sysroot", str(MACHINES / "h100")]])
def test_verify__of_this_machine_only(capsys: Output, more: list[str]) -> None:
    """Nothing can be proved on a recording, or of no backend."""
    assert main(["doctor", "--verify", *more]) == 2
    assert "name it with --backend" in capsys.readouterr().err
