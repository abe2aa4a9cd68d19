# SPDX-License-Identifier: Apache-2.0
"""What binding gives: for each model a target on a device, and through it assets and executables of the opened package.

It chooses nothing; `dpfedge.binding.bind` does. Views stay in the mapped package, nothing is copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfedge.backend.api import Backend, Budget, Device, Executable, GraphView, SealedView
from dpfedge.backend.registry import Registry
from dpfedge.binding.buckets import pick_bucket
from dpfedge.binding.prefix import Candidate, PrefixFound, Sections, judge_prefixes, prefix_key
from dpfedge.binding.sidecar import Sidecar
from dpfedge.binding.stale import Stale
from dpfedge.errors import BindError
from dpfedge.package.manifest import Graph, Target
from dpfedge.package.reader import Package
from dpfedge.records import dataclass

if TYPE_CHECKING:
    from dpfedge.hardware.board import Board

__all__ = ["Bound", "BoundModel", "Chosen", "ModelPlace", "Refusal"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one target cannot run: the field, what it wants, what is there, and what to do."""

    target: str
    field: str
    wanted: str
    found: str
    remedy: str

    def __str__(self) -> str:
        return f"target {self.target}: {self.field}: wanted {self.wanted}; found {self.found}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class BoundModel:
    """One model of a bound package: its numbers, its assets in place, and its graphs on the device that was chosen."""

    name: str
    family: str
    config: Mapping[str, Any]
    device: Device
    _package: Sections
    _backend: Backend
    _assets: Mapping[str, str]
    _graphs: Mapping[str, Graph]
    _prefixes: tuple[Candidate, ...] = ()
    _sealed: Mapping[str, Mapping[str, SealedView]] = field(default_factory=dict)

    @property
    def graphs(self) -> tuple[str, ...]:
        """Names of the graphs."""
        return tuple(self._graphs)

    @property
    def assets(self) -> tuple[str, ...]:
        """Names of the assets."""
        return tuple(self._assets)

    def asset(self, name: str) -> memoryview:
        """The bytes of an asset in the mapped package, read-only; BindError lists the assets there are."""
        if name not in self._assets:
            raise self._unknown("asset", name, self._assets)
        return self._package.section(self._assets[name])

    def graph(self, name: str) -> GraphView:
        """A graph as it lies in the mapped package; BindError lists the graphs there are."""
        if name not in self._graphs:
            raise self._unknown("graph", name, self._graphs)
        graph = self._graphs[name]
        return GraphView(
            name=f"{self.name}/{name}",
            code=self._package.section(graph.section),
            inputs=graph.inputs,
            outputs=graph.outputs,
            weights={section: self._package.section(section) for section in graph.weights},
            options=graph.options,
            sealed=self._sealed.get(name, {}),
        )

    def load(self, graph: str, budget: Budget) -> Executable:
        """The graph ready to run on the chosen device, through its backend, within `budget`."""
        return self._backend.load(self.graph(graph), self.device, budget)

    def bucket(self, graph: str, /, **sizes: int) -> str:
        """The name of the smallest fixed-shape form of `graph` that takes `sizes`; inputs are padded to its ports."""
        return pick_bucket(f"model {self.name}", self._graphs, graph, sizes)

    def key(self) -> dict[str, str]:
        """What the numbers of this model depend on here; see `dpfedge.binding.prefix.prefix_key`."""
        return prefix_key(self._backend, self.device, self._package, self._assets, self._graphs)

    def prefix(self, settings: Mapping[str, str] | None = None) -> PrefixFound:
        """The baked prefix that fits this machine and the stage's `settings` (None: those it was baked with)."""
        if not self._prefixes:
            return PrefixFound()
        known = self._prefixes[0].record.key if settings is None else {}
        found = settings or {name: value for name, value in known.items() if name.startswith("stage/")}
        return judge_prefixes(self.name, self._prefixes, {**self.key(), **found})

    def _unknown(self, kind: str, name: str, known: Mapping[str, object]) -> BindError:
        return BindError(f"there is no such {kind}", where=f"model {self.name}", found=name, allowed=", ".join(known))


