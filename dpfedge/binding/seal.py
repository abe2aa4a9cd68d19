# SPDX-License-Identifier: Apache-2.0
"""The seal of a bound package: the sidecar beside it in, the same binding with what fits, or with each difference, out.

A seal that does not fit is never used and never built anew here: the package runs without it, and says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from dpfedge.backend.api import Device, sealing
from dpfedge.binding.bound import Bound
from dpfedge.binding.sidecar import Sidecar
from dpfedge.binding.stale import REMEDY, Stale, differences
from dpfedge.errors import PackageError, SignatureError, Unsupported
from dpfedge.package import Package
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
    seals = sealing(bound.backend)
    if seals is None:
        return replace(bound, stale=(Stale(what, "backend", "one that seals", bound.backend.name, "remove the seal"),))
    try:
        sidecar = Sidecar.open(path)
        if vouch is not None:
            vouch(sidecar.package)
        if check == "full":
            sidecar.check(sealed=not seals.compares_sealed)
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
    """What a sidecar of this package must be built for here; Unsupported when the backend seals nothing."""
    seals = sealing(bound.backend)
    if seals is None:
        raise Unsupported("the backend seals nothing", where=f"backend {bound.backend.name}")
    identity = seals.identity(_device(bound))
    return SealRecord(
        package=bound.package.manifest_sha256,
        target=bound.target.id,
        backend=bound.backend.name,
        device=identity.device,
        driver=identity.driver,
        libraries=identity.libraries,
    )


def _device(bound: Bound) -> Device:
    return next(iter(bound.devices.values()))


def _facts(record: SealRecord) -> dict[str, str]:
    facts = {"package": record.package.hex()[:16], "target": record.target, "backend": record.backend}
    facts |= {f"device/{name}": value for name, value in record.device.items()}
    facts |= {f"library/{name}": value for name, value in record.libraries.items()}
    return facts | ({"driver": record.driver} if record.driver else {})
