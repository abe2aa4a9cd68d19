# SPDX-License-Identifier: Apache-2.0
"""Backends by name, and what a missing or doubled one says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dpfedge.backend.api import ABI
from dpfedge.backend.registry import Registry
from dpfedge.errors import Unavailable, UsageError


def backend(name: str = "one", abi: int = ABI) -> Any:
    """Something with the fields the registry reads."""
    return SimpleNamespace(name=name, abi=abi)


def test_get__known_and_unknown() -> None:
    """A known backend comes back; an unknown one names what there is."""
    registry = Registry()
    one = backend()
    registry.add(one)

    assert registry.get("one") is one
    assert registry.names() == ["one"]
    with pytest.raises(Unavailable, match="backend two: no plugin brings this backend; allowed one"):
        registry.get("two")


def test_get__names_broken_plugins() -> None:
    """A missing backend says which plugins failed."""
    registry = Registry()
    registry.report("dpfedge-two 1.0", "import", "ImportError: no libtwo")

    with pytest.raises(Unavailable, match=r"dpfedge-two 1\.0 is broken in import: ImportError: no libtwo"):
        registry.get("two")


def test_add__taken_name() -> None:
    """The second claim on a name says both distributions."""
    registry = Registry()
    with registry.provided_by("first 1.0"):
        registry.add(backend())

    with registry.provided_by("second 2.0"), pytest.raises(UsageError, match=r"first 1\.0 and second 2\.0"):
        registry.add(backend())
    assert registry.provider("one") == "first 1.0"


def test_add__other_contract() -> None:
    """A backend of another contract version is refused with both numbers."""
    with pytest.raises(UsageError, match=f"found {ABI + 1}; allowed {ABI}"):
        Registry().add(backend(abi=ABI + 1))
