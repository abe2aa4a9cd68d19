# SPDX-License-Identifier: Apache-2.0
"""Signing a file: signatures are added or replaced, the rest stays byte for byte, and it is never half done."""

from __future__ import annotations

import fcntl
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from pathlib import Path
from typing import Any

import pytest

from dpfedge import limits
from dpfedge.errors import DigestError, PackageError, UsageError
from dpfedge.package import open_package
from dpfedge.signing import PrivateKey, sign_package
from dpfedge.signing.check import signatures_of

GOLDEN = Path(__file__).parents[2] / "golden/v1"


def signers(path: Path) -> set[bytes]:
    """Ids of the keys that signed."""
    with open_package(path) as package:
        return {one.key_id for one in signatures_of(package)}


def test_sign__adds_and_replaces(package: Path, key: PrivateKey, other: PrivateKey) -> None:
    """One signature of each key; signing twice changes nothing, the order of signing neither."""
    sign_package(package, [key])
    once = package.read_bytes()
    sign_package(package, [key])
    assert package.read_bytes() == once
    sign_package(package, [other])
    both = package.read_bytes()

    assert signers(package) == {key.public.id, other.public.id}
    again = Path(shutil.copy(GOLDEN / "smallest.dpfbin", package.with_name("again")))
    sign_package(again, [other, key])
    assert again.read_bytes() == both


def test_sign__changes_header_and_area_only(tmp_path: Path, key: PrivateKey) -> None:
    """Sections, padding and manifest stay; the identity of the package too."""
    path, before = tmp_path / "tiny", (GOLDEN / "tiny.dpfbin").read_bytes()
    path.write_bytes(before)
    sign_package(path, [key])

    after = path.read_bytes()
    assert after[128 : len(before)] == before[128:]
    assert len(after) == len(before) + 92
    with open_package(path) as signed, open_package(GOLDEN / "tiny.dpfbin") as plain:
        assert signed.manifest_sha256 == plain.manifest_sha256


def test_sign__into_another_file(package: Path, key: PrivateKey) -> None:
    """The original stays unsigned."""
    out = package.with_name("signed")
    sign_package(package, [key], out)

    assert (signers(package), signers(out)) == (set(), {key.public.id})


def test_sign__through_a_link_and_with_its_mode(package: Path, key: PrivateKey) -> None:
    """The link stays a link, the file keeps its permissions."""
    package.chmod(0o640)
    link = package.with_name("link")
    link.symlink_to(package.name)
    sign_package(link, [key])

    assert link.is_symlink()
    assert signers(package) == {key.public.id}
    assert package.stat().st_mode & 0o777 == 0o640


def test_sign__nobody_vouches_for_a_damaged_file(tmp_path: Path, key: PrivateKey) -> None:
    """Every byte is verified first."""
    path = Path(shutil.copy(GOLDEN / "tiny.dpfbin", tmp_path))
    with path.open("r+b") as file:
        file.seek(65540)
        file.write(b"!")
    damaged = path.read_bytes()

    with pytest.raises(DigestError, match="section is damaged"):
        sign_package(path, [key])
    assert path.read_bytes() == damaged


def test_sign__two_at_once(package: Path, key: PrivateKey, other: PrivateKey) -> None:
    """One waits for the other and is told, so that no signature is lost in silence."""
    sign_package(package, [other], package.with_name("signed"))
    with ThreadPoolExecutor(1) as pool:
        with package.open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            signing = pool.submit(sign_package, package, [key])
            with pytest.raises(Late):
                signing.result(0.2)
            os.replace(package.with_name("signed"), package)
        with pytest.raises(PackageError, match="the file was replaced while it was copied; do it again"):
            signing.result(60)

    assert signers(package) == {other.public.id}


def test_sign__too_many(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said before anything is written."""
    monkeypatch.setattr(limits, "SIGNATURES_MAX", 1)

    with pytest.raises(UsageError, match="too many signatures; found 2; allowed 1"):
        sign_package(package, [PrivateKey.generate(), PrivateKey.generate()])
    assert signers(package) == set()


@pytest.mark.parametrize("call", ["open", "pwrite", "fsync", "replace"])
def test_sign__a_failing_disk_leaves_the_old_file(
    package: Path, key: PrivateKey, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Whichever step fails: the package is what it was, and nothing lies beside it."""
    before, real = package.read_bytes(), getattr(os, call)

    def fail(*arguments: Any, **options: Any) -> Any:
        if call == "open" and not arguments[1] & os.O_CREAT:
            return real(*arguments, **options)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(PackageError, match=r"p\.dpfbin: cannot write the package: No space left on device"):
            sign_package(package, [key])

    assert package.read_bytes() == before
    assert [path.name for path in package.parent.iterdir() if path.is_file()] == ["p.dpfbin"]
