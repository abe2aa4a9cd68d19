# SPDX-License-Identifier: Apache-2.0
"""Binding: a package, a board and devices go in; one target on one device, and why not the others, come out.

`bind` is a pure function: it reads no file, touches no section of the package and loads no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpfedge.backend.api import Device
from dpfedge.binding.bound import Bound, Refusal
from dpfedge.binding.devices import Found
from dpfedge.binding.whitelist import Facts, evaluate, gib
from dpfedge.errors import BindError
from dpfedge.hardware.board import Board, BoardDevice
from dpfedge.package.manifest import Target
from dpfedge.package.reader import Package

__all__ = ["bind"]


def bind(package: Package, board: Board, found: Found, *, allow_fallback: Sequence[str] = ()) -> Bound:
    """Choose the first target of the package, in its order, that a device here may run.

    When the board has the hardware of an earlier target but software for it is missing, a target of another backend is
    taken only if `allow_fallback` names that backend. BindError carries every refusal in `refusals`.
    """
    refusals: list[Refusal] = []
    blocked: Refusal | None = None
    for target in package.manifest.targets:
        device, reasons = _judge(target, board, found)
        refusals += reasons
        if device is None:
            blocked = blocked or _missing_software(target, board, reasons)
        elif blocked is None or target.backend in allow_fallback:
            devices = dict.fromkeys(target.models, device)
            reason = f"{target.backend} instead of: {blocked}" if blocked else None
            return Bound(package, board, target, found.backends[target.backend], devices, tuple(refusals), reason)
        else:
            remedy = f"see {blocked.target}, or accept less with --allow-fallback {target.backend}"
            refusals.append(Refusal(target.id, "fallback", f"what runs {blocked.target}", target.backend, remedy))
    raise _no_target(package, board, refusals)


def _judge(target: Target, board: Board, found: Found) -> tuple[Device | None, list[Refusal]]:
    """The device for a target, or the refusals of the device that comes closest."""
    if missing := _backend_missing(target, found):
        return None, [missing]
    candidates = [device for device in found.devices if device.backend == target.backend]
    closest: list[Refusal] = []
    for device in candidates:
        refusals = list(_device_refusals(target, _facts(board, device), device.id))
        if not refusals:
            return device, []
        if not closest or len(refusals) < len(closest):
            closest = refusals
    return None, closest or [_no_device(target, found)]


def _backend_missing(target: Target, found: Found) -> Refusal | None:
    distribution = f"dpfedge-{target.backend}"
    backend = found.backends.get(target.backend)
    if backend is None:
        reason = next((f"; {name} is broken: {why}" for name, why in found.broken.items() if distribution in name), "")
        installed = ", ".join(found.backends) or "none"
        return Refusal(target.id, "backend", target.backend, f"{installed}{reason}", f"pip install {distribution}")
    if backend.abi == target.backend_abi:
        return None
    if backend.abi < target.backend_abi:
        remedy = f"pip install --upgrade {distribution} (version {backend.version} is too old)"
    else:
        remedy = f"recompile the package ({distribution} {backend.version} is newer than it)"
    return Refusal(target.id, "backend_abi", f"{target.backend} ABI {target.backend_abi}", f"ABI {backend.abi}", remedy)


def _no_device(target: Target, found: Found) -> Refusal:
    why = found.broken.get(target.backend)
    seen = why or ", ".join(device.id for device in found.devices) or "none"
    return Refusal(target.id, "device", f"a device of backend {target.backend}", seen, "see `dpfedge probe`")


def _device_refusals(target: Target, facts: Facts, device: str) -> Iterator[Refusal]:
    for term in evaluate(target.whitelist, facts):
        remedy = f"recompile the package with --board {facts.board}"
        yield Refusal(target.id, term.field, term.wanted, f"{term.found} ({device})", remedy)
    if facts.memory_bytes < target.memory_bytes:
        found = f"{gib(facts.memory_bytes)} ({device})"
        remedy = "free memory, raise the cgroup's limit, or compile smaller models"
        yield Refusal(target.id, "memory_bytes", f"at least {gib(target.memory_bytes)}", found, remedy)


def _facts(board: Board, device: Device) -> Facts:
    return Facts(board.id, device.kind, device.arch, device.features, device.memory_bytes)


def _missing_software(target: Target, board: Board, reasons: Sequence[Refusal]) -> Refusal | None:
    """The refusal, when the board's own devices could run the target and only a plugin is missing."""
    software = next((reason for reason in reasons if reason.field in ("backend", "backend_abi", "device")), None)
    if software is None:
        return None
    devices = [device for device in board.devices if target.backend in device.backends]
    return software if any(not evaluate(target.whitelist, _documented(board, device)) for device in devices) else None


def _documented(board: Board, device: BoardDevice) -> Facts:
    memory = device.memory_bytes or board.memory_bytes or 0
    return Facts(board.id, device.kind, device.arch or "unknown", device.features, memory)


def _no_target(package: Package, board: Board, refusals: Sequence[Refusal]) -> BindError:
    lines = "".join(f"\n  {refusal}" for refusal in refusals) or "\n  the package has no targets"
    what = f"no target runs on board {board.id}{lines}"
    return BindError(what, where=str(package.path), refusals=tuple(refusals))
