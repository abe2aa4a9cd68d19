# SPDX-License-Identifier: Apache-2.0
"""Writing a package: sections and a manifest in, one `.dpfbin` file out, the same bytes for the same inputs.

The file grows under a temporary name beside its place and takes the place only when it is complete and verifies.
It compresses, orders and invents nothing: sections lie in the order they were added.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from dpfedge import limits
from dpfedge.errors import UsageError
from dpfedge.package import cbor
from dpfedge.package.digest import Hasher
from dpfedge.package.fields import is_name
from dpfedge.package.files import call, publish, temporary_beside, write_at
from dpfedge.package.layout import HEADER_BYTES, MAJOR, MINOR, TAIL_ALIGN, Header, align, pack_header
from dpfedge.package.manifest import KINDS, Section
from dpfedge.package.verify import check_manifest, check_ranges

if TYPE_CHECKING:  # reading a package must not pay for the import
    import numpy as np

__all__ = ["Data", "PackageWriter", "SectionStream", "byte_view"]

Data: TypeAlias = Union[bytes, bytearray, memoryview, "np.ndarray[Any, Any]"]
"""Contiguous memory; it is read in place."""

_OWN_KEYS = ("format", "name", "version", "created", "sections")


def byte_view(data: Data) -> memoryview:
    """The bytes of `data` without a copy; UsageError when they do not lie in C order."""
    if not isinstance(data, bytes | bytearray | memoryview):
        if not data.flags.c_contiguous:
            raise UsageError("array is not contiguous", found=f"strides {data.strides}")
        data = data.reshape(-1).view("u1").data if data.size else b""  # also for dtypes the buffer protocol lacks
    view = memoryview(data)
    if not view.c_contiguous:
        raise UsageError("memory is not contiguous", found=f"strides {view.strides}")
    return view.cast("B") if view.nbytes else memoryview(b"")


class SectionStream:
    """A section that is being written; made by `PackageWriter.begin`, one at a time."""

    def __init__(self, writer: PackageWriter, name: str, kind: str, offset: int) -> None:
        self.name, self.kind, self.offset, self.size = name, kind, offset, 0
        self._writer, self._hasher = writer, Hasher()

    def write(self, data: Data) -> int:
        """Append bytes; the offset inside the section at which they lie."""
        view = byte_view(data)
        place = self.size
        self._writer._write(self.offset + place, view)
        self._hasher.update(view)
        self.size += view.nbytes
        return place

    def pad(self, alignment: int) -> None:
        """Fill with zero bytes up to a multiple of `alignment` inside the section."""
        missing = align(self.size, alignment) - self.size
        if missing:
            self.write(bytes(missing))

    def end(self) -> Section:
        """Close the section; it is part of the package from here on."""
        xxh3, sha256 = self._hasher.digests()
        section = Section(self.name, self.kind, self.offset, self.size, xxh3, sha256, KINDS[self.kind])
        self._writer._ended(section)
        return section


class PackageWriter:
    """Append-only writer; use it as a context manager, then an unfinished file never stays behind.

    The file system's errors become PackageError; misuse is a UsageError.
    """

    def __init__(self, path: str | os.PathLike[str], *, name: str, version: str) -> None:
        for what, text in (("name", name), ("version", version)):
            if not is_name(text):
                raise UsageError(f"bad package {what}", found=repr(text), allowed="letters, digits, . _ + @ -")
        self.path, self.name, self.version = Path(path), name, version
        self.sections: list[Section] = []
        self.places: dict[bytes, tuple[str, int, int]] = {}
        """SHA-256 of each tensor stored so far → (section, offset, size); shared by all weight pools."""
        self._end, self._open = HEADER_BYTES, None  # type: tuple[int, SectionStream | None]
        self._temporary = temporary_beside(self.path)
        self._fd = call(self.path, os.open, self._temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def add(self, name: str, kind: str, data: Data | Iterable[Data]) -> Section:
        """Write one whole section; its record has the final absolute offset.

        `kind` is one of weights, graph, asset, golden, licence, prefix. An iterable is written piece by piece.
        """
        stream = self.begin(name, kind)
        whole = isinstance(data, bytes | bytearray | memoryview) or hasattr(data, "dtype")
        pieces: Iterable[Data] = [data] if whole else data  # type: ignore[assignment, list-item]
        for piece in pieces:
            stream.write(piece)
        return stream.end()

    def begin(self, name: str, kind: str) -> SectionStream:
        """Start a section that is written piece by piece; its absolute offset is final from here on."""
        if self._open is not None:
            raise UsageError("a section is still open", found=repr(self._open.name), remedy="end it first")
        if not is_name(name) or any(section.name == name for section in self.sections):
            raise UsageError("bad or repeated section name", found=repr(name), allowed="a new name")
        if kind not in KINDS:
            raise UsageError("unknown section kind", found=repr(kind), allowed=", ".join(KINDS))
        if len(self.sections) >= limits.SECTIONS_MAX:
            raise UsageError("too many sections", allowed=limits.SECTIONS_MAX)
        self._open = SectionStream(self, name, kind, align(self._end, limits.PACKAGE_ALIGN))
        return self._open

    def find(self, name: str) -> Section:
        """The record of a section that was written; UsageError when there is none."""
        for section in self.sections:
            if section.name == name:
                return section
        raise UsageError("no such section", where=os.fspath(self.path), found=repr(name))

    def section(self, name: str) -> memoryview:
        """The bytes of a section that was written, mapped read-only; valid as long as it is referenced."""
        section = self.find(name)
        if not section.size:
            return memoryview(b"")
        return memoryview(mmap.mmap(self._fd, section.size, prot=mmap.PROT_READ, offset=section.offset))

    def finish(self, manifest: Mapping[str, Any]) -> None:
        """Write manifest and header, verify them, make the file durable and give it its name.

        `manifest` holds compiler, models, targets, pipeline, licences, golden; format, name, version, sections and
        created (from SOURCE_DATE_EPOCH, else absent) are the writer's. Refused content raises before anything is named.
        """
        if self._open is not None:
            raise UsageError("a section is still open", found=repr(self._open.name), remedy="end it first")
        taken = [key for key in _OWN_KEYS if key in manifest]
        if taken:
            raise UsageError("the writer sets these fields itself", found=", ".join(taken))
        data = cbor.encode({**manifest, **self._own_fields()})
        header = self._header(data)
        check_ranges(header, os.fspath(self.path))
        check_manifest(data, header, os.fspath(self.path))
        self._write(header.manifest_offset, memoryview(data))
        call(self.path, os.ftruncate, self._fd, header.file_bytes)
        call(self.path, os.fsync, self._fd)  # the header, written last, never stands before data that is not on disk
        self._write(0, memoryview(pack_header(header)))
        fd, self._fd = self._fd, -1
        publish(fd, self._temporary, self.path)

    def abort(self) -> None:
        """Remove the unfinished file; does nothing after `finish`."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._temporary.unlink(missing_ok=True)

    def __enter__(self) -> PackageWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def _own_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"format": [MAJOR, MINOR], "name": self.name, "version": self.version}
        fields["sections"] = [section.to_map() for section in self.sections]
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        if epoch:
            if not epoch.isascii() or not epoch.isdigit():
                raise UsageError("bad SOURCE_DATE_EPOCH", found=repr(epoch), allowed="seconds since 1970")
            fields["created"] = int(epoch)
        return fields

    def _header(self, manifest: bytes) -> Header:
        start = align(self._end, TAIL_ALIGN)
        end = align(start + len(manifest), TAIL_ALIGN)
        return Header(end, start, len(manifest), hashlib.sha256(manifest).digest(), end, 0)

    def _write(self, offset: int, view: memoryview) -> None:
        if self._fd < 0:
            raise UsageError("the package is already finished or given up", where=os.fspath(self.path))
        if offset + view.nbytes > limits.PACKAGE_MAX_BYTES:
            raise UsageError("package is too large", found=offset + view.nbytes, allowed=limits.PACKAGE_MAX_BYTES)
        write_at(self.path, self._fd, view, offset)

    def _ended(self, section: Section) -> None:
        self.sections.append(section)
        self._end, self._open = section.end, None
