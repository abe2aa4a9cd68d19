# SPDX-License-Identifier: Apache-2.0
"""A binding as text and as plain data: a `Bound` or a `BindError` in, lines for a person or a map for JSON out.

It decides nothing and prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from dpfedge.binding.bound import Bound, Refusal
from dpfedge.binding.whitelist import show
from dpfedge.errors import BindError

__all__ = ["describe_bound", "describe_error", "explain_bound", "explain_refusals", "refusal_maps"]


def describe_bound(bound: Bound) -> dict[str, Any]:
    """The decision as a map that JSON can hold."""
    return {
        "package": {"name": bound.package.manifest.name, "version": bound.package.manifest.version},
        "board": bound.board.id,
        "target": bound.target.id,
        "backend": {"name": bound.backend.name, "version": bound.backend.version, "abi": bound.backend.abi},
        "devices": {model: device.id for model, device in bound.devices.items()},
        "degraded": bound.degraded,
        "refusals": refusal_maps(bound.refusals),
    }


def refusal_maps(refusals: Sequence[object]) -> list[dict[str, Any]]:
    """Refusals as maps of target, field, wanted, found and remedy."""
    return [asdict(refusal) for refusal in refusals if isinstance(refusal, Refusal)]


def explain_bound(bound: Bound, *, explain: bool) -> Iterator[str]:
    """Lines that say what was chosen; with `explain` also the whitelist, the compiler's decisions and every refusal."""
    manifest, backend = bound.package.manifest, bound.backend
    yield f"package  {manifest.name} {manifest.version}"
    yield f"board    {bound.board.id} ({bound.board.title})"
    yield f"target   {bound.target.id}, backend {backend.name} {backend.version}"
    for device in {device.id: device for device in bound.devices.values()}.values():
        models = ", ".join(model for model, chosen in bound.devices.items() if chosen.id == device.id)
        yield f"device   {device.id} {device.arch}: {models}"
    if bound.degraded:
        yield f"degraded {bound.degraded}"
    if explain:
        yield f"accepts  {show(bound.target.whitelist)}"
        yield from (f"decided  {choice}: {rule}" for choice, rule in bound.target.decisions)
        yield from explain_refusals(bound.refusals)


def explain_refusals(refusals: Sequence[object]) -> Iterator[str]:
    """One line per refusal."""
    yield from (f"refused  {refusal}" for refusal in refusals)


def describe_error(error: BindError) -> dict[str, Any]:
    """A refused binding as a map that JSON can hold."""
    return {"error": error.what.partition("\n")[0], "refusals": refusal_maps(error.refusals)}
