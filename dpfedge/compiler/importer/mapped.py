# SPDX-License-Identifier: Apache-2.0
"""Mapped model files seen as one set of tensors: a name and a shape in, the tensor out, or what is wrong with it.

It parses nothing; each format has its own reader.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from dpfedge.errors import ModelError

__all__ = ["MappedTensors"]


class _Shaped(Protocol):
    @property
    def shape(self) -> tuple[int, ...]: ...


T = TypeVar("T", bound=_Shaped)


class MappedTensors(Generic[T]):
    """Open files. Views of them stay valid until `close`, which refuses while any is alive."""

    missing: ClassVar[str]
    """What to do when a tensor is not there."""

    def __init__(self, path: Path, maps: Sequence[mmap.mmap], tensors: Mapping[str, T]) -> None:
        self.path, self.tensors, self._maps = path, tensors, tuple(maps)

    def tensor(self, name: str, shape: tuple[int, ...]) -> T:
        """Tensor `name`, which must have `shape`."""
        found = self.tensors.get(name)
        if found is None:
            raise ModelError(f"tensor {name} is missing", where=str(self.path), remedy=self.missing)
        if found.shape != shape:
            raise ModelError(f"tensor {name} has another shape", where=str(self.path), found=found.shape, allowed=shape)
        return found

    def close(self) -> None:
        """Unmap the files."""
        self.tensors = {}
        for mapped in self._maps:
            mapped.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:  # an error's traceback may still hold views
            self.close()
