# SPDX-License-Identifier: Apache-2.0
"""The devices that a served package is bound to, as instances of a router: sampled, published, asked for each request.

One router for the server's life; a package that replaces another one brings its own devices. It runs no model. What
the table of a server says is in `dpfedge/routing/ROUTING.md`, section 9.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dpfedge.errors import ConfigError, NoInstance, RouteError
from dpfedge.hardware.source.root import Root
from dpfedge.records import dataclass
from dpfedge.routing.devices import pci_addresses
from dpfedge.routing.health import Rule
from dpfedge.routing.instances import Instance
from dpfedge.routing.key import FIELD_MAX_BYTES
from dpfedge.routing.log import RouteLog
from dpfedge.routing.publication import Publisher
from dpfedge.routing.router import Router
from dpfedge.routing.sampling import Knows, Sampler, of_device
from dpfedge.stage.api import Mode

if TYPE_CHECKING:
    from dpfedge.backend.api import Device
    from dpfedge.pipeline.graph import Graph

__all__ = ["Instances", "Placed"]

_CAPACITY = 64  # devices of one machine, and those that left lately


class Placed(Protocol):
    """A pipeline on its devices; `pipeline.plan.Plan` is one."""

    @property
    def name(self) -> str:
        """The package's."""

    @property
    def graph(self) -> Graph:
        """Which stages each mode passes."""

    def devices(self) -> Mapping[str, Device]:
        """Stage → device, the heaviest stage first."""


@dataclass(frozen=True, slots=True)
class _Served:
    """One pipeline on its devices."""

    placed: Placed
    stages: Mapping[str, str]
    """Stage → instance."""
    main: str | None
    """The device of the heaviest model: it has all table slots. A pipeline without models needs no device."""
    model: str
    """What stands for the package in keys."""
    needed: dict[Mode, tuple[str, ...]] = field(default_factory=dict)

    def needing(self, mode: Mode) -> tuple[str, ...]:
        """The instances that a request of this mode needs."""
        if mode not in self.needed:
            try:
                route = self.placed.graph.route(mode)
            except ConfigError:  # the pipeline cannot do this at all, which the runtime says better
                route = ()
            self.needed[mode] = tuple(dict.fromkeys(self.stages[name] for name in route if name in self.stages))
        return self.needed[mode]


class Instances:
    """Which devices may be given new requests now. Made once every stage is warm; `close` it."""

    def __init__(
        self,
        placed: Placed,
        backends: Mapping[str, Knows],
        path: Path | None,
        *,
        log: RouteLog | None = None,
        rule: Rule | None = None,
    ) -> None:
        """Begins to sample. `backends`: those of its devices, by name.

        `path`: where the table is published; None, and where that cannot be: in memory only.
        """
        self.problem: str | None = None
        """Why the table is in no file."""
        self._publisher = self._publish(path)
        self.path = self._publisher.path
        self.router = Router(self._publisher, log=log, rule=rule, load=False)  # nobody else could take the work
        self.refused = 0
        """Requests that no healthy device could take."""
        self._log, self._following, self._closed = log, threading.Lock(), False
        self._sampler: Sampler | None = None
        self._wanted: dict[str, Instance] = {}
        self.follow(placed, backends)

    def _publish(self, path: Path | None) -> Publisher:
        try:
            return Publisher(path, capacity=_CAPACITY)
        except RouteError as error:
            self.problem = str(error)
            return Publisher(None, capacity=_CAPACITY)

    def follow(self, placed: Placed, backends: Mapping[str, Knows]) -> None:
        """From now on the devices of this pipeline count; from any thread, it waits for looks under way.

        After `close` it does nothing.
        """
        devices, root = placed.devices(), Root()
        stages = {stage: device.id for stage, device in devices.items()}
        main = next(iter(stages.values()), None)
        distinct = {device.id: device for device in devices.values()}
        sources = {
            name: of_device(backends[one.backend], one, root, pci_addresses(one, root))
            for name, one in distinct.items()
        }
        wanted = {name: Instance(name, int(name == main)) for name in distinct}
        with self._following:
            if self._closed:
                return
            # first the new ones beside the old: who is admitted meanwhile, by either pipeline, finds its devices
            self.router.assign([*(self._wanted | wanted).values()])
            self._served = _Served(placed, stages, main, _model(placed.name))
            self.router.assign([*wanted.values()])
            self._wanted = wanted
            # likewise: while an old look hangs, nobody else's samples may fail to come
            before, self._sampler = self._sampler, Sampler(self.router, sources)
            if before is not None:
                before.close()

    @property
    def healthy(self) -> bool:
        """Whether the device of the heaviest model takes new requests."""
        main = self._served.main
        return main is None or self.router.healthy(main)

    def admit(self, mode: Mode) -> str | None:
        """The instance of a new request; NoInstance, with the health map, when a device that it needs is out.

        None for one that needs no device. What is open already goes on where it is.
        """
        served, needed, out = self._asked(mode)
        if out:
            self.refused += 1
            raise NoInstance(
                "no instance can serve the request: a device it needs is not healthy", where=f"instance {out[0]}",
                health=self.router.health_map(), remedy="see the health map, and try again in some seconds",
            )  # fmt: skip
        if served.main not in needed:
            return needed[0] if needed else None
        return self.router.route(served.model, b"", max(0, time.time_ns() // 1_000_000)).instance

    def _asked(self, mode: Mode) -> tuple[_Served, tuple[str, ...], list[str]]:
        """The pipeline now served, what a request of this mode needs there, and which of that is out."""
        while True:
            served = self._served
            needed = served.needing(mode)
            out = [name for name in needed if not self.router.healthy(name)]
            if not out or served is self._served:  # else another package came meanwhile, and took away what was needed
                return served, needed, out

    def figures(self) -> dict[str, Any]:
        """Generation, table, instances with their health, which stage is where, what the last looks failed with."""
        published, instances = self.router.published, self.router.health_map()
        return {
            "generation": published.generation, "healthy": sum(bool(row["healthy"]) for row in instances.values()),
            "table": {
                "bits": published.bits, "digest": f"{published.digest():016x}",
                "path": None if self.path is None else str(self.path), "problem": self.problem,
            },
            "instances": instances, "stages": dict(self._served.stages), "main": self._served.main,
            "refused": self.refused,
            "problems": dict(self._sampler.problems) if self._sampler is not None else {},
        }  # fmt: skip

    def close(self) -> None:
        """Sample no more, and take the table away."""
        with self._following:
            self._closed = True
            if self._sampler is not None:
                self._sampler.close()
        self._publisher.withdraw()
        if self._log is not None:
            self._log.close()


def _model(name: str) -> str:
    """The id of a package in keys: its name, or the SHA-256 of one that is longer than an id may be."""
    data = name.encode()
    return name if len(data) <= FIELD_MAX_BYTES else hashlib.sha256(data).hexdigest()
