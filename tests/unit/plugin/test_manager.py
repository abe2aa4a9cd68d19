# SPDX-License-Identifier: Apache-2.0
"""Loading plugins: chosen, broken, doubled."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import fields as fields_of
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dpfedge.backend import api
from dpfedge.backend.api import ABI, missing
from dpfedge.errors import UsageError
from dpfedge.plugin import hookspecs
from dpfedge.plugin.hookspecs import Register, hookimpl
from dpfedge.plugin.manager import HOOKS, load_plugins

PAGE = (Path(hookspecs.__file__).parent / "HOOKS.md").read_text()


def made_backend(name: str, abi: int = ABI) -> Any:
    """Something with every name the contract asks for."""
    parts = dict.fromkeys(missing(object()))
    return SimpleNamespace(**{**parts, "name": name, "version": "1", "abi": abi})


def plugin(
    monkeypatch: pytest.MonkeyPatch, module: str, backend: str, *, fails: bool = False, abi: int = ABI
) -> EntryPoint:
    """A plugin module in memory that registers one backend, or raises."""
    made = ModuleType(module)

    @hookimpl
    def dpfedge_register_backends(register: Register) -> None:
        if fails:
            raise OSError("libgone.so: cannot open")
        register.add(made_backend(backend, abi))

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


def test_load_plugins__half_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that lacks methods is reported with their names, not found out when a model is loaded."""
    made = ModuleType("plug_half")

    @hookimpl
    def dpfedge_register_backends(register: Register) -> None:
        register.add(SimpleNamespace(name="half", version="1", abi=ABI, devices=None))  # type: ignore[arg-type]

    made.dpfedge_register_backends = dpfedge_register_backends  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "plug_half", made)
    points = [EntryPoint("plug_half", "plug_half", "dpfedge"), plugin(monkeypatch, "plug_b", "b")]

    registry = load_plugins(["plug_half", "plug_b"], found=points)

    [broken] = registry.broken()
    assert (broken.plugin, broken.hook) == ("plug_half", "dpfedge_register_backends")
    assert broken.reason == (
        "backend half: it lacks a part of the contract; found capabilities, lower, finish, load, health"
    )
    assert registry.names() == ["b"]


@pytest.mark.parametrize(("name", "value"), [("abi", "1"), ("name", None), ("version", 0.1)])
def test_load_plugins__fields_of_another_type(monkeypatch: pytest.MonkeyPatch, name: str, value: object) -> None:
    """Reported as such; nothing else trips over them later."""
    made = ModuleType("plug_typed")
    backend = made_backend("typed")
    setattr(backend, name, value)

    @hookimpl
    def dpfedge_register_backends(register: Register) -> None:
        register.add(backend)

    made.dpfedge_register_backends = dpfedge_register_backends  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "plug_typed", made)

    [broken] = load_plugins(["plug_typed"], found=[EntryPoint("plug_typed", "plug_typed", "dpfedge")]).broken()

    assert broken.reason.startswith(f"backend: its {name} must be ")
    assert broken.remedy


def test_load_plugins__unknown_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt hook is reported; it would never be called."""
    made = ModuleType("plug_odd")

    @hookimpl
    def dpfedge_register_backend(register: Register) -> None:
        raise AssertionError

    made.dpfedge_register_backend = dpfedge_register_backend  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "plug_odd", made)

    [broken] = load_plugins(["plug_odd"], found=[EntryPoint("plug_odd", "plug_odd", "dpfedge")]).broken()

    assert broken.hook == "dpfedge_register_backend"
    assert broken.reason == "there is no such hook; allowed dpfedge_register_backends"


def test_hooks__are_few_and_typed() -> None:
    """At most six, each with a type for every argument."""
    hooks = [getattr(hookspecs, name) for name in HOOKS]

    assert 1 <= len(hooks) <= 6
    assert all(set(inspect.signature(hook).parameters) | {"return"} == set(hook.__annotations__) for hook in hooks)


def test_hooks_md__is_what_the_code_says() -> None:
    """Hooks, methods with their arguments, fields, the contract's number: the page has all of them and no others."""
    hooks = {f"## {name}({_arguments(getattr(hookspecs, name))})" for name in HOOKS}
    protocols = (api.Backend, api.Executable, api.Binding, api.Seals, api.Cancels)
    methods = {
        f"`{name}({_arguments(value)})`"
        for protocol in protocols
        for name, value in vars(protocol).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }
    fields = {f"`{field.name}`" for kind in (api.Capabilities, api.Budget, api.Health) for field in fields_of(kind)}

    assert hooks == {line for line in PAGE.splitlines() if line.startswith("## dpfedge_")}
    assert methods == set(re.findall(r"^\| (`[a-z_]+\(.*?\)`)", PAGE, re.MULTILINE))
    assert fields <= set(re.findall(r"`[a-z_]+`", PAGE))
    assert f"`abi` is {ABI}" in PAGE


def _arguments(function: Any) -> str:
    return ", ".join(name for name in inspect.signature(function).parameters if name not in ("self", "_no_init"))
