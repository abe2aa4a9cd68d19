# SPDX-License-Identifier: Apache-2.0
"""A store of the test's own, and tiny packages that fit every board."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dpfedge.package import PackageWriter


@pytest.fixture
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of an empty store, which is the default one; every package fits this machine."""
    monkeypatch.setenv("DPFEDGE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setattr("dpfedge.binding.bind_here", lambda package, board: None)
    return tmp_path / "store"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """`write("1")`: a package file of that version."""

    def make(version: str, name: str = "voice") -> Path:
        path = tmp_path / f"{name}-{version}.dpfbin"
        with PackageWriter(path, name=name, version=version) as writer:
            writer.add("weights", "weights", version.encode() * 5000)
            writer.finish({})
        return path

    return make
