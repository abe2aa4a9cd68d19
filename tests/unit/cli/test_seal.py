# SPDX-License-Identifier: Apache-2.0
"""`dpfedge seal` says what it built, and where."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpfedge.cli import main
from dpfedge.errors import StoreBusy, Unsupported
from dpfedge.package import PackageWriter
from dpfedge.package.sidecar import Built
from dpfedge.seal.build import Sealed
from dpfedge.store import Store


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package that verifies; what it holds is another test's."""
    path = tmp_path / "größe 1.dpfbin"
    with PackageWriter(path, name="small", version="1") as writer:
        writer.finish({})
    return path


@pytest.fixture
def stored(own_store: Path, write: Callable[..., Path]) -> Store:
    """The default store, with the package `voice`."""
    assert main(["install", str(write("1")), "--allow-unsigned"]) == 0
    return Store(own_store)


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


BUILDER = """
import os, sys
from types import SimpleNamespace
from dpfedge.cli import main
from dpfedge.package.files import temporary_beside
from dpfedge.seal.build import Sealed

def build(bound, out, **_):
    part = temporary_beside(out)
    part.write_bytes(b"seal")  # closed, as it is before it is signed
    print("building", flush=True)
    sys.stdin.read()
    os.replace(part, out)
    return Sealed(out, 4, (), ("llm",))

import dpfedge.cli.seal as seal
seal.bind_here, seal.build_seal = lambda package, board, sidecar: SimpleNamespace(package=package), build
sys.exit(main(["seal", *sys.argv[1:]]))
"""


def builder(*arguments: str) -> subprocess.Popen[str]:
    """`dpfedge seal` in a process of its own, whose build waits for the end of its stdin."""
    command = [sys.executable, "-c", BUILDER, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("by_path", [False, True])
def test_seal__in_a_store_is_built_once(stored: Store, write: Callable[..., Path], by_path: bool) -> None:
    """Two processes: the second one names the first; `gc` and an install go on, and take nothing of it away."""
    path = stored.active("voice").path
    named = str(path) if by_path else "voice"
    with builder(named) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "building\n"
        with builder(named) as second:
            _, refused = second.communicate("")
        assert second.returncode == StoreBusy.exit_code
        assert f"builds a seal for this package, waited 0 s; found pid {first.pid} (dpfedge seal {named})" in refused
        assert stored.gc().deleted == {}
        assert main(["install", str(write("2")), "--allow-unsigned"]) == 0
        told, _ = first.communicate("")
    assert first.returncode == 0
    assert told.startswith(f"{path}.dpfseal: ")
    assert path.with_name(f"{path.name}.dpfseal").read_bytes() == b"seal"
    with builder(str(path)) as third:
        third.communicate("")
    assert third.returncode == 0


def test_seal__removed_meanwhile_stays_until_it_ends(stored: Store) -> None:
    """And a killed one holds nothing: what it left goes with the package."""
    path = stored.active("voice").path
    with builder("voice") as first:
        assert first.stdout is not None
        first.stdout.readline()
        assert stored.remove("voice").deleted == {}
        first.kill()
    assert first.wait() < 0
    gone = {one.name for one in stored.gc().deleted}
    assert {path.name, f"{path.stem}.json", f"{path.stem}.lock"} < gone
    assert len(gone) == 4
    assert list(stored.places.files.iterdir()) == []


def test_seal__outside_a_store_takes_no_lock(package: Path) -> None:
    """Two at once are two builds; the file is one of them, whole."""
    with builder(str(package)) as first, builder(str(package)) as second:
        for one in (first, second):
            assert one.stdout is not None
            assert one.stdout.readline() == "building\n"
        for one in (first, second):
            one.communicate("")
    assert (first.returncode, second.returncode) == (0, 0)
    assert sorted(one.name for one in package.parent.iterdir()) == [package.name, f"{package.name}.dpfseal"]
