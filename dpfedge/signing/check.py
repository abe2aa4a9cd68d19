# SPDX-License-Identifier: Apache-2.0
"""Checks who signed a package: an opened package and a `Trust` in, what became of each signature, or the signer, out.

One trusted signature suffices: supplier, integrator and OEM may each have signed, and a car trusts one of them. A wrong
signature of a trusted key is refused all the same: nobody makes one honestly, so the file is not what that party made.
It reads manifest and signature area only; that sections are what the manifest says is for `open_package(check="full")`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import Literal

from dpfedge.errors import DigestError, SignatureError
from dpfedge.package import Package
from dpfedge.package.layout import MINOR
from dpfedge.records import dataclass
from dpfedge.signing.area import Signature, message, read_area
from dpfedge.signing.trust import Trust

__all__ = ["Finding", "Signer", "State", "examine", "require_signature", "signatures_of"]

State = Literal["trusted", "unknown", "revoked", "wrong"]


@dataclass(frozen=True, slots=True)
class Signer:
    """Who vouches for a package."""

    key_id: str
    """32 hexadecimal digits."""
    name: str
    """As the trust directory calls the key."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one signature."""

    key_id: str
    name: str
    """Empty for a key that no trust directory holds."""
    state: State

    def __str__(self) -> str:
        return f"{self.name} ({self.key_id})" if self.name else self.key_id


def signatures_of(package: Package) -> tuple[Signature, ...]:
    """The signatures in the package's area, none of them checked; FormatError when the area is malformed."""
    newer = package.manifest.format[1] > MINOR
    return read_area(package.signature(), f"{package.path}: signature area", newer=newer)


def examine(package: Package, trust: Trust) -> tuple[Finding, ...]:
    """Check each signature; in the order of key ids.

    FormatError when the area is malformed, DigestError when the file is not what it was when it was opened.
    """
    manifest = package.manifest_bytes()
    if hashlib.sha256(manifest).digest() != package.manifest_sha256:
        # what was read then is what will be used, so that is what must have been signed
        remedy = "never write into a package: put a new file in its place"
        raise DigestError("the manifest changed while the package was open", where=str(package.path), remedy=remedy)
    return tuple(_examine(signature, manifest, trust) for signature in signatures_of(package))


def _examine(signature: Signature, manifest: bytes, trust: Trust) -> Finding:
    trusted = trust.keys.get(signature.key_id)
    name, key_id = trusted.name if trusted else "", signature.key_id.hex()
    if signature.key_id in trust.revoked_keys:
        return Finding(key_id, name, "revoked")
    if trusted is None:
        return Finding(key_id, name, "unknown")
    right = trusted.key.verify(signature.value, message(signature.key_id, manifest))
    return Finding(key_id, name, "trusted" if right else "wrong")


def require_signature(package: Package, trust: Trust) -> Signer:
    """The first trusted signer; SignatureError when there is none, a signature is wrong, or the package was revoked."""
    where = os.fspath(package.path)
    trust.refuse_revoked(where, package.manifest_sha256)
    findings = examine(package, trust)
    if not findings:
        remedy = f"sign it with a key that is trusted here: dpfedge sign {where} --key KEY; or take --allow-unsigned"
        raise SignatureError("the package is not signed", where=where, remedy=remedy)
    by_state = {state: [one for one in findings if one.state == state] for state in ("wrong", "trusted", "revoked")}
    if wrong := by_state["wrong"]:
        raise SignatureError(
            "wrong signature: the manifest is not what this key signed", where=where, found=_names(wrong),
            remedy="get the package again from who signed it",
        )  # fmt: skip
    if trusted := by_state["trusted"]:
        return Signer(trusted[0].key_id, trusted[0].name)
    if revoked := by_state["revoked"]:
        places = sorted({trust.revoked_keys[bytes.fromhex(one.key_id)] for one in revoked})
        raise SignatureError(
            "the key that signed the package was revoked", where=where, found=f"key {_names(revoked)}",
            allowed=f"nothing that {', '.join(places)} names", remedy="get the package signed anew with another key",
        )  # fmt: skip
    raise SignatureError(
        "no key that signed the package is trusted here", where=where, found=f"key {_names(findings)}",
        allowed=_allowed(trust), remedy="put the signer's .pub file into a trust directory, or name one: --trust DIR",
    )  # fmt: skip


def _names(findings: Iterable[Finding]) -> str:
    return ", ".join(str(one) for one in findings)


def _allowed(trust: Trust) -> str:
    folders = ", ".join(map(str, trust.folders)) or "no trust directory"
    names = ", ".join(sorted(one.name for one in trust.keys.values())) or "no key"
    return f"{names} in {folders}"
