# SPDX-License-Identifier: Apache-2.0
"""Binding: a package, a board and devices go in; for each model one target on one device, and why not others, come out.

`bind` is a pure function: it reads no file, touches no section of the package and loads no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpfedge.backend.api import ABI, Device
from dpfedge.binding.bound import Bound, ModelPlace, Refusal
from dpfedge.binding.devices import Found
from dpfedge.binding.explain import compile_for, refusal_lines
from dpfedge.binding.whitelist import Facts, evaluate, for_board, gib
from dpfedge.errors import BindError, UsageError
from dpfedge.hardware.board import Board, BoardDevice
from dpfedge.package.manifest import Target
from dpfedge.package.reader import Package
from dpfedge.records import dataclass

__all__ = ["bind"]


def bind(package: Package, board: Board, found: Found, *, allow_fallback: Sequence[str] = ()) -> Bound:
    """Choose for each model the first target, in the package's order, that has it and that a device here may run.

    Every target is judged. When the board has the hardware of an earlier target of a model but software for it is
    missing, a target of another backend is taken for it only if `allow_fallback` names that backend. BindError names
    the models that no target runs here and carries every refusal in `refusals`; UsageError names a fallback that the
    package has no target for.
    """
    _check_fallbacks(package, allow_fallback)
    judged = [_judged(target, board, found) for target in package.manifest.targets]
    places = {model: _place(model, judged, found, allow_fallback) for model in package.manifest.models}
    refusals = tuple(refusal for one in judged for refusal in one.refusals)
    placed = {model: place for model, place in places.items() if place is not None}
    if len(placed) < len(places) or all(one.device is None for one in judged):
        raise _no_target(package, board, judged, [model for model in places if model not in placed])
    used = {place.target.id for place in placed.values()}
    also = tuple(one.target.id for one in judged if one.device is not None and one.target.id not in used)
    return Bound(package, board, placed, refusals, also)


@dataclass(slots=True)
class _Judged:
    """A target and the device that may run it, or why none may."""

    target: Target
    device: Device | None
    refusals: list[Refusal]
    blocked: Refusal | None
    """The refusal, when only software is missing."""


def _judged(target: Target, board: Board, found: Found) -> _Judged:
    device, reasons = _judge(target, board, found)
    return _Judged(target, device, reasons, None if device else _missing_software(target, board, found, reasons))


def _place(model: str, judged: Sequence[_Judged], found: Found, allowed: Sequence[str]) -> ModelPlace | None:
    """The first target of a model that runs here; one behind a target that lacks software only if it is allowed."""
    blocked, backend = None, ""
    for one in judged:
        target = one.target
        if model not in target.models:
            continue
        if one.device is None:
            if blocked is None and one.blocked is not None:
                blocked, backend = one.blocked, target.backend
        elif blocked is None or target.backend in (backend, *allowed):
            degraded = f"{target.backend} instead of: {blocked}" if blocked and target.backend != backend else None
            return ModelPlace(target, found.backends[target.backend], one.device, degraded)
        else:
            remedy = f"see {blocked.target}, or accept less with --allow-fallback {target.backend}"
            refusal = Refusal(target.id, "fallback", f"what runs {blocked.target}", target.backend, remedy)
            one.refusals += [] if refusal in one.refusals else [refusal]
    return None


def _check_fallbacks(package: Package, allowed: Sequence[str]) -> None:
    backends = dict.fromkeys(target.backend for target in package.manifest.targets)
    for name in allowed:
        if name not in backends:
            raise UsageError(
                "no target of the package is for this backend", where="--allow-fallback", found=name,
                allowed=", ".join(backends),
            )  # fmt: skip


def _judge(target: Target, board: Board, found: Found) -> tuple[Device | None, list[Refusal]]:
    """The device for a target, or the refusals of the device that comes closest."""
    if missing := _backend_missing(target, found):
        return None, [missing]
    closest: list[Refusal] = []
    for device in found.devices:
        if device.backend != target.backend:
            continue
        refusals = list(_device_refusals(target, _facts(board, device), device.id))
        if not refusals:
            return device, []
        if not closest or len(refusals) < len(closest):
            closest = refusals
    if not closest and not for_board(target.whitelist, board.id):  # nobody asked its backend for devices
        return None, list(_device_refusals(target, Facts(board.id, "", "", frozenset(), 0), "none"))[:1]
    return None, closest or [_no_device(target, found)]


def _backend_missing(target: Target, found: Found) -> Refusal | None:
    backend = found.backends.get(target.backend)
    if backend is None:
        return _not_installed(target, found)
    if backend.abi == target.backend_abi:
        return None
    distribution = found.distribution(target.backend)
    if backend.abi < target.backend_abi:
        newer = f"dpfedge '{distribution}>{backend.version}'"
        remedy = f"pip install --upgrade {newer} ({distribution} {backend.version} is too old for the package)"
    else:
        remedy = (
            f"compile the package again, or pip install dpfedge '{distribution}<{backend.version}' of the time it was "
            f"made ({distribution} {backend.version} is too new for it)"
        )
    return _other_contract(target, backend.abi, f"{distribution} {backend.version}", remedy)


def _not_installed(target: Target, found: Found) -> Refusal:
    if (misfit := found.misfits.get(target.backend)) is not None and misfit.abi is not None:
        return _other_contract(target, misfit.abi, misfit.plugin, misfit.remedy)
    distribution = f"dpfedge-{target.backend}"
    installed, remedy = ", ".join(found.backends) or "none", f"pip install {distribution}"
    if target.backend_abi > ABI:
        remedy = f"pip install --upgrade dpfedge {distribution} (the package is of a newer dpfedge)"
    elif target.backend_abi < ABI:
        remedy = f"compile the package again and pip install {distribution} (the package is of an older dpfedge)"
    for plugin, why in found.broken.items():
        name = plugin.partition(" ")[0]
        if target.backend in name.replace("_", "-").split("-"):  # dpfedge-cuda, acme-cuda
            installed, remedy = f"{installed}; {plugin} is broken: {why}", f"pip install --force-reinstall {name}"
    return Refusal(target.id, "backend", target.backend, installed, remedy)


def _other_contract(target: Target, abi: int, plugin: str, remedy: str) -> Refusal:
    wanted = f"{target.backend} contract {target.backend_abi}"
    return Refusal(target.id, "backend_abi", wanted, f"contract {abi} ({plugin})", remedy)


def _no_device(target: Target, found: Found) -> Refusal:
    why = found.broken.get(target.backend)
    seen = why or ", ".join(device.id for device in found.devices) or "none"
    return Refusal(target.id, "device", f"a device of backend {target.backend}", seen, "see `dpfedge probe`")


_MEMORY = "free memory, raise the cgroup's limit, or compile smaller models"
_DRIVER = "install a version of the driver that is within these bounds, or compile the package for the one that is here"


def _device_refusals(target: Target, facts: Facts, device: str) -> Iterator[Refusal]:
    remedies = {"memory": _MEMORY, "driver": _DRIVER}
    for term in evaluate(target.whitelist, facts):
        found = term.found if term.field == "board" else f"{term.found} ({device})"
        yield Refusal(target.id, term.field, term.wanted, found, remedies.get(term.field) or compile_for(facts.board))
    if facts.memory_bytes < target.memory_bytes:
        found = f"{gib(facts.memory_bytes)} ({device})"
        yield Refusal(target.id, "memory_bytes", f"at least {gib(target.memory_bytes)}", found, _MEMORY)


def _facts(board: Board, device: Device) -> Facts:
    return Facts(board.id, device.kind, device.arch, device.features, device.memory_bytes, device.drivers)


def _missing_software(target: Target, board: Board, found: Found, reasons: Sequence[Refusal]) -> Refusal | None:
    """The refusal, when the board's own devices could run the target and only a plugin, or its driver, is missing."""
    software = next((reason for reason in reasons if reason.field in ("backend", "backend_abi", "device")), None)
    if reasons and all(reason.field == "driver" for reason in reasons):
        software = reasons[0]
    if software is None:
        return None
    devices = [device for device in board.devices if target.backend in device.backends]
    return software if any(_documented_fit(target, board, found, device) for device in devices) else None


