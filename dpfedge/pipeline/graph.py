# SPDX-License-Identifier: Apache-2.0
"""The pipeline's graph: its section in, stages, links, routes and budgets out, or a ConfigError before anything starts.

It starts no process and maps no memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfedge.config import duration_ms, nearest, plain, size_bytes
from dpfedge.errors import ConfigError
from dpfedge.link import LinkSpec
from dpfedge.pipeline.links import CHAIN, Drawn, chain, draw, joins, loops
from dpfedge.pipeline.section import NODE_KEYS
from dpfedge.pipeline.stage_record import StageRecord, Wiring
from dpfedge.records import dataclass
from dpfedge.stage.api import Mode
from dpfedge.stage.kinds import StageKind, find_kind
from dpfedge.stage.ports import Ports

if TYPE_CHECKING:
    from dpfedge.package import Package
    from dpfedge.stage.join import Sync

__all__ = ["ROUTES", "Budgets", "Graph", "StageNode", "configs_of"]

ROUTES: Mapping[Mode, tuple[str, ...]] = {
    Mode.TRANSCRIBE: ("decoder", "encoder"),
    Mode.CHAT: ("llm",),
    Mode.SPEAK: ("voice",),
    Mode.CONVERSE: CHAIN,
}


@dataclass(frozen=True, slots=True)
class StageNode:
    """One stage: its name, kind, the model it owns (empty: none), its settings, ports and links."""

    name: str
    kind: StageKind
    model: str
    config: Mapping[str, Any]
    ports: Ports
    wiring: Wiring = field(default_factory=Wiring)
    sync: Sync | None = None
    """How its inputs belong together; None: as they come."""
    budget_ns: int = 0
    """The longest one step of it should take; 0: not said."""
    hang_ns: int = 0
    """A step that takes longer has hung; 0: never."""

    def record(self) -> StageRecord:
        """What its process is told of it."""
        sync = None if self.sync is None else asdict(self.sync)
        return StageRecord(
            self.name, self.kind.name, self.model, self.config, self.wiring, sync, self.budget_ns, self.hang_ns
        )


@dataclass(frozen=True, slots=True)
class Budgets:
    """What a pipeline may take: nanoseconds of one request, seconds of a start, bytes of all links; 0 for not said."""

    request_ns: int = 0
    start_s: float = 0.0
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Graph:
    """Stages, each behind those it takes from, and the links between them."""

    stages: tuple[StageNode, ...]
    drawn: Drawn
    budgets: Budgets = Budgets()
    whole: bool = False
    """Its links are written down: a request may run through all of it (`Mode.RUN`)."""
    ladder: Any = None
    """The `ladder` section as it stands; `ladder.py` knows it."""

    @classmethod
    def of(
        cls,
        pipeline: Mapping[str, Any],
        where: str,
        models: Mapping[str, Mapping[str, Any]] | None = None,
        folder: Path | None = None,
    ) -> Graph:
        """The graph a `pipeline` section describes; ConfigError names what is wrong, of two ports both.

        `models`: name → config of the models there are; `folder`: where `module:Class` kinds are, for a pipeline file.
        """
        stages = pipeline.get("stages")
        if not isinstance(stages, Mapping) or not stages:
            raise ConfigError("the package has no pipeline", where=where, allowed="pipeline.stages with a stage in it")
        whole = "links" in pipeline
        if not whole and (unknown := sorted(set(stages) - set(CHAIN))):
            remedy = "draw a pipeline of other stages with links:"
            raise ConfigError(
                "unknown stage", where=f"{where}: pipeline.stages", found=unknown[0], allowed=CHAIN, remedy=remedy
            )
        reader = _Reader(pipeline, where, models or {}, folder)
        nodes = {name: reader.node(name, stages[name]) for name in (stages if whole else CHAIN) if name in stages}
        ports = {name: node.ports for name, node in nodes.items()}
        joined = joins(pipeline["links"], ports, where) if whole else chain(ports)
        order = loops(tuple(nodes), joined)
        drawn = draw({name: ports[name] for name in order}, joined, whole=whole)
        made = tuple(_wired(nodes[name], drawn, stages[name].get("sync"), where) for name in order)
        graph = cls(made, drawn, reader.budgets(), whole, pipeline.get("ladder"))
        graph._check_memory(where)
        return graph

    @classmethod
    def of_package(cls, package: Package) -> Graph:
        """The graph of a package's own `pipeline` section."""
        return cls.of(package.manifest.pipeline, str(package.path), configs_of(package))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the stages, first to last."""
        return tuple(node.name for node in self.stages)

    def node(self, name: str) -> StageNode:
        """The stage of that name."""
        return next(node for node in self.stages if node.name == name)

    def links(self) -> tuple[LinkSpec, ...]:
        """Every link: from the source, between stages, to the sink."""
        return self.drawn.links

    def route(self, mode: Mode) -> tuple[str, ...]:
        """The stages a request of this mode passes; ConfigError if the pipeline lacks one."""
        if mode is Mode.RUN:
            if not self.whole:
                remedy = "use converse, transcribe, chat or speak; or draw the graph with links:"
                raise ConfigError("this pipeline is no drawn graph", where="pipeline", remedy=remedy)
            return self.names
        kinds = {node.name: node.kind.name for node in self.stages}
        missing = [name for name in ROUTES[mode] if kinds.get(name) != name]
        if missing:
            raise ConfigError(
                f"this pipeline cannot {mode.name.lower()}", found=f"no {missing[0]} stage", allowed=self.names
            )
        return ROUTES[mode]

    def _check_memory(self, where: str) -> None:
        sizes = {link.name: link.slots * link.slot_bytes for link in self.links()}
        total, allowed = sum(sizes.values()), self.budgets.memory
        if allowed and total > allowed:
            largest = max(sizes, key=lambda name: sizes[name])
            raise ConfigError(
                "the links take more memory than the budget", where=f"{where}: pipeline.budgets.memory",
                found=f"{total} bytes, {sizes[largest]} of them link {largest}", allowed=f"{allowed} bytes",
                remedy="give links fewer slots, or smaller bounds to the ports",
            )  # fmt: skip


def configs_of(package: Package) -> dict[str, Mapping[str, Any]]:
    """Name → config of a package's models."""
    return {name: model.config for name, model in package.manifest.models.items()}


