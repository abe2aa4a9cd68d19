# SPDX-License-Identifier: Apache-2.0
"""`dpfedge seal` says what it built, and where."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpfedge.cli import main
from dpfedge.errors import Unsupported
from dpfedge.package import PackageWriter
from dpfedge.package.sidecar import Built
from dpfedge.seal.build import Sealed


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package that verifies; what it holds is another test's."""
    path = tmp_path / "größe 1.dpfbin"
    with PackageWriter(path, name="small", version="1") as writer:
        writer.finish({})
    return path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What binding and building were asked for; building gives a sidecar of one graph and one opening."""
    calls: list[Any] = []

    def bind(opened: Any, board: str, *, sidecar: bool) -> Any:
        calls.append((board, sidecar))
        return SimpleNamespace(package=opened)

    def build(bound: Any, out: Path, *, keys: Any, progress: Any) -> Sealed:
        progress("llm: llm", 0.5)
        calls.append((out, list(keys)))
        return Sealed(out, 3 << 20, (Built("llm", "llm", "packed", "sealed.llm"),), ("llm",))

    monkeypatch.setattr("dpfedge.cli.seal.bind_here", bind)
    monkeypatch.setattr("dpfedge.cli.seal.build_seal", build)
    return calls


def test_seal__beside_the_package(package: Path, asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    """An old sidecar plays no part; the line names what is in the new one."""
    assert main(["seal", str(package), "--board", "host"]) == 0

    out = package.with_name("größe 1.dpfbin.dpfseal")
    assert asked == [("host", False), (out, [])]
    told = capsys.readouterr()
    assert told.out.startswith(f"{out}: 3.0 MiB in ")
    text = "nobody has signed it, so only a start with --allow-unsigned uses it; name a key to sign it with: --key KEY"
    assert told.err == f"dpfedge: warning: {out}: {text}\n"


def test_seal__signed(package: Path, asked: list[Any], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """With a key there is nothing to warn of."""
    assert main(["keygen", "--name", "device", "-o", str(tmp_path / "device.key")]) == 0
    capsys.readouterr()
    assert main(["seal", str(package), "--key", str(tmp_path / "device.key")]) == 0

    assert len(asked[-1][1]) == 1
    assert capsys.readouterr().err == ""


def test_seal__json(package: Path, asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    """The same as one object."""
    assert main(["seal", str(package), "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert (found["sidecar"], found["bytes"], found["prefixes"]) == (f"{package}.dpfseal", 3 << 20, ["llm"])
    assert found["built"] == [{"model": "llm", "graph": "llm", "name": "packed", "section": "sealed.llm"}]


@pytest.mark.usefixtures("asked")
def test_seal__nothing_to_build(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """That is no failure."""
    monkeypatch.setattr("dpfedge.cli.seal.build_seal", lambda *_, **__: None)

    assert main(["seal", str(package)]) == 0
    assert capsys.readouterr().out == "nothing to build on this device\n"
    assert main(["seal", str(package), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"sidecar": None}


@pytest.mark.usefixtures("asked")
def test_seal__a_backend_that_cannot(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own words, exit code 1."""

    def refuse(*_: Any, **__: Any) -> None:
        raise Unsupported("the backend seals nothing", where="backend cpu")

    monkeypatch.setattr("dpfedge.cli.seal.build_seal", refuse)
    assert main(["seal", str(package)]) == 1
    assert capsys.readouterr().err == "dpfedge: backend cpu: the backend seals nothing\n"


@pytest.mark.usefixtures("asked")
def test_seal__a_key_that_cannot_be_read(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Said before the work, not behind it."""
    assert main(["seal", str(package), "--key", str(package.parent / "no.key")]) != 0
    assert "no.key" in capsys.readouterr().err
