# SPDX-License-Identifier: Apache-2.0
"""Backends by name, and what a missing or doubled one says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dpfedge.backend.api import ABI
from dpfedge.backend.registry import Broken, Registry
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


@pytest.mark.parametrize(
    ("abi", "remedy"),
    [
        (ABI - 1, "pip install --upgrade 'dpfedge-two>1.5' (too old for this dpfedge)"),
        (ABI + 1, "pip install 'dpfedge-two<1.5' (too new for this dpfedge), or pip install --upgrade dpfedge"),
    ],
)
def test_add__other_contract(abi: int, remedy: str) -> None:
    """A backend of another contract is noted with its distribution, the others stay; asked for, it says what to do."""
    registry = Registry()
    registry.add(backend())
    with registry.provided_by("dpfedge-two 1.5", "dpfedge_register_backends"):
        registry.add(backend("two", abi))

    assert registry.names() == ["one"]
    [broken] = registry.broken()
    reason = f"backend two speaks contract {abi}, this dpfedge speaks contract {ABI}"
    assert (broken.plugin, broken.hook, broken.reason) == ("dpfedge-two 1.5", "dpfedge_register_backends", reason)
    assert broken.remedy == remedy
    with pytest.raises(Unavailable) as caught:
        registry.get("two")
    assert caught.value.remedy == remedy


def test_broken__without_a_version() -> None:
    """A plugin that is no distribution has no version to compare with."""
    assert Broken("odd", "add", "r", "two", ABI - 1).remedy == "pip install --upgrade odd (too old for this dpfedge)"
    assert Broken("odd", "add", "r", "two", ABI + 1).remedy.startswith("pip install an older odd")
    assert Broken("dpfedge-two 1.0", "import", "r").remedy == "pip install --force-reinstall dpfedge-two"
