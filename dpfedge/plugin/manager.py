# SPDX-License-Identifier: Apache-2.0
"""Plugins found by the entry point group `dpfedge` in, a filled `Registry` out.

A plugin that fails is reported with its name, the hook and the reason while the others load; importing this loads
nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import pluggy

from dpfedge.backend.api import ABI, Backend, missing
from dpfedge.backend.registry import Registry
from dpfedge.errors import BackendError, UsageError
from dpfedge.plugin import hookspecs
from dpfedge.plugin.border import Border
from dpfedge.plugin.discover import installed

__all__ = ["GROUP", "load_plugins"]

GROUP = "dpfedge"
VARIABLE = "DPFEDGE_PLUGINS"
HOOKS = tuple(name for name in vars(hookspecs) if name.startswith("dpfedge_"))


class EntryPoint(Protocol):
    """An entry point, of `dpfedge.plugin.discover` or of `importlib.metadata`."""

    @property
    def name(self) -> str:
        """What the plugin is called in DPFEDGE_PLUGINS."""

    @property
    def value(self) -> str:
        """Where it is."""

    @property
    def dist(self) -> Any:
        """Its distribution with `name` and `version`, or None."""

    def load(self) -> Any:
        """Import it."""


def load_plugins(names: Sequence[str] | None = None, *, found: Iterable[EntryPoint] | None = None) -> Registry:
    """Load the plugins called `names`, else those in the variable DPFEDGE_PLUGINS (`a,b`; empty: none), else all.

    A name that is not installed, and two claims on one backend name, raise UsageError.
    """
    points = sorted(installed(GROUP) if found is None else found, key=lambda point: (point.name, point.value))
    registry = Registry()
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hookspecs)
    for point in _chosen(points, _wanted(names)):
        _load(manager, registry, point)
    return registry


def _wanted(names: Sequence[str] | None) -> Sequence[str] | None:
    if names is None and VARIABLE in os.environ:
        return [name.strip() for name in os.environ[VARIABLE].split(",") if name.strip()]
    return names


def _chosen(points: Sequence[EntryPoint], names: Sequence[str] | None) -> Sequence[EntryPoint]:
    if names is None:
        return points
    known = {point.name for point in points}
    for name in names:
        if name not in known:
            raise UsageError(
                "no such plugin is installed", where=f"plugin {name}", allowed=", ".join(sorted(known)) or "none"
            )
    return [point for point in points if point.name in names]


def _load(manager: pluggy.PluginManager, registry: Registry, point: EntryPoint) -> None:
    title, step = f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.name, "import"
    with Border(lambda reason: registry.report(title, step, reason)):
        plugin = point.load()
        step = "register"
        manager.register(plugin, name=f"{title}:{point.name}")
        for step in _implemented(manager, plugin):
            if step not in HOOKS:
                raise BackendError("there is no such hook", allowed=", ".join(HOOKS))
            others = [other for other in manager.get_plugins() if other is not plugin]
            with registry.provided_by(title, step):
                manager.subset_hook_caller(step, others)(register=_Whole(registry))


class _Whole:
    """Hands on backends that have all of the contract."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def add(self, backend: Backend) -> None:
        """Take one; BackendError names what it lacks. Of another contract's backend nothing can be said to lack."""
        lacks = missing(backend)
        for name, kind in (("name", str), ("version", str), ("abi", int)):
            if name not in lacks and not isinstance(getattr(backend, name), kind):
                found = repr(getattr(backend, name))[:80]
                raise BackendError(f"its {name} must be {kind.__name__}", where="backend", found=found)
        if lacks and ("abi" in lacks or backend.abi == ABI):
            name = type(backend).__name__ if "name" in lacks else backend.name
            raise BackendError("it lacks a part of the contract", where=f"backend {name}", found=", ".join(lacks))
        self._registry.add(backend)


def _implemented(manager: pluggy.PluginManager, plugin: Any) -> Sequence[str]:
    return [caller.name for caller in manager.get_hookcallers(plugin) or ()]
