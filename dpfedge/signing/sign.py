# SPDX-License-Identifier: Apache-2.0
"""Signing: a package file and private keys in, the same package with their signatures out."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Sequence
from pathlib import Path

from dpfedge import limits
from dpfedge.errors import UsageError
from dpfedge.package import Package, open_package
from dpfedge.package.attach import attach
from dpfedge.signing.area import Signature, message, pack_area
from dpfedge.signing.check import signatures_of
from dpfedge.signing.keys import PrivateKey

__all__ = ["sign_package"]


def sign_package(path: Path, keys: Sequence[PrivateKey], out: Path | None = None) -> None:
    """Add a signature of each key to the package at `path`, in place or as `out`; one of the same key is replaced.

    Every byte is verified first: nobody should vouch for a damaged file. PackageError as found; the file at `path`, or
    `out`, is the old one or the new one at any moment.
    """
    place = path.resolve()  # a link stays a link
    with open_package(place, check="full") as package:
        _wait_for_others(package)
        manifest = package.manifest_bytes()
        signatures = {one.key_id: one for one in signatures_of(package)}
        for key in keys:
            key_id = key.public.id
            signatures[key_id] = Signature(key_id, key.sign(message(key_id, manifest)))
        if len(signatures) > limits.SIGNATURES_MAX:
            raise UsageError(
                "too many signatures", where=str(path), found=len(signatures), allowed=limits.SIGNATURES_MAX
            )
        attach(package, pack_area(signatures.values()), place if out is None else out)


def _wait_for_others(package: Package) -> None:
    """Until no other process signs this very file; `attach` finds then that they put another one in its place."""
    with contextlib.suppress(OSError):  # a file system without locks: what `attach` finds has a gap there
        fcntl.flock(package.fileno(), fcntl.LOCK_EX)