@dataclass(frozen=True, slots=True)
class ModelPlace:
    """Where one model runs: the target it was compiled for, the backend that runs that, and the device."""

    target: Target
    backend: Backend
    device: Device
    degraded: str | None = None
    """Why this is slower than the board could be, when the operator allowed that."""

    def record(self) -> dict[str, Any]:
        """The place as JSON values."""
        device = {**asdict(self.device), "features": sorted(self.device.features)}
        return {"target": self.target.id, "backend": self.backend.name, "device": device}

    @classmethod
    def again(cls, package: Package, record: Mapping[str, Any], registry: Registry) -> ModelPlace:
        """The place that `record` describes."""
        device = Device(**{**record["device"], "features": frozenset(record["device"]["features"])})
        return cls(package.manifest.target(record["target"]), registry.get(record["backend"]), device)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The models of a package in their places: what a process needs to load them, without why these were chosen."""

    package: Package
    places: Mapping[str, ModelPlace]
    """Model → place."""
    sidecar: Sidecar | None = None
    """What was built for these devices, when it fits."""

    def record(self) -> dict[str, Any]:
        """The choice as JSON values, for `again` in another process."""
        places = {name: place.record() for name, place in self.places.items()}
        return {"places": places, "seal": None if self.sidecar is None else self.sidecar.record_map()}

    @classmethod
    def again(cls, package: Package, record: Mapping[str, Any], registry: Registry, seal: Path | None = None) -> Chosen:
        """The choice that `record` describes, for the same package; nothing is probed or decided a second time.

        `seal` is where the sidecar lies now, if it is no longer where it lay.
        """
        places = {name: ModelPlace.again(package, place, registry) for name, place in record["places"].items()}
        sidecar = None if record.get("seal") is None else Sidecar.again(record["seal"], seal)
        return cls(package, places, sidecar)

    def model(self, name: str) -> BoundModel:
        """One model on its device; BindError lists the models there are."""
        if name not in self.places:
            known, where = ", ".join(self.places), f"package {self.package.manifest.name}"
            raise BindError("there is no such model", where=where, found=name, allowed=known)
        record, place = self.package.manifest.models[name], self.places[name]
        return BoundModel(
            name=name,
            family=record.family,
            config=record.config,
            device=place.device,
            _package=self.package,
            _backend=place.backend,
            _assets=record.assets,
            _graphs=place.target.models[name].graphs,
            _prefixes=self._candidates(name),
            _sealed={} if self.sidecar is None else self.sidecar.built(name),
        )

    def _candidates(self, model: str) -> tuple[Candidate, ...]:
        baked = self.places[model].target.models[model].prefix
        sealed = None if self.sidecar is None else self.sidecar.record.prefixes.get(model)
        rows = ((sealed, self.sidecar and self.sidecar.package, "seal"), (baked, self.package, "package"))
        return tuple(Candidate(record, file, source) for record, file, source in rows if record and file)


@dataclass(frozen=True, slots=True)
class Bound:
    """A package bound to a board: the place of each model, and what was refused."""

    package: Package
    board: Board
    places: Mapping[str, ModelPlace]
    """Model → place, in the package's order of models."""
    refusals: tuple[Refusal, ...]
    also: tuple[str, ...] = ()
    """Targets without a model here that would run here too."""
    sidecar: Sidecar | None = None
    """What `dpfedge seal` built for this package on these devices, when it fits."""
    stale: tuple[Stale, ...] = ()
    """Why the sidecar beside the package is not used."""

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models."""
        return tuple(self.places)

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets that models are bound to, in the package's order."""
        used = {place.target.id for place in self.places.values()}
        return tuple(target for target in self.package.manifest.targets if target.id in used)

    @property
    def backends(self) -> Mapping[str, Backend]:
        """Name → backend, of those that run a model."""
        return {place.backend.name: place.backend for place in self.places.values()}

    @property
    def devices(self) -> Mapping[str, Device]:
        """Model → device."""
        return {model: place.device for model, place in self.places.items()}

    @property
    def degraded(self) -> str | None:
        """Which models are slower than the board could run them, and why, where the operator allowed that."""
        found: dict[str, list[str]] = {}
        for model, place in self.places.items():
            if place.degraded:
                found.setdefault(place.degraded, []).append(model)
        if [len(models) for models in found.values()] == [len(self.places)]:
            return next(iter(found))
        return "; ".join(f"{', '.join(models)}: {why}" for why, models in found.items()) or None

    @property
    def chosen(self) -> Chosen:
        """The choice alone."""
        return Chosen(self.package, self.places, self.sidecar)

    def held(self, target: Target) -> tuple[str, ...]:
        """The models that are bound to `target`."""
        return tuple(model for model, place in self.places.items() if place.target.id == target.id)

    def model(self, name: str) -> BoundModel:
        """One model on its device; BindError lists the models there are."""
        return self.chosen.model(name)

    def close(self) -> None:
        """Give up the package, and the sidecar if there is one; views of them stay valid."""
        self.package.close()
        if self.sidecar is not None:
            self.sidecar.close()
