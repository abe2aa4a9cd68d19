# SPDX-License-Identifier: Apache-2.0
"""Baked prefixes at compile time: a target's record and the package being written in, `prefix` records in it out.

Only a target that this very machine may run is baked: the numbers are those of its processor and libraries. For every
other target the decisions say that `dpfedge seal` bakes on the board. The injected function does the computing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from dpfedge.binding import Bound, Here, Refusal
from dpfedge.binding.bind import bind
from dpfedge.errors import BindError
from dpfedge.package import Package, PackageWriter
from dpfedge.package.layout import MAJOR, MINOR
from dpfedge.package.manifest import Manifest, Section, read_manifest
from dpfedge.package.prefix import Baked
from dpfedge.records import dataclass

__all__ = ["Bake", "bake_target"]

Bake = Callable[[Bound, Mapping[str, Any]], Mapping[str, Baked]]
"""A bound package and its pipeline in, model → prefix out."""


@dataclass(frozen=True, slots=True)
class _Draft:
    """A package that is still being written, with one target, as binding sees it."""

    path: str
    manifest: Manifest
    writer: PackageWriter

    def section(self, name: str) -> memoryview:
        return self.writer.section(name)

    def find(self, name: str) -> Section:
        return self.writer.find(name)


def bake_target(
    writer: PackageWriter,
    target: dict[str, Any],
    models: Mapping[str, Any],
    pipeline: Mapping[str, Any],
    here: Here,
    bake: Bake,
) -> None:
    """Add a `prefix` to each model of `target` that has one, and the decision either way."""
    draft = _draft(writer, target, models)
    try:
        bound = bind(cast(Package, draft), here.board, here.found)
    except BindError as error:
        first = next((refusal for refusal in error.refusals if isinstance(refusal, Refusal)), None)
        why = error.what if first is None else f"{first.field}: wanted {first.wanted}; found {first.found}"
        target["decisions"].append(["prefix=left to dpfedge seal", f"this machine cannot run the target: {why}"])
        return
    for model, baked in bake(bound, pipeline).items():
        section = writer.add(f"prefix.{target['id']}.{model}", "prefix", baked.data)
        target["models"][model]["prefix"] = baked.record(section.name).to_map()
        choice = f"{model}: prefix={len(baked.tokens)} tokens, {section.size} bytes"
        target["decisions"].append([choice, "this machine may run the target, so its keys and values are the target's"])


def _draft(writer: PackageWriter, target: Mapping[str, Any], models: Mapping[str, Any]) -> _Draft:
    record = {
        "format": [MAJOR, MINOR],
        "name": writer.name,
        "version": writer.version,
        "sections": [section.to_map() for section in writer.sections],
        "models": {name: models[name] for name in target["models"]},
        "targets": [dict(target)],
    }
    return _Draft(str(writer.path), read_manifest(record, "draft"), writer)
