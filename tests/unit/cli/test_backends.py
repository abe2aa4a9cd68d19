# SPDX-License-Identifier: Apache-2.0
"""`dpfedge backends` shows what is installed and what is broken."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from dpfedge.backend.registry import Broken
from dpfedge.cli import backends, main

Output = pytest.CaptureFixture[str]
DEVICE = SimpleNamespace(id="cpu:0", kind="cpu", arch="x86-64-v3", features=frozenset({"b", "a"}), memory_bytes=2**31)


class ToyRegistry:
    """One backend that works, one that does not."""

    @classmethod
    def load(cls) -> ToyRegistry:
        return cls()

    def names(self) -> list[str]:
        return ["toy"]

    def get(self, name: str) -> Any:
        return SimpleNamespace(version="1.2", abi=1, devices=lambda root: [DEVICE])

    def broken(self) -> list[Any]:
        return [Broken("dpfedge-odd 1.0", "register", "no driver")]


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "Registry", ToyRegistry)


def test_backends__for_people(capsys: Output) -> None:
    """Backend, devices, and who is broken why."""
    assert main(["backends"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "toy 1.2 (contract 1)",
        "  cpu:0  cpu  x86-64-v3  2.0 GiB",
        "dpfedge-odd 1.0: register: no driver; pip install --force-reinstall dpfedge-odd",
    ]


def test_backends__as_json(capsys: Output) -> None:
    """The same, for programs."""
    assert main(["backends", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)

    assert data["backends"][0]["devices"][0]["features"] == ["a", "b"]
    assert data["backends"][0]["abi"] == 1
    [broken] = data["broken"]
    assert (broken["plugin"], broken["hook"], broken["reason"]) == ("dpfedge-odd 1.0", "register", "no driver")
    assert broken["remedy"] == "pip install --force-reinstall dpfedge-odd"
