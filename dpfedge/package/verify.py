# SPDX-License-Identifier: Apache-2.0
"""The only place that distrusts the bytes of a package: a path in, a `Package` out, or a PackageError that says where.

Guarantee. After `open_package` returned, whatever the file holds:
* header and manifest are the bytes their digests were made from, and the file has exactly the length the header says;
* every offset, size, count, dtype, shape and name in the manifest is inside `limits` and, where it is a place, inside
  the file; sections are aligned, in ascending order and do not overlap; names are unique and lead nowhere outside;
* every section that a model, graph, licence or golden record names exists and has the kind it is used as;
* with check="full", also: every section has its XXH3-128 and SHA-256, and every byte between sections is zero.
With check="fast" no byte of any section is read, so the content of sections is not vouched for.
It does not judge who made the package, nor whether graphs make sense to a backend.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

from dpfedge import limits
from dpfedge.errors import DigestError, FormatError, PackageError, UsageError
from dpfedge.package import cbor
from dpfedge.package.digest import check_sections
from dpfedge.package.golden import check_golden
from dpfedge.package.layout import HEADER_BYTES, TAIL_ALIGN, Header, align, claimed_length, unpack_header
from dpfedge.package.manifest import Manifest, Section, read_manifest
from dpfedge.package.prefix import check_memory
from dpfedge.package.reader import Package
from dpfedge.package.sidecar import check_seal, references

__all__ = ["Check", "check_content", "check_manifest", "check_ranges", "known_check", "open_package"]

Check = Literal["fast", "full"]

_KNOWN_MAX_BYTES = 256 << 10  # of a manifest that is kept; the demo's takes 18 KiB
_HEADER_READ = 4096  # a page; only a later minor version can have a longer header


def open_package(path: str | os.PathLike[str], *, check: Check = "full") -> Package:
    """Verify the file at `path` and map it; see the module's guarantee. FormatError, DigestError or PackageError."""
    known_check(check)
    place = Path(path)
    fd = _open(place)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # else a cold disk reads weights behind the header too
        header = _read_header(fd, place)
        manifest_bytes = _read(fd, header.manifest_offset, header.manifest_bytes, f"{place}: manifest")
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_NORMAL)  # of the mapping, and of the full check
        known = _known_manifest if header.manifest_bytes <= _KNOWN_MAX_BYTES else check_manifest
        manifest = known(manifest_bytes, header, os.fspath(place))
        package = Package(place, fd, header, manifest)
        if check == "full":
            try:
                check_sections(fd, header, manifest, place)
            except BaseException:
                package.close()
                raise
        return package
    finally:
        os.close(fd)


def known_check(check: str) -> None:
    """UsageError for a word that is no `Check`: a slip of the pen must not be a check of less."""
    if check not in get_args(Check):
        allowed = ", ".join(get_args(Check))
        raise UsageError("there is no such check", where="check", found=repr(check), allowed=allowed)


def check_content(package: Package, only: Callable[[Section], bool], *, given_up: Callable[[], bool] = bool) -> None:
    """The start check of a package opened fast (FORMAT.md): padding, and SHA-256 of the sections that `only` chooses.

    PackageError as soon as `given_up` says that nobody wants to know any more.
    """
    file, parts = package.fileno(), (package.header, package.manifest, package.path)
    check_sections(file, *parts, only=only, given_up=given_up, both=False)


@lru_cache(maxsize=4)
def _known_manifest(data: bytes, header: Header, where: str) -> Manifest:
    """What `check_manifest` said of the very same bytes before: opening one package often decodes it once."""
    return check_manifest(data, header, where)


def check_manifest(data: bytes, header: Header, where: str) -> Manifest:
    """Check manifest bytes against the header's digest and layout; the records they hold."""
    actual = hashlib.sha256(data).digest()
    if actual != header.manifest_sha256:
        last = header.manifest_offset + header.manifest_bytes
        raise DigestError(
            "manifest is damaged, its SHA-256 differs", where=f"{where}: bytes {header.manifest_offset} to {last}",
            found=actual.hex(), allowed=header.manifest_sha256.hex(), remedy="copy the file again",
        )  # fmt: skip
    manifest = read_manifest(cbor.decode(data, f"{where}: manifest"), f"{where}: manifest")
    if manifest.format != (header.major, header.minor):
        found, allowed = ("{}.{}".format(*version) for version in (manifest.format, (header.major, header.minor)))
        raise FormatError("differs from the header", where=f"{where}: manifest.format", found=found, allowed=allowed)
    _check_places(manifest.sections, header, where)
    _check_references(manifest, where)
    check_golden(manifest, where)
    return manifest


def _open(path: Path) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO must not block the open
    except OSError as error:
        raise PackageError(f"cannot open the package: {error.strerror}", where=os.fspath(path)) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise PackageError("not a regular file", where=os.fspath(path))
    return fd


def _read(fd: int, offset: int, size: int, where: str) -> bytes:
    try:
        data = os.pread(fd, size, offset)
    except OSError as error:
        raise PackageError(f"cannot read: {error.strerror}", where=where) from error
    if len(data) != size:
        raise FormatError(f"expected {size} bytes, have {len(data)}", where=where, remedy="copy the file again")
    return data


def _read_header(fd: int, path: Path) -> Header:
    where, size = os.fspath(path), os.fstat(fd).st_size
    data = _read(fd, 0, min(size, _HEADER_READ), where)
    if claimed_length(data) > len(data):
        data = _read(fd, 0, min(size, limits.PACKAGE_ALIGN), where)
    header = unpack_header(data, where)
    if size != header.file_bytes:
        problem = "the file was cut" if size < header.file_bytes else "the file has bytes behind its end"
        what = f"expected {header.file_bytes} bytes, have {size}: {problem}"
        raise FormatError(what, where=where, remedy="copy the file again")
    check_ranges(header, where)
    return header


