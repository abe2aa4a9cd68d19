# SPDX-License-Identifier: Apache-2.0
"""The seal of a bound package: the sidecar beside it in, the same binding with what fits, or with each difference, out.

A seal that does not fit is never used and never built anew here: the package runs without it, and says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from dpfedge.backend.api import Identity, Seals, sealing
from dpfedge.binding.bound import Bound
from dpfedge.binding.sidecar import Sidecar
from dpfedge.binding.stale import REMEDY, Stale, differences
from dpfedge.errors import PackageError, SignatureError, Unsupported
from dpfedge.package import Package
from dpfedge.package.manifest import Target
from dpfedge.package.sidecar import SealRecord, sidecar_of

__all__ = ["attach_seal", "seal_record"]

Vouch = Callable[[Package], object]
"""Raises SignatureError for a container nobody trusted has signed."""
_SIGN = "run `dpfedge seal --key KEY` with a key that is trusted here"


def attach_seal(bound: Bound, *, check: Literal["fast", "full"] = "fast", vouch: Vouch | None = None) -> Bound:
    """`bound` with the sidecar beside its package, if there is one and it fits; otherwise with why it does not."""
    path = sidecar_of(bound.package.path)
    if not os.path.lexists(path):
        return bound
    what = f"seal {path.name}"
    if not _sealing(bound):
        names = ", ".join(bound.backends)
        return replace(bound, stale=(Stale(what, "backend", "one that seals", names, "remove the seal"),))
    try:
        sidecar = Sidecar.open(path)
        if vouch is not None:
            vouch(sidecar.package)
        if check == "full":
            sidecar.check(_unchecked(bound))
    except PackageError as error:
        again = _SIGN if isinstance(error, SignatureError) else REMEDY
        return replace(bound, stale=(Stale(what, "file", "a sidecar that can be trusted", str(error), again),))
    wanted, found = _facts(sidecar.record), _facts(seal_record(bound))
    if wanted["package"] != found["package"]:  # whatever else differs says nothing about another package's sidecar
        wanted, found = ({"package": facts["package"]} for facts in (wanted, found))
    stale = tuple(differences(what, wanted, found))
    if stale:
        sidecar.close()
        return replace(bound, stale=stale)
    return replace(bound, sidecar=sidecar)


def seal_record(bound: Bound) -> SealRecord:
    """What a sidecar of this package must be built for here; Unsupported when no backend of it seals anything.

    Of several targets the first that has a model here gives `target`, `backend` and `driver`; facts of the others
    follow as `target2/…` among those of the device and the libraries.
    """
    if not _sealing(bound):
        raise Unsupported("the backend seals nothing", where=f"backend {', '.join(bound.backends)}")
    first, *others = [_identity(bound, target) for target in bound.targets]
    device, libraries = dict(first.device), dict(first.libraries)
    for number, (target, identity) in enumerate(zip(bound.targets[1:], others, strict=True), 2):
        own = {"target": target.id, "backend": target.backend, "driver": identity.driver or "none", **identity.device}
        device |= {f"target{number}/{name}": text for name, text in own.items()}
        libraries |= {f"target{number}/{name}": text for name, text in identity.libraries.items()}
    return SealRecord(
        package=bound.package.manifest_sha256,
        target=bound.targets[0].id,
        backend=bound.targets[0].backend,
        device=device,
        driver=first.driver,
        libraries=libraries,
    )


def _sealing(bound: Bound) -> dict[str, Seals]:
    """Backends of the package that seal something here, by name."""
    found = {name: sealing(backend) for name, backend in bound.backends.items()}
    return {name: seals for name, seals in found.items() if seals is not None}


def _identity(bound: Bound, target: Target) -> Identity:
    """What a target's artefacts are bound to; of a backend that seals nothing, its version."""
    place = next(place for place in bound.places.values() if place.target.id == target.id)
    seals = sealing(place.backend)
    if seals is None:
        return Identity({"kind": place.device.kind}, {f"dpfedge-{place.backend.name}": place.backend.version})
    return seals.identity(place.device)


def _unchecked(bound: Bound) -> frozenset[str]:
    """Models whose backend compares every byte of a seal that it uses."""
    trusted = {name for name, seals in _sealing(bound).items() if seals.compares_sealed}
    return frozenset(model for model, place in bound.places.items() if place.backend.name in trusted)


def _facts(record: SealRecord) -> dict[str, str]:
    facts = {"package": record.package.hex()[:16], "target": record.target, "backend": record.backend}
    facts |= {f"device/{name}": value for name, value in record.device.items()}
    facts |= {f"library/{name}": value for name, value in record.libraries.items()}
    return facts | ({"driver": record.driver} if record.driver else {})
