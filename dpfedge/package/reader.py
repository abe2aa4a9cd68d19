# SPDX-License-Identifier: Apache-2.0
"""An opened package: section names in, read-only views of the mapped file out.

It checks nothing: only `verify` makes a `Package`, after it has checked everything a view depends on.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from dpfedge.errors import FormatError, PackageError
from dpfedge.package.layout import Header
from dpfedge.package.manifest import Manifest, Section

__all__ = ["Package"]


class Package:
    """A verified package, mapped shared and read-only. Opening touched its header and manifest only.

    Views stay valid as long as they are referenced, also after `close` and after the file's name is replaced.
    The file must not be cut or written while it is open: the kernel answers a read behind its end with SIGBUS.
    """

    path: Path
    manifest: Manifest
    manifest_sha256: bytes
    """Identity of the content: equal digests mean equal models, targets and weights."""

    def __init__(self, path: Path, fd: int, header: Header, manifest: Manifest) -> None:
        self.path, self.header, self.manifest = path, header, manifest
        self.manifest_sha256, self.nbytes = header.manifest_sha256, header.file_bytes
        self._sections: Mapping[str, Section] = {section.name: section for section in manifest.sections}
        self._map = _map(fd, self.nbytes, path)
        self._fd = os.dup(fd)
        self._end = weakref.finalize(self, os.close, self._fd)
        self._view = memoryview(self._map)

    def section(self, name: str) -> memoryview:
        """The bytes of a section in place, read-only; FormatError when the package has no such section."""
        section = self.find(name)
        return self._view[section.offset : section.end]

    def manifest_bytes(self) -> bytes:
        """The manifest as it lies in the file now: the payload of every signature."""
        return self.between(self.header.manifest_offset, self.header.manifest_offset + self.header.manifest_bytes)

    def signature(self) -> bytes:
        """The signature area as it lies in the file now, unchecked; empty for an unsigned package."""
        return self.between(self.header.signature_offset, self.nbytes)

    def between(self, start: int, end: int) -> bytes:
        """The file's bytes from `start` to before `end`; read, so that a cut file is an error and no SIGBUS."""
        where = f"{self.path}: bytes {start} to {end}"
        if not self._end.alive:
            raise ValueError(f"{where}: the package was released")
        try:
            data = os.pread(self._fd, end - start, start)
        except OSError as error:
            raise PackageError(f"cannot read: {error.strerror}", where=where) from error
        if len(data) != end - start:
            raise FormatError("the file was cut while it was open", where=where, remedy="copy the file again")
        return data

    def find(self, name: str) -> Section:
        """The record of a section; FormatError when the package has no such section."""
        try:
            return self._sections[name]
        except KeyError:
            raise FormatError("no such section", where=os.fspath(self.path), found=repr(name)) from None

    def fileno(self) -> int:
        """The descriptor of the very file that is mapped, whatever its name leads to now; it ends with `close`."""
        return self._fd

    def close(self) -> None:
        """Give up the mapping; it ends when the last view of it does. Closing twice is fine."""
        self._end()
        self._view.release()
        # The mapping is dropped, not closed: views handed out keep it alive, and without any it ends here.
        self.__dict__.pop("_map", None)

    def __enter__(self) -> Package:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _map(fd: int, nbytes: int, path: Path) -> mmap.mmap:
    try:
        return mmap.mmap(fd, nbytes, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
    except ValueError as error:  # of Python's own look at the length
        raise FormatError("the file was cut while it was opened", where=os.fspath(path)) from error
    except OSError as error:
        raise PackageError(f"cannot map the package: {error.strerror}", where=os.fspath(path)) from error
