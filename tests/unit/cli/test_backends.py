# SPDX-License-Identifier: Apache-2.0
"""`dpfedge backends` shows what is installed and what is broken."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpfedge.backend.api import Capabilities
from dpfedge.backend.registry import Broken
from dpfedge.cli import backends, main
from dpfedge.errors import Unavailable

Output = pytest.CaptureFixture[str]
DEVICE = SimpleNamespace(id="cpu:0", kind="cpu", arch="x86-64-v3", features=frozenset({"b", "a"}), memory_bytes=2**31)


def _gone(root: Path) -> list[Any]:
    raise Unavailable("no driver", where="backend gone")


class ToyRegistry:
    """One backend that works, one that does not."""

    @classmethod
    def load(cls) -> ToyRegistry:
        return cls()

    def names(self) -> list[str]:
        return ["gone", "toy"]

    def get(self, name: str) -> Any:
        can = Capabilities(frozenset({"f32", "f16"}), dynamic_shapes=True, arena_in_place=False, cancels=True)
        toy = SimpleNamespace(version="1.2", abi=1, devices=lambda root: [DEVICE], capabilities=lambda device: can)
        return toy if name == "toy" else SimpleNamespace(version="0.9", abi=1, devices=_gone)

    def broken(self) -> list[Any]:
        return [Broken("dpfedge-odd 1.0", "register", "no driver")]


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "Registry", ToyRegistry)


def test_backends__for_people(capsys: Output) -> None:
    """Backend, devices, and who is broken why."""
    assert main(["backends"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "gone 0.9 (contract 1)",
        "  unavailable: backend gone: no driver",
        "toy 1.2 (contract 1)",
        "  cpu:0  cpu  x86-64-v3  2.0 GiB",
        "dpfedge-odd 1.0: register: no driver; pip install --force-reinstall dpfedge-odd",
    ]


def test_backends__as_json(capsys: Output) -> None:
    """The same, for programs."""
    assert main(["backends", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)

    gone, toy = data["backends"]
    assert (gone["devices"], gone["unavailable"]) == ([], "backend gone: no driver")
    assert toy["devices"][0]["features"] == ["a", "b"]
    assert toy["devices"][0]["capabilities"]["dtypes"] == ["f16", "f32"]
    assert toy["devices"][0]["capabilities"]["cancels"]
    assert (toy["abi"], toy["unavailable"]) == (1, None)
    [broken] = data["broken"]
    assert (broken["plugin"], broken["hook"], broken["reason"]) == ("dpfedge-odd 1.0", "register", "no driver")
    assert broken["remedy"] == "pip install --force-reinstall dpfedge-odd"
