# SPDX-License-Identifier: Apache-2.0
"""A binding as text and as plain data: a `Bound` or an error in, lines for a person or a map for JSON out.

It decides nothing and prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from dpfedge.backend.api import Device
from dpfedge.binding.bound import Bound, Refusal
from dpfedge.binding.whitelist import show
from dpfedge.errors import BindError, BoardError, DpfError
from dpfedge.package.manifest import Target

__all__ = ["compile_for", "describe_bound", "describe_error", "explain_bound", "refusal_lines", "refusal_maps"]


_FOREIGN = {"board": "another board", "class": "another kind of device"}
_COMPILED = (*_FOREIGN, "arch", "feature")
"""Fields of refusals whose remedy is the same: compiling for this board."""


def describe_bound(bound: Bound) -> dict[str, Any]:
    """The decision as a map that JSON can hold: everything `explain_bound` shows, and the numbers behind it."""
    return {
        "package": {"name": bound.package.manifest.name, "version": bound.package.manifest.version},
        "board": bound.board.id,
        "targets": [_target_map(bound, target) for target in bound.targets],
        "models": {
            model: {"target": place.target.id, "device": place.device.id, "degraded": place.degraded}
            for model, place in bound.places.items()
        },
        "hardware": [_device_map(device) for device in _distinct(bound)],
        "degraded": bound.degraded,
        "also": list(bound.also),
        "seal": None if bound.sidecar is None else str(bound.sidecar.package.path),
        "stale": [asdict(stale) for stale in bound.stale],
        "refusals": refusal_maps(bound.refusals),
    }


def _target_map(bound: Bound, target: Target) -> dict[str, Any]:
    backend = bound.backends[target.backend]
    return {
        "id": target.id,
        "backend": {"name": backend.name, "version": backend.version, "abi": backend.abi},
        "models": list(bound.held(target)),
        "whitelist": target.whitelist,
        "accepts": show(target.whitelist),
        "memory_bytes": target.memory_bytes,
        "decisions": [{"choice": choice, "rule": rule} for choice, rule in target.decisions],
    }


def _distinct(bound: Bound) -> list[Device]:
    return list({device.id: device for device in bound.devices.values()}.values())


def _device_map(device: Device) -> dict[str, Any]:
    return {
        "id": device.id, "kind": device.kind, "name": device.name, "arch": device.arch,
        "features": sorted(device.features), "memory_bytes": device.memory_bytes, "drivers": dict(device.drivers),
    }  # fmt: skip


def refusal_maps(refusals: Sequence[object]) -> list[dict[str, Any]]:
    """Refusals as maps of target, field, wanted, found and remedy."""
    return [asdict(refusal) for refusal in refusals if isinstance(refusal, Refusal)]


def describe_error(error: DpfError) -> dict[str, Any]:
    """What kept a package from being bound, as a map that JSON can hold; `refusals` is empty where none was made."""
    if isinstance(error, BindError):
        refusals = refusal_maps(error.refusals)
    elif isinstance(error, BoardError):
        parts = {"wanted": " and ".join(error.wanted) or None, "found": error.found, "remedy": error.remedy}
        refusals = [{"target": None, "field": "board", **parts}]
    else:
        refusals = []
    found, allowed = (None if part is None else str(part) for part in (error.found, error.allowed))
    return {
        "error": error.what.partition("\n")[0], "where": error.where, "found": found, "allowed": allowed,
        "remedy": error.remedy, "exit_code": error.exit_code, "refusals": refusals,
    }  # fmt: skip


def explain_bound(bound: Bound, *, explain: bool) -> Iterator[str]:
    """Lines that say what was chosen; with `explain` also the whitelist, the compiler's decisions and every refusal."""
    manifest = bound.package.manifest
    yield f"package  {manifest.name} {manifest.version}"
    yield f"board    {bound.board.id} ({bound.board.title})"
    for target in bound.targets:
        backend = bound.backends[target.backend]
        models = f": {', '.join(bound.held(target))}" if len(bound.targets) > 1 else ""
        yield f"target   {target.id}, backend {backend.name} {backend.version}{models}"
    for device in _distinct(bound):
        models = ", ".join(model for model, chosen in bound.devices.items() if chosen.id == device.id)
        yield f"device   {device.id} {device.arch}: {models}"
    if bound.degraded:
        yield f"degraded {bound.degraded}"
    if bound.sidecar:
        yield f"seal     {bound.sidecar.package.path}"
    yield from (f"stale    {stale}" for stale in bound.stale)
    if explain:
        for target in bound.targets:
            which = f"target {target.id}: " if len(bound.targets) > 1 else ""
            yield f"accepts  {which}{show(target.whitelist)}"
            yield from (f"decided  {choice}: {rule}" for choice, rule in _decisions(bound, target))
        yield from _prefix_lines(bound)
        yield from (f"also     target {target} would run here" for target in bound.also)
        yield from (f"refused  {line}" for line in refusal_lines(bound.refusals, remedies=False))


def _decisions(bound: Bound, target: Target) -> Iterator[tuple[str, str]]:
    """Those of a target that do not concern only models which run elsewhere; `llm, voice.encode: choice` names them."""
    elsewhere = set(target.models) - set(bound.held(target))
    for choice, rule in target.decisions:
        names, named, _ = choice.partition(": ")
        about = {name if name in target.models else name.rpartition(".")[0] for name in names.split(", ")}
        if not named or not about <= elsewhere:
            yield choice, rule


def _prefix_lines(bound: Bound) -> Iterator[str]:
    for name in bound.models:
        found = bound.model(name).prefix()
        if found.record is not None:
            yield f"prefix   {name}: {len(found.record.tokens)} tokens of the {found.source}"
        yield from (f"stale    {stale}" for stale in found.refused)


def refusal_lines(refusals: Sequence[Refusal], *, remedies: bool = True) -> Iterator[str]:
    """A line for each refusal, but one alone for a target of another board or device: nothing would make it fit here.

    With `remedies` a last line says once how a package gets a target for this board, unless it has one that only lacks
    software: then compiling would mend nothing.
    """
    compiling, has_one = "", any(refusal.field == "fallback" for refusal in refusals)
    for target, group in groupby(refusals, lambda refusal: refusal.target):
        items = list(group)
        foreign = [item for field in _FOREIGN for item in items if item.field == field][:1]
        for item in foreign or items:
            what = f"for {_FOREIGN[item.field]}" if foreign else item.field
            line = f"target {target}: {what}: wanted {item.wanted}; found {item.found}"
            if item.field in _COMPILED:
                compiling = item.remedy
                yield line
            else:
                yield f"{line}; {item.remedy}"
    if remedies and compiling and not has_one:
        yield f"for this board: {compiling}"


def compile_for(board: str) -> str:
    """What makes a target for a board."""
    return f"compile the package with --board {board}"
