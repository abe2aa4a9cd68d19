# SPDX-License-Identifier: Apache-2.0
"""Another signature area for the same package; its limits and what a file system may do to it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpfedge import limits
from dpfedge.errors import FormatError, PackageError
from dpfedge.package import attach as module
from dpfedge.package import cbor, open_package
from dpfedge.package.attach import attach


def test_attach__and_take_away_again(package_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any bytes; without them the file is what it was. Files of several chunks are copied whole."""
    monkeypatch.setattr(module, "_CHUNK_BYTES", 1000)
    before, out = package_file.read_bytes(), package_file.with_name("out")
    with open_package(package_file) as package:
        attach(package, b"area", out)
    with open_package(out) as package:
        assert bytes(package.signature()) == b"area"
        assert out.read_bytes()[128:] == before[128:] + b"area"
        attach(package, b"", out)

    assert out.read_bytes() == before


def test_attach__has_a_limit(package_file: Path) -> None:
    """Of the area; the file stays."""
    with open_package(package_file) as package, pytest.raises(FormatError, match="signature size out of range"):
        attach(package, bytes(limits.SIGNATURE_MAX_BYTES + 1), package_file)
    open_package(package_file).close()


def test_attach__of_a_longer_header_is_refused(package_file: Path, reseal_file: Callable[..., Path]) -> None:
    """What a later version wrote into its header would be lost."""
    with open_package(package_file) as package:
        package.header = module.replace(package.header, header_bytes=136, minor=3)
        with pytest.raises(PackageError, match=r"cannot write a header of a later version; found 1\.3"):
            attach(package, b"", package_file)


def test_attach__a_file_that_changes_meanwhile(package_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy is opened before it gets the name; one that is another package is thrown away."""
    before = package_file.read_bytes()
    package = open_package(package_file)
    package.manifest_sha256 = bytes(32)
    with pytest.raises(PackageError, match="the file changed while it was copied"):
        attach(package, b"x", package_file)

    assert package_file.read_bytes() == before
    assert os.listdir(package_file.parent) == [package_file.name]


def test_attach__in_place_of_what_somebody_else_signed_meanwhile(package_file: Path) -> None:
    """Their signature is not lost in silence; another place is nobody's business."""
    with open_package(package_file) as mine, open_package(package_file) as theirs:
        attach(theirs, b"theirs", package_file)
        with pytest.raises(PackageError, match="the file was replaced while it was copied; do it again"):
            attach(mine, b"mine", package_file)
        with open_package(package_file) as package:
            assert package.signature() == b"theirs"
        attach(mine, b"mine", package_file.with_name("out"))

    assert sorted(os.listdir(package_file.parent)) == sorted([package_file.name, "out"])


def test_forged_manifest_offset__is_refused(reseal_file: Callable[..., Path], package_file: Path) -> None:
    """The manifest begins where the last section's end, rounded up, says."""
    with open_package(package_file) as package:
        offset, manifest = package.header.manifest_offset, bytes(package.manifest_bytes())
        assert cbor.decode(manifest, "m")["name"] == "test"
    data = bytearray(package_file.read_bytes())
    package_file.write_bytes(data[:offset] + bytes(64) + manifest + bytes(128))

    with pytest.raises(
        FormatError, match=f"header byte 24: manifest does not follow the last section; found {offset + 64}"
    ):
        _open_moved(package_file, manifest, offset + 64)


def _open_moved(path: Path, manifest: bytes, offset: int) -> Any:
    import hashlib

    from dpfedge.package.layout import Header, align, pack_header

    end = align(offset + len(manifest), 64)
    header = Header(end, offset, len(manifest), hashlib.sha256(manifest).digest(), end, 0)
    data = path.read_bytes()
    path.write_bytes((pack_header(header) + data[128:] + bytes(64))[:end])
    return open_package(path, check="fast")
