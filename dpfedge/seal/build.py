# SPDX-License-Identifier: Apache-2.0
"""Sealing: a bound package in, the sidecar of what only this device can build out, under its name only when complete.

What is built is the backend's affair (packed weights, device code) and the stages' (baked prefixes); where it fits is
judged by `dpfedge.binding.seal`. The package itself is only read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dpfedge import __version__
from dpfedge.backend.api import Budget, sealing
from dpfedge.binding import Bound
from dpfedge.binding.golden import golden_inputs
from dpfedge.binding.seal import seal_record
from dpfedge.package import PackageWriter
from dpfedge.package.files import temporary_beside
from dpfedge.package.prefix import BakedPrefix
from dpfedge.package.sidecar import Built
from dpfedge.records import dataclass
from dpfedge.seal.bake import bake_prefixes, openings

if TYPE_CHECKING:
    from dpfedge.signing import PrivateKey

__all__ = ["Progress", "Sealed", "build_seal"]

Progress = Callable[[str, float], None]
"""Called with what is being done now and the share of the work that is done, 0 to 1."""
_PREFIX_WORK = 0.5
"""Computing an opening beside packing the same model's weights, roughly."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """What a sidecar holds."""

    path: Path
    nbytes: int
    built: tuple[Built, ...]
    prefixes: tuple[str, ...]
    """Models whose opening is baked in it."""


@dataclass(frozen=True, slots=True)
class _Step:
    text: str
    work: float
    model: str
    graph: str | None
    """None: the model's opening."""


def build_seal(
    bound: Bound, out: Path, *, keys: Sequence[PrivateKey] = (), progress: Progress = lambda text, done: None
) -> Sealed | None:
    """Build the sidecar of `bound` as `out`, signed by `keys`; None (and no file) when there is nothing to build.

    Unsupported when no backend of it seals anything. The file at `out` is the old one or the new one at any moment.
    """
    record = seal_record(bound)  # first: backends that seal nothing are refused before any work
    unsigned = temporary_beside(out) if keys else out
    manifest = bound.package.manifest
    built: list[Built] = []
    prefixes: dict[str, BakedPrefix] = {}
    with PackageWriter(unsigned, name=manifest.name, version=manifest.version) as writer:
        for step in _with_progress(_steps(bound), progress):
            if step.graph is not None:
                built += _build(writer, bound, step.model, step.graph)
            else:
                prefixes |= _bake(writer, bound, step.model)
        if not built and not prefixes:
            return None
        seal = replace(record, built=tuple(built), prefixes=prefixes)
        writer.finish({"compiler": {"name": "dpfedge seal", "version": __version__}, "seal": seal.to_map()})
    progress("sign", 1.0)
    if keys:
        _sign(unsigned, keys, out)
    return Sealed(out, out.stat().st_size, tuple(built), tuple(prefixes))


def _steps(bound: Bound) -> Iterator[_Step]:
    package = bound.package
    for model, place in bound.places.items():
        compiled = place.target.models[model]
        for name, graph in compiled.graphs.items():
            size = sum(package.find(section).size for section in graph.weights)
            yield _Step(f"{model}: {name}", float(size), model, name)
        if model in openings(package.manifest.pipeline):
            size = sum(package.find(name).size for graph in compiled.graphs.values() for name in graph.weights)
            yield _Step(f"{model}: opening", _PREFIX_WORK * size, model, None)


def _with_progress(steps: Iterator[_Step], progress: Progress) -> Iterator[_Step]:
    plan, done = list(steps), 0.0
    total = sum(step.work for step in plan) or 1.0
    for step in plan:
        progress(step.text, done / total)
        yield step
        done += step.work


def _build(writer: PackageWriter, bound: Bound, model: str, graph: str) -> Iterator[Built]:
    seals, bound_model = sealing(bound.places[model].backend), bound.model(model)
    if seals is None:
        return
    view = replace(bound_model.graph(graph), samples=golden_inputs(bound, model, graph))
    found = seals.seal(view, bound_model.device, Budget(threads=1))
    for name, data in sorted((found or {}).items()):
        section = writer.add(f"sealed.{model}.{graph}.{name}", "sealed", data)
        yield Built(model, graph, name, section.name)


def _bake(writer: PackageWriter, bound: Bound, model: str) -> dict[str, BakedPrefix]:
    found = {}
    for name, baked in bake_prefixes(bound, bound.package.manifest.pipeline).items():
        if name == model:
            found[name] = baked.record(writer.add(f"prefix.{name}", "prefix", baked.data).name)
    return found


def _sign(unsigned: Path, keys: Sequence[PrivateKey], out: Path) -> None:
    from dpfedge.signing import sign_package  # with `cryptography`, which an unsigned seal does not need

    try:
        sign_package(unsigned, keys, out)
    finally:
        unsigned.unlink(missing_ok=True)
