# SPDX-License-Identifier: Apache-2.0
"""What is known of an installed package: the record beside its file, read and written, and whether it still holds.

A record is written only after the file's bytes are on the disk and were checked in full there.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from dpfedge.errors import StoreError
from dpfedge.package import Package
from dpfedge.records import dataclass
from dpfedge.signing import Signer
from dpfedge.store.durable import replace
from dpfedge.store.sample import Sample
from dpfedge.store.small import read_json

__all__ = ["Installed", "Stamp", "State", "Verified", "boot_id", "package_id", "read_record", "write_record"]

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_FORMAT = 1
_GOLDEN = ("passed", "none", "skipped")
State = Literal["unchanged", "new boot", "changed"]


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a file's inode says: any write, cut, replacement or restored copy changes it, unless the clock is turned."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> Stamp:
        """Of a file that is there; OSError otherwise."""
        status = path.stat()
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


@dataclass(frozen=True, slots=True)
class Verified:
    """What the install found out: every byte has its digest, whose signature is good, what the golden run gave."""

    signer: Signer | None
    """Whose signature was good at install; None when the operator allowed an unsigned package."""
    golden: str
    """`passed`, `none` (the package has no golden records) or `skipped`."""
    stamp: Stamp
    boot_id: str
    sample: Sample


@dataclass(frozen=True, slots=True)
class Installed:
    """A package in the store."""

    id: str
    """SHA-256 of the manifest's digest and the signature area: what names the file."""
    name: str
    version: str
    manifest_sha256: str
    path: Path
    verified: Verified

    def state(self) -> State:
        """Whether the file is as it was when verified; `new boot`: so says its inode, but the machine went down."""
        try:
            stamp = Stamp.of(self.path)
        except OSError as error:
            remedy = "install the package again, or `dpfedge rollback`"
            what = f"the installed file cannot be read: {error.strerror}"
            raise StoreError(what, where=os.fspath(self.path), remedy=remedy) from error
        if stamp != self.verified.stamp:
            return "changed"
        return "unchanged" if self.verified.boot_id == boot_id() else "new boot"

    def as_json(self) -> dict[str, Any]:
        """For `--json`: everything but the sample's pages."""
        verified = {
            "check": "full", "signer": self.verified.signer and asdict(self.verified.signer),
            "golden": self.verified.golden, **asdict(self.verified.stamp),
        }  # fmt: skip
        head = {"id": self.id, "name": self.name, "version": self.version, "manifest_sha256": self.manifest_sha256}
        return {**head, "path": os.fspath(self.path), "verified": verified}


def package_id(package: Package) -> str:
    """What names a package's file: equal for equal manifests (and so contents) with equal signatures."""
    return hashlib.sha256(package.manifest_sha256 + package.signature()).hexdigest()


def boot_id(path: Path | None = None) -> str:
    """The kernel's name of this boot; empty where it has none, which equals no recorded one."""
    try:
        return (path or BOOT_ID).read_text().strip()
    except OSError:
        return ""


def write_record(path: Path, installed: Installed) -> None:
    """Write the record durably; OSError leaves the old one."""
    fields = asdict(installed) | {"format": _FORMAT, "path": None}
    fields["verified"] |= {"sample": installed.verified.sample.record()}
    replace(path, json.dumps(fields, indent=1).encode())


def read_record(path: Path, package: Path) -> Installed:
    """The record of the package file at `package`; StoreError when it is missing or damaged."""
    remedy = "install the package again, or `dpfedge rollback`"
    try:
        fields = read_json(path)
        if fields["format"] != _FORMAT:
            what = "the record is of another version of the store"
            raise StoreError(what, where=os.fspath(path), found=fields["format"], allowed=_FORMAT, remedy=remedy)
        if f"{fields['id']}.dpfbin" != package.name:
            raise ValueError(f"it is of {fields['id']}")
        return _installed(fields, package)
    except OSError as error:
        what = f"the record of an installed package cannot be read: {error.strerror}"
        raise StoreError(what, where=os.fspath(path), remedy=remedy) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        what = "the record of an installed package is damaged"
        raise StoreError(
            what, where=os.fspath(path), found=f"{type(error).__name__}: {error}", remedy=remedy
        ) from error


def _installed(fields: Mapping[str, Any], path: Path) -> Installed:
    texts = {key: str(fields[key]) for key in ("id", "name", "version", "manifest_sha256")}
    verified = fields["verified"]
    signer = None if verified["signer"] is None else _signer(**verified["signer"])
    if (golden := verified["golden"]) not in _GOLDEN:
        raise ValueError(f"golden is {golden!r}")
    stamp, sample = Stamp(**verified["stamp"]), Sample.of(verified["sample"])
    return Installed(**texts, path=path, verified=Verified(signer, golden, stamp, str(verified["boot_id"]), sample))


def _signer(key_id: str, name: str) -> Signer:
    bytes.fromhex(key_id)  # the revocation list is asked about it at each start
    return Signer(key_id, str(name))