class _Reader:
    """Makes stages of their sections."""

    def __init__(
        self, pipeline: Mapping[str, Any], where: str, models: Mapping[str, Mapping[str, Any]], folder: Path | None
    ) -> None:
        self._pipeline, self._where, self._models, self._folder = pipeline, where, models, folder
        self._budgets = pipeline.get("budgets") or {}
        for name in self._budgets.get("stages") or {}:
            if name not in pipeline["stages"]:
                allowed = ", ".join(pipeline["stages"])
                raise ConfigError(
                    "no such stage", where=f"{where}: pipeline.budgets.stages", found=name, allowed=allowed
                )

    def node(self, name: str, data: Mapping[str, Any]) -> StageNode:
        where = f"{self._where}: pipeline.stages.{name}"
        kind = find_kind(str(data.get("kind", name)), where=where, folder=self._folder)
        model = data.get("model", "")
        if not isinstance(model, str) or (kind.needs_model and not model):
            raise ConfigError("the stage names no model", where=where, allowed="model: NAME")
        if model and self._folder is not None and model not in self._models:
            allowed = ", ".join(self._models) or "none: the file names no package"
            remedy = nearest(model, self._models) if self._models else "add package: FILE.dpfbin"
            raise ConfigError("no such model", where=where, found=model, allowed=allowed, remedy=remedy)
        config = {key: plain(value) for key, value in data.items() if key not in NODE_KEYS}
        budget = (self._budgets.get("stages") or {}).get(name)
        ports = kind.ports(config, self._models.get(model))
        hang_ns = self._ns(self._budgets.get("hang"), "hang")
        return StageNode(
            name, kind, model, config, ports, budget_ns=self._ns(budget, f"stages.{name}"), hang_ns=hang_ns
        )

    def budgets(self) -> Budgets:
        start, memory = self._budgets.get("start"), self._budgets.get("memory")
        taken = 0 if memory is None else self._some(size_bytes(memory), "memory")
        return Budgets(self._ns(self._budgets.get("request"), "request"), self._ns(start, "start") / 1e9, taken)

    def _ns(self, text: Any, key: str) -> int:
        return 0 if text is None else self._some(round(duration_ms(text) * 1e6), key)

    def _some(self, number: int, key: str) -> int:
        if number == 0:
            remedy = "leave it out where there is no limit"
            raise ConfigError("a budget of nothing", where=f"{self._where}: pipeline.budgets.{key}", remedy=remedy)
        return number


def _wired(node: StageNode, drawn: Drawn, sync: Mapping[str, Any] | None, where: str) -> StageNode:
    wiring = drawn.wiring[node.name]
    if sync is None:
        return replace(node, wiring=wiring)
    from dpfedge.pipeline.syncing import read_sync  # few pipelines have one

    slots = {link.name: link.slots for link in drawn.links}
    place = f"{where}: pipeline.stages.{node.name}"
    return replace(node, wiring=wiring, sync=read_sync(sync, node.kind, wiring.inputs, slots, place))
