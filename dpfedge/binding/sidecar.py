# SPDX-License-Identifier: Apache-2.0
"""An opened sidecar: a `.dpfseal` file in, what was built for each graph and the baked prefixes in it out.

Bytes are distrusted where those of packages are: by `dpfedge.package`. Whether a sidecar fits is judged by
`dpfedge.binding.seal`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from dpfedge.backend.api import SealedView
from dpfedge.errors import FormatError, PackageError
from dpfedge.package import Package, open_package
from dpfedge.package.sidecar import SealRecord
from dpfedge.package.verify import check_content

__all__ = ["Sidecar"]


class Sidecar:
    """A sidecar whose header and manifest were verified, mapped."""

    def __init__(self, package: Package, record: SealRecord) -> None:
        self.package, self.record = package, record

    @classmethod
    def open(cls, path: Path) -> Sidecar:
        """Open the sidecar at `path`; PackageError says why it is none."""
        package = open_package(path, check="fast")
        if package.manifest.seal is None:
            raise FormatError("a package, not a sidecar", where=os.fspath(path), allowed="a file of `dpfedge seal`")
        return cls(package, package.manifest.seal)

    def check(self, compared: Collection[str] = ()) -> None:
        """Compare digests of its sections, but not what was built for models `compared`: their backend compares it."""
        passed = {item.section for item in self.record.built if item.model in compared}
        passed -= {item.section for item in self.record.built if item.model not in compared}
        check_content(self.package, lambda section: section.name not in passed)

    def record_map(self) -> dict[str, str]:
        """Where it lies and what it holds, for `again` in another process."""
        return {"path": os.fspath(self.package.path.absolute()), "manifest": self.package.manifest_sha256.hex()}

    @classmethod
    def again(cls, record: Mapping[str, Any], path: Path | None = None) -> Sidecar:
        """The sidecar that `record` describes, at `path` (None: where it lay); PackageError when it is another one."""
        sidecar = cls.open(Path(record["path"]) if path is None else path)
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
                view = SealedView(self.package.section(item.section), self.package.fileno(), section.offset)
                found.setdefault(item.graph, {})[item.name] = view
        return found

    def close(self) -> None:
        """Close the file; views stay valid as those of a package do."""
        self.package.close()
