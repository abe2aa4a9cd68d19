# SPDX-License-Identifier: Apache-2.0
"""What a start needs of a pipeline, in one record: a bound package, or a pipeline file on this machine, in.

It starts nothing. A pipeline file is code's companion: its stages may be classes beside it, so it is trusted as code
is; the package it names is checked as any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfedge.config import check
from dpfedge.pipeline.graph import Graph, configs_of
from dpfedge.pipeline.section import FILE_SCHEMA, check_pipeline
from dpfedge.records import dataclass

if TYPE_CHECKING:
    from dpfedge.backend.api import Device
    from dpfedge.binding import Bound
    from dpfedge.hardware.board import Board
    from dpfedge.package import Package

__all__ = ["PipelineFile", "Plan"]


@dataclass(frozen=True, slots=True)
class PipelineFile:
    """A checked pipeline file. `package`: the one its stages' models are in, None when they have none."""

    path: Path
    name: str
    package: Path | None
    section: Mapping[str, Any]

    @classmethod
    def load(cls, path: Path) -> PipelineFile:
        """Read and check `path`; ConfigError names file, line and the nearest known word."""
        from dpfedge.config import load_yaml  # with the YAML reader, which a package's own pipeline needs not

        data = load_yaml(path)
        check(data, FILE_SCHEMA, path)
        check_pipeline(data["pipeline"], str(path), path.parent)
        package = data.get("package")
        return cls(path, data["name"], None if package is None else path.parent / package, data["pipeline"])

    @property
    def folder(self) -> Path:
        """Where its stages' modules are."""
        return self.path.resolve().parent

    def graph(self, package: Package | None) -> Graph:
        """The graph, with the models of `package`; ConfigError names what does not fit."""
        return Graph.of(self.section, str(self.path), {} if package is None else configs_of(package), self.folder)


@dataclass(frozen=True, slots=True)
class Plan:
    """A graph, where it runs, and what its stages' processes are told of it."""

    name: str
    graph: Graph
    board: Board
    section: Mapping[str, Any]
    bound: Bound | None = None
    folder: Path | None = None

    @classmethod
    def of_package(cls, bound: Bound) -> Plan:
        """A package's own pipeline."""
        manifest = bound.package.manifest
        return cls(manifest.name, Graph.of_package(bound.package), bound.board, manifest.pipeline, bound)

    @classmethod
    def of_file(cls, file: PipelineFile, board: Board, bound: Bound | None) -> Plan:
        """A pipeline file with the models of `bound`; ConfigError names what does not fit."""
        graph = file.graph(None if bound is None else bound.package)
        return cls(file.name, graph, board, file.section, bound, file.folder)

    def setup(self) -> dict[str, Any]:
        """What the stages' parent is told."""
        setup = {"folder": None if self.folder is None else str(self.folder)}
        if self.bound is None:
            return setup
        package = self.bound.package
        chosen, digest = self.bound.chosen.record(), package.manifest_sha256.hex()
        return {**setup, "chosen": chosen, "path": str(package.path), "manifest": digest}

    def files(self) -> list[int]:
        """Descriptors of the package and its sidecar; they stay theirs."""
        if self.bound is None:
            return []
        seal = self.bound.sidecar
        return [self.bound.package.fileno(), *([] if seal is None else [seal.package.fileno()])]

    def devices(self) -> dict[str, Device]:
        """Stage → the device of its model, for the stages that have one; the heaviest of them first."""
        if self.bound is None:
            return {}
        models = {node.name: node.model for node in self.graph.stages}
        return {name: self.bound.devices[models[name]] for name in self.heaviest_first()}

    def placed(self) -> dict[str, dict[str, str | None]]:
        """Stage → `target`, `backend` and `device` of its model, and why it is `degraded`, for stages with a model."""
        if self.bound is None:
            return {}
        found, models = {}, {node.name: node.model for node in self.graph.stages}
        for name in self.heaviest_first():
            place = self.bound.places[models[name]]
            found[name] = {
                "target": place.target.id, "backend": place.backend.name, "device": place.device.id,
                "degraded": place.degraded,
            }  # fmt: skip
        return found

    def heaviest_first(self) -> list[str]:
        """Stages by the size of their weights: the one that takes longest to load begins first."""
        if self.bound is None:
            return []
        package, places = self.bound.package, self.bound.places

        def weight(model: str) -> int:
            graphs = places[model].target.models[model].graphs
            return sum(package.find(name).size for name in {name for one in graphs.values() for name in one.weights})

        nodes = [node for node in self.graph.stages if node.model in places]
        return [node.name for node in sorted(nodes, key=lambda node: weight(node.model), reverse=True)]
