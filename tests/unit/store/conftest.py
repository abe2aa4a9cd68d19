# SPDX-License-Identifier: Apache-2.0
"""Tiny packages, a judge that takes what a test tells it to, and a store in a folder whose name has a space in it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dpfedge.errors import DpfError
from dpfedge.package import Package, PackageWriter
from dpfedge.signing import Signer
from dpfedge.store import Store

MakePackage = Callable[..., Path]


class ToyJudge:
    """Says yes; `refusal` and `wrong` make it say no. `seen` are the calls."""

    def __init__(self, golden: str = "passed") -> None:
        self.signer: Signer | None = Signer("00" * 16, "oem")
        self.golden = golden
        self.refusal: DpfError | None = None
        self.wrong: DpfError | None = None
        self.seen: list[str] = []

    def accept(self, package: Package) -> Signer | None:
        self.seen.append("accept")
        if self.refusal:
            raise self.refusal
        return self.signer

    def prove(self, package: Package) -> str:
        self.seen.append("prove")
        if self.wrong:
            raise self.wrong
        return self.golden


@pytest.fixture
def make(tmp_path: Path) -> MakePackage:
    """`make("1")`: a package file of that version; three sections of other content for each."""

    def write(version: str = "1", name: str = "voice", nbytes: int = 70_000) -> Path:
        path = tmp_path / f"{name.replace('/', '-')} {version} ü.dpfbin"
        with PackageWriter(path, name=name, version=version) as writer:
            writer.add("weights", "weights", (version.encode() + b"\x01" * 9) * (nbytes // (len(version) + 9)))
            writer.add("zeros", "asset", bytes(9000))
            writer.add("tokens", "asset", b"tokens")
            writer.finish({})
        return path

    return write


@pytest.fixture
def judge() -> ToyJudge:
    """A judge that says yes."""
    return ToyJudge()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "a store ü", wait_s=0.2)


@pytest.fixture
def tree(store: Store) -> Callable[[], dict[str, bytes]]:
    """Every file of the store but its lock, with what it holds."""

    def look() -> dict[str, bytes]:
        files = (Path(folder, name) for folder, _, names in os.walk(store.root) for name in names)
        return {str(path.relative_to(store.root)): path.read_bytes() for path in files if path.name != "lock"}

    return look


@pytest.fixture(autouse=True)
def _own_runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("DPFEDGE_STORE", raising=False)
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