def check_ranges(header: Header, where: str) -> None:
    """Check that the four parts follow each other in the file: header, sections, manifest, signature area."""

    def refuse(place: int, what: str, found: int, allowed: str) -> FormatError:
        return FormatError(what, where=f"{where}: header byte {place}", found=found, allowed=allowed)

    manifest_end = header.manifest_offset + header.manifest_bytes
    rules = (
        (16, "file size", header.file_bytes, HEADER_BYTES, limits.PACKAGE_MAX_BYTES),
        (24, "manifest offset", header.manifest_offset, header.header_bytes, header.file_bytes),
        (32, "manifest size", header.manifest_bytes, 1, limits.MANIFEST_MAX_BYTES),
        (40, "signature offset", header.signature_offset, manifest_end, align(manifest_end, TAIL_ALIGN)),
        (48, "signature size", header.signature_bytes, 0, limits.SIGNATURE_MAX_BYTES),
    )  # fmt: skip
    for place, what, offset in ((24, "manifest", header.manifest_offset), (40, "signature", header.signature_offset)):
        if offset % TAIL_ALIGN:
            raise refuse(place, f"{what} not aligned", offset, f"a multiple of {TAIL_ALIGN}")
    for place, what, found, least, most in rules:
        if not least <= found <= most:
            raise refuse(place, f"{what} out of range", found, f"{least} to {most}")
    end = header.signature_offset + header.signature_bytes
    if end != header.file_bytes:
        raise refuse(48, "signature area does not end the file", end, str(header.file_bytes))


def _check_places(sections: Iterable[Section], header: Header, where: str) -> None:
    """Sections are aligned, ascending, apart from each other and between header and manifest."""
    names: set[str] = set()
    previous_end, previous = align(header.header_bytes, limits.PACKAGE_ALIGN), "the header"
    for index, section in enumerate(sections):
        here = f"{where}: manifest.sections[{index}]"
        if section.name in names:
            raise FormatError("two sections have one name", where=here, found=repr(section.name))
        names.add(section.name)
        if section.offset % limits.PACKAGE_ALIGN:
            allowed = f"a multiple of {limits.PACKAGE_ALIGN}"
            raise FormatError("section is not aligned", where=f"{here}.offset", found=section.offset, allowed=allowed)
        if section.offset < previous_end:
            raise FormatError(
                f"section overlaps {previous} or is out of order", where=f"{here}.offset",
                found=section.offset, allowed=f"at least {previous_end}",
            )  # fmt: skip
        if section.end > header.manifest_offset:
            raise FormatError(
                "section ends behind the start of the manifest", where=f"{here}.size",
                found=section.end, allowed=f"at most {header.manifest_offset}",
            )  # fmt: skip
        previous_end, previous = section.end, f"sections[{index}]"
    last = previous_end if names else header.header_bytes
    if header.manifest_offset != align(last, TAIL_ALIGN):
        raise FormatError(
            "manifest does not follow the last section", where=f"{where}: header byte 24",
            found=header.manifest_offset, allowed=align(last, TAIL_ALIGN),
        )  # fmt: skip


def _check_references(manifest: Manifest, where: str) -> None:
    """Each name that points to a section or a model finds one of the right kind."""
    kinds = {section.name: section.kind for section in manifest.sections}
    sizes = {section.name: section.size for section in manifest.sections}
    for path, name, kind in _references(manifest):
        if not isinstance(name, str) or kinds.get(name) != kind:
            what = f"a {kinds[name]} section" if name in kinds else "no section"
            raise FormatError(
                "reference leads nowhere", where=f"{where}: manifest.{path}", found=f"{name!r}, {what}",
                allowed=f"a {kind} section",
            )  # fmt: skip
    ids: set[str] = set()
    for index, target in enumerate(manifest.targets):
        here = f"{where}: manifest.targets[{index}]"
        if target.id in ids:
            raise FormatError("two targets have one id", where=f"{here}.id", found=repr(target.id))
        ids.add(target.id)
        for name in target.models:
            if name not in manifest.models:
                allowed = ", ".join(manifest.models)
                raise FormatError("unknown model", where=f"{here}.models", found=repr(name), allowed=allowed)
            if (prefix := target.models[name].prefix) is not None:
                check_memory(prefix, sizes[prefix.section], f"{here}.models.{name}.prefix")
    if manifest.seal is not None:
        check_seal(manifest.seal, sizes, f"{where}: manifest.seal")


def _references(manifest: Manifest) -> Iterable[tuple[str, Any, str]]:
    for name, model in manifest.models.items():
        for asset, section in model.assets.items():
            yield f"models.{name}.assets.{asset}", section, "asset"
    for index, target in enumerate(manifest.targets):
        for name, compiled in target.models.items():
            for label, graph in compiled.graphs.items():
                path = f"targets[{index}].models.{name}.graphs.{label}"
                yield f"{path}.section", graph.section, "graph"
                for place, section in enumerate(graph.weights):
                    yield f"{path}.weights[{place}]", section, "weights"
            if compiled.prefix is not None:
                yield f"targets[{index}].models.{name}.prefix.section", compiled.prefix.section, "prefix"
    if manifest.seal is not None:
        yield from references(manifest.seal)
    for index, licence in enumerate(manifest.licences):
        if licence.section is not None:
            yield f"licences[{index}].section", licence.section, "licence"
    for record in manifest.golden:
        yield f"golden[{record.index}].section", record.section, "golden"
