# SPDX-License-Identifier: Apache-2.0
"""An opened sidecar: a `.dpfseal` file in, what was built for each graph and the baked prefixes in it out.

Bytes are distrusted where those of packages are: by `open_package`. Whether a sidecar fits is judged by
`dpfedge.binding.seal`.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from dpfedge.backend.api import SealedView
from dpfedge.errors import FormatError, PackageError
from dpfedge.package import Package, open_package
from dpfedge.package.layout import HEADER_BYTES, unpack_header
from dpfedge.package.sidecar import SealRecord

__all__ = ["Sidecar"]


class Sidecar:
    """A verified sidecar, mapped, with a descriptor of the same file for those that map parts of it anew."""

    def __init__(self, package: Package, record: SealRecord, file: int) -> None:
        self.package, self.record, self.file = package, record, file
        self._closer = weakref.finalize(self, os.close, file)

    @classmethod
    def open(cls, path: Path, *, check: Literal["fast", "full"] = "fast") -> Sidecar:
        """Open and verify the sidecar at `path`; PackageError says why it is none."""
        package = open_package(path, check=check)
        record = package.manifest.seal
        if record is None:
            raise FormatError("a package, not a sidecar", where=os.fspath(path), allowed="a file of `dpfedge seal`")
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise PackageError(f"cannot open the sidecar: {error.strerror}", where=os.fspath(path)) from error
        if unpack_header(os.pread(file, HEADER_BYTES, 0), os.fspath(path)).manifest_sha256 != package.manifest_sha256:
            os.close(file)
            raise PackageError("the file was replaced while it was opened", where=os.fspath(path), remedy="start again")
        return cls(package, record, file)

    def record_map(self) -> dict[str, str]:
        """Where it lies and what it holds, for `again` in another process."""
        return {"path": os.fspath(self.package.path.absolute()), "manifest": self.package.manifest_sha256.hex()}

    @classmethod
    def again(cls, record: Mapping[str, Any]) -> Sidecar:
        """The sidecar that `record` describes; PackageError when another file has its name by now."""
        sidecar = cls.open(Path(record["path"]))
        if sidecar.package.manifest_sha256.hex() != record["manifest"]:
            sidecar.close()
            raise PackageError("the file was replaced while it was opened", where=record["path"], remedy="start again")
        return sidecar

    def built(self, model: str) -> dict[str, dict[str, SealedView]]:
        """Graph of `model` → name → what the backend built."""
        found: dict[str, dict[str, SealedView]] = {}
        for item in self.record.built:
            if item.model == model:
                section = self.package.find(item.section)
                view = SealedView(self.package.section(item.section), self.file, section.offset)
                found.setdefault(item.graph, {})[item.name] = view
        return found

    def close(self) -> None:
        """Close the descriptor; views stay valid as those of a package do."""
        self._closer()
        self.package.close()
