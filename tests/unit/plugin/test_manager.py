# SPDX-License-Identifier: Apache-2.0
"""Loading plugins: chosen, broken, doubled."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from types import ModuleType, SimpleNamespace

import pytest

from dpfedge.backend.api import ABI
from dpfedge.errors import UsageError
from dpfedge.plugin.hookspecs import Register, hookimpl
from dpfedge.plugin.manager import load_plugins


def plugin(
    monkeypatch: pytest.MonkeyPatch, module: str, backend: str, *, fails: bool = False, abi: int = ABI
) -> EntryPoint:
    """A plugin module in memory that registers one backend, or raises."""
    made = ModuleType(module)

    @hookimpl
    def dpfedge_register_backends(register: Register) -> None:
        if fails:
            raise OSError("libgone.so: cannot open")
        register.add(SimpleNamespace(name=backend, abi=abi))  # type: ignore[arg-type]

    made.dpfedge_register_backends = dpfedge_register_backends  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module, made)
    return EntryPoint(name=module, value=module, group="dpfedge")


def test_load_plugins__all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a choice each found plugin is loaded."""
    monkeypatch.delenv("DPFEDGE_PLUGINS", raising=False)
    points = [plugin(monkeypatch, "plug_b", "b"), plugin(monkeypatch, "plug_a", "a")]

    assert load_plugins(found=points).names() == ["a", "b"]


def test_load_plugins__chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Argument and variable restrict the set; an empty variable loads none."""
    points = [plugin(monkeypatch, "plug_a", "a"), plugin(monkeypatch, "plug_b", "b")]

    assert load_plugins(["plug_b"], found=points).names() == ["b"]
    monkeypatch.setenv("DPFEDGE_PLUGINS", "plug_a")
    assert load_plugins(found=points).names() == ["a"]
    monkeypatch.setenv("DPFEDGE_PLUGINS", "")
    assert load_plugins(found=points).names() == []


def test_load_plugins__unknown_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chosen plugin that is not installed is an error naming those that are."""
    with pytest.raises(UsageError, match="plugin gone: no such plugin is installed; allowed plug_a"):
        load_plugins(["gone"], found=[plugin(monkeypatch, "plug_a", "a")])


def test_load_plugins__broken_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that raises is reported with hook and reason, and the others are there."""
    points = [plugin(monkeypatch, "plug_a", "a", fails=True), plugin(monkeypatch, "plug_b", "b")]

    registry = load_plugins(["plug_a", "plug_b"], found=points)

    assert registry.names() == ["b"]
    assert [(item.plugin, item.hook, item.reason) for item in registry.broken()] == [
        ("plug_a", "dpfedge_register_backends", "OSError: libgone.so: cannot open")
    ]


@pytest.mark.parametrize("abi", [ABI - 1, ABI + 1])
def test_load_plugins__other_contract_stops_nothing(monkeypatch: pytest.MonkeyPatch, abi: int) -> None:
    """A plugin for another dpfedge is named with hook and reason; what works still works."""
    points = [plugin(monkeypatch, "plug_a", "a", abi=abi), plugin(monkeypatch, "plug_b", "b")]

    registry = load_plugins(["plug_a", "plug_b"], found=points)
    assert registry.names() == ["b"]
    [broken] = registry.broken()
    assert (broken.plugin, broken.hook, broken.backend, broken.abi) == ("plug_a", "dpfedge_register_backends", "a", abi)


def test_load_plugins__missing_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that cannot be imported is reported as such."""
    registry = load_plugins(["gone"], found=[EntryPoint("gone", "dpfedge_no_such_module", "dpfedge")])

    assert registry.broken()[0].hook == "import"
    assert "dpfedge_no_such_module" in registry.broken()[0].reason


def test_load_plugins__one_name_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two plugins with one backend name are an error, not a choice."""
    points = [plugin(monkeypatch, "plug_a", "same"), plugin(monkeypatch, "plug_b", "same")]

    with pytest.raises(UsageError, match="plug_a and plug_b"):
        load_plugins(["plug_a", "plug_b"], found=points)


def test_hooks_md__names_each_hook() -> None:
    """HOOKS.md has a heading with the exact arguments of each hook."""
    import inspect
    from pathlib import Path

    from dpfedge.plugin import hookspecs

    text = (Path(hookspecs.__file__).parent / "HOOKS.md").read_text()
    hooks = [name for name in vars(hookspecs) if name.startswith("dpfedge_")]

    assert hooks
    for name in hooks:
        assert f"## {name}({', '.join(inspect.signature(getattr(hookspecs, name)).parameters)})" in text
