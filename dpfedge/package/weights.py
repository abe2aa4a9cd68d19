# SPDX-License-Identifier: Apache-2.0
"""The weights of a package: arrays in, the place of each out; equal bytes are stored once in the whole package.

Arrays are hashed and written where they lie, one after the other; nothing is kept in memory but digests and places.
"""

from __future__ import annotations

import hashlib
from types import TracebackType

from dpfedge.errors import UsageError
from dpfedge.package.manifest import Section
from dpfedge.package.writer import Data, PackageWriter, SectionStream, byte_view

__all__ = ["PAGE_BYTES", "TENSOR_ALIGN", "WeightPool"]

TENSOR_ALIGN = 64
"""A cache line, and the widest vector load."""
PAGE_BYTES = 4096
"""Tensors of at least this size start on a page, so that a reader can map each of them alone."""


class WeightPool:
    """One section of weights being written; made, filled and closed before another section starts.

    Deduplication reaches over all pools of one writer: a tensor that an earlier pool stored is not stored again, and
    its place names that earlier section. A pool that stored nothing of its own leaves no section.
    """

    def __init__(self, writer: PackageWriter, section_name: str) -> None:
        self.writer, self.name = writer, section_name
        self._stream: SectionStream | None = None
        self._closed = False

    def add(self, array: Data) -> tuple[str, int, int]:
        """Store one contiguous tensor; its place as (section, offset inside the section, size in bytes)."""
        if self._closed:
            raise UsageError("the weight pool is closed", found=repr(self.name))
        view = byte_view(array)
        digest = hashlib.sha256(view).digest()
        place = self.writer.places.get(digest)
        if place is None:
            place = self.writer.places[digest] = self._store(view)
        return place

    def close(self) -> Section | None:
        """End the section; None when every tensor was already in the package."""
        self._closed = True
        stream, self._stream = self._stream, None
        return None if stream is None else stream.end()

    def __enter__(self) -> WeightPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()

    def _store(self, view: memoryview) -> tuple[str, int, int]:
        if self._stream is None:
            self._stream = self.writer.begin(self.name, "weights")
        self._stream.pad(PAGE_BYTES if view.nbytes >= PAGE_BYTES else TENSOR_ALIGN)
        return self.name, self._stream.write(view), view.nbytes
