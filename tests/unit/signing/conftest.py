# SPDX-License-Identifier: Apache-2.0
"""Keys, a trust directory that holds one of them, and a package to sign; all made anew for each test."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dpfedge.signing import PrivateKey, Trust

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.fixture
def key() -> PrivateKey:
    """The key that is trusted."""
    return PrivateKey.generate()


@pytest.fixture
def other() -> PrivateKey:
    """A key that nobody trusts."""
    return PrivateKey.generate()


@pytest.fixture
def folder(tmp_path: Path, key: PrivateKey) -> Path:
    """A trust directory with `key` as `oem`."""
    place = tmp_path / "trust"
    place.mkdir()
    (place / "oem.pub").write_bytes(key.public.pem())
    return place


@pytest.fixture
def trust(folder: Path) -> Callable[[], Trust]:
    """Reads that directory as it is now."""
    return lambda: Trust.load([folder])


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of a golden package without signatures."""
    return Path(shutil.copy(GOLDEN / "v1/smallest.dpfbin", tmp_path / "p.dpfbin"))
