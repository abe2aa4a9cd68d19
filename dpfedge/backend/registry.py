# SPDX-License-Identifier: Apache-2.0
"""The backends that plugins brought, by name, and the plugins that could not bring theirs.

It loads no plugin and opens no device; `dpfedge.plugin.manager` fills it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dpfedge.backend.api import ABI, Backend
from dpfedge.errors import Unavailable, UsageError
from dpfedge.records import dataclass

__all__ = ["Broken", "Registry"]


@dataclass(frozen=True, slots=True)
class Broken:
    """A plugin that could not be used: its distribution with version, the hook (or `import`) that failed, and why."""

    plugin: str
    hook: str
    reason: str
    backend: str | None = None
    """The backend it would have brought, where it got so far as to say."""
    abi: int | None = None
    """The contract that backend speaks, when that is what keeps it out."""

    @property
    def remedy(self) -> str:
        """What to install instead."""
        distribution, _, version = self.plugin.partition(" ")
        if self.abi is None:
            return f"pip install --force-reinstall {distribution}"
        if self.abi < ABI:
            newer = f"'{distribution}>{version}'" if version else distribution
            return f"pip install --upgrade {newer} (too old for this dpfedge)"
        older = f"'{distribution}<{version}'" if version else f"an older {distribution}"
        return f"pip install {older} (too new for this dpfedge), or pip install --upgrade dpfedge"


class Registry:
    """Backends by name. `add` is the collector handed to the hook `dpfedge_register_backends`."""

    def __init__(self) -> None:
        self._backends: dict[str, tuple[Backend, str]] = {}
        self._broken: list[Broken] = []
        self._provider, self._hook = "dpfedge", "register"

    @classmethod
    def load(cls, names: Sequence[str] | None = None) -> Registry:
        """A registry filled by the installed plugins; see `dpfedge.plugin.manager.load_plugins`."""
        from dpfedge.plugin.manager import load_plugins  # the manager imports this module

        return load_plugins(names)

    def add(self, backend: Backend) -> None:
        """Take one backend. A taken name raises UsageError; one of another contract version is noted as broken."""
        if backend.abi != ABI:
            reason = f"backend {backend.name} speaks contract {backend.abi}, this dpfedge speaks contract {ABI}"
            self._broken.append(Broken(self._provider, self._hook, reason, backend.name, backend.abi))
            return
        if backend.name in self._backends:
            raise UsageError(
                "two distributions claim one backend name",
                where=f"backend {backend.name}",
                found=f"{self._backends[backend.name][1]} and {self._provider}",
                remedy="uninstall one of them, or choose with DPFEDGE_PLUGINS",
            )
        self._backends[backend.name] = (backend, self._provider)

    def get(self, name: str) -> Backend:
        """The backend called `name`; Unavailable says which there are and which plugins are broken."""
        if name not in self._backends:
            broken = "; ".join(f"{item.plugin} is broken in {item.hook}: {item.reason}" for item in self._broken)
            raise Unavailable(
                "no plugin brings this backend",
                where=f"backend {name}",
                found=broken or None,
                allowed=", ".join(self.names()) or "none is installed",
                remedy=next(
                    (item.remedy for item in self._broken if item.backend == name), f"pip install dpfedge-{name}"
                ),
            )
        return self._backends[name][0]

    def names(self) -> Sequence[str]:
        """Names of the backends, sorted."""
        return sorted(self._backends)

    def provider(self, name: str) -> str:
        """The distribution (name and version) that brought backend `name`."""
        self.get(name)
        return self._backends[name][1]

    def broken(self) -> Sequence[Broken]:
        """Plugins that failed, in the order they were found."""
        return tuple(self._broken)

    def report(self, plugin: str, hook: str, reason: str) -> None:
        """Note that `plugin` failed in `hook`; the others stay."""
        self._broken.append(Broken(plugin, hook, reason))

    @contextmanager
    def provided_by(self, distribution: str, hook: str = "register") -> Iterator[None]:
        """Backends added inside come from `distribution`, through `hook`."""
        before = self._provider, self._hook
        self._provider, self._hook = distribution, hook
        try:
            yield
        finally:
            self._provider, self._hook = before