def _documented_fit(target: Target, board: Board, found: Found, device: BoardDevice) -> bool:
    # a driver comes with the software that is missing, so nobody knows yet whether its version will do
    return all(term.field == "driver" for term in evaluate(target.whitelist, _documented(board, found, device)))


def _documented(board: Board, found: Found, device: BoardDevice) -> Facts:
    own = next((own for own in found.devices if own.kind.startswith("cpu.")), None)
    if device.kind == "cpu" and own is not None:  # a CPU of whatever kind is found
        return _facts(board, own)
    memory = device.memory_bytes or board.memory_bytes or 0
    return Facts(board.id, device.kind, device.arch or "unknown", device.features, memory)


def _no_target(package: Package, board: Board, judged: Sequence[_Judged], models: Sequence[str]) -> BindError:
    asked = [one for one in judged if not models or any(model in one.target.models for model in models)]
    lines = list(refusal_lines([refusal for one in asked for refusal in one.refusals]))
    some = 0 < len(models) < len(package.manifest.models)
    what = f"no target runs {', '.join(models)}" if some or (models and not lines) else "no target runs"
    nothing = "the package has no targets" if not judged else "none of its targets has the model"
    refusals = tuple(refusal for one in judged for refusal in one.refusals)
    text = "\n  ".join([f"{what} on board {board.id}", *(lines or [nothing])])
    return BindError(text, where=str(package.path), refusals=refusals)
